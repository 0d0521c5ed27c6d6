"""Configuration files for tests: a file in parts, values as files, and what fuzzing puts in odd places."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import strategies as st

from core.api.files.configuration_file import read_configuration
from core.api.files.configuration_wire import ConfigurationFile
from core.api.files.mistakes import InvalidFile
from core.model.configuration import (
    Address,
    Configuration,
    FairSharing,
    LeaseRules,
    PreemptionStrategy,
    ResourceRules,
    SecondPass,
    Transformation,
    WebhookRules,
)
from core.model.gates import GATES, Effect
from core.model.plugin_choice import SMALLEST_MEMORY, GroupPluginRules, PluginChoice, PluginLimits
from core.model.pods_ready_rules import PodsReadyRules, RequeueTime, Scope
from core.names import PLACEMENT_PROFILES

Json = dict[str, Any]
NEW, OLD = "config.kueue.x-k8s.io/v1beta2", "config.kueue.x-k8s.io/v1beta1"
RESOURCES = ("cpu", "memory", "nvidia.com/gpu", "example.com/accelerator-memory", "pods")


def build_file(version: str = NEW, /, **blocks: Any) -> Json:
    """A file as parsed, blocks by their key."""
    return {"apiVersion": version, "kind": "Configuration", **blocks}


def as_text(file: Any) -> str:
    """A file as YAML."""
    return yaml.safe_dump(file, sort_keys=False)


def read(version: str = NEW, /, **blocks: Any) -> Configuration:
    return read_configuration(as_text(build_file(version, **blocks)))


def list_mistakes(text: str | bytes) -> list[str]:
    """What is told of a file, line by line."""
    with pytest.raises(InvalidFile) as error:
        read_configuration(text)
    lines = str(error.value).splitlines()
    assert lines == [str(mistake) for mistake in error.value.mistakes], "a mistake has more than one line"
    return lines


def list_mistakes_of_blocks(version: str = NEW, /, **blocks: Any) -> list[str]:
    return list_mistakes(as_text(build_file(version, **blocks)))


# --- values as files --------------------------------------------------------------------------------------


def write_file(values: Configuration, version: str) -> Json:
    """The file that says all of this, with nothing left to defaults where there is a value."""
    file = build_file(version, featureGates=dict(values.gates), namespace=values.namespace)
    if rules := values.pods_ready:
        file["waitForPodsReady"] = {
            "enable": True,
            "timeout": f"{rules.timeout_s:.0f}s",
            "recoveryTimeout": f"{rules.recovery_timeout_s or 0:.0f}s",
            "blockAdmission": rules.blocks is not None,
            "blockAdmissionScope": rules.blocks.value if rules.blocks else None,
            "requeuingStrategy": {
                "timestamp": rules.requeue_time.value,
                "backoffLimitCount": rules.backoff_limit,
                "backoffBaseSeconds": int(rules.backoff_base_s),
                "backoffMaxSeconds": int(rules.backoff_max_s),
            },
        }
    if values.fair_sharing:
        file["fairSharing"] = {"enable": True, "preemptionStrategies": [one.value for one in values.fair_sharing.strategies]}
    file["resources"] = {
        "excludeResourcePrefixes": list(values.resources.excluded_prefixes),
        "transformations": [
            {
                "input": one.input,
                "strategy": "Retain" if one.retains else "Replace",
                "outputs": {name: f"{amount}m" for name, amount in one.outputs_milli.items()},
                "multiplyBy": one.multiply_by,
            }
            for one in values.resources.transformations
        ],
        "deviceClassMappings": [
            {"name": name, "deviceClassNames": [one for one, resource in values.resources.device_classes.items() if resource == name]}
            for name in sorted(set(values.resources.device_classes.values()))
        ],
    }
    file["integrations"] = {
        "frameworks": ["pod"],
        "externalFrameworks": ["Foo.v1.example.com"],
        "labelKeysToCopy": list(values.copied_labels),
    }
    lease = values.lease
    file["leaderElection"] = {
        "leaderElect": lease.elects,
        "resourceNamespace": lease.namespace,
        "resourceName": "any",
        "leaseDuration": f"{lease.lease_duration_s:.0f}s",
        "renewDeadline": f"{lease.renew_deadline_s:.0f}s",
        "retryPeriod": f"{lease.retry_period_s:.0f}s",
    }
    file["webhook"] = {"host": values.webhook.host, "port": values.webhook.port, "certDir": values.webhook.certificates}
    file["metrics"] = {"bindAddress": _address(values.metrics)}
    file["health"] = {"healthProbeBindAddress": _address(values.health)}
    file["topogate"] = {
        "secondPass": {"baseDelay": f"{values.second_pass.base_delay_s:.0f}s", "timeout": f"{values.second_pass.timeout_s:.0f}s"},
        "placementProfile": values.placement_profile,
        "reserveDaemonSets": values.reserves_daemon_sets,
        "nominateNodes": values.nominates_nodes,
        "podGroups": {
            "plugins": {
                "generators": [{"name": one.name, "arguments": dict(one.arguments)} for one in values.group_plugins.generators],
                "scorers": [
                    {"name": one.name, "weight": one.weight, "arguments": dict(one.arguments)} for one in values.group_plugins.scorers
                ],
                "timeout": f"{values.group_plugins.limits.call_s:.0f}s",
                "memory": values.group_plugins.limits.memory_bytes,
                "feasibleLimit": values.group_plugins.feasible_limit,
            }
        },
    }
    return file


def _address(value: Address | None) -> str | None:
    if value is None:
        return None
    host = f"[{value.host}]" if value.host and ":" in value.host else value.host or ""
    return f"{host}:{value.port}" if value.port else "0"


_ports = st.integers(1, 65535)
_addresses = st.just(Address(None, 0)) | st.builds(Address, st.sampled_from([None, "127.0.0.1", "::1", "localhost"]), _ports)
_names = st.sampled_from(["kueue-system", "topogate", "x"])
_seconds = st.integers(1, 10**6).map(float)
_maybe = st.none() | st.booleans()
_limits = st.integers(0, 2**31 - 1)
_pods_ready = st.builds(
    PodsReadyRules,
    timeout_s=_seconds,
    recovery_timeout_s=st.none() | _seconds,
    blocks=st.none() | st.sampled_from(Scope),
    requeue_time=st.sampled_from(RequeueTime),
    backoff_limit=st.none() | _limits,
    backoff_base_s=_limits.map(float),
    backoff_max_s=_limits.map(float),
)
_transformations = st.lists(
    st.builds(
        Transformation,
        input=st.sampled_from(RESOURCES),
        retains=st.booleans(),
        outputs_milli=st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 10**12)),
        multiply_by=st.none() | st.sampled_from(RESOURCES),
    ),
    unique_by=lambda one: one.input,
).map(tuple)
_generators = [PluginChoice("TopologyPlacement"), PluginChoice("acme.parts", arguments={"by": ["a", {"b": 1.5}]})]
_scorers = [
    st.builds(PluginChoice, st.just("PodCount"), st.sampled_from([0.0, 0.5, 1000.0])),
    st.builds(PluginChoice, st.just("BinPacking"), st.just(1.0), st.sampled_from([{}, {"resources": {"cpu": 1, "nvidia.com/gpu": 2.5}}])),
    st.builds(PluginChoice, st.just("acme-price"), st.just(2.0), st.sampled_from([{}, {"zone": "a", "deep": [None, True]}])),
]
_group_plugins = st.builds(
    GroupPluginRules,
    st.sampled_from([(_generators[0],), tuple(_generators), tuple(reversed(_generators))]),
    st.lists(st.one_of(_scorers), unique_by=lambda one: one.name).map(tuple),
    st.builds(PluginLimits, _seconds, st.integers(SMALLEST_MEMORY, 2**60)),
    st.none() | st.integers(1, 100),
)
_switches = [name for name, gate in GATES.items() if gate.effect is Effect.SWITCHES and not name.startswith("TASProfile")]


@st.composite
def configurations(draw: st.DrawFn) -> Configuration:
    """Values that a file can say."""
    renewed = draw(_seconds)
    pause = draw(_seconds)
    profile = draw(st.sampled_from([None, *PLACEMENT_PROFILES]))
    gates = draw(st.dictionaries(st.sampled_from(_switches), st.booleans()))
    if profile not in (None, "kep"):
        gates.pop("TASBalancedPlacement", None)
    if gates.get("KueueDRADeviceFeasibility"):
        gates.pop("KueueDRAIntegration", None)
    strategies = st.lists(st.sampled_from(PreemptionStrategy), min_size=1, unique=True).map(tuple)
    return Configuration(
        pods_ready=draw(st.none() | _pods_ready),
        second_pass=SecondPass(pause, pause + draw(_seconds)),
        fair_sharing=draw(st.none() | st.builds(FairSharing, strategies)),
        resources=ResourceRules(
            draw(st.lists(st.sampled_from(["networking.example.com/", "hugepages-"])).map(tuple)),
            draw(_transformations),
            device_classes=draw(st.dictionaries(st.sampled_from(["gpu.example.com", "mig", "x.y/z"]), st.sampled_from(["gpus", "a/b"]))),
        ),
        lease=LeaseRules(draw(_maybe), draw(st.none() | _names), renewed + draw(_seconds), renewed, draw(_seconds)),
        webhook=WebhookRules(draw(st.sampled_from([None, "::1"])), draw(st.none() | _ports), draw(st.sampled_from([None, "/certs"]))),
        metrics=draw(st.none() | _addresses),
        health=draw(st.none() | _addresses),
        gates=gates,
        namespace=draw(st.none() | _names),
        copied_labels=draw(st.lists(st.sampled_from(["team", "a.b/c"])).map(tuple)),
        placement_profile=profile,
        reserves_daemon_sets=draw(_maybe),
        nominates_nodes=draw(_maybe),
        group_plugins=draw(_group_plugins),
    )


# --- odd things in odd places -----------------------------------------------------------------------------


def list_known_keys() -> list[str]:
    """Every key that some object of a file has."""
    found: dict[str, None] = {}

    def walk(schema: Any) -> None:
        if isinstance(schema, dict):
            found.update(dict.fromkeys(schema.get("properties", {}) if isinstance(schema.get("properties"), dict) else ()))
            schema = list(schema.values())
        for inner in schema if isinstance(schema, list) else ():
            walk(inner)

    walk(ConfigurationFile.model_json_schema(by_alias=True))
    return list(found)


_words = st.sampled_from([*list_known_keys(), *GATES, "MultiKueue", "5m", "cpu", "Cluster", "batch/job"])
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**31, 2**63, 1 << 200])
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["\ud800", "a\nb", "\u2028", "x" * 500])
    | _words
)
odd_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_words | st.text(max_size=5), inner, max_size=4)
)
