"""Keeps nodes free for workloads that ask for it (`topogate.dev/spare-nodes`): level-triggered, the requested number is
compared with the held nodes. `core.queueing.cycle.kept_spares` decides which nodes serve and which replace them.

They are held from the moment of the decision, in the ledger; named on the Workload, so that a restarted process or
another leader holds the same; and reported in its condition `topogate.dev/SparesHeld`. A lost node is replaced by a
spare in the decision that replaces nodes, with one write for both. What is missing after that is filled up here.

A workload on lent spare nodes has an annotation that names them. Without it the holder could not evict it, so changes
of it by others are undone.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from core.model.spare_nodes import show_held_spares
from core.names import BORROWED_SPARES, HOSTNAME_LABEL, SPARES
from core.plan.steps import api_resources as r
from core.plan.steps import pacing
from core.plan.steps.steps import make_plan
from core.plan.workloads.reports import name_spares, report_spares, restore_borrowed
from core.queueing.cycle.kept_spares import KeptSpares, list_kept_spares, with_kept
from core.resource import Obj
from core.runtime.clock import Clock
from core.runtime.controller import Done, RequeueAfter, Result
from core.runtime.watch.store import Change, build_object_key
from core.runtime.workqueue import Item
from core.state.facts import WorkloadFacts
from reconciler.execute.controllers import build_controller
from reconciler.execute.executor import Executor, Left
from reconciler.nodes.node_memory import place_of
from reconciler.observe.observed import Observed

logger = logging.getLogger(__name__)


class SpareCounts(NamedTuple):
    """How many nodes are kept free, and how many more should be; of the first, how many are lent."""

    queue: str
    held: int = 0
    missing: int = 0
    lent: int = 0


def find_unsaid(change: Change) -> str | None:
    """Returns a workload's annotation of borrowed nodes as it was before a change that removed a borrowed node from it. That counts only
    where the annotation has changed, and the node's pod set has the same places as before. Pod sets are compared in order. None in all
    other cases."""
    if change.old is None or change.new is None:
        return None
    said, says = ((each["metadata"].get("annotations") or {}).get(BORROWED_SPARES) for each in (change.old, change.new))
    if not said or said == says:
        return None
    before, now = (WorkloadFacts.read(each).admission for each in (change.old, change.new))
    pairs = zip(before.pod_sets, now.pod_sets, strict=False) if before is not None and now is not None else ()
    return said if any(old.assignment == new.assignment and not set(old.borrowed) <= set(new.borrowed) for old, new in pairs) else None


class Spares:
    """Reconciles one workload at a time by namespace/name. `is_held`: whether the workload is in a storm. `makes_room`:
    whether any workload is being evicted for another one: what it releases must not be filled with spares."""

    def __init__(
        self,
        observed: Observed,
        executor: Executor,
        clock: Clock,
        leaving_taints: Collection[str] = (),
        is_held: Callable[[WorkloadFacts], bool] = lambda workload: False,
        makes_room: Callable[[], bool] = lambda: False,
    ) -> None:
        self._observed, self._executor, self._leaving_taints, self._is_held = observed, executor, leaving_taints, is_held
        self._makes_room = makes_room
        self._counts: dict[str, SpareCounts] = {}  # by workload
        self._borrowed: dict[str, frozenset[str]] = {}  # by borrowing workload: the borrowed nodes
        self._unsaid: dict[str, str] = {}  # by borrowing workload: its annotation as it was before another client changed it
        self._nodes: dict[str, frozenset[str]] = {}  # by workload that asks for spares and has its place: their names, hostnames too
        self.controller = build_controller("spares", self._reconcile, clock)
        self._queue = self.controller.queue
        observed.workloads.add_handler(self._on_workload)
        observed.nodes.add_handler(self._on_node)

    def count(self) -> Mapping[str, SpareCounts]:
        """Returns, by ClusterQueue, how many nodes are kept free (`held`), missing and lent, summed over its workloads. Those without a
        workload that asks for any are left out."""
        total: dict[str, SpareCounts] = {}
        for one in self._counts.values():
            before = total.get(one.queue, SpareCounts(one.queue))
            total[one.queue] = SpareCounts(one.queue, before.held + one.held, before.missing + one.missing, before.lent + one.lent)
        return total

    # --- keys to look at ----------------------------------------------------------------------------------------

    def _on_workload(self, change: Change) -> None:
        key = build_object_key(change.obj)
        self._on_borrower(key)
        unsaid = find_unsaid(change)
        if unsaid is not None:
            self._unsaid[key] = unsaid
            self._queue.add(key, "another decision changed what it has borrowed")
        facts = self._observed.state.workloads.facts.get(key) if change.new is not None else None
        if facts is None or not any(pod_set.spares for pod_set in facts.pod_sets):
            self._drop(key)
            return
        if facts.admission is not None and not facts.finished:
            names = [name for given in facts.admission.pod_sets for name in given.spares]
            self._nodes[key] = frozenset((*names, *map(self._find_host, names)))
        else:
            self._drop(key)
        self._queue.add_after(key, pacing.SPARES_BATCH_S, "workload changed")

    def _find_host(self, name: str) -> str:
        node = self._observed.state.nodes.get(name)
        return node.labels.get(HOSTNAME_LABEL, name) if node is not None else name

    def _on_borrower(self, key: str) -> None:
        """Queues the workloads that lend nodes to a workload, and those that lent some before: their conditions name it."""
        before, held = self._borrowed.pop(key, frozenset()), self._observed.state.workloads.find_holding(key)
        now = frozenset(node for given in held.pod_sets for node in given.borrowed) if held is not None else frozenset[str]()
        if now:
            self._borrowed[key] = now
        for holder, nodes in self._nodes.items() if now != before else ():
            if nodes & (now | before):
                self._queue.add_after(holder, pacing.SPARES_BATCH_S, f"{key} borrows or leaves its spares")

    def _on_node(self, change: Change) -> None:
        if not self._nodes or (change.old is not None and change.new is not None and place_of(change.old) == place_of(change.new)):
            return
        name = change.obj["metadata"]["name"]
        for key, nodes in self._nodes.items():
            if name in nodes or self._counts.get(key, SpareCounts("", missing=1)).missing:
                self._queue.add_after(key, pacing.SPARES_BATCH_S, f"node {name} changed")

    def _drop(self, key: str) -> None:
        self._counts.pop(key, None)
        self._nodes.pop(key, None)

    # --- one workload -------------------------------------------------------------------------------------------

    async def _reconcile(self, item: Item) -> Result:
        return await self.reconcile(str(item.key))

    async def reconcile(self, key: str) -> Result:
        """Fills up and writes the spare nodes of a workload, reports them in its condition, and restores its annotation of borrowed nodes.
        Fills nothing while it is evicted, has lost nodes or is in a storm, or others are evicted to make room. What could not be written is
        not held. Ends the condition of a workload that holds no place or has finished. Returns RequeueAfter while it may hold spares, else
        Done. Raises KubeError where a write fails."""
        state, workload = self._observed.state, self._observed.workloads.store.get(key)
        facts = state.workloads.facts.get(key)
        if key in self._unsaid:
            if workload is not None and facts is not None and facts.admission is not None:
                await self._executor.execute(make_plan(restore_borrowed(workload, self._unsaid[key])))
            del self._unsaid[key]
        if workload is None or facts is None or facts.finished or key not in self._nodes:
            if workload is not None and facts is not None:
                await self._executor.execute(make_plan(report_spares(workload, None, self._executor.format_now())))
            return Done()
        if facts.evicted:
            return Done()  # what it holds is given back when it has stopped
        if state.workloads.is_assumed(key):
            return RequeueAfter(pacing.SPARES_BATCH_S)
        if facts.unhealthy_nodes or self._is_held(facts):
            return RequeueAfter(pacing.SPARES_FILL_S)  # its spares are for the pods of these nodes first; and in a storm no node is judged
        kept = list_kept_spares(state, facts, self._leaving_taints, fills=not self._makes_room())
        if not kept:
            return Done()
        workload = await self._hold(key, workload, facts, kept)
        missing = sum(one.missing for one in kept)
        if facts.admission is not None:
            held, lent = sum(len(one.serving) for one in kept), sum(len(one.lent) for one in kept)
            self._counts[key] = SpareCounts(facts.admission.cluster_queue, held, missing, lent)
        await self._executor.execute(make_plan(report_spares(workload, kept, self._executor.format_now())))
        return RequeueAfter(pacing.SPARES_FILL_S if missing else pacing.SPARES_LOOK_S)

    async def _hold(self, key: str, workload: Obj, facts: WorkloadFacts, kept: Collection[KeptSpares]) -> Obj:
        """Holds them from now on, and names them. What could not be written is not held."""
        assert facts.admission is not None  # else nothing is kept
        state, admission = self._observed.state, with_kept(facts.admission, kept)
        text = show_held_spares(admission)
        if text == (workload["metadata"].get("annotations") or {}).get(SPARES):
            return workload
        left = Left()
        state.assume_spares(key, admission)
        try:
            await self._executor.execute(make_plan(name_spares(workload, text, kept)), left)
        except BaseException:
            state.drop_assumed(key)
            raise
        written = left[r.WORKLOADS, key]
        state.confirm(key, int(written["metadata"]["resourceVersion"]))
        return written
