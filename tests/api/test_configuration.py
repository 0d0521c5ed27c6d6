"""The configuration file: what the peer's users bring loads and means the same, and every mistake in one is told at once."""

from __future__ import annotations

import json
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.api.files.configuration_file import read_configuration
from core.api.files.configuration_wire import (
    ConfigurationFile,
)
from core.api.files.strict import Ignored, Says, Strict, find_blocks
from core.model.configuration import (
    Address,
    Configuration,
    FairSharing,
    LeaseRules,
    PodGroupRules,
    PreemptionStrategy,
    ResourceRules,
    SecondPass,
    Transformation,
    WebhookRules,
)
from core.model.gates import GATES, Stage
from core.model.kueue_gates import FORMER_GATES, NEWER_GATES, OTHER_GATES
from core.model.node_health_rules import RequeueRules
from core.model.pods_ready_rules import PodsReadyRules, RequeueTime, Scope
from core.names import PLACEMENT_PROFILES
from tests.api.configuring import (
    NEW,
    OLD,
    Json,
    as_text,
    build_file,
    configurations,
    list_mistakes,
    list_mistakes_of_blocks,
    read,
    write_file,
)

PEER_GATES = json.loads((Path(__file__).parents[1] / "vectors/gates/gate_defaults.json").read_text())


# --- what users bring -------------------------------------------------------------------------------------

BROUGHT = """
apiVersion: config.kueue.x-k8s.io/v1beta1
kind: Configuration
namespace: kueue-system
health: {healthProbeBindAddress: ":8081"}
metrics: {bindAddress: ":8443", enableClusterQueueResources: true}
webhook: {port: 9443}
leaderElection: {leaderElect: true, resourceName: c1f6bfd2.kueue.x-k8s.io, leaseDuration: 30s}
controller:
  groupKindConcurrency: {Job.batch: 5, Pod: 5}
clientConnection: {qps: 50, burst: 100}
#waitForPodsReady:
waitForPodsReady:
  enable: true
  timeout: 10m
  recoveryTimeout: 3m
  blockAdmission: true
  requeuingStrategy:
    timestamp: Creation
    backoffLimitCount: null # without end
    backoffBaseSeconds: 10
    backoffMaxSeconds: 600
manageJobsWithoutQueueName: true
managedJobsNamespaceSelector:
  matchExpressions:
  - {key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, kueue-system]}
internalCertManagement: {enable: false}
queueVisibility: {updateIntervalSeconds: 5}
integrations:
  frameworks: [batch/job, ray.io/rayjob, pod, leaderworkerset.x-k8s.io/leaderworkerset]
  externalFrameworks: [Foo.v1.example.com]
  labelKeysToCopy: [team]
  podOptions: {podSelector: {}}
fairSharing: {enable: true, preemptionStrategies: [LessThanInitialShare]}
resources:
  excludeResourcePrefixes: [networking.example.com/]
  transformations:
  - input: nvidia.com/mig-4g.5gb
    strategy: Replace
    outputs: {example.com/accelerator-memory: 5Gi, example.com/accelerator-gpc: 4, cpu: 500m}
featureGates: {TASBalancedPlacement: true, MultiKueue: false, LendingLimit: true}
"""


def test_configuration_file_of_kueue_is_read():
    found = read_configuration(BROUGHT)
    assert replace(found, warnings=()) == Configuration(
        pods_ready=PodsReadyRules(600.0, 180.0, Scope.CLUSTER, RequeueTime.CREATION, None, 10.0, 600.0),
        fair_sharing=FairSharing((PreemptionStrategy.INITIAL_SHARE,)),
        resources=ResourceRules(
            ("networking.example.com/",),
            (
                Transformation(
                    "nvidia.com/mig-4g.5gb",
                    retains=False,
                    outputs_milli={"example.com/accelerator-memory": 5 * 2**30 * 1000, "example.com/accelerator-gpc": 4000, "cpu": 500},
                ),
            ),
        ),
        lease=LeaseRules(True, None, 30.0, 7.0, 1.5),
        gates={"TASBalancedPlacement": True},
        webhook=WebhookRules(port=9443),
        metrics=Address(None, 8443),
        health=Address(None, 8081),
        namespace="kueue-system",
        copied_labels=("team",),
    )


def test_configuration_fields_without_effect_get_one_warning_each():
    said = [warning.split(": ")[:2] for warning in read_configuration(BROUGHT).warnings]
    places = [place for kind, place in said if kind == "ignored"]
    assert len(places) == len(said) == len(set(places))
    expected = {"metrics.enableClusterQueueResources", "controller", "clientConnection", "queueVisibility", "integrations.podOptions"}
    assert expected | {"manageJobsWithoutQueueName", "featureGates.MultiKueue", "featureGates.LendingLimit"} <= set(places)
    assert not {"waitForPodsReady", "webhook", "metrics", "health", "namespace", "topogate", "featureGates.TASBalancedPlacement"} & set(
        places
    )


def test_nothing_but_the_head_stands_at_the_defaults():
    for version in (NEW, OLD):
        assert read(version) == Configuration()


def test_json_is_yaml():
    file = build_file(topogate={"nominateNodes": True})
    assert read_configuration(json.dumps(file).encode()).nominates_nodes is True


def test_configuration_with_null_fields_equals_the_default():
    blocks = {name: None for name in ConfigurationFile.model_fields if name not in ("api_version", "kind")}
    aliases = {ConfigurationFile.model_fields[name].alias or name: value for name, value in blocks.items()}
    assert read(**aliases) == Configuration()


def test_anchors_and_merges_are_understood():
    text = as_text(build_file()) + "x-retry: &b {backoffBaseSeconds: 1}\n"
    assert any("x-retry: unknown key" in line for line in list_mistakes(text))
    text = as_text(build_file()) + "waitForPodsReady: {requeuingStrategy: {<<: {backoffBaseSeconds: 1}, backoffMaxSeconds: 2}}\n"
    rules = read_configuration(text).pods_ready
    assert rules is not None
    assert (rules.backoff_base_s, rules.backoff_max_s) == (1.0, 2.0)


WHOLE = [field.alias or name for name, field in ConfigurationFile.model_fields.items() if field.annotation is Any]


@pytest.mark.parametrize("key", WHOLE)
def test_ignored_configuration_block_accepts_any_content(key: str):
    field = next(field for field in ConfigurationFile.model_fields.values() if field.alias == key)
    why = next(mark.why for mark in field.metadata if isinstance(mark, Ignored))
    assert read(**{key: {"of": ["a newer peer"]}}).warnings == (f"ignored: {key}: {why}",)


# --- waiting for pods -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "block", "rules"),
    [
        (OLD, {"timeout": "1m"}, None),
        (OLD, {"enable": False, "blockAdmission": True}, None),
        (OLD, {"enable": True}, PodsReadyRules(blocks=Scope.CLUSTER)),
        (OLD, {"enable": True, "blockAdmission": False}, PodsReadyRules()),
        (OLD, {"enable": True, "blockAdmission": True, "blockAdmissionScope": "Cohort"}, PodsReadyRules(blocks=Scope.COHORT)),
        (NEW, {"enable": False}, None),
        (NEW, {}, PodsReadyRules()),
        (NEW, {"timeout": "30s", "recoveryTimeout": "0s"}, PodsReadyRules(30.0)),
        (NEW, {"blockAdmission": True}, PodsReadyRules(blocks=Scope.CLUSTER)),
        (NEW, {"blockAdmission": False}, PodsReadyRules()),
        (NEW, {"blockAdmission": True, "blockAdmissionScope": "Cohort"}, PodsReadyRules(blocks=Scope.COHORT)),
        (NEW, {"blockAdmission": True, "blockAdmissionScope": "ClusterQueue"}, PodsReadyRules(blocks=Scope.CLUSTER_QUEUE)),
        (NEW, {"requeuingStrategy": {"backoffLimitCount": 0}}, PodsReadyRules(backoff_limit=0)),
        (NEW, {"requeuingStrategy": {"backoffBaseSeconds": 0}}, PodsReadyRules(backoff_base_s=0.0)),
    ],
)
def test_wait_for_pods_ready(version: str, block: Json, rules: PodsReadyRules | None):
    """`enable: true` of v1beta1 blocks other admissions by default."""
    assert read(version, waitForPodsReady=block).pods_ready == rules


def test_the_gate_that_switches_waiting_off_is_heard():
    assert read(waitForPodsReady={"timeout": "1m"}, featureGates={"DisableWaitForPodsReady": True}) == Configuration(most_ready_s=None)
    assert read(waitForPodsReady={}, featureGates={"DisableWaitForPodsReady": False}).pods_ready == PodsReadyRules()


def test_configuration_defaults_that_differ_from_kueue_get_a_warning():
    def differences(version: str, **block: Any) -> list[str]:
        return [said.split(": ")[1] for said in read(version, waitForPodsReady=block).warnings if said.startswith("different: ")]

    fields = ["timeout", "recoveryTimeout", "blockAdmission"]
    assert differences(NEW) == [f"waitForPodsReady.{field}" for field in fields]
    assert differences(NEW, timeout="1m", recoveryTimeout="0s", blockAdmission=False) == []
    assert differences(NEW, enable=False) == []
    assert differences(OLD, enable=True) == []


# --- the other blocks -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "block", "sharing"),
    [
        (OLD, {}, None),
        (OLD, {"enable": True}, FairSharing()),
        (NEW, {"preemptionStrategies": ["LessThanOrEqualToFinalShare"]}, FairSharing((PreemptionStrategy.FINAL_SHARE,))),
        (NEW, {"enable": False, "preemptionStrategies": []}, None),
        (NEW, {"preemptionStrategies": []}, FairSharing()),
    ],
)
def test_fair_sharing(version: str, block: Json, sharing: FairSharing | None):
    assert read(version, fairSharing=block).fair_sharing == sharing


def test_resource_transformation_without_strategy_replace_retains_the_input():
    entries = [{"input": "cpu"}, {"input": "memory", "strategy": "Replace"}, {"input": "pods", "strategy": "Retain", "multiplyBy": "cpu"}]
    found = read(resources={"transformations": entries}).resources.transformations
    assert found == (Transformation("cpu"), Transformation("memory", retains=False), Transformation("pods", multiply_by="cpu"))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":8080", Address(None, 8080)),
        ("127.0.0.1:1", Address("127.0.0.1", 1)),
        ("localhost:65535", Address("localhost", 65535)),
        ("[::1]:8080", Address("::1", 8080)),
        ("[::]:8080", Address("::", 8080)),
        ("0", Address(None, 0)),
        ("", None),
    ],
)
def test_where_metrics_and_probes_are_served(text: str, address: Address | None):
    assert read(metrics={"bindAddress": text}).metrics == address
    assert read(health={"healthProbeBindAddress": text}).health == address


def test_device_class_mappings_with_sources_are_left_out_with_a_warning():
    """Quota counts devices, not their counters; what is not counted must not run."""
    plain = {"name": "example.com/gpus", "deviceClassNames": ["gpu.example.com", "mig.example.com"]}
    counted = {"name": "example.com/memory", "deviceClassNames": ["shared"], "sources": [{"counter": {"name": "memory"}}]}
    found = read(resources={"deviceClassMappings": [plain, counted]})
    assert found.resources.device_classes == {"gpu.example.com": "example.com/gpus", "mig.example.com": "example.com/gpus"}
    (warning,) = found.warnings
    assert warning.startswith("ignored: resources.deviceClassMappings[1].sources: quota counts devices")


def test_device_class_with_sources_in_any_mapping_is_not_counted_by_number():
    """A file of Kueue's may name a class in several mappings with sources: it is read, and jobs of the class wait."""
    by_source = [
        {"name": f"example.com/{name}", "deviceClassNames": ["mig"], "sources": [{"counter": {"name": name}}]} for name in ("a", "b")
    ]
    found = read(resources={"deviceClassMappings": [*by_source, {"name": "gpus", "deviceClassNames": ["mig", "whole"]}]})
    assert found.resources.device_classes == {"whole": "gpus"}
    assert len(found.warnings) == 2


def test_our_own_block():
    block = {
        "secondPass": {"baseDelay": "1s", "timeout": "1m"},
        "podGroups": {"desiredCountWait": "30s"},
        "placementProfile": "compact",
        "reserveDaemonSets": False,
        "nominateNodes": True,
    }
    expected = Configuration(
        second_pass=SecondPass(1.0, 60.0),
        pod_groups=PodGroupRules(30.0),
        placement_profile="compact",
        reserves_daemon_sets=False,
        nominates_nodes=True,
    )
    assert read(topogate=block) == expected
    assert read(topogate={"secondPass": {"timeout": "10m"}}).second_pass == SecondPass(10.0, 600.0)
    requeue = {"base": "0s", "limit": "1m", "forgetAfter": "1h"}
    assert read(topogate={"nodeReplacement": {"requeue": requeue}}).node_health.requeue == RequeueRules(0.0, 60.0, 3600.0)
    assert read(topogate={"nodeReplacement": {"requeue": {"base": "20s"}}}).node_health.requeue == RequeueRules(20.0, 600.0, 600.0)
    for profile in PLACEMENT_PROFILES:
        assert read(topogate={"placementProfile": profile}).placement_profile == profile


@pytest.mark.parametrize(("block", "counts"), [({}, True), ({"countInQuota": True}, True), ({"countInQuota": False}, False)])
def test_spares_use_quota_where_that_is_chosen(block: Json, counts: bool):
    assert read(topogate={"nodeReplacement": {"spares": block}}).resources == ResourceRules(counts_spares=counts)


def test_empty_names_are_not_given():
    found = read(namespace="", leaderElection={"resourceName": "", "resourceNamespace": ""})
    assert (found.namespace, found.lease) == (None, LeaseRules())


# --- gates ------------------------------------------------------------------------------------------------


def test_each_feature_gate_of_kueue_is_known():
    ours = {name for name, gate in GATES.items() if gate.stage not in (Stage.REMOVED, Stage.OWN) and not gate.is_newer}
    assert PEER_GATES.keys() - ours == OTHER_GATES - NEWER_GATES
    assert not NEWER_GATES & (PEER_GATES.keys() | GATES.keys())
    assert not FORMER_GATES & (PEER_GATES.keys() | GATES.keys())


def test_configuration_with_default_gates_of_kueue_is_read():
    assert read(featureGates=PEER_GATES).gates


@pytest.mark.parametrize(
    ("gates", "said"),
    [
        ({"Zzz": "yes"}, 'featureGates.Zzz: "yes" is not accepted; use true or false'),
        ({"TASBalancedPlacement": "true"}, 'featureGates.TASBalancedPlacement: "true" is not accepted; use true or false'),
        ({"MultiKueue": None}, "featureGates.MultiKueue: null is not accepted; use true or false"),
        (
            {"TASProfileBestFit": True, "TASProfileLeastFreeCapacity": True},
            "featureGates: TASProfileBestFit and TASProfileLeastFreeCapacity exclude each other",
        ),
        (
            {"KueueDRADeviceFeasibility": True, "KueueDRAIntegration": False},
            "featureGates: KueueDRADeviceFeasibility=true needs KueueDRAIntegration=true",
        ),
    ],
)
def test_wrong_gates(gates: Json, said: str):
    (line,) = list_mistakes_of_blocks(featureGates=gates)
    assert line.startswith(said)


@pytest.mark.parametrize(
    ("name", "rest"),
    [
        ("TASBalancedPlacment", "; did you mean TASBalancedPlacement?"),
        ("multikueue", "; did you mean MultiKueue?"),
        ("Zzz", ""),
        ("", ""),
    ],
)
def test_gate_of_a_newer_kueue_draws_a_warning_and_changes_nothing(name: str, rest: str):
    read_file = read(featureGates={name: True})
    assert (read_file.gates, len(read_file.warnings)) == ({}, 1)
    assert read_file.warnings[0].startswith("ignored: featureGates")
    assert read_file.warnings[0].endswith(f": unknown feature gate, so that it switches nothing{rest}")


def test_very_many_unknown_gates_draw_a_bounded_number_of_warnings():
    warnings = read(featureGates={f"Q{i}": True for i in range(1000)}).warnings
    assert len(warnings) == 33
    assert warnings[-1] == "ignored: featureGates: 968 more gates are unknown"


# As the gates first named in Kueue 0.20 are written.
GATES_OF_0_20 = [
    "AdmissionFairSharingAnchorAtQuotaReservation",
    "ConfigurablePreemptions",
    "DeploymentJobUIDLabel",
    "DynamicQuotaOrchestration",
    "FairSharingReevaluatePreemptionCandidates",
    "FairSharingRefill",
    "KueueDRADeviceFeasibility",
    "KueueDRAIntegrationDeviceTaints",
    "KueueDRAIntegrationPrioritizedList",
    "LWSImmutableGroupSize",
    "PodGroupSchedulingShapeOrdering",
    "PodIntegrationCountSucceededPodsAsReady",
    "RayServiceValidateUpgradeStrategy",
    "TASGroupedPodSetSlicing",
    "TASLeaderPodSetFeasibility",
    "TASNodeFeasibilityForAllLevels",
    "TASPartialSlices",
    "TASRejectFalseUnconstrainedTopology",
    "TASReplaceMultipleFailedNodes",
    "TASTopologySpreading",
    "WaitForPodsReadyMaxNotReady",
    "WaitForPodsReadyUnscheduledTimeout",
    "WorkloadLevelWaitForPodsReady",
    "WorkloadPriorityClassDefaulting",
]


@pytest.mark.parametrize("value", [True, False])
def test_every_gate_that_is_new_in_kueue_0_20_loads(value: bool):
    assert read(featureGates=dict.fromkeys(GATES_OF_0_20, value)).gates.keys() <= set(GATES_OF_0_20)


def test_gates_that_are_always_on_set_to_false_load():
    """The process that reads the gates reports the warning (tests/reconciler/process/test_settings.py)."""
    gates = {"TASMultiLayerTopology": False, "TopologyAwareScheduling": False}
    assert read(featureGates=gates).gates == gates


def test_a_gate_and_the_profile_of_one_file_must_agree():
    (line,) = list_mistakes_of_blocks(featureGates={"TASBalancedPlacement": True}, topogate={"placementProfile": "compact"})
    assert line.startswith("topogate.placementProfile: TASBalancedPlacement=true and the placement profile compact each say")


@given(configurations(), st.sampled_from([NEW, OLD]))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_written_configuration_is_read_with_the_same_values(values: Configuration, version: str):
    found = read_configuration(as_text(write_file(values, version)))
    assert replace(found, warnings=()) == values
    assert all(warning.startswith("ignored: ") for warning in found.warnings)


# --- docs/configuration.md --------------------------------------------------------------------------------

DOCS = (Path(__file__).parents[2] / "docs/configuration.md").read_text()


def test_the_documented_example_is_read_and_nothing_in_it_is_in_vain():
    found = read_configuration(textwrap.dedent(DOCS.partition("## An example\n")[2]))
    assert found.pods_ready == PodsReadyRules(600.0, 180.0, Scope.CLUSTER_QUEUE, backoff_limit=5)
    assert (found.second_pass, found.nominates_nodes) == (SecondPass(5.0), True)
    assert found.warnings == ()


def test_key_of_the_file_has_its_documentation_or_the_reason_for_which_it_is_ignored():
    """Of what they say docs/reference.md is made."""
    blocks, silent = list[type[Strict]]([ConfigurationFile]), list[str]()
    while blocks:
        block = blocks.pop()
        for name, field in block.model_fields.items():
            if not any(isinstance(mark, Says | Ignored) for mark in field.metadata):
                inner = list(find_blocks(field.annotation))
                blocks += inner
                silent += [] if inner else [name]
    assert silent == ["api_version", "kind"]
