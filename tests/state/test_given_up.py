"""Places that are others' to have because their pods come no more: never one that a pod is still on its way to."""

from __future__ import annotations

from core.model.admission import Admission, PodSetAdmission, encode_admission
from core.model.wire.assignment import DomainCount, TopologyAssignment
from core.names import HOSTNAME_LABEL
from core.state.cluster import ClusterState
from core.state.facts import PodFacts, WorkloadFacts
from tests.builders import NAMESPACE, RACK, build_pod_json, build_pod_set_json, build_workload_json
from tests.state.test_cluster import OWNER, cluster, get_usage


def see_workload(state: ClusterState, count: int, on: list[str], *, done: int, version: int) -> None:
    """Of `count` pods, one on each of these nodes is admitted, and so many have succeeded by its status."""
    assignment = TopologyAssignment((HOSTNAME_LABEL,), tuple(DomainCount((node,), 1) for node in on))
    given = Admission("cq", (PodSetAdmission("main", {"cpu": "tas"}, {"cpu": len(on) * 1000}, len(on), assignment),))
    wire = build_workload_json("w", [build_pod_set_json(count=count)], owner=OWNER, admission=encode_admission(given), version=version)
    wire["status"]["reclaimablePods"] = [{"name": "main", "count": done}] if done else []
    state.observe_workload(f"{NAMESPACE}/w", WorkloadFacts.read(wire))


def see_pod(state: ClusterState, name: str, node: str, *, at: int, phase: str = "Running") -> None:
    wire = build_pod_json(name, node=node, workload="w", owner=OWNER, phase=phase)
    wire["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:{at:02}Z"
    state.observe_pod(f"{NAMESPACE}/{name}", PodFacts.read(wire))


def test_the_place_of_a_pod_on_its_way_is_kept_though_the_end_of_another_is_known_only_by_the_workload():
    """What a Job says of its pods may come before what the pods say: the one that still seems to run is the one that has ended."""
    state = cluster([RACK, HOSTNAME_LABEL])
    see_workload(state, 2, ["n0", "n1"], done=0, version=1)
    see_pod(state, "p0", "n0", at=1)
    see_workload(state, 2, ["n0", "n1"], done=1, version=2)
    assert get_usage(state) == {"n0": 1000, "n1": 1000}
    see_pod(state, "p0", "n0", at=1, phase="Succeeded")
    assert get_usage(state) == {"n1": 1000}


def test_pods_that_succeeded_under_an_earlier_admission_give_up_nothing_of_this_one():
    state = cluster([RACK, HOSTNAME_LABEL])
    see_pod(state, "former", "n1", at=1, phase="Succeeded")
    see_workload(state, 3, ["n0", "n1"], done=1, version=1)
    see_pod(state, "p0", "n0", at=9)
    see_workload(state, 3, ["n0", "n1"], done=2, version=2)
    see_pod(state, "p0", "n0", at=9, phase="Succeeded")
    assert get_usage(state) == {"n1": 1000}
