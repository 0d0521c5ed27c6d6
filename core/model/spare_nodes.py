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
    """Returns the names of nodes by pod set that the text of the annotation has: of the first `MOST_SPARES` written each once, in their
    order.

    A pod set with anything but a list of texts is left out; the result is empty where the text is None or no JSON object.
    """
    try:
        written = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    if not isinstance(written, dict):
        return {}
    found = {name: nodes for name, nodes in written.items() if isinstance(nodes, list) and all(isinstance(node, str) for node in nodes)}
    return {name: tuple(dict.fromkeys(nodes[:MOST_SPARES])) for name, nodes in found.items()}


def show_held_spares(admission: Admission) -> str | None:
    """Returns the text of the annotation with an admission's spares; None where no nodes are held."""
    held = {given.name: list(given.spares) for given in admission.pod_sets if given.spares}
    return json.dumps(held, separators=(",", ":"), sort_keys=True) if held else None


def show_borrowed(admission: Admission) -> str | None:
    """Returns the text of the annotation with those of an admission's nodes that are another's spares; None where there are none."""
    borrowed = {given.name: list(given.borrowed) for given in admission.pod_sets if given.borrowed}
    return json.dumps(borrowed, separators=(",", ":"), sort_keys=True) if borrowed else None


def must_be_named(admission: Admission, said: str | None, asked: Mapping[str, int], *, replaces: bool) -> bool:
    """Whether the annotation must be written anew, since its text `said` differs from what shows the spares of an admission (also in order
    and spaces); None: it has none.

    `asked` are the spares that each pod set asks for. `replaces`: the admission is the replacement of lost nodes. It has used some spares
    up, which its assignment shows: then the annotation has to change only where others are spares no more, too.
    """
    if replaces and with_spares(admission, read_held_spares(said), asked) == admission:
        return False
    return show_held_spares(admission) != said


def with_spares(admission: Admission, held: Mapping[str, Sequence[str]], asked: Mapping[str, int]) -> Admission:
    """Returns the admission with the nodes that count as spares, instead of those it had: of those `held` by each pod set (names) the first
    by name, as many as `asked` (0 for one that is not in it). It is the same object where nothing differs.

    A node that the pod set's assignment uses does not count, and none does without an assignment.
    """
    pod_sets = tuple(_with(given, held.get(given.name, ()), asked.get(given.name, 0)) for given in admission.pod_sets)
    return admission if pod_sets == admission.pod_sets else Admission(admission.cluster_queue, pod_sets)


def _with(given: PodSetAdmission, held: Sequence[str], asked: int) -> PodSetAdmission:
    if given.assignment is None:
        held = ()
    used = {domain.values[-1] for domain in given.assignment.domains} if given.assignment is not None else set()
    counting = tuple(sorted(node for node in held if node not in used)[:asked])
    return given if counting == given.spares else given.with_spares(counting)


def with_borrowed(admission: Admission, nodes: Mapping[str, Sequence[str]]) -> Admission:
    """Returns the admission with the nodes that it has borrowed, instead of those it had: of `nodes`, by pod set, those that its
    assignments use, sorted. It is the same object where nothing differs."""
    pod_sets = tuple(_with_borrowed(given, nodes.get(given.name, ())) for given in admission.pod_sets)
    return admission if pod_sets == admission.pod_sets else Admission(admission.cluster_queue, pod_sets)


def _with_borrowed(given: PodSetAdmission, nodes: Sequence[str]) -> PodSetAdmission:
    used = {domain.values[-1] for domain in given.assignment.domains} if given.assignment is not None else set[str]()
    counting = tuple(sorted(used.intersection(nodes)))
    return given if counting == given.borrowed else replace(given, borrowed=counting)


def compute_spare_usage(usage: Mapping[str, int], pods: int, most: int, spares: int) -> dict[str, int]:
    """Returns the quota that `spares` nodes use where quota counts them, as canonical amounts by resource, rounded up and not cut at
    `LARGEST`.

    Each spare counts as `most` pods; `usage` is that of all `pods` together. It is empty without pods or spares.
    """
    return {name: -(-amount * most * spares // pods) for name, amount in usage.items()} if pods and spares else {}


def with_spare_usage(admission: Admission, counted: Admission, asked: Mapping[str, int]) -> Admission:
    """Returns a copy of `counted`, what quota counts of an admission (the same pod sets in the same order). To its usage that of as many
    spares as each pod set asks for (`asked`) is added. Only pod sets with an assignment by hostname have any.

    A swap, after which a spare is missing for a moment, thus gives none of their quota away.
    """
    pod_sets = []
    for given, other in zip(admission.pod_sets, counted.pod_sets, strict=True):
        by_host = given.assignment is not None and given.assignment.levels[-1:] == (HOSTNAME_LABEL,)
        more = compute_spare_usage(given.usage, given.count, find_fullest(given), asked.get(given.name, 0)) if by_host else {}
        usage = {name: amount + more.get(name, 0) for name, amount in other.usage.items()}
        pod_sets.append(replace(other, usage=usage) if more else other)
    return replace(counted, pod_sets=tuple(pod_sets))


def find_fullest(given: PodSetAdmission) -> int:
    """Returns the number of pods in the domain of an assignment that has most; 0 without an assignment. Where domains are nodes this is
    what each spare has room for."""
    return max((domain.count for domain in given.assignment.domains), default=0) if given.assignment is not None else 0
