"""Settings of the reconciler, from its command line."""

import argparse
import os
import socket
from dataclasses import dataclass

from core.placement.profile import MIXED, PROFILES, Profile, profile_named
from core.runtime.arguments import OneLineParser, add_common


@dataclass(frozen=True, slots=True)
class Settings:
    """Where to connect and how to lead."""

    kubeconfig: str | None
    namespace: str  # where the Lease lives
    identity: str  # unique to the process
    leader_elect: bool
    otlp_endpoint: str | None
    log_level: str
    profile: Profile  # how pods are placed
    reserve_daemon_sets: bool = True


def parse(arguments: list[str] | None = None) -> Settings:
    """Settings of a command line; ends the process with a message if it is wrong."""
    parser = OneLineParser(
        prog="python -m reconciler", description="Queues, places and starts topology-aware workloads.", allow_abbrev=False
    )
    parser.add_argument("--namespace", default="topogate-system", help="namespace of the Lease (default: %(default)s)")
    parser.add_argument("--no-leader-election", action="store_true", help="lead at once; for one replica only")
    parser.add_argument(
        "--placement-profile",
        choices=PROFILES,
        default=MIXED.name,
        help="kep: as KEP-2724 has it; compact: as few domains as possible (default: %(default)s)",
    )
    parser.add_argument(
        "--reserve-daemonsets",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="keep room on each node for the pods that DaemonSets have not put there yet (default: yes)",
    )
    add_common(parser)
    options = parser.parse_args(arguments)
    return Settings(
        options.kubeconfig,
        options.namespace,
        f"{socket.gethostname()}_{os.getpid()}_{os.urandom(4).hex()}",
        not options.no_leader_election,
        options.otlp_endpoint,
        options.log_level,
        profile_named(options.placement_profile),
        options.reserve_daemonsets,
    )
