"""What each write says, and of which object it is meant; and what the executor makes of its guard."""

from __future__ import annotations

from typing import Any

import pytest

from core.jobs.contract import PodSetStart
from core.names import ADMISSION_GATE, RESOURCE_IN_USE_FINALIZER, TOPOLOGY_GATE
from core.plan.steps import api_resources as r
from core.plan.steps import writes as w
from core.plan.steps.steps import Then
from core.plan.workloads.workload_steps import drop_finalizer
from core.resource import PatchKind

SEEN = {"metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "7"}}


def test_start_of_a_pod_without_topology_takes_both_gates_off():
    spec = {"schedulingGates": [{"name": ADMISSION_GATE}, {"name": TOPOLOGY_GATE}, {"name": "other"}], "tolerations": [{"key": "own"}]}
    start = PodSetStart("main", False, {"zone": "z"}, [{"key": "own"}, {"key": "flavor"}], {"l": "1"}, {"a": "2"})
    write = w.start_pod({**SEEN, "spec": spec}, start)
    assert (write.resource, write.kind, write.guard) == (r.PODS, PatchKind.STRATEGIC, w.Guard.SAME)
    assert write.body == {
        "metadata": {"labels": {"l": "1"}, "annotations": {"a": "2"}},
        "spec": {
            "schedulingGates": [{"$patch": "delete", "name": ADMISSION_GATE}, {"$patch": "delete", "name": TOPOLOGY_GATE}],
            "nodeSelector": {"zone": "z"},
            "tolerations": [{"key": "own"}, {"key": "flavor"}],
        },
    }


def test_start_of_a_pod_that_gets_a_domain_leaves_the_topology_gate():
    spec = {"schedulingGates": [{"name": ADMISSION_GATE}, {"name": TOPOLOGY_GATE}]}
    body = w.start_pod({**SEEN, "spec": spec}, PodSetStart("main", True)).body
    assert body["spec"] == {"schedulingGates": [{"$patch": "delete", "name": ADMISSION_GATE}]}


@pytest.mark.parametrize(
    ("write", "guard"),
    [
        (w.patch_workload(SEEN, {}), w.Guard.AS_SEEN),
        (w.apply_admission(SEEN, {}), w.Guard.AS_SEEN),
        (w.apply_reclaimable(SEEN, []), w.Guard.AS_SEEN),
        (w.fail_pod(SEEN, "why", "now"), w.Guard.WAITING),
        (w.ungate_to_node({**SEEN, "spec": {}}, ""), w.Guard.AS_SEEN),
        (w.apply_workload_condition(SEEN, {}), w.Guard.SAME),
        (w.delete_workload(SEEN), w.Guard.SAME),
        (w.release_pod(SEEN), w.Guard.SAME),
        (w.patch_status(r.TOPOLOGIES, SEEN, {}), w.Guard.ANY),
    ],
)
def test_write_by_stale_knowledge_is_guarded_by_the_version(write: Any, guard: w.Guard):
    assert write.guard is guard


def test_message_of_a_terminated_pod_has_no_more_characters_than_a_condition_takes():
    [condition] = w.fail_pod(SEEN, "x" * 5000, "now").body["status"]["conditions"]
    assert len(condition["message"]) == w.MOST_OF_MESSAGE


def test_finalizers_of_others_stay_whenever_they_were_added():
    seen: dict[str, Any] = {**SEEN, "metadata": {**SEEN["metadata"], "finalizers": [RESOURCE_IN_USE_FINALIZER]}}
    step = drop_finalizer(seen)
    assert step is not None
    assert isinstance(step.write, Then)
    later = {**seen, "metadata": {**seen["metadata"], "finalizers": [RESOURCE_IN_USE_FINALIZER, "foregroundDeletion"]}}
    write = step.write.build(later)
    assert isinstance(write, w.Patch)
    assert (write.seen, write.guard) == (later, w.Guard.AS_SEEN)
    assert write.body == {"metadata": {"finalizers": ["foregroundDeletion"]}}
