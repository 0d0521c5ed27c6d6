"""Settings of the reconciler, from its command line and the file that it names; a flag is stronger than the file."""

import argparse
import os
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from core.api.configuration import read_configuration
from core.api.mistakes import InvalidFile
from core.api.yaml_document import MAX_BYTES
from core.model.configuration import Configuration, FairSharing, Integrations, LeaseRules, ResourceRules, SecondPass
from core.model.gates import GATES, BadGates, ChosenGates, Effect, read_gates
from core.model.pods_ready import PodsReadyRules
from core.names import COMPACT_PROFILE, KEP_PROFILE, PLACEMENT_PROFILES, SYSTEM_NAMESPACE
from core.placement.profile import ContradictingProfile, Profiles, profiles_from_gates
from core.runtime.arguments import METRICS_PORT, OneLineParser, add_common, add_metrics_port, at_least_one, port_or_none

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Settings:
    """Where to connect, how to lead, and what to decide by."""

    kubeconfig: str | None
    namespace: str  # where the Lease lives, and what an administrator pauses by
    identity: str  # unique to the process
    leader_elect: bool
    otlp_endpoint: str | None
    log_level: str
    profiles: Profiles  # how pods are placed
    gates: ChosenGates
    reserve_daemon_sets: bool = True
    nominates_nodes: bool = False
    pods_ready: PodsReadyRules | None = None  # None: nobody waits for pods
    second_pass: SecondPass = field(default_factory=SecondPass)
    fair_sharing: FairSharing | None = None  # None: it is off
    resources: ResourceRules = field(default_factory=ResourceRules)
    integrations: Integrations = field(default_factory=Integrations)
    lease: LeaseRules = field(default_factory=LeaseRules)  # as the file has it; flags are in `namespace` and `leader_elect`
    warnings: tuple[str, ...] = ()  # of the configuration file
    pace: tuple[float, int] | None = None  # requests a second, and at once; None: as the API server allows
    health_address: str = "0.0.0.0"
    health_port: int = 8081  # of probes; 0: none
    metrics_port: int = METRICS_PORT


def parse(arguments: list[str] | None = None, *, prog: str = "python -m reconciler") -> Settings:
    """Settings of a command line; ends the process with a message and status 2 if it, or the file it names, is wrong."""
    parser = make_parser(prog)
    options = parser.parse_args(arguments)
    file = _read(parser, options.config) if options.config else Configuration()
    try:
        # The last word on a gate holds, and the flag's is the last. Together they must make sense: each may do so alone.
        gates = read_gates([*(f"{name}={str(value).lower()}" for name, value in file.gates.items()), *options.feature_gates])
        profiles = profiles_from_gates(gates.values, _first(options.placement_profile, file.placement_profile, KEP_PROFILE))
    except (BadGates, ContradictingProfile) as error:
        parser.error(f"argument --feature-gates{f', with {options.config}' if options.config else ''}: {error}")
    return Settings(
        options.kubeconfig,
        _first(options.namespace, file.lease.namespace or file.namespace, SYSTEM_NAMESPACE),
        f"{socket.gethostname()}_{os.getpid()}_{os.urandom(4).hex()}",
        _first(options.leader_election, file.lease.elects, True),
        options.otlp_endpoint,
        options.log_level,
        profiles,
        gates,
        _first(options.reserve_daemonsets, file.reserves_daemon_sets, True),
        _first(options.nominate_nodes, file.nominates_nodes, False),
        file.pods_ready,
        file.second_pass,
        file.fair_sharing,
        file.resources,
        file.integrations,
        file.lease,
        file.warnings,
        None if options.kube_api_qps is None else (options.kube_api_qps, int(options.kube_api_burst or 2 * options.kube_api_qps)),
        options.health_address,
        options.health_port,
        options.metrics_port,
    )


def make_parser(prog: str = "python -m reconciler") -> OneLineParser:
    """All flags."""
    parser = OneLineParser(prog=prog, description="Queues, places and starts topology-aware workloads.", allow_abbrev=False)
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="a Configuration of Kueue's, with our block `topogate`; flags are stronger than the file",
    )
    parser.add_argument("--namespace", help=f"namespace of the Lease, and of the ConfigMap that pauses (default: {SYSTEM_NAMESPACE})")
    parser.add_argument(
        "--leader-election", action=argparse.BooleanOptionalAction, help="without, lead at once; for one replica only (default: yes)"
    )
    parser.add_argument(
        "--placement-profile",
        choices=PLACEMENT_PROFILES,
        help=f"{KEP_PROFILE}: as KEP-2724 has it; {COMPACT_PROFILE}: as few domains as possible (default: {KEP_PROFILE})",
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
        help="keep room on each node for the pods that DaemonSets have not put there yet (default: yes)",
    )
    parser.add_argument(
        "--nominate-nodes",
        action=argparse.BooleanOptionalAction,
        help="keep each pod's slot on its node until it is bound, by one more write a pod (needs kube-scheduler 1.36; default: no)",
    )
    parser.add_argument(
        "--kube-api-qps", type=at_least_one, metavar="N", help="send at most N requests a second to the API server (default: as it allows)"
    )
    parser.add_argument(
        "--kube-api-burst", type=at_least_one, metavar="N", help="with --kube-api-qps: so many at once (default: twice as many)"
    )
    parser.add_argument(
        "--health-port", type=port_or_none, default=8081, help="plain HTTP with /healthz and /readyz; 0: none (default: %(default)s)"
    )
    parser.add_argument("--health-address", default="0.0.0.0", help="address that both ports listen on (default: %(default)s)")
    add_metrics_port(parser)
    add_common(parser)
    return parser


def _read(parser: OneLineParser, path: Path) -> Configuration:
    # Each mistake has a line of its own: an author mends all of them at once, and a log shows lines.
    try:
        with path.open("rb") as file:
            return read_configuration(file.read(MAX_BYTES + 1))
    except OSError as error:
        parser.error(f"argument --config: {path}: {error.strerror or error}")
    except InvalidFile as error:
        count = f"{len(error.mistakes)} mistakes" if len(error.mistakes) > 1 else "a mistake"
        lines = "".join(f"\n  {mistake}" for mistake in error.mistakes)
        parser.exit(2, f"{parser.prog}: argument --config: {path}: {count}{lines}\n")


def _first(flag: _T | None, file: _T | None, default: _T) -> _T:
    return next((value for value in (flag, file) if value is not None), default)
