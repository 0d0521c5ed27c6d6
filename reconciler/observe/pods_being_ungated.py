"""Pods that are being ungated: they run, or may at any moment, in the places that they were given."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from core.state.facts import PodFacts


class Ungating:
    """By uid of the pod, the node selector that each was given (KEP-2724, Enforcing the assignment)."""

    def __init__(self) -> None:
        self._places: dict[str, Mapping[str, str]] = {}

    def begin(self, places: Mapping[str, Mapping[str, str]]) -> None:
        """Records the node selectors that pods are about to get, by uid; to be called before the first write: its event may overtake its
        answer.
        """
        self._places |= places

    def end(self, uids: Iterable[str]) -> None:
        """Removes pods by uid after their last writes: those that succeeded are observed now (`core.runtime.watch.store`), and no event
        comes of one that failed.
        """
        for uid in uids:
            self._places.pop(uid, None)

    def adjust(self, pod: PodFacts) -> PodFacts:
        """Returns a gated pod that is being ungated as it will be observed: without gate, with its node selector. Returns any other pod
        unchanged.
        """
        place = self._places.get(pod.uid) if pod.gated else None
        return pod if place is None else replace(pod, gated=False, node_selector={**pod.node_selector, **place})
