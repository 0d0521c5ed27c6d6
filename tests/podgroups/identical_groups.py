"""Many identical groups in one pass (KEP-5732, future extension 4): each sees what those before it take."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from core.placement.topology.free_capacity import FreeCapacity, with_pod
from core.podgroups.algorithm import Chosen, decide
from core.podgroups.framework import Plugins
from core.podgroups.group import PodGroupInfo


def decide_replicas(view: FreeCapacity, group: PodGroupInfo, count: int, plugins: Plugins) -> list[Chosen]:
    """Returns the choices for `count` replicas of a group, or for as many as there is room for; the view is unchanged afterwards.

    The first replica without a place ends it: later ones are equal to it. Raises what `decide` raises.
    """
    found: list[Chosen] = []
    try:
        for replica in range(count):
            chosen = decide(view, replace(group, replica=replica), plugins).chosen
            if chosen is None:
                break
            use_group(view, group, chosen)
            found.append(chosen)
    finally:
        for chosen in found:
            use_group(view, group, chosen, -1)
    return found


def use_group(view: FreeCapacity, group: PodGroupInfo, chosen: Chosen, times: int = 1) -> None:
    """Subtracts a group's pods from the view where they are to go (gives back if `times` is -1)."""
    for pods, of_set in zip(group.pod_sets, chosen.assignment.nodes, strict=True):
        view.use_nodes(of_set.at, with_pod(pods.requests), of_set.counts * times)


def decide_in_turn(view: FreeCapacity, groups: Sequence[PodGroupInfo], plugins: Plugins) -> Iterator[tuple[PodGroupInfo, Chosen | None]]:
    """Yields each group and its choice, None if it has no place; each sees what those before it take, and what is placed stays taken.

    Raises what `decide` raises.
    """
    for group in groups:
        chosen = decide(view, group, plugins).chosen
        if chosen is not None:
            use_group(view, group, chosen)
        yield group, chosen
