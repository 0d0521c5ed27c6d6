"""What is written of a Workload that was seen is not written on another that has its name by now."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from core.plan.steps import api_resources as r
from core.plan.steps import writes as w
from core.plan.steps.steps import Step, make_plan
from core.resource import Obj
from core.runtime.clock import SystemClock
from core.runtime.http.client import Client
from core.runtime.http.errors import Conflict, NotFound
from e2e.cluster import Cluster
from e2e.crds import install_crds
from reconciler.execute.event_recorder import Reporter
from reconciler.execute.executor import Executor, Left

FINISHED = {"type": "Finished", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[Client]:
    install_crds(cluster.api)
    async with await Client.connect(str(cluster.kubeconfig), user_agent="test") as client:
        yield client


async def make(client: Client, namespace: str) -> Obj:
    spec: dict[str, Any] = {"queueName": "q", "podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": []}}}]}
    head = {"apiVersion": r.WORKLOADS.api_version, "kind": "Workload"}
    return await client.create(r.WORKLOADS, {**head, "metadata": {"name": "group", "namespace": namespace}, "spec": spec}, namespace)


async def execute(executor: Executor, write: w.Write) -> Left:
    """A plan of one write, and what that leaves of the object."""
    left = Left()
    await executor.execute(make_plan(Step("write", write)), left)
    return left


async def test_condition_is_written_on_the_workload_that_was_seen_alone(client: Client, namespace: str):
    executor = Executor(client, SystemClock(), Reporter(client, SystemClock()))
    seen = await make(client, namespace)
    await execute(executor, w.patch_workload(seen, {"metadata": {"labels": {"changed": "meanwhile"}}}))
    written = (await execute(executor, w.apply_workload_condition(seen, FINISHED)))[r.WORKLOADS, f"{namespace}/group"]
    assert [condition["type"] for condition in written["status"]["conditions"]] == ["Finished"]
    await execute(executor, w.delete_workload(written))
    another = await make(client, namespace)
    for old in (seen, written):
        with pytest.raises(NotFound):
            await execute(executor, w.apply_workload_condition(old, FINISHED))
        with pytest.raises(Conflict):
            await execute(executor, w.apply_admission(old, {"conditions": [FINISHED]}))
        with pytest.raises(Conflict):
            await execute(executor, w.apply_reclaimable(old, [{"name": "main", "count": 1}]))
    assert (await executor.read(r.WORKLOADS, namespace, "group"))["metadata"]["resourceVersion"] == another["metadata"]["resourceVersion"]
