"""Places of an assignment to which no pod comes any more."""

from collections.abc import Sequence


def give_up(empty: Sequence[int], ended: Sequence[int], surplus: int) -> list[int]:
    """How many of the `empty` places per domain are given up, where `surplus` of the pods that were assigned come no more.

    `ended` are pods per domain that have succeeded there: their places go first, in the order of the domains, then those of
    the last domains. A pod that failed is made again, and finds its own place.
    """
    given = []
    for here, done in zip(empty, ended, strict=True):
        given.append(min(surplus, max(0, min(here, done))))
        surplus -= given[-1]
    for i in range(len(given) - 1, -1, -1):
        more = min(surplus, max(0, empty[i] - given[i]))
        given[i] += more
        surplus -= more
    return given
