"""Queues as plain values: for `-o json` and for the terminal alike. Workloads that are not to be named are counted and summed up."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from cli.failures import BadInput, Failure
from cli.reading.permitted_reading import ClusterReading
from cli.reporting.report import Report, describe_state
from core.model.pod_resources import PODS
from core.model.quantity import format_quantity, parse_canonical
from core.model.quota_tree import FlavorResource
from core.names import CHECK_READY, DEACTIVATION_TARGET, EVICTED, QUOTA_RESERVED, REASON_WAITING_FOR_QUOTA
from core.plan.steps import api_resources as r
from core.queueing.cycle.queue_view import HoldingWorkload, QueueView, build_queue_views
from core.queueing.flavors.quota_shortage import compute_usage
from core.queueing.ordering.waiting_order import WaitingWorkload
from core.queueing.preemption.missing_quota import list_never_preempted
from core.resource import Obj
from core.state.facts import WorkloadFacts, find_condition, find_controller
from core.state.queue_facts import ClusterQueueFacts

Amounts = Mapping[str, int]  # canonical, by resource
_KINDS = {
    name: resource
    for resource, short in ((r.CLUSTER_QUEUES, "cq"), (r.LOCAL_QUEUES, "lq"))
    for name in (
        short,
        resource.kind.lower(),
        resource.plural,
        *(f"{each}.{resource.group}" for each in (resource.kind.lower(), resource.plural)),
    )
}
_SHOWN = 5
_NO_DECISION = "no decision yet; is the reconciler running?"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which queues are shown, and of which workloads the names. `cluster_queues`: None for all. `namespace` and `local_queue` (a key): only
    those of that are named; None: of all."""

    cluster_queues: frozenset[str] | None
    namespace: str | None = None
    local_queue: str | None = None

    def has(self, workload: WorkloadFacts) -> bool:
        """Whether a workload is shown by name."""
        return self.local_queue in (None, workload.queue) and self.namespace in (None, workload.key.partition("/")[0])


def select_queues(reading: ClusterReading, asked: str | None, namespace: str, *, is_given: bool) -> Selection:
    """Returns what `topogate queue ASKED` shows: a ClusterQueue (`clusterqueue/NAME`), a LocalQueue of `namespace` (`localqueue/NAME`), or
    the one of both that has the name. None: all, or those of the namespace where it `is_given`, or where no other may be read. Raises
    BadInput for another kind, and a name that both have; Failure where there is no such queue."""
    state, only = reading.outlook.state, namespace if is_given or reading.namespace is not None else None
    in_namespace = {key: local for key, local in state.local_queues.items() if key.partition("/")[0] == namespace}
    if asked is None:
        # Workloads with a LocalQueue that does not exist have no ClusterQueue.
        return Selection(frozenset(["", *(local.cluster_queue for local in in_namespace.values())]) if only is not None else None, only)
    kind, _, name = asked.rpartition("/")
    if (kind and kind.lower() not in _KINDS) or not name:
        raise BadInput(f"{asked!r} is not accepted; NAME, clusterqueue/NAME or localqueue/NAME is expected")
    wanted, local = _KINDS.get(kind.lower()), in_namespace.get(f"{namespace}/{name}")
    known = {*state.cluster_queues, *(each.cluster_queue for each in state.local_queues.values())} - {""}
    if wanted is None and local is not None and name in known:
        raise BadInput(f"there are a ClusterQueue and a LocalQueue {name}; give clusterqueue/{name} or localqueue/{name}")
    if wanted is not r.CLUSTER_QUEUES and local is not None:
        return Selection(frozenset([local.cluster_queue]), namespace, local.key)
    if wanted is not r.LOCAL_QUEUES and name in known:
        return Selection(frozenset([name]), only)
    raise Failure(_describe_missing(reading, wanted.kind if wanted is not None else "", name, namespace, known, in_namespace))


def _describe_missing(
    reading: ClusterReading, kind: str, name: str, namespace: str, cluster_queues: Iterable[str], in_namespace: Iterable[str]
) -> str:
    local_queues = [key.partition("/")[2] for key in in_namespace]
    what = f"there is no {kind or 'ClusterQueue'} {name}"
    what += "" if kind == r.CLUSTER_QUEUES.kind else f"{'' if kind else ', and no LocalQueue of that name'} in namespace {namespace}"
    if r.CLUSTER_QUEUES in reading.unreadable and kind != r.LOCAL_QUEUES.kind:
        what += ", or it may not be read: ClusterQueues may not be listed"
    there = {*(cluster_queues if kind != r.LOCAL_QUEUES.kind else ()), *(local_queues if kind != r.CLUSTER_QUEUES.kind else ())}
    near = get_close_matches(name, there, n=_SHOWN) or sorted(there)[:_SHOWN]
    return f"{what}; there {'are ' + ', '.join(near) if near else 'is none'}"


def report_queues(reading: ClusterReading, selection: Selection) -> list[Report]:
    """Returns a report on each queue that is selected, sorted by name. `waiting` and `holding` have the workloads that are named
    (`workloads`), in order, and of all others number and amounts (`others`); None where that is not known. Amounts are quantities as the
    API writes them. `notConsidered` has those that are deactivated or on hold, if there
    are any. `notRead` has a sentence for each thing of the queue that could not be read. One that waits for quota has
    `notPreempted`, the settings that are Never and protect workloads of a lower priority from it."""
    settings, state = reading.outlook.settings, reading.outlook.state
    later = reading.outlook.list_later()
    views = build_queue_views(
        state,
        rules=settings.pods_ready,
        sharing=settings.fair_sharing,
        is_held_back=later.__contains__,
        chosen=selection.cluster_queues,
    )
    shown = (view for view in views if view.name or any(map(selection.has, (*(each.workload for each in view.waiting), *view.inactive))))
    return [_Reporter(reading, selection, view, later).report() for view in shown]


def list_notes(reading: ClusterReading) -> list[str]:
    """Returns a sentence for each thing that could not be read and concerns all queues; those of one queue are in its report."""
    notes = list[str]()
    if reading.namespace is not None:
        notes.append(f"Workloads of other namespaces than {reading.namespace} may not be read: positions count in the LocalQueue alone")
    adding = [str(each) for each in (r.LIMIT_RANGES, r.RUNTIME_CLASSES) if each in reading.unreadable]
    if adding:
        notes.append(f"{' and '.join(adding)} may not be listed: requests that they add to pods are not counted")
    return notes


class _Reporter:
    """The report on one queue."""

    def __init__(self, reading: ClusterReading, selection: Selection, view: QueueView, later: set[str]) -> None:
        self._reading, self._selection, self._view, self._later = reading, selection, view, later
        self._state, self._observed = reading.outlook.state, reading.outlook.observed
        found = self._observed.cluster_queues.store.get(view.name) if view.name else None
        self._status: Report | None = (found.get("status") or {}) if found is not None else None
        self._queue = view.facts or ClusterQueueFacts(view.name, False, (), None, "None", False)
        self._covered = {resource for group in self._queue.groups for resource in group.resources}
        borrowers = {name for use in view.quota for name in use.borrowers}
        self._never_preempted = list_never_preempted(self._state, view.facts, borrowers) if view.facts is not None else []

    def report(self) -> Report:
        view, queue = self._view, self._view.facts
        report: Report = {"clusterQueue": view.name}
        if queue is not None:
            report["strategy"] = "StrictFIFO" if queue.strict else "BestEffortFIFO"
        if queue is not None and queue.cohort:
            report["cohort"] = queue.cohort
        problem = self._find_problem()
        if problem is not None:
            report["inactive"] = {"reason": problem[0], "message": problem[1]}
        report["waiting"] = self._report_waiting()
        inactive = self._report_inactive()
        if inactive is not None:
            report["notConsidered"] = inactive
        report["holding"] = self._report_holding()
        quota = self._report_quota()
        if quota is not None:
            report["quota"] = quota
        return report | ({"notRead": notes} if (notes := self._list_notes()) else {})

    def _find_problem(self) -> tuple[str, str] | None:
        """With all that it depends on read, what is found now; else what its condition reports."""
        if self._reading.is_whole:
            return self._view.problem
        active = find_condition({"status": self._status}, "Active") if self._status is not None else None
        is_inactive = active is not None and active.get("status") == "False"
        return (str(active.get("reason")), str(active.get("message"))) if active is not None and is_inactive else None

    def _list_notes(self) -> list[str]:
        view, notes = self._view, list[str]()
        if view.name and view.facts is None and r.CLUSTER_QUEUES in self._reading.unreadable:
            notes.append(f"ClusterQueue {view.name} may not be read: its quota, and what others wait for and hold, is not known")
        elif view.name and view.facts is None:
            notes.append(f"ClusterQueue {view.name} does not exist")
        elif view.facts is not None and not self._reading.has_whole_quota:
            notes.append("amounts in use are those of the status of the ClusterQueue; what it lends and could still borrow is not known")
        return notes

    # --- workloads ------------------------------------------------------------------------------------

    def _report_waiting(self) -> Report:
        named = [each for each in self._view.waiting if self._selection.has(each.workload)]
        others = [each for each in self._view.waiting if not self._selection.has(each.workload)]
        report: Report = {"workloads": [self._report_one_waiting(each) for each in named]}
        if self._reading.namespace is None:
            total = self._sum_asked(each.workload for each in others)
            report["others"] = {"count": len(others), "asks": self._show(total)}
            return report
        count = (self._status or {}).get("pendingWorkloads")
        beyond = max(0, int(count) - len(self._view.waiting)) + len(others) if count is not None else None
        return report | {"others": {"count": beyond, "asks": None}}

    def _report_one_waiting(self, each: WaitingWorkload) -> Report:
        workload = each.workload
        is_whole = self._reading.namespace is None
        positions = {
            "position": each.position if is_whole else None,
            "localPosition": each.local_position,
            "cohortPosition": each.cohort_position if is_whole and self._reading.has_whole_quota else None,
        }
        obj = self._observed.workloads.store.get(workload.key) or {"metadata": {}}
        reason, message = self._explain_wait(workload, obj)
        asks = self._show(self._sum_asked([workload]))
        rest = {"queuedSince": workload.queued_since, "pods": _count_pods(workload), "asks": asks, "reason": reason, "message": message}
        never = [text for lowest, text in self._never_preempted if reason == REASON_WAITING_FOR_QUOTA and workload.priority > lowest]
        return {**positions, **_name(workload, obj), **rest, **({"notPreempted": never} if never else {})}

    def _explain_wait(self, workload: WorkloadFacts, obj: Obj) -> tuple[str, str]:
        if workload.uid in self._later:
            return "RequeuedLater", f"it is queued again at {workload.requeue_at}"
        condition = find_condition(obj, QUOTA_RESERVED)
        if condition is None or condition.get("status") == "True":
            return "", _NO_DECISION
        return str(condition.get("reason") or ""), str(condition.get("message") or "")

    def _report_inactive(self) -> Report | None:
        """Workloads that are not considered until a user changes that; None where there are none."""
        named = [each for each in self._view.inactive if self._selection.has(each)]
        if not self._view.inactive or (not named and self._reading.namespace is not None):
            return None
        return {"workloads": list(map(self._report_one_inactive, named)), "others": {"count": len(self._view.inactive) - len(named)}}

    def _report_one_inactive(self, workload: WorkloadFacts) -> Report:
        obj = self._observed.workloads.store.get(workload.key) or {"metadata": {}}
        found = (find_condition(obj, kind) for kind in (EVICTED, DEACTIVATION_TARGET, QUOTA_RESERVED))
        condition = next((each for each in found if each is not None and each.get("message")), {})
        reason, message = str(condition.get("reason") or ""), str(condition.get("message") or "")
        return {**_name(workload, obj), "state": describe_state(workload), "reason": reason, "message": message}

    def _report_holding(self) -> Report:
        named = [each for each in self._view.holding if self._selection.has(each.workload)]
        others = [each for each in self._view.holding if not self._selection.has(each.workload)]
        report: Report = {"workloads": [self._report_one_holding(each) for each in named]}
        if self._reading.namespace is None:
            total = dict[FlavorResource, int]()
            for each in others:
                for name, amount in each.amounts.items():
                    total[name] = total.get(name, 0) + amount
            return report | {"others": {"count": len(others), "holds": _show_held(total)}}
        count = (self._status or {}).get("reservingWorkloads")
        beyond = max(0, int(count) - len(self._view.holding)) + len(others) if count is not None else None
        used = _read_used(self._status) if self._status is not None else None
        own = _sum_held(named)
        rest = {name: max(0, amount - own.get(name, 0)) for name, (amount, _) in used.items()} if used is not None else None
        return report | {"others": {"count": beyond, "holds": _show_held(rest) if rest is not None else None}}

    def _report_one_holding(self, each: HoldingWorkload) -> Report:
        workload = each.workload
        obj = self._observed.workloads.store.get(workload.key) or {"metadata": {}}
        rest = {"since": workload.reserved_at, "pods": _count_pods(workload), "holds": _show_held(each.amounts)}
        checks = [check.name for check in workload.checks if check.state != CHECK_READY and not workload.admitted]
        return {**_name(workload, obj), **rest, "state": describe_state(workload), **({"waitsForChecks": checks} if checks else {})}

    def _sum_asked(self, workloads: Iterable[WorkloadFacts]) -> dict[str, int]:
        """Of quota, as far as the queue is known."""
        total: dict[str, int] = {}
        for workload in workloads:
            for resource, amount in compute_usage(workload.pod_sets, self._queue, self._state.resource_rules).items():
                if not self._covered or resource in self._covered:
                    total[resource] = total.get(resource, 0) + amount
        return total

    @staticmethod
    def _show(amounts: Amounts) -> dict[str, str]:
        return {resource: format_quantity(resource, amount) for resource, amount in sorted(amounts.items(), key=_rank) if amount}

    # --- quota ----------------------------------------------------------------------------------------

    def _report_quota(self) -> list[Report] | None:
        if self._view.facts is None:
            return None
        used = None if self._reading.has_whole_quota else _read_used(self._status or {})
        return [self._report_use(index, used) for index in range(len(self._view.quota))]

    def _report_use(self, index: int, in_status: Mapping[FlavorResource, tuple[int, int]] | None) -> Report:
        use = self._view.quota[index]
        used, borrowed = in_status.get((use.flavor, use.resource), (0, 0)) if in_status is not None else (use.used, use.borrowed)
        named = {each.workload.queue for each in self._view.holding if self._selection.has(each.workload)}
        held = {key: amount for key, amount in use.by_local_queue.items() if key in named}

        def show(amount: int) -> str:
            return format_quantity(use.resource, amount)

        limits = {"borrowingLimit": use.quota.borrowing_limit, "lendingLimit": use.quota.lending_limit}
        report: Report = {
            "flavor": use.flavor,
            "resource": use.resource,
            "nominal": show(use.quota.nominal),
            **{name: show(limit) for name, limit in limits.items() if limit is not None},
            "used": show(used),
            "own": show(used - borrowed),
            "borrowed": show(borrowed),
            "heldBy": [{"localQueue": key, "amount": show(amount)} for key, amount in held.items()],
            "othersHold": show(max(0, used - sum(held.values()))),
        }
        if in_status is not None:
            return report
        report |= {"lent": show(use.lent), "available": show(max(0, use.available))}
        if self._selection.namespace is None:  # the use of each team is shown to those that read all
            report["borrowers"] = [{"clusterQueue": name, "amount": show(amount)} for name, amount in use.borrowers.items()]
        return report


def _name(workload: WorkloadFacts, obj: Obj) -> Report:
    namespace, _, name = workload.key.partition("/")
    owner = find_controller(obj)
    job = {"job": {"kind": owner["kind"], "name": owner["name"]}} if owner is not None else {}
    return {"namespace": namespace, "name": name, **job, "localQueue": workload.queue.partition("/")[2], "priority": workload.priority}


def _count_pods(workload: WorkloadFacts) -> int:
    return sum(pod_set.count for pod_set in workload.pod_sets)


def _rank(item: tuple[str, int]) -> tuple[bool, bool, str]:
    """Extended resources, such as GPUs, come first and pods last."""
    return item[0] == PODS, "/" not in item[0], item[0]


def _show_held(amounts: Mapping[FlavorResource, int]) -> list[Report]:
    in_order = sorted(amounts.items(), key=lambda item: (_rank((item[0][1], 0)), item[0][0]))
    shown = [(flavor, resource, amount) for (flavor, resource), amount in in_order if amount]
    return [{"flavor": flavor, "resource": name, "amount": format_quantity(name, amount)} for flavor, name, amount in shown]


def _sum_held(holding: Iterable[HoldingWorkload]) -> dict[FlavorResource, int]:
    total: dict[FlavorResource, int] = {}
    for each in holding:
        for name, amount in each.amounts.items():
            total[name] = total.get(name, 0) + amount
    return total


def _read_used(status: Report) -> dict[FlavorResource, tuple[int, int]]:
    """What the status of a ClusterQueue has as reserved, and what of it is borrowed."""
    found = ((flavor["name"], entry) for flavor in status.get("flavorsReservation") or () for entry in flavor.get("resources") or ())
    return {
        (flavor, entry["name"]): (
            parse_canonical(entry["name"], entry.get("total") or 0),
            parse_canonical(entry["name"], entry.get("borrowed") or 0),
        )
        for flavor, entry in found
    }
