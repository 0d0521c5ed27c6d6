"""Who begins to lead hears of what there is piece by piece: what changes meanwhile is not lost, and nothing is decided before.

Compared with parts that were told of everything in one go, in the moment in which it began.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.names import HOSTNAME_LABEL, PODSET_LABEL, QUEUE_NAME_LABEL, TOPOLOGY_GATE, WORKLOAD_ANNOTATION
from core.placement.algorithms.profile import STANDARD
from core.plan.steps import pacing
from core.resource import Obj
from core.runtime.http.client import Client
from core.runtime.watch.late_handlers import AT_ONCE, Late
from core.runtime.watch.store import build_object_key
from reconciler.app import Deciding, Reconciler
from reconciler.behaviour import Behaviour
from reconciler.pods.orphaned_gated_pods import _PodsOf
from tests.builders import RACK
from tests.runtime.fakes import ManualClock

HOSTS = ("a", "b", "c")
NAMES = ("v", "w")
DONE_AT = "2026-01-01T00:00:00Z"

NODES = st.tuples(st.just("node"), st.sampled_from(HOSTS), st.booleans())
WORKLOADS = st.tuples(st.just("workload"), st.sampled_from(NAMES), st.sampled_from([(), ("a",), ("a", "b"), ("c",)]))
PODS = st.tuples(st.just("pod"), st.sampled_from(["v-1", "v-2", "w-1", "w-2"]), st.sampled_from(["gated", "bound", "over"]))
JOBS = st.tuples(st.just("job"), st.sampled_from(NAMES), st.booleans())
GOES = st.tuples(st.just("goes"), st.sampled_from(["node a", "workload v", "workload w", "pod v-1", "pod w-1", "job v"]), st.none())
HAPPENS = st.lists(st.one_of(NODES, WORKLOADS, PODS, JOBS, GOES), max_size=12)
Happens = list[tuple[str, Any, Any]]


class World:
    """A reconciler that sees a few nodes, and jobs `v` and `w` with workloads and pods."""

    def __init__(self) -> None:
        self.clock = Interrupted()
        self.reconciler = Reconciler(Client.make_offline(), self.clock, Behaviour(STANDARD))
        observed = self.reconciler.observed
        observed.topologies.fill([made("Topology", "t", spec={"levels": [{"nodeLabel": RACK}, {"nodeLabel": HOSTNAME_LABEL}]})])
        observed.flavors.fill([made("ResourceFlavor", "f", spec={"nodeLabels": {}, "topologyName": "t"})])
        self._informers = {
            "node": observed.nodes,
            "workload": observed.workloads,
            "pod": observed.pods,
            "job": observed.jobs["Job.batch"],
        }

    def do(self, kind: str, name: str, how: Any) -> None:
        if kind == "goes":
            kind, _, name = name.partition(" ")
            informer = self._informers[kind]
            informer.fill([obj for obj in informer.store.list() if obj["metadata"]["name"] != name])
        else:
            make: Mapping[str, Callable[[str, Any], Obj]] = {
                "node": _build_node,
                "workload": _build_workload,
                "pod": _build_pod,
                "job": _build_job,
            }
            self._informers[kind].put(make[kind](name, how))


class Interrupted(ManualClock):
    """At each turn of the loop something happens; time stands still, so that the same is due in the same order."""

    def __init__(self) -> None:
        super().__init__()
        self.left: list[Callable[[], object]] = []
        self.turns = 0

    async def sleep(self, seconds: float) -> None:
        await super().sleep(0)
        self.turns += 1
        if self.left:
            self.left.pop(0)()


_versions = itertools.count(1)


def made(kind: str, name: str, namespace: str | None = None, *, spec: Any, status: Any = None, **metadata: Any) -> Obj:
    base: dict[str, Any] = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(next(_versions)), **metadata}
    base |= {"namespace": namespace} if namespace else {}
    return {"apiVersion": "v1", "kind": kind, "metadata": base, "spec": spec, "status": status or {}}


def _build_node(name: str, ready: bool) -> Obj:
    condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": DONE_AT}
    status = {"conditions": [condition], "allocatable": {"cpu": "8", "pods": "9"}}
    return made("Node", name, labels={RACK: "r", HOSTNAME_LABEL: name}, spec={}, status=status)


def _build_workload(name: str, hosts: tuple[str, ...]) -> Obj:
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
    spec = {"queueName": "main", "podSets": [{"name": "main", "count": max(1, len(hosts)), "template": template}]}
    values = [{"domainCount": 1, "podCounts": {"universal": 1}, "valuesPerLevel": [{"universal": host}]} for host in hosts]
    given = {"name": "main", "count": len(hosts), "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": str(len(hosts))}}
    given["topologyAssignment"] = {"levels": [HOSTNAME_LABEL], "slices": values}
    true = {"status": "True", "reason": "R", "lastTransitionTime": DONE_AT}
    status: dict[str, Any] = {"requeueState": {"count": 1, "requeueAt": DONE_AT}}
    if hosts:
        conditions = [{"type": kind, **true} for kind in ("QuotaReserved", "Admitted")]
        status = {"admission": {"clusterQueue": "q", "podSetAssignments": [given]}, "conditions": conditions}
    return made("Workload", name, "ns", spec=spec, status=status, ownerReferences=[_owner(name)])


def _build_pod(name: str, how: str) -> Obj:
    workload = name[0]
    spec: dict[str, Any] = {"containers": []}
    spec |= {"schedulingGates": [{"name": TOPOLOGY_GATE}]} if how == "gated" else {"nodeName": "a" if name[-1] == "1" else "b"}
    more = {"labels": {PODSET_LABEL: "main"}, "annotations": {WORKLOAD_ANNOTATION: workload}, "ownerReferences": [_owner(workload)]}
    status = {"phase": {"gated": "Pending", "bound": "Running", "over": "Succeeded"}[how]}
    return made("Pod", name, "ns", spec=spec, status=status, creationTimestamp=DONE_AT, **more)


def _build_job(name: str, suspended: bool) -> Obj:
    template = {"spec": {"containers": [{"name": "c"}]}}
    return made("Job", name, "ns", labels={QUEUE_NAME_LABEL: "main"}, spec={"suspend": suspended, "template": template})


def _owner(name: str) -> dict[str, Any]:
    return {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": name, "controller": True}


def picture(deciding: Deciding) -> dict[str, Any]:
    """What the parts have gathered from what they were told of what there is; keys of what came and went meanwhile lead to nothing."""
    health, observed = deciding.node_health, deciding._observed
    assert health is not None
    queued = {
        controller.name: {key: (entry.priority, entry.ready) for key, entry in controller.queue._state._entries.items()}
        for controller in deciding.controllers
    }
    pods = {build_object_key(pod): pod for pod in observed.pods.store.list()}
    for key in [key for key in queued["strangers"] if isinstance(key, _PodsOf)]:  # stands for the pods that name a Workload
        entry = queued["strangers"].pop(key)
        for pod in observed.pods.store.list_by_index("workload", key.workload):
            queued["strangers"][build_object_key(pod)] = max(entry, queued["strangers"].get(build_object_key(pod), entry))
    # What is on no node any more, pods that are gone or that somebody looks after by now, and workloads that are gone.
    passed = {
        "node health": queued["node health"].keys() - health._users.hosts.keys(),
        "strangers": {key for key in queued["strangers"] if key not in pods or deciding.strangers._find_reason(pods[key]) is None},
    }
    gone = {f"ns/{name}" for name in NAMES} - {*observed.workloads.store.list_keys()}
    return {name: {key: keys[key] for key in keys.keys() - passed.get(name, gone)} for name, keys in queued.items()} | {
        "hosts": health._users.hosts,
        "assigned": dict(health._users.by_host),
        "named": {host: name for host, name in health._memory._named.items() if host != name},  # of the others the map says nothing
        "gated": deciding.gauges._gated,
        "not ready": deciding.storms._since,
        "not before": deciding.scheduler._not_before,
        "wakes": deciding.scheduler._wake.is_set(),
    }


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(before=HAPPENS, meanwhile=HAPPENS)
async def test_new_leader_starts_with_the_same_state_as_handlers_filled_at_once(
    before: Happens, meanwhile: Happens, monkeypatch: pytest.MonkeyPatch
):
    """Issue 8: all that is there was told in one go, and the loop stood still for seconds."""
    monkeypatch.setattr(Late.run_calls, "__defaults__", (1,))
    begun: list[int] = []

    async def run(_: Deciding) -> None:
        begun.append(len(world.clock.left))

    monkeypatch.setattr(Deciding, "run", run)
    world, at_once = World(), World()
    for happens in before:
        world.do(*happens)
        at_once.do(*happens)
    told_at_once = at_once.reconciler._prepare()

    def happen(happens: tuple[str, Any, Any]) -> None:
        assert world.reconciler.deciding is None
        world.do(*happens)

    world.clock.left = [partial(happen, happens) for happens in meanwhile]
    await world.reconciler.lead()
    assert len(begun) == 1
    for happens in meanwhile[: len(meanwhile) - begun[0]]:
        at_once.do(*happens)
    assert world.reconciler.deciding is not None
    assert picture(world.reconciler.deciding) == picture(told_at_once)


async def test_new_leader_fills_its_handlers_in_small_steps_of_the_event_loop(monkeypatch: pytest.MonkeyPatch):
    turns: list[int] = []
    world = World()
    world.reconciler.observed.pods.fill(_build_pod(f"v-{number}", "bound") for number in range(300))
    parts_that_hear_of_pods = 8

    async def run(_: Deciding) -> None:
        turns.append(world.clock.turns)

    monkeypatch.setattr(Deciding, "run", run)
    await world.reconciler.lead()
    assert turns[0] >= 300 * parts_that_hear_of_pods / AT_ONCE


async def test_the_ledger_is_recounted_with_turns_for_others(caplog: pytest.LogCaptureFixture):
    world = World()
    for host in HOSTS:
        world.do("node", host, True)
    world.reconciler.observed.pods.fill(_build_pod(f"v-{number}", "bound") for number in range(3 * pacing.RECOUNTED_AT_ONCE))
    ledger = world.reconciler.observed.state.ledger
    deciding = world.reconciler._prepare()
    seen: list[int] = []

    def tamper() -> None:
        """As if a fault of ours had done it, in the middle of the first audit."""
        ledger._table.use_slot(ledger._table.get_slot("a"), {"cpu": 7}, 1)

    def look() -> None:
        seen.append(deciding.gauges.drifting)

    pieces = 1 + 3  # that end with a turn: the first at once
    world.clock.left = [look, look, tamper, *[look] * (2 * pieces)]
    auditing = asyncio.create_task(deciding._audit())
    while world.clock.left:  # noqa: ASYNC110, time stands still
        await asyncio.sleep(0)
    auditing.cancel()
    assert seen == [0] * (2 + 2 * pieces - 1) + [1]
    assert [vars(record)["node"] for record in caplog.records if record.message == "ledger drifts"] == ["a"]


async def test_audit_of_the_product_compares_reservations_with_assignments(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    """A reservation that was dropped together with its count is no drift of the ledger, and went unseen."""
    world = World()
    for host in HOSTS:
        world.do("node", host, True)
    world.do("workload", "w", ("a", "b"))
    ledger, deciding = world.reconciler.observed.state.ledger, world.reconciler._prepare()
    seen: list[int] = []

    def drop() -> None:
        for holder in list(ledger._taken):
            ledger.reserve(holder, None)

    world.clock.left = [lambda: None, drop, *[lambda: seen.append(deciding.gauges.drifting)] * 30]
    auditing = asyncio.create_task(deciding._audit())
    while world.clock.left:  # noqa: ASYNC110, time stands still
        await asyncio.sleep(0)
    auditing.cancel()
    assert seen[-1] == 1
    assert {vars(record)["workload"] for record in caplog.records if record.message == "an assignment is not reserved"} == {"ns/w"}
