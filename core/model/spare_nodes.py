"""Spares: nodes that are kept free for a pod set, to take its pods in one step when a node fails.

Each holds as many pods as the fullest node of the assignment. An annotation of the Workload names them by pod set, so that
the next decision, also in another process, keeps the same nodes:

    topogate.dev/spares: {"workers":["node-7","node-9"]}

A workload on such nodes of another one, lent to it, has an annotation of the same form (`topogate.dev/borrowed-spares`), with
the names of nodes that its assignment has; only those that the assignment uses count.

At most the requested number of these nodes counts, and none that the assignment itself uses: a node that was swapped in is no
spare any more, without another write.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from core.model.admission import Admission, PodSetAdmission
from core.model.podset import MOST_SPARES
from core.names import HOSTNAME_LABEL


def read_held_spares(text: str | None) -> dict[str, tuple[str, ...]]:
    """Names of nodes by pod set; nothing of what is written otherwise, by whomever."""
    try:
        written = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    if not isinstance(written, dict):
        return {}
    found = {name: nodes for name, nodes in written.items() if isinstance(nodes, list) and all(isinstance(node, str) for node in nodes)}
    return {name: tuple(dict.fromkeys(nodes[:MOST_SPARES])) for name, nodes in found.items()}


def show_held_spares(admission: Admission) -> str | None:
    """The text of the annotation; None where no nodes are held."""
    held = {given.name: list(given.spares) for given in admission.pod_sets if given.spares}
    return json.dumps(held, separators=(",", ":"), sort_keys=True) if held else None


def show_borrowed(admission: Admission) -> str | None:
    """The same of nodes that are another's spares."""
    borrowed = {given.name: list(given.borrowed) for given in admission.pod_sets if given.borrowed}
    return json.dumps(borrowed, separators=(",", ":"), sort_keys=True) if borrowed else None


def must_be_named(admission: Admission, said: str | None, asked: Mapping[str, int], *, replaces: bool) -> bool:
    """Whether the written annotation differs from the spares of an admission.

    A replacement has used some up, which its assignment shows: the annotation has to change only where others are
    spares no more, too.
    """
    if replaces and with_spares(admission, read_held_spares(said), asked) == admission:
        return False
    return show_held_spares(admission) != said


def with_spares(admission: Admission, held: Mapping[str, Sequence[str]], asked: Mapping[str, int]) -> Admission:
    """The admission with the nodes that count as spares: those that are written, as far as they are asked for."""
    pod_sets = tuple(_with(given, held.get(given.name, ()), asked.get(given.name, 0)) for given in admission.pod_sets)
    return admission if pod_sets == admission.pod_sets else Admission(admission.cluster_queue, pod_sets)


def _with(given: PodSetAdmission, held: Sequence[str], asked: int) -> PodSetAdmission:
    if given.assignment is None:
        held = ()
    used = {domain.values[-1] for domain in given.assignment.domains} if given.assignment is not None else set()
    counting = tuple(sorted(node for node in held if node not in used)[:asked])
    return given if counting == given.spares else given.with_spares(counting)


def with_borrowed(admission: Admission, nodes: Mapping[str, Sequence[str]]) -> Admission:
    """The admission with the nodes of its that it has borrowed: of those that are written the ones which it uses."""
    pod_sets = tuple(_with_borrowed(given, nodes.get(given.name, ())) for given in admission.pod_sets)
    return admission if pod_sets == admission.pod_sets else Admission(admission.cluster_queue, pod_sets)


def _with_borrowed(given: PodSetAdmission, nodes: Sequence[str]) -> PodSetAdmission:
    used = {domain.values[-1] for domain in given.assignment.domains} if given.assignment is not None else set[str]()
    counting = tuple(sorted(used.intersection(nodes)))
    return given if counting == given.borrowed else replace(given, borrowed=counting)


def compute_spare_usage(usage: Mapping[str, int], pods: int, most: int, spares: int) -> dict[str, int]:
    """What spares use of quota where that counts them: each as much as `most` of the pods that use so much together."""
    return {name: -(-amount * most * spares // pods) for name, amount in usage.items()} if pods and spares else {}


def with_spare_usage(admission: Admission, counted: Admission, asked: Mapping[str, int]) -> Admission:
    """What is `counted` of an admission, with the spares that its pod sets ask for: as many as they ask for, so that a swap, after which
    one is missing for a moment, gives none of their quota away."""
    pod_sets = []
    for given, other in zip(admission.pod_sets, counted.pod_sets, strict=True):
        by_host = given.assignment is not None and given.assignment.levels[-1:] == (HOSTNAME_LABEL,)
        more = compute_spare_usage(given.usage, given.count, find_fullest(given), asked.get(given.name, 0)) if by_host else {}
        usage = {name: amount + more.get(name, 0) for name, amount in other.usage.items()}
        pod_sets.append(replace(other, usage=usage) if more else other)
    return replace(counted, pod_sets=tuple(pod_sets))


def find_fullest(given: PodSetAdmission) -> int:
    """Pods on the node of an assignment that has most: what each spare has room for."""
    return max((domain.count for domain in given.assignment.domains), default=0) if given.assignment is not None else 0
