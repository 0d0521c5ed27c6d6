"""What is known of one node: whether pods can be placed on it, where it is in each topology, and what holds it."""

from collections.abc import Iterator
from difflib import get_close_matches

from rich.console import Console
from rich.text import Text

from cli.failures import Failure, describe_missing_right
from cli.reading.permitted_reading import ClusterReading
from cli.reporting.draw import BAD, GOOD, HEAD, QUIET, WAITING, format_labelled, write
from cli.reporting.owner_report import render_remedies
from cli.reporting.report import Report
from cli.reporting.table import remove_controls
from cli.reporting.waiting_report import name_workload
from core.model.claimed_devices import UNBOUNDED_DEVICES, is_devices
from core.model.pod_resources import add
from core.model.podset import PodSetRequest
from core.model.quantity import format_quantity, show_count
from core.placement.explain.refusal_facts import list_node_reasons
from core.plan.steps import api_resources as r
from core.state.cluster import ClusterState
from core.state.facts import FlavorFacts, NodeFacts
from core.state.flavor_view import FlavorView, is_match
from reconciler.measure.outlook import Outlook

_SHOWN = 10  # workloads, and pods without one, that the terminal names
_NEAR = 3


def explain_node(reading: ClusterReading, name: str) -> Report:
    """Returns a report on a node as plain data: `kind`, `name`, `state` (`usable`: pods of some flavor can be placed there if they fit;
    else `out of use`, or `in no flavor`), `flavors`, `resources`, `heldBy`, `otherPods` and `wouldHelp`. Raises Failure where nodes may not
    be listed, or there is no such node.

    A flavor that selects the node has its `topology`, the `levels` and `values` of the domains above it, and the reasons
    why no pod of it can be placed there (`outOfUse`). One that does not has `mismatch`, the labels that the node lacks."""
    if r.NODES in reading.unreadable:
        raise Failure(describe_missing_right(r.NODES))
    state = reading.outlook.state
    node = state.nodes.get(name)
    if node is None:
        near = get_close_matches(name, state.nodes, n=_NEAR) or sorted(state.nodes)[:_NEAR]
        raise Failure(f"there is no node {name}; there {'are ' + ', '.join(near) if near else 'is none'}")
    state.refresh()
    flavors = [_report_flavor(state, state.flavors[each], node) for each in sorted(state.flavors)]
    mine = [each for each in flavors if "mismatch" not in each]
    held, others = _list_holders(reading.outlook, name), _list_other_pods(reading.outlook, name)
    is_usable = any(not each["outOfUse"] for each in mine)
    return {
        "kind": r.NODES.kind,
        "name": name,
        "state": "usable" if is_usable else "out of use" if mine else "in no flavor",
        "flavors": flavors,
        "resources": _report_resources(node, state, name),
        "heldBy": held,
        "otherPods": others,
        "wouldHelp": list(_list_remedies(node, flavors)),
    }


def _report_flavor(state: ClusterState, flavor: FlavorFacts, node: NodeFacts) -> Report:
    report: Report = {"name": flavor.name, "topology": flavor.topology or ""}
    if not is_match(flavor, node):
        return report | {"mismatch": {key: value for key, value in flavor.node_labels.items() if node.labels.get(key) != value}}
    view = state.get_view(flavor.name)
    if view is None:
        why = [f"there is no Topology {flavor.topology}"] if flavor.topology else _list_state_problems(node)
        return report | {"levels": [], "values": [], "outOfUse": why}
    tree = view.capacity.tree
    place = tree.index.get(node.name)
    if place is None:
        return report | {"levels": list(view.topology.levels), "values": [], "outOfUse": [_find_reason_left_out(view, node)]}
    request = PodSetRequest("pod", 1, {}, None, {}, None, flavor.tolerations)
    reasons = [reason for reason, hit in list_node_reasons(view.capacity, request) if hit[place]]
    return report | {"levels": list(tree.declared), "values": list(tree.paths[place]), "outOfUse": reasons}


def _list_state_problems(node: NodeFacts) -> list[str]:
    """Of a flavor without a topology: there kube-scheduler decides, by taints, too."""
    return [*(() if node.state.ready else ("NotReady",)), *(("unschedulable",) if node.state.unschedulable else ())]


def _find_reason_left_out(view: FlavorView, node: NodeFacts) -> str:
    missing = [label for label in view.topology.levels if label not in node.labels]
    if missing:
        return f"without the label {', '.join(missing)}"
    twins = next((names for names in view.capacity.tree.left_out.same_path if node.name in names), ())
    others = ", ".join(name for name in twins if name != node.name)
    return f"it shares all level values with {others}" if others else "it is left out of the topology"


def _report_resources(node: NodeFacts, state: ClusterState, name: str) -> list[Report]:
    """What pods and reservations leave free, by the first topology that has the node; without one only what it offers."""
    views = (state.get_view(flavor) for flavor in sorted(state.flavors))
    view = next((view for view in views if view is not None and name in view.capacity.tree.index), None)
    found = []
    for resource, amount in sorted(node.state.allocatable.items(), key=lambda item: ("/" not in item[0], item[0])):
        if is_devices(resource) and amount >= UNBOUNDED_DEVICES:
            found.append({"resource": resource, "allocatable": "not judged"})
            continue
        entry = {"resource": resource, "allocatable": format_quantity(resource, amount)}
        row = view.capacity.axis.get(resource) if view is not None else None
        if view is not None and row is not None:
            free = int(view.capacity.free[row, view.capacity.tree.index[name]])
            entry |= {"used": format_quantity(resource, max(0, amount - free)), "free": format_quantity(resource, max(0, free))}
        if amount:
            found.append(entry)
    return found


def _list_holders(outlook: Outlook, name: str) -> list[Report]:
    """Workloads with pods or places on the node, spare nodes included; those with the highest priority first."""
    state, found = outlook.state, list[Report]()
    for facts in sorted(state.workloads.facts.values(), key=lambda each: (-each.priority, each.key)):
        if state.workloads.find_holding(facts.key) is None:
            continue
        amounts, pods = dict[str, int](), 0
        for requests, nodes in state.ledger.list_held(facts.pods_key):
            count = sum(count for node, count in nodes if node == name)
            add(amounts, requests, count)
            pods += count
        if pods:
            shown = {resource: format_quantity(resource, amount) for resource, amount in sorted(amounts.items()) if amount}
            found.append({**name_workload(outlook, facts), "places": pods, "amounts": shown})
    return found


def _list_other_pods(outlook: Outlook, name: str) -> list[Report]:
    """Pods on the node that are of no workload that holds quota."""
    state = outlook.state
    ours = {facts.pods_key for key, facts in state.workloads.facts.items() if state.workloads.find_holding(key) is not None}
    pods = [pod for pod in outlook.observed.pod_facts.values() if pod.holds and pod.node == name and pod.workload not in ours]
    return [
        {
            "pod": pod.key,
            "amounts": {resource: format_quantity(resource, amount) for resource, amount in sorted(pod.requests.items()) if amount},
        }
        for pod in sorted(pods, key=lambda pod: pod.key)
    ]


def _list_remedies(node: NodeFacts, flavors: list[Report]) -> Iterator[str]:
    """Yields what would make the node usable, for each thing that is in the way."""
    mine = [each for each in flavors if "mismatch" not in each]
    if not node.state.ready:
        yield f"let its kubelet report Ready again; `kubectl describe node {node.name}` has the reason"
    if node.state.unschedulable:
        yield f"`kubectl uncordon {node.name}`"
    for each in mine:
        for taint in (reason for reason in each["outOfUse"] if reason.startswith("taint ")):
            yield f"remove its {taint}, or add a toleration of it to spec.tolerations of ResourceFlavor {each['name']}"
        missing = [label for label in each["levels"] if label not in node.labels]
        if missing:
            yield f"`kubectl label node {node.name} {' '.join(f'{label}=VALUE' for label in missing)}`, with the values of its place"
        if each["topology"] and not each["levels"]:
            yield f"create Topology {each['topology']}, which ResourceFlavor {each['name']} names; `topogate topology suggest` writes one"
    if not mine:
        for each in flavors:
            labels = ",".join(f"{key}={value}" for key, value in each["mismatch"].items())
            yield f"`kubectl label node {node.name} {labels.replace(',', ' ')}` puts it into ResourceFlavor {each['name']}"
        if not flavors:
            yield "create a ResourceFlavor with its labels; `topogate topology suggest` writes one"


# --- on a terminal ------------------------------------------------------------------------------------


def render_node(console: Console, report: Report) -> None:
    """Prints a report of `explain_node` for people."""
    write(console, Text(remove_controls(f"Node {report['name']}"), HEAD))
    write(console, format_labelled("state", report["state"], GOOD if report["state"] == "usable" else BAD), indent=1)
    for flavor in report["flavors"]:
        write(console, _describe_flavor(flavor), indent=1)
    for entry in report["resources"]:
        text = f"{entry['used']} of {entry['allocatable']} in use, {entry['free']} free" if "used" in entry else entry["allocatable"]
        write(console, format_labelled(entry["resource"], text), indent=1)
    for holder in report["heldBy"][:_SHOWN]:
        text = f"{holder['of']}, {show_count(holder['places'], 'pod')}, priority {holder['priority']}: {_join(holder['amounts'])}"
        write(console, format_labelled("held by", text), indent=1)
    for pod in report["otherPods"][:_SHOWN]:
        write(console, format_labelled("pod without a workload", remove_controls(f"{pod['pod']}: {_join(pod['amounts'])}")), indent=1)
    more = sum(max(0, len(report[part]) - _SHOWN) for part in ("heldBy", "otherPods"))
    if more:
        write(console, f"and {more} more; -o json names all", QUIET, 1)
    render_remedies(console, report["wouldHelp"])


def _describe_flavor(flavor: Report) -> Text:
    name = f"flavor {flavor['name']}"
    if "mismatch" in flavor:
        labels = ", ".join(f"{key}={value}" for key, value in flavor["mismatch"].items())
        return format_labelled(name, f"does not select it: the node has no label {labels}", QUIET)
    where = f"topology {flavor['topology']}" if flavor["topology"] else "without a topology"
    where += f", {'/'.join(flavor['values'])}" if flavor["values"] else ""
    return format_labelled(name, where).append(f"; out of use: {', '.join(flavor['outOfUse'])}" if flavor["outOfUse"] else "", WAITING)


def _join(amounts: dict[str, str]) -> str:
    return ", ".join(f"{amount} {resource}" for resource, amount in amounts.items()) or "nothing"
