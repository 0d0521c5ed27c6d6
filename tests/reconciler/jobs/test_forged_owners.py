"""A pod counts as a pod of a job only through owners of kinds that policies guard, whatever uid it names."""

from __future__ import annotations

from typing import Any

import pytest

from core.names import MANAGED, POD_GROUP_NAME, QUEUE_NAME_LABEL, TOPOLOGY_GATE, WORKLOAD_ANNOTATION
from core.plan.pods.pod_units import GROUP, Unit
from core.runtime.http.client import Client
from core.runtime.watch.watch_step import Deleted
from reconciler.jobs.child_objects import find_parts
from reconciler.observe.observed import Observed
from tests.runtime.fakes import ManualClock

Json = dict[str, Any]


def owned_by(kind: str, api_version: str, uid: str) -> list[Json]:
    return [{"apiVersion": api_version, "kind": kind, "name": "x", "uid": uid, "controller": True}]


def build_pod(name: str, owners: list[Json]) -> Json:
    metadata = {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1", "ownerReferences": owners}
    return {"metadata": metadata, "spec": {"nodeName": "n", "containers": []}, "status": {"phase": "Running"}}


def build_job(name: str, owners: list[Json], labels: dict[str, str] | None = None) -> Json:
    metadata = {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1", "ownerReferences": owners, "labels": labels or {}}
    return {"metadata": metadata, "spec": {}}


def get_job(observed: Observed, name: str) -> Json:
    job = observed.jobs["Job.batch"].store.get(f"ns/{name}")
    assert job is not None
    return job


@pytest.fixture
def observed() -> Observed:
    found = Observed(Client.make_offline(), ManualClock())
    found.jobs["Job.batch"].put(build_job("low", [], {"kueue.x-k8s.io/queue-name": "main"}))
    found.pods.put(build_pod("low-0", owned_by("Job", "batch/v1", "low")))
    return found


def test_pod_with_a_controller_of_an_unknown_kind_is_no_pod_of_a_job_with_the_same_uid(observed: Observed):
    """Such a pod kept the quota of a preempted job for ever."""
    observed.pods.put(build_pod("leech", owned_by("Foo", "example.com/v1", "low")))
    assert observed.count_live_pods(get_job(observed, "low")) == (1, 0)
    assert observed.pod_facts["ns/leech"].owner_uid != "low"


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_pod_with_a_pod_as_controller_is_no_pod_of_a_job_with_the_same_uid(observed: Observed, version: str):
    """A Pod is an owner that any user can name."""
    observed.pods.put(build_pod("leech", owned_by("Pod", version, "low")))
    assert observed.count_live_pods(get_job(observed, "low")) == (1, 0)
    assert observed.pod_facts["ns/leech"].owner_uid != "low"


@pytest.mark.parametrize(("kind", "version"), [("Pod", "v1"), ("Job", "batch/v1")])
def test_pod_and_job_of_another_namespace_are_not_those_of_a_job_that_they_name(observed: Observed, kind: str, version: str):
    """Former defect: gated pods of that kind made the reconciler stop the job."""
    pod = build_pod("leech", owned_by(kind, version, "low"))
    pod["metadata"]["namespace"] = "other"
    pod |= {"spec": {"containers": [], "schedulingGates": [{"name": TOPOLOGY_GATE}]}, "status": {"phase": "Pending"}}
    observed.pods.put(pod)
    part = build_job("part", owned_by(kind, version, "low"))
    part["metadata"]["namespace"] = "other"
    observed.jobs["Job.batch"].put(part)
    low = get_job(observed, "low")
    assert observed.find_unmarked_pods(low) == []
    assert observed.count_live_pods(low) == (1, 0)
    assert find_parts(observed, low) == []


def test_pod_of_a_job_with_a_controller_of_an_unknown_kind_is_no_pod_of_another_job(observed: Observed):
    observed.jobs["Job.batch"].put(build_job("mine", owned_by("Foo", "example.com/v1", "low")))
    observed.pods.put(build_pod("leech", owned_by("Job", "batch/v1", "mine")))
    assert observed.count_live_pods(get_job(observed, "low")) == (1, 0)
    assert observed.count_live_pods(get_job(observed, "mine")) == (1, 0)


def test_pod_of_a_part_that_is_gone_counts_from_when_it_is_ungated_also_where_that_is_not_seen_yet(observed: Observed):
    """Review 29: its quota was given to others while it started."""
    metadata: Json = {"name": "w", "namespace": "ns", "uid": "w", "resourceVersion": "1"}
    metadata["ownerReferences"] = owned_by("Job", "batch/v1", "low")
    spec: Json = {"podSets": []}
    observed.workloads.put({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": metadata, "spec": spec, "status": {}})
    pod = build_pod("late", [{**owned_by("Job", "batch/v1", "gone")[0], "name": "gone"}])
    pod["metadata"]["annotations"] = {WORKLOAD_ANNOTATION: "w"}
    pod |= {"spec": {"containers": [], "schedulingGates": [{"name": TOPOLOGY_GATE}]}, "status": {"phase": "Pending"}}
    observed.pods.put(pod)
    assert (observed.count_live_pods(get_job(observed, "low")), len(observed.find_running_pods(get_job(observed, "low")))) == ((1, 0), 1)
    observed.ungating.begin({"late": {}})
    assert (observed.count_live_pods(get_job(observed, "low")), len(observed.find_running_pods(get_job(observed, "low")))) == ((2, 0), 2)


def test_pod_of_a_part_that_is_deleted_before_it_still_belongs_to_the_job(observed: Observed):
    """Found by seed 507 of the simulation: while pods of an evicted AppWrapper ended, their Job was gone and they counted beside the place
    of their workload. So what had preempted it took it for no help, and others got the room: two workloads were preempted in turns."""
    part = build_job("part", owned_by("Job", "batch/v1", "low"))
    observed.jobs["Job.batch"].put(part)
    pod = build_pod("part-0", owned_by("Job", "batch/v1", "part"))
    observed.pods.put(pod)
    assert observed.pod_facts["ns/part-0"].owner_uid == "low"
    observed.jobs["Job.batch"]._fold(Deleted(part))
    assert observed.pod_facts["ns/part-0"].owner_uid == "low"
    observed.pods.put({**pod, "metadata": {**pod["metadata"], "resourceVersion": "2", "deletionTimestamp": "2026-01-01T00:00:00Z"}})
    assert observed.pod_facts["ns/part-0"].owner_uid == "low"
    namesake = {**pod, "metadata": {**pod["metadata"], "uid": "another"}}
    observed.pods.put(namesake)
    assert observed.pod_facts["ns/part-0"].owner_uid == "part", "another pod of that name was never known to be the job's"


def test_pod_of_a_replica_set_of_a_deployment_of_a_job_is_its_pod(observed: Observed):
    observed.between["Deployment"].put(build_job("d", owned_by("Job", "batch/v1", "low")))
    observed.between["ReplicaSet"].put(build_job("r", owned_by("Deployment", "apps/v1", "d")))
    observed.pods.put(build_pod("r-0", owned_by("ReplicaSet", "apps/v1", "r")))
    assert observed.count_live_pods(get_job(observed, "low")) == (2, 0)


@pytest.mark.parametrize(("kind", "is_member"), [("Job", False), ("Foo", True)])
@pytest.mark.parametrize("notes", [{}, {WORKLOAD_ANNOTATION: "g"}])
def test_pod_of_a_job_is_no_member_of_a_group_unless_topogate_started_it(
    observed: Observed, kind: str, is_member: bool, notes: dict[str, str]
):
    """Ended pods of a Job without a queue, labelled as members, gave back the quota of a group while its own pods ran."""
    pod = build_pod("fake", owned_by(kind, "batch/v1" if kind == "Job" else "example.com/v1", "f"))
    pod["metadata"] |= {"labels": {MANAGED: "true", QUEUE_NAME_LABEL: "main", POD_GROUP_NAME: "g"}, "annotations": notes}
    observed.pods.put(pod)
    found = observed.pods.store.list_by_index("unit", str(Unit(GROUP, "ns", "g")))
    assert [each["metadata"]["name"] for each in found] == (["fake"] if is_member or notes else [])
