"""The reconciler's command line: profiles and feature gates, and what is wrong with them in one line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from core.model.configuration import FairSharing, PreemptionStrategy, ResourceRules, SecondPass
from core.model.gates import GATES, PROFILE_GATES, Effect, Stage
from core.model.pods_ready_rules import PodsReadyRules
from core.names import PLACEMENT_PROFILE, PLACEMENT_PROFILES
from core.placement.algorithms.profile import (
    ALWAYS_BEST_FIT,
    ALWAYS_LEAST_FREE,
    ALWAYS_MOST_FREE,
    COMPACT,
    MIXED,
    STANDARD,
    Profile,
    read_profile,
)
from e2e.warm import run_to_its_end
from reconciler.settings import Settings, VisibilitySettings, parse

ROOT = Path(__file__).parents[3]
PEER = json.loads((ROOT / "tests/vectors/gates/gate_defaults.json").read_text())


def with_gates(*texts: str, profile: str = "kep") -> Settings:
    return parse(["--placement-profile", profile, *(argument for text in texts for argument in ("--feature-gates", text))])


def get_refusal(capsys: pytest.CaptureFixture[str], *texts: str, profile: str = "kep") -> str:
    """The one line that ends the process."""
    with pytest.raises(SystemExit) as end:
        with_gates(*texts, profile=profile)
    assert end.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


# --- the table ----------------------------------------------------------------------------------------


def test_feature_gate_names_and_defaults_equal_those_of_kueue():
    newer = {name for name, gate in GATES.items() if gate.is_newer}
    assert not newer & PEER.keys()
    ours = {name: gate.default for name, gate in GATES.items() if gate.stage not in (Stage.REMOVED, Stage.OWN) and name not in newer}
    assert ours == {name: PEER[name] for name in ours}
    assert not PEER.keys() & (GATES.keys() - ours.keys() - newer), "a gate that the peer has is not removed"
    missing = {name for name in PEER if name.startswith("TAS")} - GATES.keys()
    assert not missing, "a gate of the peer's topology-aware scheduling is not known"


def test_gates_that_switch_accept_both_values():
    for name in (name for name, gate in GATES.items() if gate.effect is Effect.SWITCHES):
        assert with_gates(f"{name}=true").gates.values == {name: True}
        assert with_gates(f"{name}=false").gates.values == {name: False}


def test_gates_that_are_always_on_set_to_false_stay_on_with_a_warning():
    always = [name for name, gate in GATES.items() if gate.effect is Effect.ALWAYS]
    assert "TASMultiLayerTopology" in always
    for name in always:
        settings = with_gates(f"{name}=false")
        (warning,) = settings.gates.warnings
        assert f"{name}=false" in warning
        assert settings.gates.is_on(name)
        assert settings.profiles == STANDARD
        assert with_gates(f"{name}=true").gates.warnings == with_gates(f"{name}=false", f"{name}=true").gates.warnings == ()


# --- what gates do ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "profile"),
    [
        ("", MIXED),
        ("TASProfileMixed=true", MIXED),
        ("TASProfileMixed=false", ALWAYS_BEST_FIT),
        ("TASProfileBestFit=true", ALWAYS_BEST_FIT),
        ("TASProfileBestFit=true,TASProfileMixed=false", ALWAYS_BEST_FIT),
        ("TASProfileBestFit=false", MIXED),
        ("TASProfileLeastFreeCapacity=true", ALWAYS_LEAST_FREE),
        ("TASProfileMostFreeCapacity=true", ALWAYS_MOST_FREE),
        ("TASBalancedPlacement=true", Profile("kep", balanced=True)),
        ("TASBalancedPlacement=false", MIXED),
        ("TASRespectNodeAffinityPreferred=true", Profile("kep", respects_preferred_affinity=True)),
        ("TASRespectNodeAffinityPreferred=false", MIXED),
        ("TASProfileMixed=true,TASBalancedPlacement=T", Profile("kep", balanced=True)),
    ],
)
def test_feature_gates_define_the_kep_profile(text: str, profile: Profile):
    settings = with_gates(text)
    assert settings.profiles.default == settings.profiles.named["kep"] == profile
    assert read_profile(settings.gates.values) == profile


def test_the_flag_may_be_repeated_and_the_last_word_holds():
    settings = with_gates("TASBalancedPlacement=true, TASRespectNodeAffinityPreferred=true", "TASBalancedPlacement=false,")
    assert settings.profiles.default == Profile("kep", respects_preferred_affinity=True)


@pytest.mark.parametrize("name", PROFILE_GATES)
def test_profile_gates_are_accepted_with_a_warning(name: str):
    stage = "deprecated" if name == "TASProfileMixed" else "removed"
    (warning,) = with_gates(f"{name}=true").gates.warnings
    assert f"{name} is {stage}" in warning
    assert with_gates("TASBalancedPlacement=true").gates.warnings == ()


# --- beside the profile ---------------------------------------------------------------------------------


def test_tracing_flags_override_the_environment():
    left = parse([])
    assert (left.otlp_protocol, left.trace_ratio, left.trace_slow_s) == (None, None, 0.25)
    said = parse(["--otlp-protocol", "grpc", "--trace-ratio", "0.05", "--trace-slow", "1"])
    assert (said.otlp_protocol, said.trace_ratio, said.trace_slow_s) == ("grpc", 0.05, 1.0)


def test_profiles_are_chosen_by_name():
    assert tuple(STANDARD.named) == PLACEMENT_PROFILES
    assert parse([]).profiles == STANDARD
    assert parse(["--placement-profile", "compact"]).profiles.default == COMPACT


def test_compact_profile_respects_preferred_affinity_with_the_gate_on():
    settings = with_gates("TASRespectNodeAffinityPreferred=true", profile="compact")
    assert settings.profiles.default == Profile("compact", compact=True, respects_preferred_affinity=True)


@pytest.mark.parametrize("gate", ["TASBalancedPlacement=true", "TASProfileBestFit=true", "TASProfileMixed=false"])
def test_compact_profile_with_a_contradicting_gate_is_refused(capsys: pytest.CaptureFixture[str], gate: str):
    line = get_refusal(capsys, gate, profile="compact")
    assert all(part in line for part in (gate, "placement profile compact"))
    assert PLACEMENT_PROFILE in line
    with_gates("TASProfileMixed=true,TASBalancedPlacement=false", profile="compact")


def test_compact_profile_is_selectable_by_annotation_when_gates_define_the_kep_profile():
    profiles = with_gates("TASBalancedPlacement=true").profiles
    assert profiles.find_nearest(None, "compact") == COMPACT
    assert profiles.find_nearest("kep", "compact").balanced


# --- what is wrong --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("TASBalancedPlacment=true", "unknown feature gate 'TASBalancedPlacment'; known are ElasticJobsViaWorkloadSlices, "),
        ("MultiKueue=true", "unknown feature gate 'MultiKueue'; known are "),
        ("=true", "unknown feature gate ''"),
        ("TASBalancedPlacement", "feature gate TASBalancedPlacement=: true or false is expected"),
        ("TASBalancedPlacement=yes", "feature gate TASBalancedPlacement=yes: true or false is expected"),
        ("TASProfileBestFit=true,TASProfileMixed=true", "TASProfileMixed and TASProfileBestFit exclude each other"),
    ],
)
def test_wrong_gates_end_the_process_with_one_line(capsys: pytest.CaptureFixture[str], text: str, said: str):
    line = get_refusal(capsys, text)
    assert line.startswith("python -m reconciler: argument --feature-gates: ")
    assert said in line


def test_reconciler_process_with_an_unknown_gate_exits_with_one_line(tmp_path: Path):
    code, (line,) = run_to_its_end("reconciler", ["--feature-gates", "TASNoSuchThing=true"], tmp_path)
    assert code == 2
    assert "'TASNoSuchThing'" in line
    assert "TASBalancedPlacement" in line


# --- the configuration file ---------------------------------------------------------------------------------

HEAD = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"


@pytest.fixture
def config(tmp_path: Path) -> Callable[[str], list[str]]:
    """Arguments that name a file of this content."""

    def write(text: str) -> list[str]:
        path = tmp_path / "config.yaml"
        path.write_text(HEAD + text)
        return ["--config", str(path)]

    return write


def test_configuration_file_sets_values_that_no_flag_sets(config: Callable[[str], list[str]]):
    settings = parse(
        config(
            "waitForPodsReady: {timeout: 1m, recoveryTimeout: 2m, blockAdmission: false}\n"
            "featureGates: {TASBalancedPlacement: true}\n"
            "fairSharing: {preemptionStrategies: [LessThanInitialShare]}\n"
            "resources: {excludeResourcePrefixes: [example.com/]}\n"
            "integrations: {frameworks: [batch/job]}\n"
            "leaderElection: {leaderElect: false, resourceNamespace: leases}\n"
            "topogate: {secondPass: {baseDelay: 1s}, reserveDaemonSets: false, nominateNodes: true}\n"
        )
    )
    assert settings.pods_ready == PodsReadyRules(60.0, 120.0)
    assert settings.second_pass == SecondPass(1.0)
    assert settings.fair_sharing == FairSharing((PreemptionStrategy.INITIAL_SHARE,))
    assert settings.resources == ResourceRules(("example.com/",))
    assert settings.profiles.default == Profile("kep", balanced=True)
    assert (settings.namespace, settings.leader_elect) == ("leases", False)
    assert (settings.reserve_daemon_sets, settings.nominates_nodes) == (False, True)
    assert [said.split(": ")[1] for said in settings.warnings] == ["integrations.frameworks"]


def test_mapped_device_classes_count_unless_their_gate_is_off(config: Callable[[str], list[str]]):
    text = "resources: {deviceClassMappings: [{name: example.com/gpus, deviceClassNames: [gpu.example.com]}]}\n"
    assert parse(config(text)).resources.device_classes == {"gpu.example.com": "example.com/gpus"}
    assert parse([*config(text), "--feature-gates", "KueueDRAIntegration=false"]).resources.device_classes == {}


def test_without_a_file_and_with_an_empty_one_all_stands_at_the_defaults(config: Callable[[str], list[str]]):
    for settings in (parse([]), parse(config(""))):
        assert (settings.namespace, settings.leader_elect) == ("topogate-system", True)
        assert (settings.reserve_daemon_sets, settings.nominates_nodes) == (True, False)
        assert (settings.pods_ready, settings.second_pass, settings.fair_sharing) == (None, SecondPass(), None)
        assert settings.profiles == STANDARD
        assert settings.warnings == ()


def test_a_flag_is_stronger_than_the_file(config: Callable[[str], list[str]]):
    file = config(
        "namespace: kueue-system\n"
        "leaderElection: {leaderElect: false}\n"
        "featureGates: {TASBalancedPlacement: true, TASRespectNodeAffinityPreferred: true}\n"
        "topogate: {placementProfile: kep, reserveDaemonSets: false, nominateNodes: true}\n"
    )
    assert parse(file).namespace == "kueue-system"
    flags = ["--namespace", "n", "--leader-election", "--feature-gates", "TASBalancedPlacement=false", "--placement-profile", "compact"]
    settings = parse([*file, *flags, "--reserve-daemonsets", "--no-nominate-nodes"])
    assert (settings.namespace, settings.leader_elect) == ("n", True)
    assert settings.profiles.default == Profile("compact", compact=True, respects_preferred_affinity=True)
    assert (settings.reserve_daemon_sets, settings.nominates_nodes) == (True, False)


@pytest.mark.parametrize(
    ("text", "flags", "said"),
    [
        (
            "featureGates: {TASProfileBestFit: true}",
            ["--feature-gates", "TASProfileLeastFreeCapacity=true"],
            "TASProfileBestFit and TASProfileLeastFreeCapacity exclude each other",
        ),
        (
            "topogate: {placementProfile: compact}",
            ["--feature-gates", "TASBalancedPlacement=true"],
            "TASBalancedPlacement=true and the placement profile compact each say how pods are placed",
        ),
        (
            "featureGates: {TASBalancedPlacement: true}",
            ["--placement-profile", "compact"],
            "TASBalancedPlacement=true and the placement profile compact each say how pods are placed",
        ),
    ],
)
def test_flags_that_contradict_the_file_end_the_process(
    capsys: pytest.CaptureFixture[str], config: Callable[[str], list[str]], text: str, flags: list[str], said: str
):
    file = config(text)
    with pytest.raises(SystemExit) as end:
        parse([*file, *flags])
    assert end.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"python -m reconciler: argument {flags[0]}, with {file[1]}: {said}")


def test_a_wrong_file_ends_the_process_with_a_line_for_each_mistake(config: Callable[[str], list[str]], tmp_path: Path):
    file = config("waitForPodsReady: {requeuingStrategy: {timestamp: Evicton}, timeOut: 1m}\ntopogate: {nominateNodes: 1}\n")
    code, (first, *lines) = run_to_its_end("reconciler", file, tmp_path)
    assert code == 2
    where = f"  argument --config: {file[1]}"
    assert first.startswith("python -m reconciler: 3 mistakes")
    named = [
        f'{where}: waitForPodsReady.requeuingStrategy.timestamp: "Evicton" ',
        f"{where}: waitForPodsReady.timeOut: ",
        f"{where}: topogate.nominateNodes: 1 ",
    ]
    assert len(lines) == len(named)
    assert all(line.startswith(name) for line, name in zip(lines, named, strict=True))
    assert "timeout" in lines[1]


def test_a_file_that_cannot_be_read_ends_the_process_with_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    for path, why in ((tmp_path / "none.yaml", "No such file or directory"), (tmp_path, "Is a directory")):
        with pytest.raises(SystemExit) as end:
            parse(["--config", str(path)])
        assert end.value.code == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"python -m reconciler: argument --config: {path}: {why}")


def test_configuration_keys_without_effect_are_logged_as_ignored(config: Callable[[str], list[str]], tmp_path: Path):
    text = "metrics: {enableClusterQueueResources: true}\nwebhook: {port: 1}\n"
    code, lines = run_to_its_end("reconciler", [*config(text), "--kubeconfig", "/nowhere"], tmp_path)
    assert code == 2
    said = [json.loads(line) for line in lines]
    assert [one["why"].split(": ")[1] for one in said if one.get("why", "").startswith("ignored: ")] == [
        "metrics.enableClusterQueueResources",
        "webhook",
    ]


# --- the environment ----------------------------------------------------------------------------------------


def test_a_flag_is_stronger_than_its_variable_and_that_than_the_file(config: Callable[[str], list[str]]):
    (_, path) = config(
        "leaderElection: {leaderElect: true, resourceNamespace: of-file}\n"
        "metrics: {bindAddress: '127.0.0.1:1'}\n"
        "health: {healthProbeBindAddress: '[::1]:2'}\n"
        "featureGates: {TASBalancedPlacement: false, ReclaimablePods: false, PartialAdmission: false}\n"
        "topogate: {nominateNodes: true}\n"
    )
    environ = {
        "TOPOGATE_CONFIG": path,
        "TOPOGATE_NAMESPACE": "of-variable",
        "TOPOGATE_LEADER_ELECTION": "false",
        "TOPOGATE_METRICS_PORT": "3",
        "TOPOGATE_FEATURE_GATES": "TASBalancedPlacement=false,ReclaimablePods=true",
        "TOPOGATE_LOG_LEVEL": "DEBUG",
    }
    of_file = parse([], environ={"TOPOGATE_CONFIG": path})
    assert (of_file.namespace, of_file.leader_elect, of_file.nominates_nodes, of_file.log_level) == ("of-file", True, True, "INFO")
    assert (of_file.metrics_address, of_file.metrics_port, of_file.health_address, of_file.health_port) == ("127.0.0.1", 1, "::1", 2)
    of_variable = parse([], environ=environ)
    assert (of_variable.namespace, of_variable.leader_elect, of_variable.log_level) == ("of-variable", False, "DEBUG")
    assert (of_variable.metrics_address, of_variable.metrics_port, of_variable.health_port) == ("127.0.0.1", 3, 2)
    assert of_variable.gates.values == {"TASBalancedPlacement": False, "ReclaimablePods": True, "PartialAdmission": False}
    flags = [
        "--namespace=of-flag",
        "--leader-election",
        "--metrics-port=4",
        "--health-address=::",
        "--feature-gates=TASBalancedPlacement=true",
    ]
    of_flag = parse([*flags, "--log-level=ERROR"], environ=environ)
    assert (of_flag.namespace, of_flag.leader_elect, of_flag.log_level) == ("of-flag", True, "ERROR")
    assert (of_flag.metrics_address, of_flag.metrics_port, of_flag.health_address, of_flag.health_port) == ("::", 4, "::", 2)
    assert of_flag.gates.values == {"TASBalancedPlacement": True, "ReclaimablePods": True, "PartialAdmission": False}


def test_all_mistakes_of_reconciler_flags_variables_and_file_are_reported_at_once(config: Callable[[str], list[str]], tmp_path: Path):
    (_, path) = config("topogate: {nominateNodes: 1}\n")
    environ = {
        **os.environ,
        "TOPOGATE_CONFIG": path,
        "TOPOGATE_LEADER_ELECTION": "yes",
        "TOPOGATE_METRICS_PORT": "http",
        "TOPOGATE_FEATURE_GATES": "Nonsense=true",
    }
    flags = ["--kube-api-qps=0", "--placement-profile=tidy", "--such", "--health-port=65536"]
    code, (first, *lines) = run_to_its_end("reconciler", flags, tmp_path, environ)
    assert code == 2
    assert first.startswith("python -m reconciler: 8 mistakes")
    assert [line.partition(": ")[0].strip() for line in lines] == [
        "environment variable TOPOGATE_LEADER_ELECTION",
        "environment variable TOPOGATE_METRICS_PORT",
        "unrecognized arguments",
        "argument --placement-profile",
        "argument --kube-api-qps",
        "argument --health-port",
        "environment variable TOPOGATE_FEATURE_GATES",
        "environment variable TOPOGATE_CONFIG",
    ]
    assert "'yes'" in lines[0]
    assert f"{path}: topogate.nominateNodes: 1 " in lines[-1]


def test_gates_of_flag_and_variable_that_exclude_each_other_name_both(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as end:
        parse(["--feature-gates=TASProfileBestFit=true"], environ={"TOPOGATE_FEATURE_GATES": "TASProfileLeastFreeCapacity=true"})
    assert end.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    where = "argument --feature-gates, with environment variable TOPOGATE_FEATURE_GATES"
    assert line.startswith(f"python -m reconciler: {where}: TASProfile")
    assert "exclude each other" in line


def test_visibility_api_needs_its_certificate(capsys: pytest.CaptureFixture[str]):
    assert parse([], environ={}).visibility is None
    files = ["--visibility-cert-file=/c/tls.crt", "--visibility-key-file=/c/tls.key"]
    found = parse(["--visibility-port=8082", "--health-address=::", *files], environ={}).visibility
    assert found == VisibilitySettings("::", 8082, Path("/c/tls.crt"), Path("/c/tls.key"))
    assert parse(files, environ={}).visibility is None
    with pytest.raises(SystemExit):
        parse(["--visibility-port=8082", files[0]], environ={})
    assert "required: --visibility-key-file" in capsys.readouterr().err
