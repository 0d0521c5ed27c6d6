"""The catalogue of sentences, jobs and pods: what events report of jobs, plain pod groups and pods that stay gated, and how they end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from core.jobs.kinds.job import Job
from core.names import (
    ADMISSION_GATE,
    CLUSTER_QUEUE_LABEL,
    ELASTIC_JOB,
    EVICTED,
    FINISHED,
    MEMBER_OF_LABEL,
    POD_GROUP_TOTAL_COUNT,
    PODGROUP_GATE,
    PODSET_LABEL,
    PREBUILT_WORKLOAD,
    QUEUE_NAME_LABEL,
    QUOTA_RESERVED,
    REQUIRED_TOPOLOGY,
    ROLE_HASH,
    SLICE_NAME,
    SLICE_REPLACES,
    SUSPENDING_PARENT,
)
from core.plan.jobs import jobs
from core.plan.jobs.job_facts import ChildJob, Holder, PodsOfJob
from core.plan.jobs.jobs import FREE_SUSPENSIONS, plan_job
from core.plan.jobs.prebuilt import find_difference
from core.plan.pods.pod_plan import finish_of
from core.plan.pods.pod_units import ALONE, Unit
from core.plan.pods.units import plan_refused_name
from core.plan.steps import pacing
from core.plan.steps.steps import ParallelSteps, Plan, Step, Then
from core.state.facts import find_condition
from tests.plan.jobs import test_jobs as of_jobs
from tests.plan.jobs import test_podgroup as of_podgroups
from tests.plan.pods import test_units as of_units
from tests.reconciler.pods import test_orphaned_gated_pods as of_orphans

Cases = dict[str, tuple[Callable[[], str], str]]
GOING: dict[str, Any] = {"deletionTimestamp": of_jobs.NOW}
OWNER = {"apiVersion": "x/v1", "kind": "JobSet", "name": "set", "uid": "uid-set", "controller": True}


def list_events(steps: tuple[Step, ...]) -> Iterator[str]:
    for step in steps:
        yield from (event.message for event in step.events)
        if isinstance(step.write, ParallelSteps):
            yield from list_events(tuple(one for one in step.write.steps if isinstance(one, Step)))


def get_event(plan: Plan, at: int = 0) -> str:
    """The message of one of the events of a plan, each counted once."""
    return list(dict.fromkeys(list_events(plan.steps)))[at]


def get_condition(plan: Plan, kind: str, workload: Any) -> str:
    """The message of a condition that the last write of a status sets."""
    for step in reversed(plan.steps):
        write = step.write.build(workload) if isinstance(step.write, Then) else step.write
        if found := find_condition(getattr(write, "body", {}), kind):
            return str(found["message"])
    raise AssertionError(plan)


# --- jobs -------------------------------------------------------------------------------------------------


def step_job(job: Any, workload: Any = None, **more: Any) -> str:
    return get_event(plan_job(of_jobs.make_facts(job, workload, **more)))


def run_job(*true: str, active: bool = True, parallelism: int = 2, **more: Any) -> str:
    """Of a job that topogate has started."""
    job = of_jobs.make_job(running=True, started=True, parallelism=parallelism)
    return step_job(job, of_jobs.make_workload(*true, active=active), **more)


def resume(**metadata: Any) -> str:
    """Of a job that was suspended often, and runs again."""
    return step_job(of_jobs.make_job(running=True, **metadata), suspensions=FREE_SUSPENSIONS - 1)


def find_unmarked(**labels: str) -> str:
    return run_job(*of_jobs.RUNS, pods=PodsOfJob(unmarked=[{"metadata": {"name": "p", "labels": labels}}]))


def name_prebuilt(held: Holder) -> str:
    return step_job(of_jobs.make_job(labels={PREBUILT_WORKLOAD: "made"}), named=held)


def leave_pods_of_a_part() -> str:
    part = ChildJob(of_jobs.KIND, {"metadata": {"name": "part", **GOING}}, live_pods=[of_jobs.POD])
    return step_job(of_jobs.make_job(started=True), of_jobs.make_workload(), pods=PodsOfJob(has_any=True, parts=[part]))


def take_prebuilt(*true: str, parallelism: int = 2) -> tuple[Plan, Any]:
    """A job that has a Workload which was made beforehand."""
    workload = of_jobs.make_workload(*true)
    job = of_jobs.make_job(labels={PREBUILT_WORKLOAD: workload["metadata"]["name"]}, parallelism=parallelism)
    return plan_job(of_jobs.make_facts(job, workload)), workload


def refuse_update() -> str:
    workload = of_jobs.make_workload()
    plan = jobs.plan_refused_update(of_jobs.make_facts(of_jobs.make_job(), workload), workload, "no", None)
    return get_condition(plan, QUOTA_RESERVED, workload)


def refuse_start() -> str:
    workload = of_jobs.make_workload(*of_jobs.RUNS)
    facts = of_jobs.make_facts(of_jobs.make_job(), workload)
    return get_event(jobs.plan_refused_start(facts, workload, "no", is_invalid=False, deactivates=False, shown="no"), 1)


def resize(parallelism: int, count: int, successor: str = "") -> tuple[Plan, Any]:
    """A running elastic job that was admitted with 2 pods, and whose Workload asks for `count`."""
    notes = {ELASTIC_JOB: "true"}
    job = of_jobs.make_job(running=True, started=True, parallelism=parallelism, annotations=notes)
    workload = of_jobs.make_workload(*of_jobs.RUNS)
    name = workload["metadata"]["name"]
    workload["metadata"]["annotations"] = {SLICE_NAME: name}
    workload["spec"]["podSets"][0]["count"] = count
    facts = of_jobs.make_facts(job, workload, is_elastic_on=True)
    if successor:
        other = of_jobs.make_workload(*of_jobs.RUNS, name=successor, uid="w2", annotations={SLICE_NAME: name, SLICE_REPLACES: f"ns/{name}"})
        facts = replace(facts, owned=[workload, other])
    return plan_job(facts), workload


def own_pod_group() -> str:
    return get_event(of_podgroups.plan(of_podgroups.store(metadata={"ownerReferences": []})))


JOBS: Cases = {
    "created": (lambda: step_job(of_jobs.make_job()), "Created Workload: ns/job-train-e479b"),
    "not admitted yet": (lambda: step_job(of_jobs.make_job(running=True)), "Suspended: it had not been admitted yet"),
    "not admitted any more": (run_job, "Suspended: it is not admitted"),
    "resumed again": (resume, "Suspended: it had not been admitted yet. It is resumed again and again"),
    "resumed by its owner": (
        lambda: resume(ownerReferences=[OWNER]),
        (
            "Suspended: it had not been admitted yet. JobSet set resumes it again and again: the label "
            "kueue.x-k8s.io/queue-name belongs on that"
        ),
    ),
    "started": (lambda: step_job(of_jobs.make_job(), of_jobs.make_workload(*of_jobs.RUNS)), "Admitted by clusterQueue q"),
    "waits for pods of before": (
        lambda: step_job(of_jobs.make_job(), of_jobs.make_workload(*of_jobs.RUNS), pods=of_jobs.has_pods()),
        "it has its place, and starts when the pods of before are gone",
    ),
    "another queue": (
        lambda: step_job(of_jobs.make_job(labels={QUEUE_NAME_LABEL: "other"}), of_jobs.make_workload()),
        "Updated Workload: queueName main -> other",
    ),
    "other pods": (lambda: step_job(of_jobs.make_job(parallelism=3), of_jobs.make_workload()), "Updated Workload: podSets"),
    "other pods with quota": (
        lambda: step_job(of_jobs.make_job(parallelism=3), of_jobs.make_workload(*of_jobs.RESERVED)),
        "the job's pods, queue or priority class have changed while it waited for its admission checks or its place",
    ),
    "other pods while it was stopped": (
        lambda: step_job(of_jobs.make_job(parallelism=3), of_jobs.make_workload(*of_jobs.RUNS)),
        "the job's pod sets have changed",
    ),
    "another number of pods": (lambda: run_job(*of_jobs.RUNS, parallelism=3), "the job's pod counts have changed while it ran"),
    "deactivated": (
        lambda: run_job(*of_jobs.RUNS, active=False),
        "The workload is deactivated: its spec.active is false. To run it again, delete its job and create it again; or have an "
        "administrator (ClusterRole topogate-batch-admin) set spec.active of the Workload to true",
    ),
    "suspended by its user": (
        lambda: step_job(of_jobs.make_job(started=True), of_jobs.make_workload(*of_jobs.RUNS)),
        "The job was suspended by its user; unsuspend it to queue it again",
    ),
    "pods of templates before the start": (
        find_unmarked,
        "pods were made of the job's templates before it was started; it starts again without them",
    ),
    "pods without the annotation": (
        lambda: find_unmarked(**{PODSET_LABEL: "main", CLUSTER_QUEUE_LABEL: "q"}),
        (
            "pod p has no annotation kueue.x-k8s.io/workload, and the template of its Job has one: another "
            "admission webhook removes it, and without it no pod gets a node"
        ),
    ),
    "finished": (
        lambda: step_job({**of_jobs.make_job(), **of_jobs.ENDED}, of_jobs.make_workload(*of_jobs.RUNS)),
        "Workload 'ns/job-train-e479b' is declared finished",
    ),
    "pods run on": (
        lambda: step_job({**of_jobs.make_job(), **of_jobs.ENDED}, of_jobs.make_workload(*of_jobs.RUNS), pods=of_jobs.has_pods()),
        (
            "it has finished, and 1 of its pods still run: its quota and its nodes are free once they have "
            "ended. If its controller leaves them (runPolicy.cleanPodPolicy: None), delete them or the job"
        ),
    ),
    "a pod of a finished job": (
        lambda: step_job(
            {**of_jobs.make_job(), **of_jobs.ENDED}, of_jobs.make_workload(*of_jobs.RUNS, active=False), pods=of_jobs.has_pods()
        ),
        "Workload is deactivated or deleted, and its job has finished",
    ),
    "a pod of a job that is being deleted": (
        lambda: step_job(of_jobs.make_job(**GOING), of_jobs.make_workload(*of_jobs.RUNS, active=False), pods=of_jobs.has_pods()),
        "Workload is deactivated or deleted, and its job is being deleted",
    ),
    "a pod of a part that is being deleted": (
        leave_pods_of_a_part,
        "Workload is deactivated or deleted, and what made the pod is being deleted",
    ),
    "its Workload is being deleted": (
        lambda: step_job(of_jobs.make_job(running=True), of_jobs.make_workload(*of_jobs.RUNS, **GOING)),
        "Workload is deleted",
    ),
    "its Workload is deleted": (
        lambda: step_job(of_jobs.make_job(), of_jobs.make_workload(**GOING)),
        "Deleted Workload: ns/job-train-e479b",
    ),
    "prebuilt, not there": (lambda: name_prebuilt(Holder(None)), "waits for the Workload ns/made, which does not exist"),
    "prebuilt, being deleted": (
        lambda: name_prebuilt(Holder(of_jobs.make_workload(**GOING))),
        "waits for the Workload ns/made, which does not exist any more",
    ),
    "prebuilt, of another": (
        lambda: name_prebuilt(Holder(of_jobs.make_workload(), "Job other")),
        "the Workload ns/made is that of Job other; name another, or none to have one made",
    ),
    "prebuilt, finished": (
        lambda: get_event(take_prebuilt(FINISHED)[0]),
        "the Workload ns/job-train-e479b is finished: for Finished. Delete it and make another one, or name another one",
    ),
    "prebuilt, other pods": (
        lambda: get_condition(*_insert(take_prebuilt(parallelism=3))),
        "the prebuilt Workload is out of step with its job: pod set main: count of the job: 3, of the Workload: 2",
    ),
    "prebuilt, other pod sets": (
        lambda: str(find_difference(Job().list_pod_sets(of_jobs.make_job()), {"spec": {"podSets": []}})),
        "the job's pod sets are main, the Workload's none",
    ),
    "refused update": (refuse_update, "the job's pod sets are refused: no"),
    "refused start": (refuse_start, "the start of Job train is refused: no"),
    "elastic, grows": (lambda: get_event(resize(3, 2)[0]), "Created Workload: ns/job-train-95781, to grow; what runs goes on"),
    "elastic, shrinks": (lambda: get_event(resize(1, 1)[0]), "Updated Workload: ns/job-train-e479b, it gave back what it needs no more"),
    "elastic, replaced": (lambda: get_condition(*_insert(resize(3, 2, "next"))), "its pods run on under Workload ns/next"),
    "PodGroup of another": (own_pod_group, "there is a PodGroup g that is not of this job; its pods wait"),
    "PodGroup with places": (
        lambda: get_event(of_podgroups.plan(of_podgroups.store(), of_podgroups.SCHEDULED)),
        "PodGroup g: 4 pods have their places",
    ),
}


def _insert(found: tuple[Plan, Any]) -> tuple[Plan, str, Any]:
    return found[0], FINISHED, found[1]


# --- plain pod groups -------------------------------------------------------------------------------------


def step_group(*pods: Any, workload: Any = None, **more: Any) -> str:
    return get_event(of_units.plan(of_units.make_facts(*pods, workload=workload, **more)))


def gather(**of_second: Any) -> str:
    """Of two gated pods, the second of which is made with options."""
    return step_group(of_units.A, of_units.make_pod("b", **of_second), copied_labels=("team",))


def ask_for_topology(level: str) -> dict[str, str]:
    return {POD_GROUP_TOTAL_COUNT: "2", REQUIRED_TOPOLOGY: level}


def take_name() -> str:
    owned = of_units.make_workload(ownerReferences=[OWNER])
    return get_event(plan_refused_name(of_units.make_facts(of_units.A, of_units.B), "g", owned))


def add_third(**metadata: Any) -> str:
    third = of_units.make_pod("c", creationTimestamp="2026-01-02T00:00:00Z", **metadata)
    return step_group(of_units.A, of_units.B, third, workload=of_units.make_workload())


def start(*pods: Any, at: int = 0) -> str:
    return get_event(of_units.plan(of_units.make_facts(*pods, workload=of_units.make_workload(*of_units.RUNS))), at)


def replace_pods() -> str:
    workload = of_units.make_workload(*of_units.RUNS, EVICTED)
    return get_condition(of_units.plan(of_units.make_facts(of_units.A, workload=workload)), QUOTA_RESERVED, workload)


def step_stateful_set(replicas: int, *true: str, **metadata: Any) -> Plan:
    labels = {QUEUE_NAME_LABEL: "main"}
    template = {"metadata": {}, "spec": {"containers": [{"name": "c"}]}}
    source = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "s", "namespace": "ns", "uid": "uid-s", "labels": labels, **metadata},
        "spec": {"replicas": replicas, "template": template},
    }
    facts = of_units.make_facts(workload=of_units.make_workload(*true), unit=Unit("StatefulSet", "ns", "s"))
    return of_units.plan(replace(facts, source=source))


def end_alone(phase: str) -> str:
    over = finish_of(Unit(ALONE, "ns", "a"), {"main": 1}, [of_units.make_pod("a", gated=False, phase=phase, of_group=False)])
    assert over is not None
    return over.message


DONE = [of_units.make_pod(name, gated=False, phase="Succeeded") for name in ("a", "b")]
GROUPS: Cases = {
    "waits for pods": (
        lambda: step_group(of_units.A, waited_s=pacing.GROUP_PATIENCE_S),
        "group g waits for 1 more pod; it is queued when all are there",
    ),
    "created": (lambda: step_group(of_units.A, of_units.B, examples={"main": of_units.A}), "Created Workload: ns/g"),
    "other queues": (
        lambda: gather(labels={QUEUE_NAME_LABEL: "other"}),
        "pods of group g differ in their queue: main (pod a), other (pod b); delete those that are wrong",
    ),
    "other totals": (
        lambda: gather(total=3),
        "pods of group g differ in their total count: 2 (pod a), 3 (pod b); delete those that are wrong",
    ),
    "no total": (lambda: step_group(of_units.make_pod("a", total=0)), "pods of group g do not say how many they are"),
    "other labels": (
        lambda: step_group(
            of_units.make_pod("a", labels={"team": "x"}), of_units.make_pod("b", labels={"team": "y"}), copied_labels=("team",)
        ),
        "pods of group g differ in their label team: x and y (pod b); delete those that are wrong",
    ),
    "other topologies": (
        lambda: step_group(*(of_units.make_pod(name, annotations=ask_for_topology(f"l-{name}")) for name in ("a", "b"))),
        (
            "pods a and b of group g are alike, but ask for different topologies: "
            "kueue.x-k8s.io/podset-required-topology is l-a (pod a), l-b (pod b); delete those that are wrong"
        ),
    ),
    "name is taken": (take_name, "the name of group g is that of the Workload of another; choose another name"),
    "name of one that has finished": (
        lambda: step_group(of_units.A_DONE, of_units.B, workload=of_units.make_workload(FINISHED)),
        "group g has finished; delete its pods to use its name again",
    ),
    "not admitted": (
        lambda: step_group(of_units.A_RUNS, of_units.B, workload=of_units.make_workload()),
        "Not admitted, but past its admission gate",
    ),
    "one pod too many": (add_third, "Group g has all of its pods without this one"),
    "one pod too many, of a controller": (
        lambda: add_third(ownerReferences=[OWNER | {"kind": "ReplicaSet", "name": "web"}]),
        (
            "Group g has all of its pods without this one. It stays gated, since ReplicaSet web would make "
            "another: give that as many replicas as the group has"
        ),
    ),
    "more run than were admitted": (
        lambda: start(of_units.A_RUNS, of_units.B_RUNS, of_units.make_pod("c", gated=False, phase="Running")),
        "more than the 2 pods that were admitted run",
    ),
    "a role that was not admitted": (
        lambda: start(of_units.make_pod("a", gated=False, phase="Running", annotations={POD_GROUP_TOTAL_COUNT: "2", ROLE_HASH: "x"})),
        "the workload was admitted without pods like a (role x)",
    ),
    "a pod of a role that was not admitted": (
        lambda: start(of_units.make_pod("a", gated=False, phase="Running", annotations={POD_GROUP_TOTAL_COUNT: "2", ROLE_HASH: "x"}), at=1),
        "it is no part of what was admitted",
    ),
    "finished": (lambda: step_group(*DONE, workload=of_units.make_workload(*of_units.RUNS)), "Workload 'ns/g' is declared finished"),
    "succeeded": (
        lambda: get_condition(
            of_units.plan(of_units.make_facts(*DONE, workload=of_units.make_workload(*of_units.RUNS))), FINISHED, of_units.make_workload()
        ),
        "Pods succeeded: 2/2",
    ),
    "evicted, with fewer pods": (replace_pods, "group g was evicted and waits for the pods that replace its own"),
    "a StatefulSet without replicas": (
        lambda: get_condition(step_stateful_set(0), QUOTA_RESERVED, of_units.make_workload()),
        "StatefulSet s has no replicas",
    ),
    "a StatefulSet that was changed": (
        lambda: get_event(step_stateful_set(5, *of_units.RUNS)),
        "StatefulSet ns/s was changed while it ran: its queue, the number of its pods, or what they ask for",
    ),
    "a StatefulSet that is being deleted": (
        lambda: get_condition(step_stateful_set(2, **GOING), QUOTA_RESERVED, of_units.make_workload()),
        "StatefulSet s is being deleted",
    ),
    "a pod that succeeded": (lambda: end_alone("Succeeded"), "Pod succeeded"),
    "a pod that failed": (lambda: end_alone("Failed"), "Pod failed"),
}

# --- pods that stay gated ---------------------------------------------------------------------------------


def look_at(pod: Any, *others: Any) -> str:
    harness = of_orphans.build_scene()
    for other in others:
        harness.put(other)
    harness.put(pod)
    (message,) = harness.look()
    return message


GATED: Cases = {
    "of no Workload": (
        lambda: look_at(of_orphans.gated()),
        (
            "the gate kueue.x-k8s.io/topology is taken off pods of queued jobs only, and the pod is of none; "
            "delete it, and queue what makes it (label kueue.x-k8s.io/queue-name) or take the gate off its "
            "template"
        ),
    ),
    "of a Workload that is not there": (
        lambda: look_at(of_orphans.gated("w-2")),
        (
            "the gate kueue.x-k8s.io/topology is taken off by Workload w-2, which does not exist; delete the "
            "pod, what is queued makes it anew"
        ),
    ),
    "of the Workload of another": (
        lambda: look_at(of_orphans.gated("w")),
        "the gate kueue.x-k8s.io/topology stays on: the pod was not made by the job of Workload w, which it names; delete the pod",
    ),
    "of a job that is gone": (
        lambda: look_at(of_orphans.gated("orphan")),
        (
            "the gate kueue.x-k8s.io/topology stays on: the job of Workload orphan is gone; delete the pod, "
            "until then orphan holds its quota"
        ),
    ),
    "of no queue": (
        lambda: look_at(of_orphans.gated(gate=ADMISSION_GATE)),
        "the gate kueue.x-k8s.io/admission is taken off queued pods only; create the pod anew with the label kueue.x-k8s.io/queue-name",
    ),
    "not of its StatefulSet": (
        lambda: look_at(of_orphans.queued({SUSPENDING_PARENT: of_orphans.STATEFUL})),
        "the StatefulSet or LeaderWorkerSet that the pod says it is of has not made it, or has let go of it; delete the pod",
    ),
    "of no LeaderWorkerSet": (
        lambda: look_at(of_orphans.queued({SUSPENDING_PARENT: of_orphans.LEADER_WORKER}, **of_orphans.PARENT_LABELS)),
        "its LeaderWorkerSet lws does not exist; delete the pod",
    ),
    "not of its LeaderWorkerSet": (
        lambda: look_at(
            of_orphans.queued({SUSPENDING_PARENT: of_orphans.LEADER_WORKER}, **of_orphans.PARENT_LABELS),
            {"kind": "LeaderWorkerSet", "metadata": {"name": "lws", "uid": "uid-lws"}, "spec": {}},
        ),
        "LeaderWorkerSet lws, of which it says it is, has not made it; delete the pod",
    ),
    "of another pod set": (
        lambda: look_at(of_orphans.mark(of_orphans.gated("w", of_orphans.JOB), **{PODSET_LABEL: "another"})),
        (
            "the gate kueue.x-k8s.io/topology stays on: Workload w has no pod set 'another', which the label "
            "kueue.x-k8s.io/podset of the pod names; it has main. Another admission webhook may write that "
            "label; delete the pod"
        ),
    ),
    "of no PodGroup": (
        lambda: look_at(of_orphans.mark(of_orphans.gated(gate=PODGROUP_GATE), **{MEMBER_OF_LABEL: "train"})),
        "the gate topogate.dev/podgroup stays on: PodGroup train, which the pod names, does not exist; create it or delete the pod",
    ),
}


@pytest.mark.parametrize(
    ("build", "sentence"),
    [pytest.param(*case, id=name) for cases in (JOBS, GROUPS, GATED) for name, case in cases.items()],
)
def test_event_of_a_job_or_pod_has_its_sentence(build: Callable[[], str], sentence: str):
    assert build() == sentence
