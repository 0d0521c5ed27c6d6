"""Places of an assignment to which no pod comes any more."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeVar

Place = TypeVar("Place", str, tuple[str, ...])


def count_ended_since(ended: Iterable[tuple[str, Place]], before: int) -> Counter[Place]:
    """Returns the number of pods per place that have succeeded under the present admission; places without any are absent.

    `ended` are all succeeded pods, each with its time of creation (text that sorts by time) and its place. The `before` eldest of them, of
    equal times the first by place, ran under an earlier admission, and do not count for the places of this one.
    """
    return Counter(place for _, place in sorted(ended)[max(0, before) :])


def give_up(empty: Sequence[int], ended: Sequence[int], surplus: int) -> list[int]:
    """Returns how many of the `empty` places per domain are given up, where `surplus` of the assigned pods (at least 0) are not expected
    any more.

    `ended` are pods per domain that have succeeded there: their places are given up, in the order of the domains until the surplus is
    reached, and no others. Where these are fewer than the surplus the end of a pod has not been seen yet, and any empty place may be one
    that a pod is on its way to. A pod that failed is recreated, and finds its own place.
    """
    given = []
    for here, done in zip(empty, ended, strict=True):
        given.append(min(surplus, max(0, min(here, done))))
        surplus -= given[-1]
    return given
