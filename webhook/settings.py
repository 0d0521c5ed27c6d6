"""Settings of the webhook, from its command line."""

import argparse
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Settings:
    """Where to listen and with what certificate."""

    host: str
    port: int
    cert_file: Path
    key_file: Path
    kubeconfig: str | None
    otlp_endpoint: str | None
    log_level: str


def parse(arguments: list[str] | None = None) -> Settings:
    """Settings of a command line; ends the process with a message if it is wrong."""
    parser = argparse.ArgumentParser(prog="topogate webhook", description="Defaults and validates jobs and queues at admission.")
    parser.add_argument("--host", default="0.0.0.0", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=9443, help="port to listen on (default: %(default)s)")
    parser.add_argument("--cert-file", type=Path, required=True, metavar="FILE", help="certificate chain, PEM; reloaded when it changes")
    parser.add_argument("--key-file", type=Path, required=True, metavar="FILE", help="its private key, PEM")
    parser.add_argument("--kubeconfig", metavar="FILE", help="default: $KUBECONFIG, then the service account of the pod")
    parser.add_argument("--otlp-endpoint", metavar="URL", help="OTLP/HTTP collector; default: OTEL_EXPORTER_OTLP_ENDPOINT, else no traces")
    parser.add_argument("--log-level", default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR"])
    o = parser.parse_args(arguments)
    return Settings(o.host, o.port, o.cert_file, o.key_file, o.kubeconfig, o.otlp_endpoint, o.log_level)
