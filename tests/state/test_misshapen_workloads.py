"""What the definition of a Workload lets through and Kubernetes has no use for is refused on reading, so that nothing later meets it."""

from __future__ import annotations

from typing import Any

import pytest

from core.queueing.cycle.cycle import Cycle
from core.state.facts import MOST_LEVELS, WorkloadFacts
from tests.builders import build_pod_set_json, build_workload_json
from tests.queueing.scene import Scene


def nest(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = {"a": [value]}
    return value


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("nodeSelector", {"rack": ["x"]}, "nodeSelector"),
        ("nodeSelector", {"rack": nest(900)}, "nodeSelector"),
        ("affinity", nest(MOST_LEVELS), "affinity: it is nested"),
        ("affinity", nest(900), "affinity: it is nested"),
        ("tolerations", [nest(900)], "tolerations: it is nested"),
    ],
)
def test_template_that_nothing_could_compare_is_refused_on_reading(field: str, value: Any, says: str):
    pod_set = build_pod_set_json()
    pod_set["template"]["spec"][field] = value
    with pytest.raises(ValueError, match=says):
        WorkloadFacts.read(build_workload_json("w", [pod_set]))


def test_affinity_as_deep_as_that_of_kubernetes_is_read():
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    pod_set = build_pod_set_json()
    pod_set["template"]["spec"]["affinity"] = affinity
    assert WorkloadFacts.read(build_workload_json("w", [pod_set])).pod_sets[0].affinity == affinity


def test_cycle_keeps_nothing_of_queues_that_are_not_there():
    scene = Scene()
    for number in range(20):
        scene.workload(build_workload_json(f"w{number}", [build_pod_set_json()], queue=f"none-{number}"))
    verdicts = scene.run()
    assert len(verdicts) == 20
    assert isinstance(scene.cycle, Cycle)
    assert scene.cycle._resolved == {}
