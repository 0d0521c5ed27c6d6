"""Where pods run compared with their workload's assignment: what has diverged since they were placed, and cannot be corrected
without ending pods that run.

    kind           pods run                                        for instance since
    Outside        where the assignment does not send them          a pod was bound by hand
    Relabelled     where they were sent, which is elsewhere now     a node was moved to another rack, or got another label, or lost one
    Split          in several domains though one is required        the same, of a level above
    MoreDevices    with more devices than quota was reserved for    a ResourceClaimTemplate was created anew, and no gate held the pods
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from core.model.admission import PodSetAdmission
from core.model.claimed_devices import describe_devices
from core.model.podset import Mode
from core.state.facts import NodeFacts, PodFacts, PodSetFacts, WorkloadFacts

Levels = Callable[[PodSetAdmission], Sequence[str]]  # of the topology that a pod set was placed in, coarse to fine
Departure = Callable[[PodSetAdmission, NodeFacts], str]  # why a node has left the flavor of a pod set or its topology, or nothing
_NAMED = 4


class DriftKind(Enum):
    """By which assignment and pods differ. Values are reasons of the condition, and of the metric."""

    OUTSIDE = "Outside"
    RELABELLED = "Relabelled"
    SPLIT = "Split"
    MORE_DEVICES = "MoreDevices"


@dataclass(frozen=True, slots=True)
class Drift:
    """One difference; `says` is a sentence for users."""

    kind: DriftKind
    says: str


def _is_never_gone(_: PodSetAdmission, __: NodeFacts) -> str:
    return ""


def find_drift(
    workload: WorkloadFacts,
    pods: Sequence[PodFacts],
    nodes: Mapping[str, NodeFacts],
    levels: Levels,
    departure: Departure = _is_never_gone,
) -> tuple[Drift, ...]:
    """Returns all differences between admission and pods of a workload: those of kind SPLIT first, then RELABELLED, OUTSIDE and
    MORE_DEVICES. It is empty without an admission. Pods that end, or are on nodes that are gone, are left out.

    `pods` are those of the workload, `nodes` all nodes by name. `levels` returns those of a pod set's topology; a required level that is
    not one of them is not judged. `departure` returns why a node has left a pod set's flavor or topology, empty if it has not."""
    if workload.admission is None:
        return ()
    there = [pod for pod in pods if pod.node in nodes and not pod.terminal and not pod.terminating]
    found: list[Drift] = []
    for pod_set, given in zip(workload.pod_sets, workload.admission.pod_sets, strict=False):
        own = [pod for pod in there if pod.pod_set == pod_set.name]
        found += _list_device_drifts(pod_set, own)
        if given.assignment is not None:
            found += _list_place_drifts(given, own, nodes, departure)
            found += _list_domain_drifts(f"pods of pod set {pod_set.name}", _find_required_level(pod_set), own, nodes, levels(given))
    together = workload.together
    placed = [given for given in workload.admission.pod_sets if given.assignment is not None]
    if together is not None and together.required and placed:
        found += _list_domain_drifts("its pods", together.level, there, nodes, levels(placed[0]))
    order = [DriftKind.SPLIT, DriftKind.RELABELLED, DriftKind.OUTSIDE, DriftKind.MORE_DEVICES]
    return tuple(sorted(found, key=lambda drift: order.index(drift.kind)))


def _list_device_drifts(pod_set: PodSetFacts, pods: Sequence[PodFacts]) -> Iterator[Drift]:
    over = []
    for pod in pods:
        beyond = {name: amount - pod_set.claimed.get(name, 0) for name, amount in sorted(pod.claimed.items())}
        if more := {name: amount for name, amount in beyond.items() if amount > 0}:
            over.append(f"{pod.key.partition('/')[2]} ({describe_devices(more)})")
    if over:
        why = "its ResourceClaimTemplate was created anew since, or the Workload counts no claims"
        why += "; suspend the job and resume it, so that it is counted anew"
        yield Drift(DriftKind.MORE_DEVICES, f"pod set {pod_set.name}: pods claim more than was admitted: {_format_some(over)}; {why}")


def _find_required_level(pod_set: PodSetFacts) -> str | None:
    topology = pod_set.topology
    return topology.level if topology is not None and topology.mode is Mode.REQUIRED else None


def _list_place_drifts(
    given: PodSetAdmission, pods: Sequence[PodFacts], nodes: Mapping[str, NodeFacts], departure: Departure
) -> Iterator[Drift]:
    assert given.assignment is not None
    labels = given.assignment.levels
    left = Counter[tuple[str, ...]]()
    for domain in given.assignment.domains:
        left[domain.values] += domain.count
    assigned = frozenset(left)
    is_shrinking = len(pods) > left.total()  # its controller has yet to delete some, and which ones is not known
    outside: list[str] = []
    relabelled: dict[str, str] = {}

    def read(pod: PodFacts) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Where it is now, and where it was sent."""
        now, sent = (tuple(of.get(label, "") for label in labels) for of in (nodes[pod.node].labels, pod.node_selector))
        return now, sent

    read_pods = [(pod, *read(pod)) for pod in pods]
    for pod, now, sent in sorted(read_pods, key=lambda one: one[1] != one[2]):  # those that are where they were sent come first
        if now in assigned and (is_shrinking or left[now] > 0):
            left[now] -= 1
        elif sent != now and sent in assigned:
            relabelled[pod.node] = f"node {pod.node} is {'/'.join(now) or 'nowhere'} now, and was {'/'.join(sent)}"
        else:
            outside.append(f"{pod.key.partition('/')[2]} on node {pod.node}")
    for name in sorted({pod.node for pod in pods} - relabelled.keys()):
        if why := departure(given, nodes[name]):
            relabelled[name] = f"node {name}: {why}"
    if outside:
        yield Drift(DriftKind.OUTSIDE, f"pod set {given.name}: outside of its assignment: {_format_some(outside)}")
    if relabelled:
        yield Drift(DriftKind.RELABELLED, f"pod set {given.name}: {_format_some(list(relabelled.values()), '; ')}")


def _list_domain_drifts(
    subject: str, level: str | None, pods: Sequence[PodFacts], nodes: Mapping[str, NodeFacts], levels: Sequence[str]
) -> Iterator[Drift]:
    if level is None or level not in levels:
        return
    down_to = levels[: list(levels).index(level) + 1]
    domains = Counter("/".join(nodes[pod.node].labels.get(label, "") for label in down_to) for pod in pods)
    if len(domains) > 1:
        counts = [f"{domain or 'none'} ({count})" for domain, count in sorted(domains.items())]
        yield Drift(DriftKind.SPLIT, f"{subject} run in {_format_some(counts)}, though one {level} is required")


def _format_some(texts: Sequence[str], between: str = ", ") -> str:
    more = f"{between}and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
    return between.join(texts[:_NAMED]) + more
