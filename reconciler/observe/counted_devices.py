"""Devices that queued pods claim (DRA): what depends on templates, classes, claims and slices is read again when these change."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import Any, Never

from core.model.configuration import ResourceRules
from core.model.pod_resources import Resources
from core.plan.steps import pacing
from core.podgroups.devices.claims import Matcher, PoolId, ResourceSlice, read_claim, read_pod_claims, read_pool
from core.podgroups.devices.node_devices import ALL_NODES, NodeDevices
from core.podgroups.devices.queued_claims import QueuedClaims
from core.resource import Obj
from core.runtime.clock import Clock
from core.runtime.watch.informer import Informer
from core.runtime.watch.store import Change, build_object_key
from core.state.facts import NodeFacts, PodFacts, WorkloadFacts
from reconciler.observe.device_informers import Devices

_TEMPLATES, _CLAIMING = "claim templates", "claims devices"
Read = tuple[Informer, Callable[[Iterable[str]], None]]


class CountedDevices:
    """Counts devices of the classes that `rules` map; with `bounds_nodes` those of each node, too.

    `workloads`, `pods` and `nodes` are informers, each with a function that is called with the keys of objects which have to be read again.
    It is made after the informers of `devices` have been folded into their inventory.
    """

    def __init__(
        self,
        devices: Devices,
        rules: ResourceRules,
        clock: Clock,
        workloads: Read,
        pods: Read,
        nodes: Read,
        *,
        bounds_nodes: bool,
    ) -> None:
        self._devices, self._clock = devices, clock
        self._workloads, self._pods, self._nodes = workloads[0].store, pods[0].store, nodes[0].store
        self._read_workloads, self._read_pods, self._read_nodes = workloads[1], pods[1], nodes[1]
        self._on_nodes = NodeDevices(devices.inventory, rules.device_classes) if bounds_nodes else None
        self._rules = QueuedClaims(devices.inventory, rules, self._on_nodes, self._find_lack)
        self._is_filled = False
        self._dirty: dict[PoolId, None] = {}  # pools that have to be counted
        self._has_dirty = asyncio.Event()
        self._limits: list[tuple[str, bool]] = []
        self._refused: list[tuple[float, ResourceSlice, Matcher]] = []  # with the time from which they are evaluated again
        self._workloads.add_index(_TEMPLATES, _list_templates_of_workload)
        self._workloads.add_index(_CLAIMING, _list_claiming)
        self._pods.add_index(_TEMPLATES, _list_templates)
        devices.templates.add_handler(self._observe_template)
        devices.classes.add_handler(self._observe_class)
        devices.claims.add_handler(self._observe_claim)
        if devices.slices is not None:
            devices.slices.add_handler(self._observe_slice)
        devices.on_listed.append(self._read_claiming)

    def adjust_workload(self, facts: WorkloadFacts, workload: Obj) -> WorkloadFacts:
        """Returns the facts of a Workload with the devices that its pods claim: see `QueuedClaims.adjust`."""
        return self._rules.adjust(facts, workload)

    def adjust_pod(self, pod: PodFacts, obj: Obj, reserved: Resources) -> PodFacts:
        """Returns the facts of a pod with the devices that it claims: see `QueuedClaims.adjust_pod`."""
        return self._rules.adjust_pod(pod, obj, reserved)

    def adjust_node(self, node: NodeFacts) -> NodeFacts:
        """Returns the facts of a node with the devices that it has: see `QueuedClaims.adjust_node`."""
        return self._rules.adjust_node(node)

    # --- what is observed -----------------------------------------------------------------------------------------

    def _observe_template(self, change: Change) -> None:
        if _get_spec(change.old) == _get_spec(change.new):
            return
        key = build_object_key(change.obj)
        self._read_workloads(map(build_object_key, self._workloads.list_by_index(_TEMPLATES, key)))
        self._read_pods(map(build_object_key, self._pods.list_by_index(_TEMPLATES, key)))

    def _observe_class(self, change: Change) -> None:
        if change.old is None or change.new is None:
            self._read_claiming()
        if self._on_nodes is not None and _get_spec(change.old) != _get_spec(change.new):
            self._mark_pools(self._on_nodes.list_pools())

    def _read_claiming(self) -> None:
        self._read_workloads(map(build_object_key, self._workloads.list_by_index(_CLAIMING, _CLAIMING)))

    def _observe_claim(self, change: Change) -> None:
        before, now = (read_claim(claim) if claim is not None else None for claim in (change.old, change.new))
        if before != now:
            self._read_pods(pod.key for claim in (before, now) if claim is not None for pod in claim.counted_for)

    def _observe_slice(self, change: Change) -> None:
        if self._on_nodes is not None and _get_spec(change.old) != _get_spec(change.new):
            self._mark_pools(read_pool(found) for found in (change.old, change.new) if found is not None)

    def _mark_pools(self, pools: Iterable[PoolId]) -> None:
        self._dirty |= dict.fromkeys(pools)
        if self._dirty:
            self._has_dirty.set()

    # --- counting -------------------------------------------------------------------------------------------------

    async def run(self) -> Never:
        """Counts the devices of pools whenever their slices, or a class, have changed. Never returns."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pacing.DEVICES_BUDGET_S if self._refused else None):
                    await self._has_dirty.wait()
            self._retry_refused()
            await self.settle()

    async def settle(self) -> None:
        """Counts the devices of all pools that have changed. Those that change meanwhile are left to `run`: drivers may write without end.
        The event loop has its turns."""
        if self._dirty and self._on_nodes is not None:
            pools = self._drain_dirty()
            self._on_nodes.read_classes()
            refused = await self._devices.evaluate(self._on_nodes.list_missing(pools))
            self._refused += [(self._clock.monotonic() + pacing.DEVICES_BUDGET_S, *each) for each in refused]
            changed = set[str]()
            for number, pool in enumerate(pools):
                if any(missing for _, missing in self._on_nodes.list_missing([pool])):
                    self._mark_pools([pool])  # a slice has changed meanwhile
                else:
                    changed |= self._on_nodes.count_pool(pool)
                if number % pacing.READ_AT_ONCE == 0:
                    await self._clock.sleep(0)
            self._report(self._on_nodes, pools, changed)

    def _retry_refused(self) -> None:
        """Counts pools again for which a class had used up its time, once it has some again."""
        now = self._clock.monotonic()
        due, self._refused = [one for one in self._refused if one[0] <= now], [one for one in self._refused if one[0] > now]
        for _, one, matcher in due:
            one.answers.pop(matcher, None)
        self._mark_pools(one.pool for _, one, _ in due)

    def _find_lack(self) -> str:
        return "" if self._is_filled or self._devices.may_count else self._devices.lack

    def count_now(self) -> None:
        """Does what `settle` does at once, for callers that have filled the informers, without any API server: what these do not have is
        not there."""
        if not self._is_filled:
            self._is_filled = True
            self._read_claiming()
        if self._on_nodes is not None:
            pools, changed = self._drain_dirty(), set[str]()
            self._on_nodes.read_classes()
            for pool in pools:
                changed |= self._on_nodes.count_pool(pool)
            self._report(self._on_nodes, pools, changed)

    def _drain_dirty(self) -> list[PoolId]:
        pools = list(self._dirty)
        self._dirty.clear()
        self._has_dirty.clear()
        return pools

    def _report(self, on_nodes: NodeDevices, pools: list[PoolId], changed: set[str]) -> None:
        before, self._limits = self._limits, on_nodes.list_limits()
        if before != self._limits:
            self._read_claiming()
        self._read_nodes(self._nodes.list_keys() if ALL_NODES in changed else changed)
        self._read_pods(self._devices.inventory.list_pods_with_devices(set(pools)))


def _get_spec(obj: Obj | None) -> Any:
    return obj.get("spec") if obj is not None else None


def _list_templates(pod: Obj) -> list[str]:
    """Keys of the ResourceClaimTemplates that a pod, or a pod template, names."""
    if not (pod.get("spec") or {}).get("resourceClaims"):
        return []
    namespace = (pod.get("metadata") or {}).get("namespace")
    return list(dict.fromkeys(f"{namespace}/{claim.template}" for claim in read_pod_claims(pod) if claim.template))


def _list_templates_of_workload(workload: Obj) -> list[str]:
    namespace = workload["metadata"].get("namespace")
    templates = (pod_set.get("template") or {} for pod_set in (workload.get("spec") or {}).get("podSets") or ())
    found = ({"metadata": {"namespace": namespace}, "spec": template.get("spec")} for template in templates)
    return list(dict.fromkeys(key for template in found for key in _list_templates(template)))


def _list_claiming(workload: Obj) -> list[str]:
    pod_sets = (workload.get("spec") or {}).get("podSets") or ()
    has_claims = any(((pod_set.get("template") or {}).get("spec") or {}).get("resourceClaims") for pod_set in pod_sets)
    return [_CLAIMING] if has_claims else []
