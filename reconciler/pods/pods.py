"""Pods that are queued themselves: reconciled a unit at a time (`core.plan.pods.pod_units`), whenever one of it has
changed. `core.plan.pods.units` plans what is to be done."""

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, cast

from core.jobs.kinds.pod import Pod
from core.jobs.kinds.pod_parents import PodParent
from core.names import EVENT_WORKLOAD_REFUSED
from core.plan.pods.pod_units import PARENTS, Unit, find_pod_unit, find_workload_unit, read_relevant_state
from core.plan.pods.units import CREATE, PARENTS_BY_KIND, WAITING, PodsToRead, UnitFacts, plan_refused_name, plan_unit
from core.plan.steps import api_resources as r
from core.plan.steps import pacing
from core.plan.steps.steps import make_plan, report
from core.plan.steps.writes import Create
from core.resource import Obj
from core.runtime.apart import run_apart
from core.runtime.clock import Clock
from core.runtime.controller import Done, Result
from core.runtime.http.errors import AlreadyExists, Invalid, NotFound
from core.runtime.watch.store import Change, build_object_key
from core.runtime.workqueue import INITIAL_PRIORITY, Item
from core.state.facts import find_controller
from core.state.whereabouts import describe_place
from reconciler.execute.controllers import build_controller
from reconciler.execute.executor import Executor
from reconciler.jobs.child_objects import limit_facts
from reconciler.jobs.read_jobs import read_classes
from reconciler.observe.indexes import find_owned
from reconciler.observe.observed import Observed


class Pods:
    """Reconciles one unit at a time."""

    def __init__(self, observed: Observed, executor: Executor, clock: Clock) -> None:
        self._observed = observed
        self._executor = executor
        self._clock = clock
        self._whole = Pod(tuple(observed.kinds.values()))
        self._waiting_since: dict[Unit, float] = {}  # groups that wait for the rest of their pods
        self.controller = build_controller("pods", self._reconcile, clock, workers=8)
        self._queue = self.controller.queue
        observed.pods.add_handler(self._on_pod)
        observed.workloads.add_handler(self._on_workload)
        observed.on_pod_read.append(self._on_pod_read)
        for kind, parent in observed.parents.items():
            parent.add_handler(partial(self._on_parent, kind))

    def _on_pod(self, change: Change) -> None:
        if change.old is not None and change.new is not None and read_relevant_state(change.old) == read_relevant_state(change.new):
            return
        units = {unit for obj in (change.old, change.new) if obj is not None and (unit := find_pod_unit(obj)) is not None}
        for unit in units:
            count = self._observed.pods.store.count_by_index("unit", str(unit))
            self._queue.add_after(unit, max(pacing.UNITS_BATCH_S, count / pacing.PODS_A_SECOND), "pod changed")

    def _on_pod_read(self, pod: Obj) -> None:
        unit = find_pod_unit(pod)
        if unit is not None:
            self._queue.add_after(unit, pacing.UNITS_BATCH_S, "its pods are known")

    def _on_workload(self, change: Change) -> None:
        unit = find_workload_unit(change.obj)
        if unit is not None:
            self._queue.add(unit, "workload changed", INITIAL_PRIORITY if change.initial else 0)

    def _on_parent(self, kind: str, change: Change) -> None:
        """Queues the workloads of a parent when its request changes, not with every change of its status."""
        parent = PARENTS_BY_KIND[kind]
        if change.old is not None and change.new is not None and _read_request(parent, change.old) == _read_request(parent, change.new):
            return
        for unit in self._list_units(parent, change.obj):
            self._queue.add(unit, "parent changed", INITIAL_PRIORITY if change.initial else 0)

    def _list_units(self, parent: PodParent, obj: Obj) -> set[Unit]:
        metadata = obj["metadata"]
        units = {unit for workload in find_owned(self._observed.workloads.store, obj) if (unit := find_workload_unit(workload)) is not None}
        if "spec" not in obj:
            return units
        if parent.several:
            return units | {Unit(parent.kind, metadata["namespace"], metadata["name"], i) for i in range(parent.count_workloads(obj))}
        return units | {Unit(parent.kind, metadata["namespace"], metadata["name"])}

    # --- one unit -----------------------------------------------------------------------------------

    async def _reconcile(self, item: Item) -> Result:
        unit = cast("Unit", item.key)
        f = self._read(unit)
        plan = await run_apart(len(f.pods), partial(plan_unit, f))
        if isinstance(plan, PodsToRead):
            f = replace(f, examples=await self._read_pods(unit, plan))
            plan = await run_apart(len(f.pods), partial(plan_unit, f))
            assert not isinstance(plan, PodsToRead)
        if f.workload is not self._find_workload(unit, f.source):
            return Done()  # it has changed meanwhile: its event leads here again
        if WAITING in plan.names:
            self._waiting_since.setdefault(unit, self._clock.monotonic())
        else:
            self._waiting_since.pop(unit, None)
        try:
            return await self._executor.execute(plan)
        except AlreadyExists:
            created = next(step.write.seen for step in plan.steps if isinstance(step.write, Create))
            other = self._observed.workloads.store.get(build_object_key(created))
            return await self._executor.execute(plan_refused_name(f, unit.name, other))
        except Invalid as error:
            if CREATE in plan.names:
                await self._executor.execute(make_plan(report(f.build_event(EVENT_WORKLOAD_REFUSED, str(error), warning=True))))
            raise

    def _read(self, unit: Unit) -> UnitFacts:
        observed, pods = self._observed, self._observed.pods.store.list_by_index("unit", str(unit))
        source = self._find_source(unit, pods)
        workload = self._find_workload(unit, source)
        facts = observed.state.workloads.facts.get(build_object_key(workload)) if workload is not None else None
        admission = facts.admission if facts is not None else None
        limited = limit_facts(observed, facts).pod_sets if facts is not None and admission is not None else ()
        since = self._waiting_since.get(unit)
        return UnitFacts(
            unit,
            self._executor.format_now(),
            self._whole,
            source,
            workload,
            pods,
            observed.list_live_pods(build_object_key(workload)) if workload is not None else (),
            facts,
            {pod_set.name: pod_set.counted_requests for pod_set in limited},
            observed.state.flavors,
            read_classes(observed),
            describe_place(observed.state, admission) if admission is not None else "",
            observed.pod_facts,
            observed.nodes.store.objects,
            waited_s=self._clock.monotonic() - since if since is not None else 0.0,
            copied_labels=observed.copied_labels,
        )

    async def _read_pods(self, unit: Unit, asked: PodsToRead) -> dict[str, Obj]:
        """Pods as the API server has them, by role; those that are gone are left out."""
        found: dict[str, Obj] = {}
        for role, name in asked.names.items():
            with suppress(NotFound):
                found[role] = await self._executor.read(r.PODS, unit.namespace, name)
        return found

    def _find_source(self, unit: Unit, pods: list[Obj]) -> Obj | None:
        """Returns the object from which the workload is made: its parent, else one of the pods; None where it is gone."""
        if unit.source in PARENTS:
            return self._observed.parents[unit.source].store.get(f"{unit.namespace}/{unit.name}")
        return pods[0] if pods else None

    def _find_workload(self, unit: Unit, source: Obj | None) -> Obj | None:
        """The unit's workload, none of what was called so before."""
        uid = source["metadata"]["uid"] if source is not None else None
        for workload in self._observed.workloads.store.list_by_index("unit", str(unit)):
            owner = find_controller(workload)
            if owner is None or owner["uid"] == uid:
                return workload
        return None


def _read_request(parent: PodParent, obj: Obj) -> tuple[Any, ...]:
    metadata, number = obj["metadata"], parent.count_workloads(obj) if "spec" in obj else 0
    return metadata["uid"], metadata.get("generation"), metadata.get("labels"), bool(metadata.get("deletionTimestamp")), number
