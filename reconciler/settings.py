"""Settings of the reconciler, from its command line."""

import argparse
import os
import socket
from dataclasses import dataclass

from core.model.gates import GATES, BadGates, ChosenGates, Effect, read_gates
from core.names import COMPACT_PROFILE, KEP_PROFILE, PLACEMENT_PROFILES
from core.placement.profile import ContradictingProfile, Profiles, profiles_from_gates
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
    profiles: Profiles  # how pods are placed
    gates: ChosenGates
    reserve_daemon_sets: bool = True
    nominates_nodes: bool = False


def parse(arguments: list[str] | None = None) -> Settings:
    """Settings of a command line; ends the process with a message if it is wrong."""
    parser = OneLineParser(
        prog="python -m reconciler", description="Queues, places and starts topology-aware workloads.", allow_abbrev=False
    )
    parser.add_argument("--namespace", default="topogate-system", help="namespace of the Lease (default: %(default)s)")
    parser.add_argument("--no-leader-election", action="store_true", help="lead at once; for one replica only")
    parser.add_argument(
        "--placement-profile",
        choices=PLACEMENT_PROFILES,
        default=KEP_PROFILE,
        help=f"{KEP_PROFILE}: as KEP-2724 has it; {COMPACT_PROFILE}: as few domains as possible (default: %(default)s)",
    )
    switches = ", ".join(f"{name} ({str(gate.default).lower()})" for name, gate in GATES.items() if gate.effect is Effect.SWITCHES)
    parser.add_argument(
        "--feature-gates",
        action="append",
        default=[],
        metavar="NAME=BOOL,...",
        help=f"as components of Kubernetes take them, any number of times; those that change something, and their defaults: {switches}",
    )
    parser.add_argument(
        "--reserve-daemonsets",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="keep room on each node for the pods that DaemonSets have not put there yet (default: yes)",
    )
    parser.add_argument(
        "--nominate-nodes",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="keep each pod's slot on its node until it is bound, by one more write a pod (needs kube-scheduler 1.36; default: no)",
    )
    add_common(parser)
    options = parser.parse_args(arguments)
    try:
        gates = read_gates(options.feature_gates)
        profiles = profiles_from_gates(gates.values, options.placement_profile)
    except (BadGates, ContradictingProfile) as error:
        parser.error(f"argument --feature-gates: {error}")
    return Settings(
        options.kubeconfig,
        options.namespace,
        f"{socket.gethostname()}_{os.getpid()}_{os.urandom(4).hex()}",
        not options.no_leader_election,
        options.otlp_endpoint,
        options.log_level,
        profiles,
        gates,
        options.reserve_daemonsets,
        options.nominate_nodes,
    )
