"""Pods that have been ungated and are not seen so yet: they run, or may at any moment, in the places that they were given."""

from collections.abc import Hashable, Mapping
from dataclasses import replace

from core.runtime.expectations import Expectations
from core.state.facts import PodFacts


class Ungating(Expectations):
    """By workload and uid of the pod, with the node selector that each pod was given."""

    def __init__(self) -> None:
        super().__init__()
        self._places: dict[str, Mapping[str, str]] = {}

    def expect_places(self, key: Hashable, places: Mapping[str, Mapping[str, str]], now: float) -> None:
        """Adds pods by uid with their node selectors."""
        self._places |= places
        self.expect(key, places, now)

    def adjust(self, pod: PodFacts) -> PodFacts:
        """A pod as it will be observed: ungated, with its node selector."""
        if not pod.gated or not self.is_awaiting(pod.workload, pod.uid):
            return pod
        return replace(pod, gated=False, node_selector={**pod.node_selector, **self._places.get(pod.uid, {})})

    def discard(self, key: Hashable, uid: str) -> None:
        """A pod is not waited for any more."""
        super().discard(key, uid)
        self._places.pop(uid, None)
