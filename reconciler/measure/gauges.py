"""Present values, read when metrics are requested: queues, quota, levels of topologies, gated pods, watches and work
queues.

Sums are taken over arrays, level by level; nothing here goes over nodes, or over pods that are not gated.
"""

import platform
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from importlib import metadata

import numpy as np

from core import metric_names as m
from core.model.pause_state import PAUSABLE
from core.model.quota_tree import Amounts, FlavorResource
from core.names import ACTIVE, ADMITTED, EVICTED, FINISHED
from core.placement.topology.free_capacity import sum_amounts
from core.queueing.cycle.queue_resolution import find_inactive_reason
from core.resource import Obj
from core.runtime.clock import Clock
from core.runtime.controller import Controller
from core.runtime.report.metrics import Instrument, Reading, Values
from core.runtime.watch.store import Change, build_object_key
from core.state.facts import WorkloadFacts, find_condition
from core.state.flavor_view import FlavorView
from core.state.queue_facts import ClusterQueueFacts
from core.state.workload_state import add_usage
from reconciler.execute.tracing import parse_time
from reconciler.nodes.mass_not_ready import Storms
from reconciler.nodes.spares import SpareCounts
from reconciler.observe.indexes import is_gated, list_workloads_of_pod
from reconciler.observe.observed import Observed
from reconciler.schedule.scheduler import Scheduler

_COMPILER, _PLATFORM = f"{platform.python_implementation()} {platform.python_version()}", f"{sys.platform}/{platform.machine()}"
_PACKAGE = "topogate"
_Rows = dict[Instrument, dict[Values, float]]


def _find_version() -> str:
    """Of the installed package; empty where the source alone is there."""
    try:
        return metadata.version(_PACKAGE)
    except metadata.PackageNotFoundError:
        return ""


_BUILD: Values = (_find_version(), "", "", "", _COMPILER, _PLATFORM)


class Gauges:
    """Readings of one reconciler; `shares_fairly` is that of its settings. The audit that recounts the ledger sets `drifting`."""

    def __init__(
        self,
        observed: Observed,
        scheduler: Scheduler,
        clock: Clock,
        *,
        shares_fairly: bool,
        storms: Storms | None = None,
        by_local_queue: bool = False,
    ) -> None:
        self._by_local_queue = by_local_queue
        self._storms = storms
        self._observed, self._scheduler, self._clock = observed, scheduler, clock
        self._shares_fairly = shares_fairly
        self.drifting = 0  # nodes
        self.adrift: Callable[[], Mapping[str, int]] = dict  # workloads, by kind
        self.spares: Callable[[], Mapping[str, SpareCounts]] = dict  # by ClusterQueue
        self.pod_groups: Callable[[], Mapping[str, int]] = dict  # replicas, by state; empty where groups are not placed
        self._gated: dict[str, dict[str, str]] = {}  # by the workload that they name: pods with the gate, and when they were made
        self._levels: dict[str, _Rows] = {}  # of flavors, as last read
        observed.pods.add_handler(self._on_pod)

    def _on_pod(self, change: Change) -> None:
        before = list_workloads_of_pod(change.old) if change.old is not None and is_gated(change.old) else []
        now = list_workloads_of_pod(change.new) if change.new is not None and is_gated(change.new) else []
        if before == now:
            return
        key = build_object_key(change.obj)
        for workload in before:
            self._gated[workload].pop(key, None)
            if not self._gated[workload]:
                del self._gated[workload]
        for workload in now:
            self._gated.setdefault(workload, {})[key] = change.obj["metadata"].get("creationTimestamp") or ""

    def read(self) -> Reading:
        """Returns the present values of all gauges, per instrument by label values, in the unit of the instrument's name; those of
        controllers are in `read_controllers`. Of a flavor with a view that is not built now, nodes and levels keep the values of the last
        read. By LocalQueue it has values only where that is on."""
        rows: _Rows = {m.LEDGER_DRIFT: {(): self.drifting}, m.SCHEDULER_WAIT: {(): self._scheduler.behind_s}}
        rows[m.BUILD_INFO] = {_BUILD: 1}
        rows[m.PAUSED] = {(what,): self._observed.state.pause.find_stop(what) is not None for what in PAUSABLE}
        for name in self._observed.state.topologies if self._storms is not None else ():
            rows.setdefault(m.NODE_STORM, {})[name,] = self._storms is not None and self._storms.find(name) is not None
        spares = self.spares()
        for name in self._observed.state.cluster_queues:
            _, held, missing, lent = spares.get(name, SpareCounts(name))
            rows.setdefault(m.SPARE_NODES, {}).update({(name, m.HELD): held, (name, m.LENT): lent, (name, m.MISSING): missing})
        rows[m.DRIFTED_WORKLOADS] = {(kind,): self.adrift().get(kind, 0) for kind in m.DRIFTS}
        rows[m.GROUPS_OF_PODS] = {(state,): count for state, count in self.pod_groups().items()}
        rows[m.OBJECTS_SET_ASIDE] = {(resource,): count for resource, count in self._observed.set_aside.count_by_resource().items()}
        self._read_queues(rows)
        for name, facts in self._observed.state.flavors.items():
            # One that events have dropped is built by the next decision; until then it is as it was.
            view = self._observed.state.get_built_view(name) if facts.topology else None
            if view is not None:
                self._levels[name] = _read_levels(view, _list_resources(name, self._observed.state.cluster_queues))
            elif not facts.topology:
                self._levels.pop(name, None)
        for gone in self._levels.keys() - self._observed.state.flavors.keys():
            del self._levels[gone]
        for of_flavor in self._levels.values():
            for instrument, read in of_flavor.items():
                rows.setdefault(instrument, {}).update(read)
        self._read_gates(rows)
        self._read_watches(rows)
        return rows

    # --- queues -------------------------------------------------------------------------------------

    def _read_queues(self, rows: _Rows) -> None:
        state, classes = self._observed.state, list(self._scheduler.count_by_class())
        refused = Counter[str]()
        for local_queue, _, waits in classes:
            refused[local_queue] += waits
        waiting = self._count_waiting(refused)
        self._read_classes(rows, classes)
        for name, queue in state.cluster_queues.items():
            holding = state.workloads.list_holders(name)
            total, inadmissible = waiting.get(name, (0, 0))
            rows.setdefault(m.PENDING_WORKLOADS, {}).update({(name, m.ACTIVE): total - inadmissible, (name, m.INADMISSIBLE): inadmissible})
            rows.setdefault(m.RESERVING_WORKLOADS, {})[name,] = len(holding)
            rows.setdefault(m.ADMITTED_ACTIVE, {})[name,] = sum(facts.admitted for facts in holding)
            status = m.TERMINATING if queue.deleting else m.PENDING_QUEUE if find_inactive_reason(state, queue) is not None else m.ACTIVE
            for each in (m.PENDING_QUEUE, m.ACTIVE, m.TERMINATING):
                rows.setdefault(m.CLUSTER_QUEUE_STATUS, {})[name, each] = each == status
            self._read_quota(rows, queue, holding)
        if self._by_local_queue:
            self._read_local_queues(rows, refused)
        if self._shares_fairly:
            for name in state.cohorts:
                rows.setdefault(m.COHORT_WEIGHTED_SHARE, {})[name,] = _share(state.quota.compute_cohort_share(name).weighted)

    def _read_classes(self, rows: _Rows, classes: Iterable[tuple[str, int, int]]) -> None:
        """Groups of workloads that ask for the same; one of which a member is still to be decided on is active."""
        state, read = self._observed.state, rows.setdefault(m.PENDING_CLASSES, {})
        read.update({(name, status): 0 for name in state.cluster_queues for status in (m.ACTIVE, m.INADMISSIBLE)})
        for local_queue, members, refused in classes:
            local = state.local_queues.get(local_queue)
            if local is not None and local.cluster_queue in state.cluster_queues:
                read[local.cluster_queue, m.INADMISSIBLE if refused == members else m.ACTIVE] += 1

    def _read_local_queues(self, rows: _Rows, refused: Mapping[str, int]) -> None:
        state, mirrors = self._observed.state, m.BY_LOCAL_QUEUE
        for key in state.local_queues:
            namespace, _, name = key.partition("/")
            holding, total = state.workloads.list_local_holders(key), state.workloads.count_pending(key)
            waits = min(total, refused.get(key, 0))
            reported: dict[Instrument, dict[Values, float]] = {
                mirrors[m.PENDING_WORKLOADS]: {(m.ACTIVE,): total - waits, (m.INADMISSIBLE,): waits},
                mirrors[m.RESERVING_WORKLOADS]: {(): len(holding)},
                mirrors[m.ADMITTED_ACTIVE]: {(): sum(facts.admitted for facts in holding)},
                mirrors[m.RESOURCE_RESERVATION]: self._compute_held(holding),
                mirrors[m.RESOURCE_USAGE]: self._compute_held([facts for facts in holding if facts.admitted]),
                m.LOCAL_QUEUE_STATUS: {(each,): each == self._find_activity(key) for each in ("True", "False", "Unknown")},
            }
            for instrument, values in reported.items():
                rows.setdefault(instrument, {}).update({(name, namespace, *rest): value for rest, value in values.items()})

    def _compute_held(self, holding: Sequence[WorkloadFacts]) -> dict[Values, float]:
        total: dict[FlavorResource, int] = {}
        for facts in holding:
            admission = self._observed.state.workloads.find_holding(facts.key)
            if admission is not None:
                add_usage(total, admission)
        return {(flavor, resource): _convert_amount(resource, amount) for (flavor, resource), amount in total.items()}

    def _find_activity(self, local_queue: str) -> str:
        queue = self._observed.local_queues.store.get(local_queue)
        return str((find_condition(queue or {}, ACTIVE) or {}).get("status") or "Unknown")

    def _count_waiting(self, refused: Mapping[str, int]) -> Mapping[str, tuple[int, int]]:
        """Per ClusterQueue how many wait, and how many of them were refused for now (`refused`: by LocalQueue)."""
        state = self._observed.state
        total: Counter[str] = Counter()
        inadmissible: Counter[str] = Counter()
        for key, local in state.local_queues.items():
            total[local.cluster_queue] += state.workloads.count_pending(key)
            inadmissible[local.cluster_queue] += refused.get(key, 0)
        return {name: (count, min(count, inadmissible[name])) for name, count in total.items()}

    def _read_quota(self, rows: _Rows, queue: ClusterQueueFacts, holding: Sequence[WorkloadFacts]) -> None:
        state, cohort = self._observed.state, queue.cohort or ""
        held: Amounts = state.workloads.get_usage(queue.name)
        used: dict[FlavorResource, int] = dict(held)
        for facts in holding:
            admission = None if facts.admitted else state.workloads.find_holding(facts.key)
            if admission is not None:  # there are few of these at any time
                add_usage(used, admission, -1)
        for (flavor, resource), quota in queue.quota.items():
            labels, name = (cohort, queue.name, flavor, resource), (flavor, resource)
            reported = {
                m.NOMINAL_QUOTA: quota.nominal,
                m.BORROWING_LIMIT: quota.borrowing_limit,
                m.LENDING_LIMIT: quota.lending_limit,
                m.RESOURCE_RESERVATION: held.get(name, 0),
                m.RESOURCE_USAGE: used.get(name, 0),
            }
            for instrument, amount in reported.items():
                if amount is not None:
                    rows.setdefault(instrument, {})[labels] = _convert_amount(resource, amount)
        if self._shares_fairly:
            shares = state.quota.compute_shares(queue.name)
            rows.setdefault(m.WEIGHTED_SHARE, {})[queue.name, cohort] = _share(shares[-1].weighted if shares else 0)

    # --- pods ---------------------------------------------------------------------------------------

    def _read_gates(self, rows: _Rows) -> None:
        count, oldest, now = 0, 0.0, self._clock.now()
        for family, pods in self._gated.items():
            workload = self._observed.find_present(family)
            admitted = _find_admission_time(workload) if workload is not None else None
            if admitted is not None:
                count += len(pods)
                made = parse_time(min(pods.values()) or None)
                since = admitted if made is None else max(admitted, made)
                oldest = max(oldest, (now - since).total_seconds())
        rows[m.GATED_PODS], rows[m.GATE_AGE] = {(): count}, {(): oldest}

    # --- the process ----------------------------------------------------------------------------------

    def _read_watches(self, rows: _Rows) -> None:
        restarts, ages = rows.setdefault(m.WATCH_RESTARTS, {}), rows.setdefault(m.WATCH_AGE, {})
        for informer in self._observed.informers:
            resource, age = informer.resource.plural, informer.watcher.compute_event_age(self._clock)
            if age is None:
                continue  # of a kind that the cluster does not have
            for cause, count in informer.watcher.restarts.items():
                restarts[resource, cause] = restarts.get((resource, cause), 0) + count
            if informer.synced:
                ages[resource,] = max(age, ages.get((resource,), 0.0))


def read_controllers(controllers: Sequence[Controller]) -> Reading:
    """Returns, per instrument by label values, of each controller: how many keys are due, the age of the oldest in seconds, and its runs by
    outcome.
    """
    rows: _Rows = {m.QUEUE_DEPTH: {}, m.QUEUE_AGE: {}, m.RECONCILES: {}}
    for controller in controllers:
        rows[m.QUEUE_DEPTH][controller.name,] = controller.queue.depth
        rows[m.QUEUE_AGE][controller.name,] = controller.queue.oldest_age
        for result, count in controller.results.items():
            rows[m.RECONCILES][controller.name, result] = count
    return rows


def _read_levels(view: FlavorView, resources: Sequence[str]) -> _Rows:
    """Nodes and domains of a flavor, and what is free in them."""
    capacity, tree, name = view.capacity, view.capacity.tree, view.flavor.name
    nodes = {
        m.USABLE: int(capacity.usable.sum()),
        m.CORDONED: int((capacity.ready & capacity.cordoned).sum()),
        m.NOT_READY: int((~capacity.ready).sum()),
    }
    rows: _Rows = {m.FLAVOR_NODES: {(name, state): count for state, count in nodes.items()}}
    rows[m.LEVEL_DOMAINS] = {(name, level.label): level.count for level in tree.levels[: tree.lowest + 1]}
    for resource in resources:
        row = capacity.axis.get(resource)
        if row is None:
            continue
        # Where more is used than there is nothing is free; what others lack is not taken off that.
        has = np.where(capacity.usable, capacity.allocatable[row], 0)
        free = np.where(capacity.usable, np.maximum(capacity.free[row], 0), 0)
        rows.setdefault(m.FLAVOR_CAPACITY, {})[name, resource] = _convert_amount(resource, sum_amounts(has))
        rows.setdefault(m.FLAVOR_FREE, {})[name, resource] = _convert_amount(resource, sum_amounts(free))
        for index, level in enumerate(tree.levels[: tree.lowest + 1]):
            has_each, free_each = tree.sum_amounts(index, has), tree.sum_amounts(index, free)
            labels, total = (name, level.label, resource), sum_amounts(free_each)
            whole = sum_amounts(free_each[free_each == has_each])
            rows.setdefault(m.LARGEST_CAPACITY, {})[labels] = _convert_amount(resource, int(has_each.max(initial=0)))
            rows.setdefault(m.LARGEST_FREE, {})[labels] = _convert_amount(resource, int(free_each.max(initial=0)))
            rows.setdefault(m.FRAGMENTATION, {})[labels] = max(0.0, 1 - whole / total) if total else 0.0
    return rows


def _list_resources(flavor: str, queues: Mapping[str, ClusterQueueFacts]) -> list[str]:
    """Returns the resources of a flavor that some queue has quota of: nodes have others, which are not allocated."""
    return sorted({resource for queue in queues.values() for of, resource in queue.quota if of == flavor})


def _find_admission_time(workload: Obj) -> datetime | None:
    """Since when a workload is admitted; None where it is not, or is to be stopped."""
    conditions = (workload.get("status") or {}).get("conditions") or ()
    times = {c["type"]: c.get("lastTransitionTime") for c in conditions if c.get("status") == "True"}
    return None if EVICTED in times or FINISHED in times else parse_time(times.get(ADMITTED))


def _convert_amount(resource: str, amount: int) -> float:
    """A canonical amount in cores, bytes or pieces."""
    return amount / 1000 if resource == "cpu" else float(amount)


def _share(weighted: int) -> float:
    return float("inf") if weighted == 2**63 - 1 else float(weighted)
