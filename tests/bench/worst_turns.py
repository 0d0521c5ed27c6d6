"""The worst cases of controllers: each turn of the event loop in which they work is a step."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

from core.model.assignment import DomainCount, TopologyAssignment
from core.model.encoding import encode
from core.plan.pod_units import GROUP, Unit
from core.plan.ungate import Ungate
from core.runtime.client import Client
from core.runtime.clock import SystemClock
from core.runtime.resource import Obj
from core.runtime.watch_step import Deleted
from core.runtime.workqueue import Item
from reconciler.apply import Writer
from reconciler.jobs import Jobs
from reconciler.observed import Observed
from reconciler.strangers import Strangers
from reconciler.ungater import Ungater
from tests.bench.steps import CASES, NODES, PODS, Steps, case, turns
from tests.builders import BLOCK, Node, flavor_json, node_json, topology_json
from tests.reconciler import paper_pods
from tests.reconciler.paper import Paper
from tests.reconciler.test_ungater import OWNER, pod, workload

__all__ = ["CASES"]
THROUGHOUT_MS = 5_000  # of all turns of one case in the thread of the event loop


class Written(Paper):
    """Whoever writes waits for the answer, as everywhere."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("create_workload", "start_pod", "release_pod", "read_pod", "event", "patch_workload"):
            setattr(self, name, partial(self._answer, getattr(self, name)))

    @staticmethod
    async def _answer(write: Callable[..., Awaitable[Any]], *arguments: Any, **options: Any) -> Any:
        await asyncio.sleep(0)
        return await write(*arguments, **options)


def group() -> Written:
    paper = Written()
    for number in range(PODS):
        paper.put(paper_pods.pod(f"p{number:05}", group="g", total=PODS, creationTimestamp="2026-01-01T00:00:00Z"))
    return paper


def reconcile(paper: Written) -> Steps:
    return turns(paper.pods._reconcile(Item(Unit(GROUP, "ns", "g"), frozenset(), 0.0)))


@case(THROUGHOUT_MS)
def plain_group_of_50_000_pods_that_comes() -> Steps:
    return reconcile(group())


@case(THROUGHOUT_MS)
def plain_group_of_50_000_pods_that_starts() -> Steps:
    paper = group()
    for _ in reconcile(paper):
        pass
    paper_pods.admit(paper, "g")
    return reconcile(paper)


class Ungated(Written):
    """Pods that are ungated, and nodes in one wide domain."""

    def __init__(self) -> None:
        super().__init__()
        self.ungater = Ungater(self.observed, cast("Writer", self), SystemClock(), waits_for_nodes=True)
        self.observed.topologies.put(named(topology_json("t", (BLOCK,))))
        self.observed.flavors.put(named(flavor_json("f", "t")))
        self.observed.nodes.fill(named(node_json(Node(f"n{number:04}", {BLOCK: "b"}, {"cpu": 1}))) for number in range(NODES))

    async def ungate(self, namespace: str, name: str, action: Ungate) -> Obj:
        await asyncio.sleep(0)
        return self.get("Pod", name, namespace)


def named(obj: Obj) -> Obj:
    return {**obj, "metadata": {**obj["metadata"], "uid": f"uid-{obj['metadata']['name']}", "resourceVersion": "1"}}


@case(THROUGHOUT_MS)
def ungating_of_50_000_pods_in_one_wide_domain() -> Steps:
    paper, whole = Ungated(), workload()
    whole["spec"]["podSets"][0]["count"] = PODS
    given = {"name": "main", "count": PODS, "flavors": {"cpu": "f"}}
    given["topologyAssignment"] = encode(TopologyAssignment((BLOCK,), (DomainCount(("b",), PODS),)))
    whole["status"]["admission"]["podSetAssignments"] = [given]
    paper.put(whole)
    for number in range(PODS):
        paper.put(pod(number))
    return turns(paper.ungater._reconcile(Item("ns/w", frozenset(), 0.0)))


@case(THROUGHOUT_MS)
def job_of_50_000_pods_that_leaves_them() -> Steps:
    observed = Observed(Client.offline(), SystemClock())
    jobs = observed.jobs["Job.batch"]
    job: Obj = {"kind": "Job", "metadata": {"name": "train", "namespace": "ns", "uid": OWNER["uid"], "resourceVersion": "1"}, "spec": {}}
    jobs.fill([{**job, "metadata": {**job["metadata"], "labels": {}}}])
    observed.pods.fill(named({**pod(number), "metadata": {**pod(number)["metadata"], "namespace": "ns"}}) for number in range(PODS))

    def leave() -> Steps:
        jobs._fold(Deleted(job))
        yield None
        for again in observed.again:
            while again.take():
                yield None

    return leave()


@case(THROUGHOUT_MS)
def workload_of_50_000_gated_pods_that_goes() -> Steps:
    paper = Written()
    paper.put(workload())
    for number in range(PODS):
        paper.put(pod(number))
    orphaned = Strangers(paper.observed, cast("Writer", paper), SystemClock())

    def go() -> Steps:
        paper.drop("Workload", "w")
        yield None
        (item,) = (key for key in orphaned.controller.queue._state._entries if not isinstance(key, str))
        yield from turns(orphaned._reconcile(Item(item, frozenset(), 0.0)))

    return go()


@case(THROUGHOUT_MS)
def training_runtime_of_50_000_train_jobs_that_changes() -> Steps:
    paper = Written()
    jobs = paper.observed.jobs["TrainJob.trainer.kubeflow.org"]
    runtimes = paper.observed.related.informers["TrainingRuntime.trainer.kubeflow.org"]
    reconciled = Jobs(paper.observed, cast("Writer", paper), SystemClock())
    metadata = {"namespace": "ns", "resourceVersion": "1"}
    spec = {"runtimeRef": {"name": "r", "kind": "TrainingRuntime"}}
    jobs.fill({"metadata": {**metadata, "name": f"t{number}", "uid": f"t{number}"}, "spec": spec} for number in range(PODS))
    entries = reconciled.controller.queue._state._entries
    entries.clear()

    def change() -> Steps:
        runtimes.put({"metadata": {**metadata, "name": "r", "uid": "r"}, "spec": {}})
        yield None
        (item,) = entries
        yield from turns(reconciled._reconcile(Item(item, frozenset(), 0.0)))

    return change()
