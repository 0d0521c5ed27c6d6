"""Very many pods of one workload are looked at in a thread, and written and owned in portions: all come to the same."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from core.names import RESOURCE_IN_USE_FINALIZER
from core.plan.steps import pacing
from core.resource import Obj
from core.runtime import apart as apart_module
from core.runtime.apart import run_apart
from core.runtime.clock import SystemClock
from core.runtime.workqueue import Item
from reconciler.observe.observed import Observed
from reconciler.observe.refold import Again
from reconciler.pods import pods, ungater
from tests.reconciler.harness_pods import PodsHarness, admit, build_pod, list_started
from tests.reconciler.pods.test_ungater import Ungated, build_workload
from tests.reconciler.pods.test_ungater import build_pod as pod_of_job


@pytest.fixture(autouse=True)
def _two_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart_module, "FEW", 1)


async def test_work_on_many_objects_is_done_in_a_thread_and_on_few_where_it_is():
    here = threading.get_ident()
    assert await run_apart(1, threading.get_ident) == here
    assert await run_apart(2, threading.get_ident) != here
    with pytest.raises(ZeroDivisionError):
        await run_apart(2, lambda: 1 // 0)


def test_a_large_group_starts_in_portions_until_all_its_pods_run(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pacing, "MOST_STARTED", 2)
    harness, names = PodsHarness(), [f"p{number}" for number in range(5)]
    for name in names:
        harness.put(build_pod(name, total=5))
    harness.run()
    admit(harness, "g")
    harness.run(1)
    assert len(list_started(harness)) == 2
    harness.run()
    assert list_started(harness) == set(names)


def test_pods_that_request_more_than_was_admitted_do_not_keep_others_of_a_large_group_from_starting(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pacing, "MOST_STARTED", 1)
    monkeypatch.setattr(pacing, "MOST_EXCESSIVE", 1)
    harness = PodsHarness()
    for name in ("a", "b", "c"):
        harness.put(build_pod(name, total=3))
    harness.run()
    admit(harness, "g")
    for name in ("a", "b"):
        before = harness.get("Pod", name)
        harness.put({**before, "spec": {**before["spec"], "containers": build_pod(name, cpu="9")["spec"]["containers"]}})
    harness.run()
    assert list_started(harness) == {"c"}
    assert [event.key for event in harness.events if event.reason == "WorkloadRefused"] == ["ns/a"]


def test_pods_of_a_large_workload_are_ungated_in_portions(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pacing, "MOST_UNGATED", 1)
    harness = Ungated()
    harness.put(build_workload())
    for number in range(2):
        harness.put(pod_of_job(number))
    harness.reconcile()
    assert harness.ungated == ["p0"]
    harness.reconcile()
    assert harness.ungated == ["p0", "p1"]


@pytest.mark.parametrize("change", ["evicted", "elsewhere", "gone"])
def test_nothing_is_ungated_by_a_place_that_was_lost_while_it_was_planned(monkeypatch: pytest.MonkeyPatch, change: str):
    harness = Ungated()
    harness.put(build_workload())
    for number in range(2):
        harness.put(pod_of_job(number))

    async def meanwhile(count: int, work: Any) -> Any:
        result, there = await run_apart(count, work), harness.get("Workload", "w")
        if change == "gone":
            harness.drop("Workload", "w")
        elif change == "evicted":
            evicted = {"type": "Evicted", "status": "True", "reason": "Preempted", "message": ""}
            conditions = [*there["status"]["conditions"], evicted]
            harness.put({**there, "status": {**there["status"], "conditions": conditions}})
        else:
            harness.put({**there, "status": {**there["status"], "admission": {**there["status"]["admission"], "clusterQueue": "other"}}})
        return result

    monkeypatch.setattr(ungater, "run_apart", meanwhile)
    harness.wait_for(harness.ungater._reconcile(Item("ns/w", frozenset(), 0.0)))
    assert harness.ungated == []


def test_pods_of_workload_without_owner_stay_gated_if_it_is_deleted_while_they_are_planned(monkeypatch: pytest.MonkeyPatch):
    """Its quota is free once none of its pods runs: one that is ungated then runs beside whatever has the quota."""
    harness, made = Ungated(), build_workload(None)
    made["metadata"]["finalizers"] = [RESOURCE_IN_USE_FINALIZER]
    harness.put(made)
    for number in range(2):
        harness.put(pod_of_job(number, None))

    async def meanwhile(count: int, work: Any) -> Any:
        result, there = await run_apart(count, work), harness.get("Workload", "w")
        harness.put({**there, "metadata": {**there["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}})
        return result

    monkeypatch.setattr(ungater, "run_apart", meanwhile)
    harness.wait_for(harness.ungater._reconcile(Item("ns/w", frozenset(), 0.0)))
    assert harness.ungated == []


def test_a_large_group_does_not_start_after_its_workload_changed_meanwhile(monkeypatch: pytest.MonkeyPatch):
    harness = PodsHarness()
    for name in ("a", "b"):
        harness.put(build_pod(name))
    harness.run()
    admit(harness, "g")

    async def meanwhile(count: int, work: Any) -> Any:
        result, there = await run_apart(count, work), harness.get("Workload", "g")
        harness.put(there)
        return result

    monkeypatch.setattr(pods, "run_apart", meanwhile)
    harness.run(1)
    assert list_started(harness) == set()


def _pods_before_their_owners() -> tuple[list[Obj], Obj]:
    def controlled(name: str, kind: str, owner: str) -> Obj:
        reference: Obj = {"apiVersion": "jobset.x-k8s.io/v1alpha2" if kind == "JobSet" else "batch/v1", "kind": kind, "name": owner}
        reference |= {"uid": f"uid-{owner}", "controller": True}
        return {
            "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": "1", "ownerReferences": [reference]},
            "spec": {},
        }

    made = [controlled(f"p{number}", "Job", "train") for number in range(5)]
    return made, controlled("train", "JobSet", "set")


async def test_many_pods_that_came_before_their_owner_are_owned_by_and_by(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pacing, "OWNED_AT_ONCE", 2)
    found, (made, job) = Observed(None, SystemClock()), _pods_before_their_owners()  # type: ignore[arg-type]
    job_set = {
        "metadata": {
            "name": "set",
            "namespace": "ns",
            "uid": "uid-set",
            "resourceVersion": "1",
            "labels": {"kueue.x-k8s.io/queue-name": "main"},
        },
        "spec": {},
    }
    found.jobs["JobSet.jobset.x-k8s.io"].put(job_set)
    for each in made:
        found.pods.put(each)
    found.jobs["Job.batch"].put(job)

    def owners() -> list[str | None]:
        return [found.pod_facts[f"ns/p{number}"].owner_uid for number in range(5)]

    assert owners() == ["uid-set"] * 2 + ["uid-train"] * 3
    for again in found.again:
        await again.refold_all()
    assert owners() == ["uid-set"] * 5


async def test_pod_that_cannot_be_owned_is_set_aside_and_holds_up_no_other(monkeypatch: pytest.MonkeyPatch):
    """Former defect: pods behind it kept their former owner until the process ended."""
    monkeypatch.setattr(pacing, "OWNED_AT_ONCE", 2)
    found, (made, job) = Observed(None, SystemClock()), _pods_before_their_owners()  # type: ignore[arg-type]
    queued = {"name": "set", "namespace": "ns", "uid": "uid-set", "resourceVersion": "1", "labels": {"kueue.x-k8s.io/queue-name": "main"}}

    def break_off(pod: Obj) -> None:
        if pod["metadata"]["name"] in ("p0", "p3"):
            raise RuntimeError("odd")

    found.on_pod_read.append(break_off)
    found.jobs["JobSet.jobset.x-k8s.io"].put({"metadata": queued, "spec": {}})
    for each in made:
        found.pods.put(each)
    found.jobs["Job.batch"].put(job)
    for again in found.again:
        await again.refold_all()
    assert {facts.owner_uid for facts in found.pod_facts.values()} == {"uid-set"}
    assert [aside.obj["metadata"]["name"] for aside in found.set_aside.objects] == ["p0", "p3"]


def test_list_that_is_read_once_has_all_pods_with_their_owners(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pacing, "OWNED_AT_ONCE", 2)
    found, (made, job) = Observed(None, SystemClock()), _pods_before_their_owners()  # type: ignore[arg-type]
    queued = {"name": "set", "namespace": "ns", "uid": "uid-set", "resourceVersion": "1", "labels": {"kueue.x-k8s.io/queue-name": "main"}}
    informers = {str(informer.resource): informer.resource for informer in found.informers}
    by_kind = {resource.kind: resource for resource in informers.values()}
    found.fill({by_kind["Pod"]: made, by_kind["Job"]: [job], by_kind["JobSet"]: [{"metadata": queued, "spec": {}}]})
    assert {facts.owner_uid for facts in found.pod_facts.values()} == {"uid-set"}


async def test_keys_are_looked_at_once_in_the_order_in_which_they_came():
    looked: list[str] = []
    again = Again(looked.append, 2, SystemClock())
    again.add(["a", "b", "a", "c"])
    assert again.refold_some()
    assert looked == ["a", "b"]
    again.add(["a"])
    await again.refold_all()
    assert looked == ["a", "b", "c", "a"]
