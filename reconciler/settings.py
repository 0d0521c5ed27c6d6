"""Settings of the reconciler, from its command line."""

import argparse
import os
import socket
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """Where to connect and how to lead."""

    kubeconfig: str | None
    namespace: str  # where the Lease lives
    identity: str  # unique to the process
    leader_elect: bool
    otlp_endpoint: str | None
    log_level: str


def parse(arguments: list[str] | None = None) -> Settings:
    """Settings of a command line; ends the process with a message if it is wrong."""
    parser = argparse.ArgumentParser(prog="topogate reconciler", description="Queues, places and starts topology-aware workloads.")
    parser.add_argument("--kubeconfig", metavar="FILE", help="default: $KUBECONFIG, then the service account of the pod")
    parser.add_argument("--namespace", default="topogate-system", help="namespace of the Lease (default: %(default)s)")
    parser.add_argument("--no-leader-election", action="store_true", help="lead at once; for one replica only")
    parser.add_argument("--otlp-endpoint", metavar="URL", help="OTLP/HTTP collector; default: OTEL_EXPORTER_OTLP_ENDPOINT, else no traces")
    parser.add_argument("--log-level", default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR"])
    options = parser.parse_args(arguments)
    return Settings(
        options.kubeconfig,
        options.namespace,
        f"{socket.gethostname()}_{os.getpid()}_{os.urandom(4).hex()}",
        not options.no_leader_election,
        options.otlp_endpoint,
        options.log_level,
    )
