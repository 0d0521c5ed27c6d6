"""What is known of one workload: its progress, by the message of its condition, and what the engine finds now."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from cli.cluster_view import find_event_time
from cli.reading.permitted_reading import ClusterReading
from cli.reporting.draw import (
    BAD,
    GOOD,
    HEAD,
    QUIET,
    WAITING,
    format_labelled,
    render_fewer,
    render_found,
    render_places,
    render_refusal,
    write,
)
from cli.reporting.report import Report, describe_state, report_admission, report_choices, report_found, report_refusal
from cli.reporting.waiting_report import render_waiting, report_former_position, report_local_turn, report_refused, report_waiting
from core.model.quantity import show_count
from core.names import (
    ADMITTED,
    CHECK_PENDING,
    DEACTIVATION_TARGET,
    EVENT_UPDATED_WORKLOAD,
    EVICTED,
    FINISHED,
    PLACEMENT_KEPT,
    PODS_SCHEDULABLE,
    PREEMPTED,
    QUOTA_RESERVED,
    RANK_ORDER_KEPT,
    SPARES_HELD,
)
from core.plan.steps import api_resources as r
from core.plan.workloads.admission_status import BEFORE, FEWER, PLACED, find_former
from core.queueing.cycle.explain_current import explain_standing
from core.queueing.flavors.outcome import Admissible
from core.queueing.flavors.spare_lending import list_borrowed, list_loans
from core.resource import Obj
from core.runtime.watch.store import build_object_key
from core.state.facts import CheckState, WorkloadFacts, find_condition, find_controller
from core.state.owners import read_owner, show_owner
from reconciler.measure.outlook import Outlook

_PRIORITY_BEFORE = re.compile(r"priority (-?[0-9]{1,10}) -> (-?[0-9]{1,10})")
_UID = re.compile(r"\(UID: ([^,)]+)")
_SHOWN = 3  # nodes that are named
_STYLES = {"admitted": GOOD, "finished": GOOD, "deactivated": BAD, "stopping": BAD}


def explain(reading: ClusterReading, workload: Obj, events: Iterable[Obj] = ()) -> Report:
    """Returns all that is known of a workload as plain data: `kind`, `namespace`, `name`, `localQueue`, `state`, and more where it applies.
    `now` is what would be decided on it now; that changes the outlook's state. It is missing for a workload that is finished, admitted
    without lost nodes, or not to be decided on, and where the reading is not whole. One that cannot be read has the state `unreadable`.
    `events` are those of the workload, as far as there still are any, the oldest first."""
    outlook = reading.outlook
    key = build_object_key(workload)
    facts = outlook.state.workloads.facts.get(key)
    metadata, owner = workload["metadata"], find_controller(workload)
    report: Report = {"kind": "Workload", "namespace": metadata["namespace"], "name": metadata["name"]}
    if owner is not None:
        report["job"] = {"kind": owner["kind"], "name": owner["name"]}
    report |= {"localQueue": (workload.get("spec") or {}).get("queueName") or ""}
    if facts is None:  # written past all checks
        return report | {"state": "unreadable", "message": "the Workload cannot be read; the reconciler leaves it alone"}
    local = outlook.state.local_queues.get(facts.queue)
    report |= {"clusterQueue": local.cluster_queue if local is not None else "", "priority": facts.priority, "state": describe_state(facts)}
    reported = find_reported_condition(workload, facts)
    if reported is not None:
        report["condition"] = {name: reported.get(name, "") for name in ("type", "status", "reason", "message", "lastTransitionTime")}
    if facts.finished:
        return report
    kept = (PLACEMENT_KEPT, PODS_SCHEDULABLE, RANK_ORDER_KEPT, SPARES_HELD)
    broken = [found for kind in kept if (found := _find_broken_condition(workload, kind)) is not None]
    if broken:
        report["notKept"] = broken
    if facts.checks:
        report["admissionChecks"] = [
            {"name": check.name, "state": check.state, **_name_controller(outlook, check)} for check in facts.checks
        ]
    former = find_former(workload.get("status") or {})
    if former and (reported or {}).get("type") != EVICTED:
        report["before"] = former
    preemptor = _find_preemptor(outlook, workload)
    if preemptor is not None:
        report["preemptedBy"] = build_object_key(preemptor)
    if facts.requeue_at is not None and outlook.is_later(facts):
        report["queuedAgainAt"] = facts.requeue_at
    if facts.unhealthy_nodes:
        report["failedNodes"] = sorted(facts.unhealthy_nodes)
    report |= _report_end_of_job(outlook, workload, facts)
    report |= _place(outlook, facts, events, knows_nodes=r.NODES not in reading.unreadable)
    return report | (_report_outlook(outlook, facts) if reading.is_whole else report_local_turn(outlook, facts))


def _name_controller(outlook: Outlook, check: CheckState) -> Report:
    """The controller that is to answer a check, where it has not."""
    known = outlook.state.checks.get(check.name)
    return {"waitsFor": known.controller} if known is not None and check.state in ("", CHECK_PENDING) else {}


def _report_end_of_job(outlook: Outlook, workload: Obj, facts: WorkloadFacts) -> Report:
    """Of a workload of a job that has finished and left pods that run: how the job ended, and how many these are."""
    found = outlook.observed.find_job(workload)
    over = found[0].find_finish(found[1]) if found is not None else None
    left = len(outlook.observed.list_live_pods(facts.pods_key)) if over is not None else 0
    return {"jobFinished": {"succeeded": over.succeeded, "podsLeft": left}} if over is not None and left else {}


def find_reported_condition(workload: Obj, facts: WorkloadFacts) -> Any:
    """Returns the condition (JSON) that explains the state of a workload; None where it has none."""
    types: Sequence[str] = {
        "finished": (FINISHED,),
        "stopping": (EVICTED,),
        "deactivated": (EVICTED, DEACTIVATION_TARGET, QUOTA_RESERVED),
        "admitted": (ADMITTED,),
        "quota reserved": (ADMITTED, QUOTA_RESERVED),
    }.get(describe_state(facts), (QUOTA_RESERVED,))
    return next((found for kind in types if (found := find_condition(workload, kind)) is not None), None)


def _find_broken_condition(workload: Obj, kind: str) -> Report | None:
    """Returns a condition that is normally True, if it is False; None otherwise."""
    found = find_condition(workload, kind)
    return {name: found.get(name, "") for name in ("type", "reason", "message")} if found and found.get("status") == "False" else None


def _find_preemptor(outlook: Outlook, workload: Obj) -> Obj | None:
    """Returns the workload for which this one was preempted, while it exists: the condition names it by its uid alone,
    as Kueue's does."""
    named = _UID.search((find_condition(workload, PREEMPTED) or {}).get("message") or "")
    if named is None:
        return None
    return next((one for one in outlook.observed.workloads.store.list() if one["metadata"]["uid"] == named[1]), None)


def _place(outlook: Outlook, facts: WorkloadFacts, events: Iterable[Obj], *, knows_nodes: bool) -> Report:
    """Where its pods are to be, why there, and how far they are."""
    admission = outlook.state.workloads.find_holding(facts.key)
    if admission is None:
        return {}
    pods = outlook.observed.list_live_pods(facts.pods_key)
    report: Report = {
        "podSets": report_admission(outlook.state, admission, facts),
        "why": report_choices(explain_standing(outlook.state, facts)),
        "pods": {"bound": sum(bool(pod.node) for pod in pods), "gated": sum(pod.gated for pod in pods), "live": len(pods)},
    }
    gone = sum(bool(pod.node) and outlook.observed.nodes.store.get(pod.node) is None for pod in pods)
    if gone and knows_nodes:
        report["pods"]["onNodesThatAreGone"] = gone
    not_ready = [pod.node for pod in pods if pod.node in outlook.state.nodes and not outlook.state.nodes[pod.node].state.ready]
    if not_ready:
        report["pods"] |= {"onNodesNotReady": len(not_ready), "nodesNotReady": sorted(set(not_ready))}
    borrowed = list_borrowed(outlook.state, facts)
    if borrowed:
        report["borrowed"] = [{"of": key, "nodes": list(nodes)} for key, nodes in borrowed]
    lent = list_loans(outlook.state, facts)
    if lent:
        report["lent"] = [{"node": loan.node, "to": list(loan.keys)} for loan in lent]
    admissions = [event["message"].partition(BEFORE)[0] for event in events if PLACED in (event.get("message") or "")]
    if admissions:
        before, _, report["whyThen"] = admissions[-1].partition(PLACED)
        report |= {"fewerSince": before.partition(FEWER)[2]} if FEWER in before else {}
    return report


def has_missing_pods(report: Report) -> bool:
    """Whether an admitted workload has fewer pods on nodes than it was admitted with, by its report of `explain`; else False."""
    wanted = sum(int(pod_set["count"]) for pod_set in report.get("podSets", ()))
    return report["state"] == "admitted" and wanted > int(report.get("pods", {}).get("bound", wanted))


def report_warning(outlook: Outlook, workload: Obj, warnings: Sequence[Obj] | None) -> Report:
    """Returns, under `podWarning`, the last warning since the admission about a pod of a workload or what creates it; empty where there is
    none. `warnings` are all of the namespace, the oldest first. Where they are None, since they may not be listed, the message names the
    command to list them. Raises KeyError for a workload that cannot be read."""
    namespace = workload["metadata"]["namespace"]
    if warnings is None:
        command = f"kubectl get events -n {namespace} --field-selector type=Warning"
        return {"podWarning": {"message": f"you may not list events; an identity that may sees there why pods are missing: {command}"}}
    owner, since = find_controller(workload), str((find_condition(workload, ADMITTED) or {}).get("lastTransitionTime") or "")[:19]
    uids = {pod.uid for pod in outlook.observed.list_pods(outlook.state.workloads.facts[build_object_key(workload)].pods_key)}
    keys = outlook.observed.owners.list_descendants(show_owner(namespace, owner["uid"])) if owner is not None else set()
    uids |= set(map(read_owner, keys))
    found = [event for event in warnings if (event.get("involvedObject") or {}).get("uid") in uids and find_event_time(event) >= since]
    if not found:
        return {}
    about, text = found[-1]["involvedObject"], " ".join(str(found[-1].get("message") or "").split())
    named = {"kind": str(about.get("kind") or ""), "name": str(about.get("name") or "")}
    return {"podWarning": {**named, "reason": str(found[-1].get("reason") or ""), "message": text}}


def report_last_change(reading: ClusterReading, workload: Obj, events: Iterable[Obj]) -> Report:
    """Returns, under `lastChange`, the last event of a change of its job by which a Workload was changed, with `message` and `time`. Where
    that changed the priority of a workload that waits it has the position with the former one (`formerPosition`), if all is known by which
    it is ordered. Empty without such an event. `events` are those on what the Workload was made for, the oldest first."""
    found = [event for event in events if event.get("reason") == EVENT_UPDATED_WORKLOAD]
    if not found:
        return {}
    report: Report = {"message": " ".join(str(found[-1].get("message") or "").split()), "time": find_event_time(found[-1])}
    facts = reading.outlook.state.workloads.facts.get(build_object_key(workload))
    former = _PRIORITY_BEFORE.search(report["message"])
    if former is not None and facts is not None and facts.priority == int(former[2]) and reading.is_whole:
        report |= report_former_position(reading.outlook, facts, int(former[1]))
    return {"lastChange": report}


def _report_outlook(outlook: Outlook, facts: WorkloadFacts) -> Report:
    """What a reconciler that starts now would decide on it."""
    if not facts.active or facts.deleting or facts.on_hold or (facts.admitted and not facts.unhealthy_nodes):
        return {}
    waiting = report_waiting(outlook, facts)  # before what comes first is admitted
    verdict = outlook.decide([facts.key]).get(facts.key)
    positions = {"turn": waiting["turn"]} if waiting else {}
    if verdict is None:
        return positions
    if isinstance(verdict.outcome, Admissible):
        return {**positions, "now": {"outcome": "admitted", **report_found(outlook.state, verdict.outcome, facts)}}
    return {**report_refused(outlook, waiting, verdict.outcome), "now": {"outcome": "waits", **report_refusal(verdict.outcome)}}


# --- on a terminal ------------------------------------------------------------------------------------


def render(console: Console, report: Report) -> None:
    """Prints the report on a workload for people; each sentence whole, in one line."""
    write(console, Text(f"Workload {report['namespace']}/{report['name']}", HEAD).append(_describe_owner(report), QUIET))
    write(console, format_labelled("state", report["state"], _STYLES.get(report["state"], WAITING)), indent=1)
    if "clusterQueue" in report:
        queue = f"LocalQueue {report['localQueue']}, ClusterQueue {report['clusterQueue'] or 'none'}, priority {report['priority']}"
        write(console, format_labelled("queue", queue), indent=1)
    condition = report.get("condition")
    if condition is not None:
        since = f" since {condition['lastTransitionTime']}" if condition["lastTransitionTime"] else ""
        write(console, format_labelled("condition", f"{condition['type']}={condition['status']}, {condition['reason']}{since}"), indent=1)
        write(console, condition["message"], indent=2)
    elif report["state"] == "waiting":
        write(console, "no decision yet; is the reconciler running?", WAITING, 1)
    if "message" in report:
        write(console, report["message"], BAD, 1)
    for broken in report.get("notKept", ()):
        write(console, format_labelled(f"{broken['type']}=False, {broken['reason']}", broken["message"], BAD), indent=1)
    for check in report.get("admissionChecks", ()):
        answer = f", controller {check['waitsFor']} is to answer" if "waitsFor" in check else ""
        write(console, format_labelled(f"admission check {check['name']}", f"{check['state']}{answer}"), indent=1)
    if "before" in report:
        write(console, format_labelled("before", report["before"]), indent=1)
    if "lastChange" in report:
        write(console, format_labelled("last change by its user", _describe_change(report["lastChange"])), indent=1)
    if "preemptedBy" in report:
        write(console, format_labelled("preempted by", report["preemptedBy"]), indent=1)
    if "queuedAgainAt" in report:
        write(console, format_labelled("queued again at", report["queuedAgainAt"], WAITING), indent=1)
    if "failedNodes" in report:
        write(console, format_labelled("failed nodes", ", ".join(report["failedNodes"]), BAD), indent=1)
    if "jobFinished" in report:
        left = show_count(report["jobFinished"]["podsLeft"], "pod")
        text = f"it has finished, and {left} of it still run: its quota and its nodes are free once they have ended; delete them or the job"
        write(console, format_labelled("job", text, WAITING), indent=1)
    _render_place(console, report)
    render_waiting(console, report)
    _render_outlook(console, report)


def _describe_change(change: Report) -> str:
    former = f"; with its former priority its position would be {change['formerPosition']}" if "formerPosition" in change else ""
    return f"{change['message']} ({change['time']}){former}"


def _describe_owner(report: Report) -> str:
    return f" (for {report['job']['kind']} {report['job']['name']})" if "job" in report else ""


def _render_place(console: Console, report: Report) -> None:
    if "podSets" not in report:
        return
    render_places(console, report["podSets"])
    render_fewer(console, report)
    for loan in report.get("borrowed", ()):
        text = f"{', '.join(loan['nodes'])} of {loan['of']}, until that needs them"
        write(console, format_labelled("spare nodes lent to it", text, WAITING), indent=1)
    for loan in report.get("lent", ()):
        text = f"{loan['node']} to {', '.join(loan['to']) or 'pods that are ending'}"
        write(console, format_labelled("of its spare nodes lent", text), indent=1)
    if "whyThen" in report:
        write(console, format_labelled("why there, when it was admitted", report["whyThen"]), indent=1)
    for sentence in report["why"]:
        write(console, format_labelled("why there, as things are now", sentence), indent=1)
    pods = report["pods"]
    gone = f" ({pods['onNodesThatAreGone']} of them on nodes that are gone)" if "onNodesThatAreGone" in pods else ""
    if "onNodesNotReady" in pods:
        named = ", ".join(pods["nodesNotReady"][:_SHOWN]) + (", ..." if len(pods["nodesNotReady"]) > _SHOWN else "")
        gone += f" ({pods['onNodesNotReady']} of them on nodes that are not ready: {named})"
    write(console, format_labelled("pods", f"{pods['live']} live, {pods['bound']} on nodes{gone}, {pods['gated']} gated"), indent=1)
    if "podWarning" in report:
        warning = report["podWarning"]
        about = f"{warning['reason']} of {warning['kind']} {warning['name']}: " if "reason" in warning else ""
        write(console, format_labelled("last warning about its pods", f"{about}{warning['message']}", WAITING), indent=1)


def _render_outlook(console: Console, report: Report) -> None:
    now = report.get("now")
    if now is None:
        return
    if now["outcome"] == "admitted":
        write(console, format_labelled("now", f"it would be admitted by ClusterQueue {now['clusterQueue']}", GOOD), indent=1)
        render_found(console, now, 2)
        return
    if now["message"] != report.get("condition", {}).get("message"):
        write(console, format_labelled("now", f"{now['reason']}: {now['message']}", WAITING), indent=1)
    render_refusal(console, now)
