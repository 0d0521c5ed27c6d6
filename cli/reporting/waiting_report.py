"""Of a workload that waits: its position and the workloads before it, what holds what it lacks, and why it preempts none."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from rich.console import Console

from cli.reporting.draw import GOOD, QUIET, WAITING, format_labelled, write
from cli.reporting.report import Report, describe_owner
from cli.reporting.table import remove_controls
from core.model.quantity import format_quantity, show_count
from core.placement.refusals import LevelFact
from core.queueing.cycle.queue_resolution import make_stop_check
from core.queueing.flavors.outcome import CURABLE, Attempt, NotAdmissible
from core.queueing.ordering.standing_refusals import compute_asked
from core.queueing.ordering.waiting_order import WaitingWorkload, list_all_waiting
from core.queueing.preemption.missing_quota import MissingQuota, explain_no_preemption, list_missing_quota
from core.state.facts import WorkloadFacts
from core.state.queue_facts import NEVER, ClusterQueueFacts
from reconciler.measure.outlook import Outlook

_SHOWN = 5  # workloads that are named


def report_waiting(outlook: Outlook, facts: WorkloadFacts) -> Report:
    """Returns for a workload that waits, as plain data: `turn`, its positions with how many wait, and the workloads before it in its
    ClusterQueue; `missing`, the quota that it lacks, with the workloads that hold it; `mayNotPreempt`, sentences on why it preempts none,
    which are right only where it is refused without preemption. Empty for one that does not wait. Changes nothing."""
    state, settings = outlook.state, outlook.settings
    queue = state.find_cluster_queue(facts)
    waiting = _list_waiting(outlook)
    own = next((each for each in waiting if each.workload.uid == facts.uid), None)
    if own is None:
        return {}
    in_queue = [
        each for each in waiting if each.cluster_queue == own.cluster_queue and (queue is not None or each.workload.queue == facts.queue)
    ]
    turn: Report = {"position": in_queue.index(own) + 1, "waiting": len(in_queue)} if queue is not None else {}
    turn |= {
        "localPosition": own.local_position,
        "localWaiting": sum(each.workload.queue == facts.queue for each in in_queue),
    }
    above = state.quota.list_ancestors(own.cluster_queue)
    if above:
        near = {own.cluster_queue, *state.quota.list_relatives(own.cluster_queue)}
        turn |= {"cohort": above[-1], "cohortPosition": own.cohort_position, "cohortWaiting": sum(w.cluster_queue in near for w in waiting)}
    before = in_queue[: in_queue.index(own)]
    turn |= {"before": [name_workload(outlook, each.workload) for each in before[:_SHOWN]], "beforeCount": len(before)}
    report: Report = {"turn": turn}
    if queue is None:
        return report
    missing = list_missing_quota(state, facts, queue)
    if missing:
        ahead = _sum_asked(outlook, queue, (each.workload for each in before))
        report["missing"] = [
            {
                "flavor": lack.flavor,
                "resource": lack.resource,
                "needs": format_quantity(lack.resource, lack.wanted),
                "available": format_quantity(lack.resource, max(0, lack.available)),
                "heldBy": [
                    {
                        **name_workload(outlook, holder.workload),
                        "clusterQueue": holder.cluster_queue,
                        "amount": format_quantity(lack.resource, holder.amount),
                    }
                    for holder in lack.holders[:_SHOWN]
                ],
                "holders": len(lack.holders),
                **_report_remedies(lack, queue, facts.priority, ahead[lack.resource], len(before)),
            }
            for lack in missing
        ]
    return report | {"mayNotPreempt": explain_no_preemption(state, facts, queue, by_share=settings.fair_sharing is not None)}


def _report_remedies(lack: MissingQuota, queue: ClusterQueueFacts, priority: int, ahead: int, count: int) -> Report:
    """ClusterQueues that use their own quota, and what would unblock a workload of a priority. `count` workloads are before it, which ask
    for `ahead` of the same."""
    name, short = lack.resource, lack.wanted - lack.available
    lower = sum(h.amount for h in lack.holders if h.cluster_queue == queue.name and h.workload.priority < priority)
    remedies = []
    if queue.preemption.within_queue == NEVER and lower >= short:
        remedies.append(
            f"withinClusterQueue LowerPriority in ClusterQueue {queue.name}: it could preempt workloads of a lower priority, which hold "
            f"{format_quantity(name, lower)} {name}"
        )
    if lack.owners and lack.of_owners >= short:
        names = _join([owner for owner, _ in lack.owners[:_SHOWN]], len(lack.owners))
        remedies.append(
            f"the end of workloads of ClusterQueue {names}: they use quota of their own queue, so that none is preempted for it"
        )
    before = f", and {format_quantity(name, ahead)} for {show_count(count, 'workload')} before it" if ahead else ""
    more = f"{format_quantity(name, short)} {name} more as nominalQuota"
    remedies.append(f"{more} of ClusterQueue {queue.name} in flavor {lack.flavor}{before}")
    owners = [{"clusterQueue": owner, "amount": format_quantity(name, amount)} for owner, amount in lack.owners[:_SHOWN]]
    report: Report = {"usedByOwners": owners, "owners": len(lack.owners)} if owners else {}
    return report | {"wouldHelp": remedies}


def _sum_asked(outlook: Outlook, queue: ClusterQueueFacts, waiting: Iterable[WorkloadFacts]) -> Counter[str]:
    """Canonical amounts by resource that workloads of a queue ask for."""
    total: Counter[str] = Counter()
    for workload in waiting:
        for unit in compute_asked(outlook.state, workload, queue):
            total.update(unit)
    return total


def report_local_turn(outlook: Outlook, facts: WorkloadFacts) -> Report:
    """Returns, under `turn`, the position of a workload in its LocalQueue and how many wait there, which is all that is known where only
    one namespace could be read. Empty for one that does not wait."""
    waiting = [each for each in _list_waiting(outlook) if each.workload.queue == facts.queue]
    own = next((each for each in waiting if each.workload.uid == facts.uid), None)
    if own is None:
        return {}
    before = [each for each in waiting if each.local_position < own.local_position]
    turn = {"localPosition": own.local_position, "localWaiting": len(waiting)}
    return {"turn": {**turn, "before": [name_workload(outlook, each.workload) for each in before[:_SHOWN]], "beforeCount": len(before)}}


def report_former_position(outlook: Outlook, facts: WorkloadFacts, priority: int) -> Report:
    """Returns, under `formerPosition`, the position in its ClusterQueue that a workload would have now with another priority, its former
    one. Empty for one that does not wait. The state is as before."""
    state = outlook.state
    state.observe_workload(facts.key, replace(facts, priority=priority))
    try:
        own = next((each for each in _list_waiting(outlook) if each.workload.uid == facts.uid), None)
    finally:
        state.observe_workload(facts.key, facts)
    return {"formerPosition": own.position} if own is not None else {}


def _list_waiting(outlook: Outlook) -> list[WaitingWorkload]:
    settings, later = outlook.settings, outlook.list_later()
    return list_all_waiting(
        outlook.state,
        rules=settings.pods_ready,
        sharing=settings.fair_sharing,
        is_held_back=later.__contains__,
        is_stopped=make_stop_check(outlook.state),
    )


def report_refused(outlook: Outlook, waiting: Report, refusal: NotAdmissible) -> Report:
    """Returns what `report_waiting` found, as it applies to a refusal: with `notPreempted` where others going could help and none is
    preempted, and with `occupied`, what is on the best domain of a place that is missing."""
    report = {name: value for name, value in waiting.items() if name != "mayNotPreempt"}
    occupied = [entry for attempt in refusal.attempts for entry in _report_domain(outlook, attempt)]
    report |= {"occupied": occupied} if occupied else {}
    is_held_by_others = bool(occupied) or "missing" in report  # else it has no place however many go
    if is_held_by_others and refusal.preempting is None and refusal.reason in CURABLE and waiting.get("mayNotPreempt"):
        report["notPreempted"] = waiting["mayNotPreempt"]
    return report


def _report_domain(outlook: Outlook, attempt: Attempt) -> Iterable[Report]:
    """The workloads on the best domain of the level that is asked for, and pods there that are of none."""
    explanation = attempt.refusal.explanation if attempt.refusal is not None else None
    fact = next((fact for fact in explanation.levels if fact.fit < fact.wanted), None) if explanation is not None else None
    view = outlook.state.get_view(attempt.flavor) if attempt.flavor else None
    if fact is None or view is None or not fact.short:
        return
    domain = dict(zip(view.topology.levels, fact.best, strict=False))
    nodes = {name for name, node in outlook.state.nodes.items() if domain.items() <= node.labels.items()}
    held = sorted(_list_on_nodes(outlook, nodes, fact), key=lambda item: (-max(item[1].values()), item[0].key))
    others = _sum_other_pods(outlook, nodes, fact)
    if held or others:
        yield {
            "domain": "/".join(fact.best),
            "level": fact.level,
            "heldBy": [{**name_workload(outlook, facts), "amounts": _show(amounts)} for facts, amounts in held[:_SHOWN]],
            "holders": len(held),
            **({"otherPods": _show(others)} if others else {}),
        }


def _list_on_nodes(outlook: Outlook, nodes: set[str], fact: LevelFact) -> Iterable[tuple[WorkloadFacts, dict[str, int]]]:
    state = outlook.state
    for facts in list(state.workloads.facts.values()):
        if state.workloads.find_holding(facts.key) is None:
            continue
        amounts = dict[str, int]()
        for pod_set in facts.pod_sets:
            counted = state.ledger.list_counted_nodes((facts.pods_key, pod_set.name, facts.owner_uid))
            pods = sum(count for node, count in counted if node in nodes)
            for short in fact.short:
                amounts[short.resource] = amounts.get(short.resource, 0) + pods * pod_set.requests.get(short.resource, 0)
        if any(amounts.values()):
            yield facts, amounts


def _sum_other_pods(outlook: Outlook, nodes: set[str], fact: LevelFact) -> dict[str, int]:
    pods = [pod for pod in outlook.observed.pod_facts.values() if pod.holds and pod.node in nodes and pod.workload is None]
    total = {short.resource: sum(pod.requests.get(short.resource, 0) for pod in pods) for short in fact.short}
    return {resource: amount for resource, amount in total.items() if amount}


def _show(amounts: Mapping[str, int]) -> dict[str, str]:
    return {resource: format_quantity(resource, amount) for resource, amount in amounts.items() if amount}


def name_workload(outlook: Outlook, workload: WorkloadFacts) -> Report:
    """Returns the key of a workload, what it was made for (`of`, such as `default/job/train`), and its priority, as plain data."""
    obj = outlook.observed.workloads.store.get(workload.key) or {"metadata": {}}
    owner = describe_owner(workload, obj)
    return {"workload": workload.key, "of": remove_controls(f"{workload.key.partition('/')[0]}/{owner}"), "priority": workload.priority}


def render_waiting(console: Console, report: Report) -> None:
    """Prints what `report_refused` or `report_waiting` has added to a report on a workload; nothing where it has added nothing."""
    turn = report.get("turn")
    if turn is None:
        return
    where = f"{turn['position']} of {turn['waiting']} in the ClusterQueue, " if "position" in turn else ""
    where += f"{turn['localPosition']} of {turn['localWaiting']} in the LocalQueue"
    cohort = f", {turn['cohortPosition']} of {turn['cohortWaiting']} in cohort {turn['cohort']}" if "cohort" in turn else ""
    write(console, format_labelled("position", where + cohort), indent=1)
    if turn["before"]:
        named = [f"{one['of']} (priority {one['priority']})" for one in turn["before"]]
        write(console, format_labelled("before it", _join(named, turn["beforeCount"])), indent=1)
    for lack in report.get("missing", ()):
        text = f"{lack['needs']} {lack['resource']} of flavor {lack['flavor']}, of which {lack['available']} are available"
        write(console, format_labelled("needs quota", text, WAITING), indent=1)
        held = [f"{one['of']} {one['amount']} (priority {one['priority']}, ClusterQueue {one['clusterQueue']})" for one in lack["heldBy"]]
        if held:
            write(console, f"held by {_join(held, lack['holders'])}", QUIET, 2)
        owners = [f"ClusterQueue {one['clusterQueue']} {one['amount']}" for one in lack.get("usedByOwners", ())]
        if owners:
            write(console, f"used by its owners: {_join(owners, lack['owners'])}", QUIET, 2)
        elif not held:
            write(console, "no workload holds it", QUIET, 2)
        for remedy in lack.get("wouldHelp", ()):
            write(console, format_labelled("would help", remedy, GOOD), indent=2)
    for domain in report.get("occupied", ()):
        held = [f"{one['of']} {_join_amounts(one['amounts'])} (priority {one['priority']})" for one in domain["heldBy"]]
        others = [f"pods without a workload {_join_amounts(domain['otherPods'])}"] if "otherPods" in domain else []
        text = "; ".join(filter(None, (_join(held, domain["holders"]), *others)))
        write(console, format_labelled(f"on {domain['level']} {domain['domain']}", text), indent=1)
    for sentence in report.get("notPreempted", ()):
        write(console, format_labelled("no preemption", sentence, WAITING), indent=1)


def _join(named: list[str], count: int) -> str:
    return ", ".join(named) + (f" and {count - len(named)} more" if count > len(named) else "")


def _join_amounts(amounts: Mapping[str, str]) -> str:
    return ", ".join(f"{amount} {resource}" for resource, amount in amounts.items())
