"""`topogate topology`: the tree of each flavor with its capacity, what is used, and the largest fit of each level."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from cli.failures import BadInput, Failure
from cli.reporting.draw import BAD, GOOD, HEAD, QUIET, WAITING, format_labelled, write
from cli.reporting.picture import FOREIGN, OUT, Row, Seats, make_natural_key, render_seats, to_svg
from cli.reporting.report import Report
from core.model.podset import PodSetRequest
from core.model.quantity import InvalidQuantity, format_quantity, parse_canonical, show_count
from core.names import HOSTNAME_LABEL
from core.placement.explain.survey import LevelSurvey, list_out_of_use, list_surveys
from core.placement.topology.tree import Indices, TopologyTree
from core.queueing.flavors.spare_lending import count_reserved_once
from core.state.cluster import ClusterState
from core.state.flavor_view import FlavorView
from reconciler.observe.observed import Observed

_MOST_LEFT_OUT = 5  # nodes that a line names
_SEATS_AT_MOST = 64  # of one node: more are no picture any more


@dataclass(frozen=True, slots=True)
class PodShape:
    """The pod that fits are counted in: canonical amounts."""

    requests: dict[str, int]

    def __str__(self) -> str:
        return ", ".join(f"{name}={format_quantity(name, amount)}" for name, amount in self.requests.items())


@dataclass(frozen=True, slots=True)
class View:
    """The parts of the topologies to show: fits of a pod, nodes, and the jobs on the nodes (on the terminal, in a file)."""

    pod: str | None = None
    hosts: bool = False
    seats: bool = False
    resource: str | None = None
    svg: Path | None = None


def read_pod(text: str) -> PodShape:
    """Returns the requests of a pod that a text such as `cpu=4,nvidia.com/gpu=8` describes, in canonical amounts (thousandths of cores,
    bytes, pieces). Raises BadInput for another text, an amount below 1, and a resource that is given twice."""
    requests = {}
    for part in text.split(","):
        name, _, amount = part.strip().partition("=")
        if name in requests:
            raise BadInput(f"--pod {text}: {name} is given twice; leave one out")
        try:
            requests[name] = parse_canonical(name, amount)
        except InvalidQuantity as error:
            raise BadInput(f"--pod {text}: {part.strip()!r} is not accepted; RESOURCE=QUANTITY is expected: {error}") from error
        if not name or requests[name] < 1:
            raise BadInput(f"--pod {text}: {part.strip()!r} is not accepted; RESOURCE=QUANTITY is expected, such as nvidia.com/gpu=8")
    return PodShape(requests)


def check_pod(state: ClusterState, names: Sequence[str], text: str, pod: PodShape) -> None:
    """Raises BadInput, with `text`, for a resource that no node of the topologies of these names offers; not where the nodes offer nothing
    at all."""
    views = [view for flavor in state.flavors.values() if flavor.topology in names and (view := state.get_view(flavor.name)) is not None]
    offered = {name for view in views for name, row in view.capacity.axis.items() if view.capacity.allocatable[row].any()}
    for name in sorted(pod.requests.keys() - offered) if offered else ():
        short = {known.rpartition("/")[2]: known for known in sorted(offered)}
        near = [short[found] for found in get_close_matches(name.rpartition("/")[2], short, n=1)]
        hint = f"did you mean {near[0]}? " if near else ""
        raise BadInput(f"--pod {text}: no node offers {name}; {hint}nodes offer {', '.join(sorted(offered))}")


def find_names(state: ClusterState, name: str | None) -> list[str]:
    """Returns the names of the topologies that are meant: the one named, or all, sorted (`name` None). Raises Failure where there
    is none.
    """
    there = sorted(state.topologies)
    if name is not None and name not in there:
        raise Failure(f"there is no Topology {name}; there is {', '.join(there) or 'none at all: `topogate topology suggest` writes one'}")
    if not there:
        raise Failure("there is no Topology; `topogate topology suggest` writes one from the labels of the nodes")
    return [name] if name is not None else there


def report_topology(state: ClusterState, name: str, pod: PodShape | None) -> Report:
    """Returns a topology with each of its flavors over its nodes, sorted by name, as plain data. A flavor has its levels with the largest
    fit, and its tree of `domains` with amounts as quantities. It names the nodes that are left out, and those that take no pods. `pod`
    None: fits are counted of one unit (core, byte, piece) of the first resource that is shown. Raises KeyError for a topology that is not
    there."""
    flavors = sorted(flavor.name for flavor in state.flavors.values() if flavor.topology == name)
    views = [view for flavor in flavors if (view := state.get_view(flavor)) is not None]
    return {"name": name, "levels": list(state.topologies[name].levels), "flavors": [_report_flavor(state, view, pod) for view in views]}


def _report_flavor(state: ClusterState, view: FlavorView, pod: PodShape | None) -> Report:
    capacity, tree = view.capacity, view.capacity.tree
    resources = list_shown_resources(state, view)
    pod = pod or PodShape({resources[0]: 1000 if resources[0] == "cpu" else 1})
    request = PodSetRequest("pod", 1, pod.requests, None, {}, None, view.flavor.tolerations)
    levels = list_surveys(count_reserved_once(state, view), request, resources)
    return {
        "name": view.flavor.name,
        "nodeLabels": dict(view.flavor.node_labels),
        "pod": {name: format_quantity(name, amount) for name, amount in pod.requests.items()},
        "levels": [_report_level(view, index, level) for index, level in enumerate(levels)],
        "domains": _report_domains(view, levels, resources, 0, range(tree.levels[0].count)),
        "leftOut": {
            "missingLabel": {label: list(names) for label, names in tree.left_out.missing_label.items()},
            "samePath": [list(names) for names in tree.left_out.same_path],
        },
        "outOfUse": list_out_of_use(capacity, request),
    }


def list_shown_resources(state: ClusterState, view: FlavorView) -> list[str]:
    """Returns the resources of the flavor that some queue has quota of and its nodes have, accelerators first, then by name; only `cpu`
    without any."""
    given = {resource for queue in state.cluster_queues.values() for flavor, resource in queue.quota if flavor == view.flavor.name}
    axis = view.capacity.axis
    found = [name for name in axis if name in given and view.capacity.allocatable[axis[name]].any()] or ["cpu"]
    return sorted(found, key=lambda name: ("/" not in name, name))


def _report_level(view: FlavorView, index: int, level: LevelSurvey) -> Report:
    report: Report = {"label": level.label, "domains": len(level.nodes)}
    best = level.best
    if best is not None:
        report["largestFit"] = {"values": list(view.capacity.tree.get_values(index, best)), "pods": int(level.fits[best])}
    return report


def _report_domains(
    view: FlavorView, levels: Sequence[LevelSurvey], resources: Sequence[str], depth: int, domains: Iterable[int]
) -> list[Report]:
    level, tree = levels[depth], view.capacity.tree

    def report_amounts(table: Sequence[Indices], domain: int) -> dict[str, str]:
        return {name: _show_sum(tree, name, int(row[domain])) for name, row in zip(resources, table, strict=True)}

    return [
        {
            "values": list(tree.get_values(depth, domain)),
            "nodes": int(level.nodes[domain]),
            "usable": int(level.usable[domain]),
            "capacity": report_amounts(level.capacity, domain),
            "used": report_amounts(level.used, domain),
            "free": report_amounts(level.free, domain),
            "fits": int(level.fits[domain]),
        }
        | (
            {"domains": _report_domains(view, levels, resources, depth + 1, tree.list_children(depth, domain).tolist())}
            if depth < tree.lowest
            else {}
        )
        for domain in domains
    ]


def _show_sum(tree: TopologyTree, resource: str, amount: int) -> str:
    most = tree.most_summed
    return format_quantity(resource, amount) if amount < most else f"more than {format_quantity(resource, most // 1000 * 1000)}"


# --- on a terminal ------------------------------------------------------------------------------------


def render(console: Console, report: Report, *, shows_hosts: bool) -> None:
    """Prints for each flavor its levels with the largest fits, the nodes that are left out or take no pods, and its tree. The tree goes
    down to the lowest level, or to the one above where that is the hostname and not `shows_hosts`."""
    write(console, Text(f"Topology {report['name']}", HEAD))
    if not report["flavors"]:
        write(console, "no ResourceFlavor names it in topologyName: nothing is placed by it", WAITING, 1)
    for flavor in report["flavors"]:
        selector = ",".join(f"{key}={value}" for key, value in flavor["nodeLabels"].items())
        pod = ", ".join(f"{name}={amount}" for name, amount in flavor["pod"].items())
        write(console, format_labelled(f"flavor {flavor['name']}", f"nodes with {selector}"), indent=1)
        for level in flavor["levels"]:
            best = level.get("largestFit")
            text = f"{show_count(level['domains'], 'domain')}"
            text += (
                f", the largest fit is {show_count(best['pods'], 'pod')} of {pod} in {'/'.join(best['values'])}" if best is not None else ""
            )
            write(console, format_labelled(level["label"], text), indent=2)
        _render_left_out(console, flavor["leftOut"])
        for reason, names in flavor["outOfUse"].items():
            write(console, format_labelled("out of use", f"{_format_some(names)}, {reason}", BAD), indent=2)
        hosts_below = report["levels"][-1] == HOSTNAME_LABEL and not shows_hosts
        tree = Tree(Text(flavor["name"], HEAD), guide_style=QUIET)
        _grow(tree, flavor["domains"], len(report["levels"]) - (1 if hosts_below else 0))
        console.print(tree, soft_wrap=True, highlight=False)


def _render_left_out(console: Console, left_out: Report) -> None:
    for label, names in left_out["missingLabel"].items():
        write(console, format_labelled("left out", f"{_format_some(names)} without the label {label}", BAD), indent=2)
    for names in left_out["samePath"]:
        write(console, format_labelled("left out", f"{_format_some(names)}, which share all level values", BAD), indent=2)


def _format_some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_LEFT_OUT} more" if len(names) > _MOST_LEFT_OUT else ""
    return f"{show_count(len(names), 'node')} ({', '.join(names[:_MOST_LEFT_OUT])}{more})"


def _grow(tree: Tree, domains: Sequence[Report], levels: int) -> None:
    for domain in domains if levels else ():
        _grow(tree.add(_format_line(domain)), domain.get("domains", ()), levels - 1)


def _format_line(domain: Report) -> Text:
    line = Text(domain["values"][-1], HEAD)
    out = domain["nodes"] - domain["usable"]
    line.append(f"  {show_count(domain['nodes'], 'node')}", "default").append(f", {out} of them out" if out else "", BAD)
    for name, has in domain["capacity"].items():
        line.append(f"  {name} {domain['used'][name]}/{has}", GOOD if domain["fits"] else WAITING)
    return line.append(f"  fits {domain['fits']}", GOOD if domain["fits"] else BAD)


# --- jobs on nodes ------------------------------------------------------------------------------------


def list_seats(observed: Observed, view: FlavorView, resource: str) -> Seats:
    """Returns a seat per whole unit of a resource (cores, bytes, pieces) on each node of a flavor. A seat has the name of its job, by the
    owner of the Workload, else that of the Workload. It is FOREIGN for other pods, OUT where it is free on a node that takes none, and None
    where it is free. Jobs have what is reserved for them, whether their pods are there or not. Raises BadInput where no node has any, or
    one has more than 64."""
    state, tree = observed.state, view.capacity.tree
    unit = 1000 if resource == "cpu" else 1
    row = view.capacity.axis.get(resource)
    offers = view.capacity.allocatable[row] // unit if row is not None else np.zeros(len(tree), dtype=np.int64)
    sizes = dict(zip(tree.names, offers.tolist(), strict=True))
    most = max(sizes.values(), default=0)
    if not 0 < most <= _SEATS_AT_MOST:
        raise BadInput(f"--resource {resource}: nodes have up to {most} of it; a picture needs 1 to {_SEATS_AT_MOST} a node, such as GPUs")
    owners: dict[str, list[str | None]] = {name: [] for name in tree.names}
    ours = {facts.pods_key: key for key, facts in state.workloads.facts.items() if state.workloads.find_holding(key) is not None}
    for pods_key, key in sorted(ours.items()):
        for requests, nodes in state.ledger.list_held(pods_key):
            for node, count in nodes:
                if node in owners:
                    owners[node] += [_find_job(observed, key)] * (requests.get(resource, 0) * count // unit)
    for pod in observed.pod_facts.values():
        if pod.holds and pod.node in owners and pod.workload not in ours:
            owners[pod.node] += [FOREIGN] * (pod.requests.get(resource, 0) // unit)
    request = PodSetRequest("pod", 1, {}, None, {}, None, view.flavor.tolerations)
    out = {name for names in list_out_of_use(view.capacity, request).values() for name in names}
    for name, held in owners.items():
        held.sort(key=lambda job: (job == FOREIGN, job))
        held += [OUT if name in out else None] * (sizes[name] - len(held))
    return Seats(_list_rows(view), owners, resource)


def _find_job(observed: Observed, key: str) -> str:
    workload = observed.workloads.store.get(key)
    owners = (workload or {"metadata": {}})["metadata"].get("ownerReferences") or ()
    return next((str(owner["name"]) for owner in owners), key.partition("/")[2])


def _list_rows(view: FlavorView) -> dict[str, list[Row]]:
    """A row per domain of the level above the nodes, under a heading per domain above that."""
    tree = view.capacity.tree
    depth = tree.lowest - 1 if tree.is_hostname else tree.lowest
    if depth < 0:
        return {"": [Row("", sorted(tree.names, key=make_natural_key))]}
    rows: dict[str, list[Row]] = {}
    level = tree.levels[depth]
    for domain in range(level.count):
        *above, name = tree.get_values(depth, domain)
        heading = "/".join(above)
        rows.setdefault(heading, []).append(Row(name, sorted(tree.names[level.starts[domain] : level.ends[domain]], key=make_natural_key)))
    return {heading: sorted(rows[heading], key=lambda row: make_natural_key(row.name)) for heading in sorted(rows, key=make_natural_key)}


def draw_picture(observed: Observed, names: Sequence[str], resource: str | None, svg: Path | None, console: Console | None) -> None:
    """Draws all flavors of some topologies, into the file `svg` and on a terminal (each None: not). `resource` None: of each flavor the
    first that is shown. Raises BadInput where a resource cannot be drawn, and Failure where the file cannot be written."""
    views = [
        view
        for name in sorted(observed.state.flavors)
        if (view := observed.state.get_view(name)) is not None and view.topology.name in names
    ]
    drawn: dict[str, list[Row]] = {}
    owners: dict[str, Sequence[str | None]] = {}
    units = []
    for view in views:
        units.append(resource or list_shown_resources(observed.state, view)[0])
        found = list_seats(observed, view, units[-1])
        for heading, rows in found.tree.items():
            drawn[" ".join(filter(None, (f"{view.flavor.name}:" if len(views) > 1 else "", heading)))] = list(rows)
        owners |= found.owners
    whole = Seats(drawn, owners, "/".join(dict.fromkeys(units)))
    if svg is not None:
        try:
            svg.write_text(to_svg(whole, f"Topology {', '.join(names)}: jobs on nodes"))
        except OSError as error:
            raise Failure(f"--svg {svg}: {error.strerror or error}") from error
    if console is not None:
        render_seats(whole, console)
