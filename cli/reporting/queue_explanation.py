"""What is known of a ClusterQueue or a LocalQueue: whether it admits workloads, why not, on which nodes, and what would help."""

from collections.abc import Iterator
from datetime import datetime
from difflib import get_close_matches
from typing import Any

from rich.console import Console
from rich.text import Text

from cli.failures import Failure, describe_missing_right
from cli.reading.permitted_reading import ClusterReading
from cli.reporting.draw import BAD, GOOD, HEAD, WAITING, format_labelled, write
from cli.reporting.owner_report import render_remedies
from cli.reporting.queue_drawing import render_queues
from cli.reporting.queue_report import Selection, report_queues
from cli.reporting.report import Report
from cli.reporting.table import remove_controls
from core.model.podset import PodSetRequest
from core.model.quantity import show_count
from core.names import (
    ACTIVE,
    REASON_ADMISSIONS_PAUSED,
    REASON_CHECK_INACTIVE,
    REASON_CHECK_NOT_FOUND,
    REASON_COHORT_CYCLE,
    REASON_FLAVOR_NOT_FOUND,
    REASON_MISCONFIGURED,
    REASON_MULTIKUEUE_WITH_TOPOLOGY,
    REASON_STOPPED,
    REASON_TERMINATING,
    REASON_TOPOLOGY_NOT_FOUND,
)
from core.placement.explain.survey import list_out_of_use
from core.plan.steps import api_resources as r
from core.queueing.cycle.queue_resolution import resolve_queue
from core.state.cluster import ClusterState
from core.state.facts import find_condition
from core.state.flavor_view import is_match

_NEAR = 5
_ACTIVE, _INACTIVE, _UNKNOWN = "active", "inactive", "not known"
_REMEDIES = {
    REASON_TERMINATING: "wait until the workloads that hold its quota are over; or create another ClusterQueue",
    REASON_STOPPED: "set spec.stopPolicy of the ClusterQueue to None",
    REASON_FLAVOR_NOT_FOUND: "create the ResourceFlavor, or remove it from spec.resourceGroups",
    REASON_CHECK_NOT_FOUND: "create the AdmissionCheck, or remove it from spec.admissionChecksStrategy",
    REASON_CHECK_INACTIVE: "look at the conditions of the AdmissionCheck: its controller has to set Active",
    REASON_MULTIKUEUE_WITH_TOPOLOGY: "use the AdmissionCheck of MultiKueue in a ClusterQueue without flavors with a topology",
    REASON_COHORT_CYCLE: "change spec.parentName of one of these Cohorts",
    REASON_TOPOLOGY_NOT_FOUND: "create the Topology; `topogate topology suggest` writes one from the labels of the nodes",
    REASON_ADMISSIONS_PAUSED: "`topogate resume admissions`",
}


def explain_cluster_queue(reading: ClusterReading, name: str) -> Report:
    """Returns a report on a ClusterQueue as plain data: `kind`, `name`, `state` (`active`, `inactive` or `not known`), `localQueues`, its
    `flavors` with their nodes (as far as nodes could be read), `wouldHelp`, and in `queue` what `topogate queue` shows of it. Where it
    admits none it has `inactive`, with `reason` and `message`. Raises Failure where it may not be read, or there is none."""
    state = reading.outlook.state
    if name not in state.cluster_queues:
        _refuse_missing(reading, name)
    (queue,) = report_queues(reading, Selection(frozenset([name]), reading.namespace))
    local_queues = sorted(key for key, local in state.local_queues.items() if local.cluster_queue == name)
    knows_flavors = not {r.NODES, r.RESOURCE_FLAVORS, r.TOPOLOGIES}.intersection(reading.unreadable)
    flavors = [_report_flavor(state, each) for each in state.cluster_queues[name].flavors] if knows_flavors else []
    report: Report = {"kind": r.CLUSTER_QUEUES.kind, "name": name, "state": _INACTIVE if "inactive" in queue else _ACTIVE}
    report |= {"inactive": queue["inactive"]} if "inactive" in queue else {}
    report |= {"localQueues": local_queues} | ({"flavors": flavors} if knows_flavors else {})
    return report | {"wouldHelp": list(_list_remedies(report, is_whole=reading.is_whole)), "queue": queue}


def _refuse_missing(reading: ClusterReading, name: str) -> None:
    if r.CLUSTER_QUEUES in reading.unreadable:
        raise Failure(f"ClusterQueue {name} does not exist, or you may not read it: {describe_missing_right(r.CLUSTER_QUEUES)}")
    there = sorted(reading.outlook.state.cluster_queues)
    near = get_close_matches(name, there, n=_NEAR) or there[:_NEAR]
    raise Failure(f"there is no ClusterQueue {name}; there {'are ' + ', '.join(near) if near else 'is none'}")


def _report_flavor(state: ClusterState, name: str) -> Report:
    """Its nodes, how many of them take pods, and the others by reason."""
    flavor = state.flavors.get(name)
    if flavor is None:
        return {"name": name, "isMissing": True, "topology": "", "nodes": 0, "usable": 0, "outOfUse": {}}
    report: Report = {"name": name, "isMissing": False, "topology": flavor.topology or ""}
    matching = [node for node in state.nodes.values() if is_match(flavor, node)]
    view = state.get_view(name)
    if view is None:
        usable = [node for node in matching if node.state.ready and not node.state.unschedulable]
        return report | {"nodes": len(matching), "usable": 0 if flavor.topology else len(usable), "outOfUse": {}}
    out = {reason: len(names) for reason, names in list_out_of_use(view.capacity, _build_plain_pod(flavor.tolerations)).items()}
    left_out = len(matching) - len(view.capacity.tree)
    out |= {"without a place in the topology": left_out} if left_out else {}
    return report | {"nodes": len(matching), "usable": len(matching) - sum(out.values()), "outOfUse": out}


def _build_plain_pod(tolerations: tuple[Any, ...]) -> PodSetRequest:
    return PodSetRequest("pod", 1, {}, None, {}, None, tolerations)


def _list_remedies(report: Report, *, is_whole: bool) -> Iterator[str]:
    inactive = report.get("inactive")
    if inactive is not None and inactive["reason"] in _REMEDIES:
        yield _REMEDIES[inactive["reason"]]
    if not report["localQueues"] and is_whole:
        yield f"create a LocalQueue with spec.clusterQueue {report['name']}: no job can be queued in it without one"
    for flavor in report.get("flavors", ()):
        if flavor["isMissing"] or flavor["usable"]:
            continue
        if not flavor["nodes"]:
            yield f"give nodes the labels in spec.nodeLabels of ResourceFlavor {flavor['name']}: it selects no node"
        else:
            yield f"repair or uncordon nodes of ResourceFlavor {flavor['name']}: none of its {flavor['nodes']} takes pods"


def explain_local_queue(reading: ClusterReading, namespace: str, name: str) -> Report:
    """Returns a report on a LocalQueue as plain data: `kind`, `namespace`, `name`, `clusterQueue`, `state`, `wouldHelp`, and in `queue`
    what `topogate queue` shows of it. Where it admits none it has `inactive`, with `reason` and `message`. Raises Failure where it may
    not be read, or there is none."""
    state, key = reading.outlook.state, f"{namespace}/{name}"
    local = state.local_queues.get(key)
    if local is None and r.LOCAL_QUEUES in reading.unreadable:
        raise Failure(describe_missing_right(r.LOCAL_QUEUES, namespace))
    if local is None:
        there = sorted(each.partition("/")[2] for each in state.local_queues if each.startswith(f"{namespace}/"))
        near = get_close_matches(name, there, n=_NEAR) or there[:_NEAR]
        raise Failure(f"there is no LocalQueue {name} in namespace {namespace}; there {'are ' + ', '.join(near) if near else 'is none'}")
    report: Report = {"kind": r.LOCAL_QUEUES.kind, "namespace": namespace, "name": name, "clusterQueue": local.cluster_queue}
    problem = _find_problem(reading, key)
    report |= {"state": _INACTIVE if problem is not None else _ACTIVE if _has_known_state(reading, key) else _UNKNOWN}
    report |= {"inactive": {"reason": problem[0], "message": problem[1]}} if problem is not None else {}
    remedies = ["set spec.stopPolicy of the LocalQueue to None"] if local.stopped else []
    of_queue = state.cluster_queues.get(local.cluster_queue)
    if problem is not None and problem[0] == REASON_MISCONFIGURED and of_queue is not None:
        remedies.append(f"change spec.namespaceSelector of ClusterQueue {of_queue.name}, or the labels of namespace {namespace}")
    if of_queue is not None and reading.is_whole:
        remedies += [each for each in explain_cluster_queue(reading, of_queue.name)["wouldHelp"] if each not in remedies]
    elif of_queue is None and r.CLUSTER_QUEUES not in reading.unreadable:
        remedies.append(f"create ClusterQueue {local.cluster_queue}, or create another LocalQueue: spec.clusterQueue cannot be changed")
    queues = report_queues(reading, Selection(frozenset([local.cluster_queue]), namespace, key))
    return report | {"wouldHelp": remedies} | ({"queue": queues[0]} if queues else {})


def _find_problem(reading: ClusterReading, key: str) -> tuple[str, str] | None:
    """What is found now where all is known, else what its condition reports."""
    if reading.is_whole:
        refusal = resolve_queue(reading.outlook.state, key)[1]
        return (refusal.reason, refusal.message) if refusal is not None else None
    active = _find_active(reading, key)
    return (str(active.get("reason")), str(active.get("message"))) if active is not None and active.get("status") == "False" else None


def _has_known_state(reading: ClusterReading, key: str) -> bool:
    return reading.is_whole or _find_active(reading, key) is not None


def _find_active(reading: ClusterReading, key: str) -> Any:
    return find_condition(reading.outlook.observed.local_queues.store.get(key) or {}, ACTIVE)


# --- on a terminal ------------------------------------------------------------------------------------


def render_queue(console: Console, report: Report, now: datetime) -> None:
    """Prints a report of `explain_cluster_queue` or `explain_local_queue` for people, with what `topogate queue` prints of it."""
    name = f"{report['namespace']}/{report['name']}" if "namespace" in report else report["name"]
    write(console, Text(remove_controls(f"{report['kind']} {name}"), HEAD))
    style = {_ACTIVE: GOOD, _INACTIVE: BAD}.get(report["state"], WAITING)
    write(console, format_labelled("state", report["state"], style), indent=1)
    if "inactive" in report:
        why = f"{report['inactive']['reason']}: {report['inactive']['message']}"
        write(console, format_labelled("why", remove_controls(why), BAD), indent=1)
    if "localQueues" in report:
        write(console, format_labelled("LocalQueues", ", ".join(report["localQueues"]) or "none"), indent=1)
    for flavor in report.get("flavors", ()):
        _render_flavor(console, flavor)
    render_remedies(console, report["wouldHelp"])
    if "queue" in report:
        write(console)
        render_queues(console, [report["queue"]], now)


def _render_flavor(console: Console, flavor: Report) -> None:
    if flavor["isMissing"]:
        write(console, format_labelled(f"flavor {flavor['name']}", "does not exist", BAD), indent=1)
        return
    out = ", ".join(f"{count} {reason}" for reason, count in flavor["outOfUse"].items())
    where = f"topology {flavor['topology']}" if flavor["topology"] else "without a topology"
    text = f"{where}, {show_count(flavor['nodes'], 'node')}, {flavor['usable']} of them take pods{f' ({out})' if out else ''}"
    write(console, format_labelled(f"flavor {flavor['name']}", text, "" if flavor["usable"] else BAD), indent=1)
