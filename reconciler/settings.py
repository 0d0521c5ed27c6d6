"""Settings of the reconciler: from its command line, the environment and the file that one of them names, in this order of strength."""

import argparse
import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from core.api.files.mistakes import InvalidFile
from core.model.configuration import (
    Address,
    Configuration,
    FairSharing,
    LeaseRules,
    PodGroupRules,
    ResourceRules,
    SecondPass,
    WebhookRules,
)
from core.model.gates import DESIRED_COUNT, DEVICES, GATES, POD_GROUPS, BadGates, ChosenGates, Effect, read_gates
from core.model.node_health_rules import HealthRules
from core.model.own_pods_ready import OwnPodsReady
from core.model.plugin_choice import PATH, GroupPluginRules
from core.model.pods_ready_rules import PodsReadyRules
from core.names import (
    BALANCED_PROFILE,
    BEST_FIT_PROFILE,
    COMPACT_PROFILE,
    KEP_PROFILE,
    LEAST_FREE_PROFILE,
    PLACEMENT_PROFILES,
    SYSTEM_NAMESPACE,
    VARIABLE_PREFIX,
)
from core.placement.algorithms.profile import ContradictingProfile, Profiles, read_profiles
from core.runtime.arguments import (
    METRICS_PORT,
    Given,
    OneLineParser,
    add_common,
    add_config,
    add_metrics_port,
    parse_at_least_one,
    parse_port_or_none,
)
from core.runtime.report.sampling import SLOW_S
from reconciler.podgroups.installed_plugins import find_installed, judge

HEALTH_PORT = 8081
_VISIBILITY_FILES = ("visibility_cert_file", "visibility_key_file")
_UNSERVED_HERE = "ignored: webhook: the process of the webhook reads it, with --config"


@dataclass(frozen=True, slots=True)
class VisibilitySettings:
    """Where the visibility API listens, and with which certificate and key (PEM files)."""

    host: str
    port: int
    cert_file: Path
    key_file: Path


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
    pods_ready: PodsReadyRules | None = None  # None: no workload waits for pods to be ready
    own_pods_ready: OwnPodsReady = field(default_factory=OwnPodsReady)  # what of it a workload says for itself
    second_pass: SecondPass = field(default_factory=SecondPass)
    node_health: HealthRules = field(default_factory=HealthRules)  # of nodes, by file and gates
    fair_sharing: FairSharing | None = None  # None: it is off
    resources: ResourceRules = field(default_factory=ResourceRules)
    lease: LeaseRules = field(default_factory=LeaseRules)  # as the file has it; flags are in `namespace` and `leader_elect`
    warnings: tuple[str, ...] = ()  # of the configuration file
    pace: tuple[float, int] | None = None  # requests a second, and at once; None: as the API server allows
    health_address: str = "0.0.0.0"
    health_port: int = HEALTH_PORT  # of probes; 0: none
    metrics_address: str = "0.0.0.0"
    metrics_port: int = METRICS_PORT
    otlp_protocol: str | None = None  # None: by the environment
    trace_ratio: float | None = None  # None: by the environment
    trace_slow_s: float = SLOW_S
    pod_groups: PodGroupRules = field(default_factory=PodGroupRules)  # by file and gates
    group_plugins: GroupPluginRules = field(default_factory=GroupPluginRules)
    visibility: VisibilitySettings | None = None  # None: the visibility API is not served
    copied_labels: tuple[str, ...] = ()  # keys of labels of a job that its Workload gets, too


def parse(arguments: list[str] | None = None, *, prog: str = "python -m reconciler", environ: Mapping[str, str] | None = None) -> Settings:
    """Returns the settings of a command line and an environment (None: of this process), and of the file that they name. Starts each chosen
    plugin of another package once, to try it. Ends the process with a message and status 2 if any of that is wrong; a plugin that cannot be
    tried now gives a warning in the settings."""
    parser = make_parser(prog)
    given = parser.read(arguments, environ)
    file, in_file, warnings = Configuration(), list[str](), list[str]()
    try:
        if given.has("config"):
            from core.api.files.configuration_file import read_configuration_file  # its models cost a command 0.1 s

            file = read_configuration_file(given.get("config"), find_installed())
        wrong_plugins, warnings = judge(file.group_plugins)
        in_file = [f"{given.describe_places('config')}: {given.get('config')}: {mistake}" for mistake in wrong_plugins]
    except InvalidFile as error:
        in_file = [f"{given.describe_places('config')}: {mistake}" for mistake in error.mistakes]
    alone = [*_list_wrong_gates(given), *_list_missing_files(given)]
    if given.mistakes or in_file or alone:
        parser.refuse([*given.mistakes, *alone], in_file)
    try:
        gates = read_gates([*(f"{name}={str(value).lower()}" for name, value in file.gates.items()), *_list_gates(given)])
        profiles = read_profiles(gates.values, given.get("placement_profile", file.placement_profile or KEP_PROFILE))
    except (BadGates, ContradictingProfile) as error:
        parser.error(f"{_describe_deciding_settings(given)}: {error}")
    return _build_settings(given, replace(file, warnings=(*file.warnings, *warnings)), gates, profiles)


def _build_settings(given: Given, file: Configuration, gates: ChosenGates, profiles: Profiles) -> Settings:
    health, metrics = file.health or Address(None, HEALTH_PORT), file.metrics or Address(None, METRICS_PORT)
    qps = given.get("kube_api_qps")
    return Settings(
        given.get("kubeconfig"),
        given.get("namespace", file.lease.namespace or file.namespace or SYSTEM_NAMESPACE),
        f"{socket.gethostname()}_{os.getpid()}_{os.urandom(4).hex()}",
        given.get("leader_election", _choose_given(file.lease.elects, True)),
        given.get("otlp_endpoint"),
        given.get("log_level"),
        profiles,
        gates,
        given.get("reserve_daemonsets", _choose_given(file.reserves_daemon_sets, True)),
        given.get("nominate_nodes", _choose_given(file.nominates_nodes, False)),
        file.pods_ready,
        OwnPodsReady.from_gates(gates, file.most_ready_s),
        file.second_pass,
        file.node_health.with_gates(gates),
        file.fair_sharing,
        file.resources if gates.is_on(DEVICES) else replace(file.resources, device_classes={}),
        file.lease,
        (*file.warnings, *_list_unused(file, gates)),
        None if qps is None else (qps, int(given.get("kube_api_burst") or 2 * qps)),
        given.get("health_address", health.host),
        given.get("health_port", health.port),
        given.get("health_address", metrics.host),
        given.get("metrics_port", metrics.port),
        given.get("otlp_protocol"),
        given.get("trace_ratio"),
        given.get("trace_slow"),
        replace(file.pod_groups, counts_desired=gates.is_on(DESIRED_COUNT)),
        file.group_plugins,
        _read_visibility(given, given.get("health_address", health.host)),
        file.copied_labels,
    )


def _list_missing_files(given: Given) -> Iterator[str]:
    """What the visibility API needs and is not given."""
    missing = [f"--{name.replace('_', '-')}" for name in _VISIBILITY_FILES if not given.has(name)]
    if given.is_whole and given.get("visibility_port") and missing:
        yield f"with --visibility-port the following arguments are required: {', '.join(missing)}"


def _read_visibility(given: Given, host: str) -> VisibilitySettings | None:
    port = given.get("visibility_port")
    return VisibilitySettings(host, port, *(given.get(name) for name in _VISIBILITY_FILES)) if port else None


def _list_unused(file: Configuration, gates: ChosenGates) -> Iterator[str]:
    if file.webhook != WebhookRules():
        yield _UNSERVED_HERE
    if file.group_plugins != GroupPluginRules() and not gates.is_on(POD_GROUPS):
        yield f"ignored: {PATH}: without the feature gate {POD_GROUPS} no group is placed"


def _choose_given(in_file: bool | None, usual: bool) -> bool:
    return usual if in_file is None else in_file


# --- gates: the last value of each holds, and together they must make sense ------------------------------


def _list_wrong_gates(given: Given) -> Iterator[str]:
    """Of flags alone, and of the environment alone."""
    for where, texts in given.layers.get("feature_gates", ()):
        try:
            read_gates(texts)
        except BadGates as error:
            yield f"{where}: {error}"


def _list_gates(given: Given) -> list[str]:
    return [text for _, texts in given.layers.get("feature_gates", ()) for text in texts]


def _describe_deciding_settings(given: Given) -> str:
    """Returns all settings that decide how pods are placed, the strongest first."""
    places = [where for name in ("feature_gates", "placement_profile") for where, _ in reversed(given.layers.get(name, []))]
    return ", with ".join([*places, *([str(given.get("config"))] if given.has("config") else [])])


def make_parser(prog: str = "python -m reconciler") -> OneLineParser:
    """Returns the parser with all flags of the reconciler."""
    parser = OneLineParser(prog, "Queues, places and starts topology-aware workloads.", VARIABLE_PREFIX)
    add_config(parser)
    parser.add_argument("--namespace", help=f"namespace of the Lease, and of the ConfigMap that pauses (default: {SYSTEM_NAMESPACE})")
    parser.add_argument(
        "--leader-election", action=argparse.BooleanOptionalAction, help="without, lead at once; for one replica only (default: yes)"
    )
    parser.add_argument(
        "--placement-profile",
        choices=PLACEMENT_PROFILES,
        help=f"{KEP_PROFILE}: as KEP-2724 and the feature gates have it; {COMPACT_PROFILE}: as few domains as possible;"
        f" {BEST_FIT_PROFILE}, {LEAST_FREE_PROFILE}, {BALANCED_PROFILE}: that algorithm of KEP-2724 (default: {KEP_PROFILE})",
    )
    switches = ", ".join(f"{name} ({str(gate.default).lower()})" for name, gate in GATES.items() if gate.effect is Effect.SWITCHES)
    parser.add_argument(
        "--feature-gates",
        action="append",
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
        help="keep each pod's slot on its node until it is bound, by one more write a pod (needs kube-scheduler 1.34; default: no)",
    )
    parser.add_argument(
        "--kube-api-qps",
        type=parse_at_least_one,
        metavar="N",
        help="send at most N requests a second to the API server (default: as it allows)",
    )
    parser.add_argument(
        "--kube-api-burst", type=parse_at_least_one, metavar="N", help="with --kube-api-qps: so many at once (default: twice as many)"
    )
    parser.add_argument(
        "--health-port",
        type=parse_port_or_none,
        default=HEALTH_PORT,
        help="plain HTTP with /healthz and /readyz; 0: none (default: %(default)s)",
    )
    parser.add_argument("--health-address", default="0.0.0.0", help="address that all ports listen on (default: %(default)s)")
    parser.add_argument(
        "--visibility-port",
        type=parse_port_or_none,
        default=0,
        help="HTTPS with the visibility API, for API servers (docs/administration/visibility.md); 0: none (default: %(default)s)",
    )
    parser.add_argument("--visibility-cert-file", type=Path, metavar="FILE", help="its certificate chain, PEM; reloaded when it changes")
    parser.add_argument("--visibility-key-file", type=Path, metavar="FILE", help="its private key, PEM")
    add_metrics_port(parser)
    add_common(parser)
    return parser
