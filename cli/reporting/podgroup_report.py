"""What is known of a group of pods: how far each replica is, and what each placement lacks for what waits."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from cli.finding import NamedObject, find_group
from cli.reading.permitted_reading import ClusterReading
from cli.reporting.draw import BAD, GOOD, HEAD, QUIET, WAITING, describe_excluded, format_labelled, write
from cli.reporting.report import Report
from core.model.quantity import show_count
from core.names import POD_GROUP_SCHEDULED, POD_GROUP_VERIFIED
from core.plan.pods.group_plans import is_native
from core.plan.steps import api_resources as r
from core.podgroups.acting import GroupStep
from core.podgroups.group_explanation import GroupExplanation
from core.podgroups.members import GroupKey
from core.podgroups.podgroup_facts import PodGroupFacts, find_template, read_pod_group
from core.resource import Obj
from core.runtime.watch.store import build_object_key
from core.state.facts import find_condition
from reconciler.measure.outlook import Outlook
from reconciler.podgroups.group_steps import list_members, list_replicas

_SHOWN = 12  # nodes, and placements, that the terminal names


# --- as data ------------------------------------------------------------------------------------------


def explain_if_asked(reading: ClusterReading, asked: NamedObject, namespace: str) -> Report | None:
    """Returns the report (`explain_group`) on the PodGroup that `find_group` finds: the one that is named, or that of the named pod or job.
    None where that finds none. Raises what `find_group` raises."""
    group = find_group(reading.outlook.observed, asked, namespace)
    return explain_group(reading.outlook, group, has_step=reading.is_whole) if group is not None else None


def explain_group(outlook: Outlook, group: Obj, *, has_step: bool = True) -> Report:
    """Returns the report on a PodGroup as plain data: `kind`, `namespace`, `name`, what it `asks`, its `state` (`waiting` or `scheduled`)
    and `replicas`. These are the replicas with pods, each with its `pods` and, where it `has_step`, its next step (`now`). Where they apply
    it has `by`, `madeFrom` and `condition`."""
    facts, metadata = read_pod_group(group), group["metadata"]
    report: Report = {
        "kind": r.POD_GROUPS.kind,
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "asks": _report_request(facts),
    }
    report |= {"by": "kube-scheduler"} if is_native(group) else {}
    made = find_template(group)
    report |= {"madeFrom": {"workload": made[0], "template": made[1]}} if made is not None else {}
    verified = find_condition(group, POD_GROUP_VERIFIED) if is_native(group) else None
    reported = verified or find_condition(group, POD_GROUP_SCHEDULED)
    report["state"] = "waiting" if reported is None or reported.get("status") != "True" else "scheduled"
    if reported is not None:
        report["condition"] = {name: reported.get(name, "") for name in ("type", "status", "reason", "message", "lastTransitionTime")}
    report["replicas"] = [
        _report_replica(outlook, key, has_step=has_step) for key in list_replicas(outlook.observed, build_object_key(group))
    ]
    return report


def _report_request(facts: PodGroupFacts) -> Report:
    asks: Report = {"replicas": facts.replicas}
    asks |= {"minCount": facts.min_count} if facts.min_count is not None else {}
    asks |= {"desiredCount": facts.desired_count} if facts.desired_count is not None else {}
    asks |= {"claimTemplates": list(facts.claim_templates)} if facts.claim_templates else {}
    return asks | {"levels": [{"level": one.level, "mode": "Preferred" if one.preferred else "Required"} for one in facts.levels]}


def _report_replica(outlook: Outlook, key: GroupKey, *, has_step: bool) -> Report:
    members, step = outlook.plan_group(key) if has_step else (list(list_members(outlook.observed, key).values()), None)
    live = [member for member in members if member.is_live]
    bound = Counter(member.node for member in live if member.node)
    kept = Counter(member.place for member in live if member.place and not member.node)
    pods = {"live": len(live), "bound": bound.total(), "placed": kept.total(), "gated": sum(one.gated and not one.place for one in live)}
    report: Report = {"replica": key.replica, "pods": pods}
    report |= {"nodes": dict(sorted(bound.items()))} if bound else {}
    report |= {"kept": dict(sorted(kept.items()))} if kept else {}
    return report | ({"now": report_step(step)} if step is not None else {})


def report_step(step: GroupStep) -> Report:
    """Returns what would become of one replica now, as plain data: `outcome` (`placed` where it gets places or its condition is True, else
    `waits`), `reason`, `message`, and `places` (pods by node) where it gets some. With an explanation it also has what each of the
    `placements` lacks, and which nodes are `excluded`."""
    places: Counter[str] = Counter(node for _, node in step.keep)
    is_placed = bool(step.keep) or step.is_scheduled
    report: Report = {"outcome": "placed" if is_placed else "waits", "reason": step.reason, "message": step.message}
    report |= {"places": dict(sorted(places.items()))} if places else {}
    return report | (_report_explanation(step.explanation) if step.explanation is not None else {})


def _report_explanation(explanation: GroupExplanation) -> Report:
    return {
        "wanted": explanation.wanted,
        "placements": [
            {
                "name": fact.name,
                "nodes": fact.nodes,
                "fit": fact.fit,
                "lacks": {amount.resource: str(amount).partition(" ")[0] for amount in fact.lacks},
            }
            for fact in explanation.facts
        ],
        "totalNodes": explanation.total_nodes,
        "excluded": [{"reason": one.reason, "count": one.count, "example": one.example} for one in explanation.exclusions],
    }


# --- on a terminal ------------------------------------------------------------------------------------


def render_group(console: Console, report: Report) -> None:
    """Prints the report on a group for people; each sentence whole, in one line."""
    by = f" of {report['by']}'s own" if "by" in report else ""
    write(console, Text(f"PodGroup {report['namespace']}/{report['name']}{by}", HEAD))
    if "madeFrom" in report:
        made = report["madeFrom"]
        write(console, format_labelled("made from", f"template {made['template']} of Workload {made['workload']}"), indent=1)
    write(console, format_labelled("asks for", _format_request(report["asks"])), indent=1)
    write(console, format_labelled("state", report["state"], GOOD if report["state"] == "scheduled" else WAITING), indent=1)
    condition = report.get("condition")
    if condition is not None:
        since = f" since {condition['lastTransitionTime']}" if condition["lastTransitionTime"] else ""
        write(console, format_labelled("condition", f"{condition['type']}={condition['status']}, {condition['reason']}{since}"), indent=1)
        write(console, condition["message"], indent=2)
    elif report["replicas"]:
        gate = "--feature-gates TopologyAwareWorkloadScheduling=true"
        write(console, f"no decision yet; does the reconciler run with {gate}?", WAITING, 1)
    if not report["replicas"]:
        write(console, "no pod names it", QUIET, 1)
    for replica in report["replicas"]:
        _render_replica(console, replica, condition["message"] if condition else "", several=report["asks"]["replicas"] > 1)


def _format_request(asks: Report) -> str:
    several = f"{asks['replicas']} replicas of " if asks["replicas"] > 1 else ""
    count = f"at least {asks['minCount']} pods at once" if "minCount" in asks else "pods as they come"
    count += f", {asks['desiredCount']} in the end" if "desiredCount" in asks else ""
    modes = {"Required": "in one", "Preferred": "if possible in one"}
    levels = "".join(f", {modes[one['mode']]} {one['level']}" for one in asks["levels"])
    return f"{several}{count}{levels}" + "".join(f", devices of {name} in one pool" for name in asks.get("claimTemplates", ()))


def _render_replica(console: Console, replica: Report, said: str, *, several: bool) -> None:
    pods, indent = replica["pods"], 1
    if several:
        write(console, f"replica {replica['replica']}", HEAD, indent)
        indent = 2
    text = f"{pods['live']} live, {pods['bound']} on nodes, {pods['placed']} with a place, {pods['gated']} without"
    write(console, format_labelled("pods", text), indent=indent)
    for name, nodes in (("on nodes", replica.get("nodes")), ("places kept on", replica.get("kept"))):
        if nodes:
            write(console, format_labelled(name, _format_nodes(nodes)), indent=indent)
    if "now" in replica:
        _render_now(console, replica["now"], said, indent)


def _render_now(console: Console, now: Report, said: str, indent: int) -> None:
    """Prints what would happen to a group now, if anything; a message that was printed already is left out."""
    if now["outcome"] == "placed" and "places" not in now and "placements" not in now:
        return
    if now["message"] != said:
        write(console, format_labelled("now", now["message"], GOOD if now["outcome"] == "placed" else WAITING), indent=indent)
    render_places_of_group(console, now, indent + 1)


def render_places_of_group(console: Console, now: Report, indent: int) -> None:
    """Prints where the pods of a replica would go, or what each of the first 12 placements lacks and which nodes are left out. `now` is
    from `report_step`; prints nothing where it has neither."""
    if "places" in now:
        write(console, format_labelled("would go to", _format_nodes(now["places"])), indent=indent)
    for one in now.get("placements", ())[:_SHOWN]:
        _render_placement(console, one, now["wanted"], indent)
    more = len(now.get("placements", ())) - _SHOWN
    if more > 0:
        write(console, f"and {show_count(more, 'more placement')}; -o json names all", QUIET, indent)
    for excluded in now.get("excluded", ()):
        text = describe_excluded(excluded, now["totalNodes"])
        write(console, Text(text, BAD).append(f", e.g. {excluded['example']}", QUIET), indent=indent)


def _render_placement(console: Console, one: Report, wanted: int, indent: int) -> None:
    lacks = ", ".join(f"{amount} {resource}" for resource, amount in one["lacks"].items())
    text = f"{one['name'] or 'all nodes'}: {one['fit']} of at least {show_count(wanted, 'pod')}" + (f", short of {lacks}" if lacks else "")
    style = GOOD if one["fit"] >= wanted else WAITING if one["fit"] else BAD
    write(console, Text(text, style).append(f" ({show_count(one['nodes'], 'node')})", QUIET), indent=indent)


def _format_nodes(nodes: dict[str, Any]) -> str:
    names: Sequence[str] = [f"{name} ({count})" if count > 1 else name for name, count in nodes.items()]
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
