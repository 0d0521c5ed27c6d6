"""What an algorithm chooses among: domains of one level, in the order of level values."""

from typing import NamedTuple

import numpy as np

from core.placement.tree import Indices

Chosen = tuple[Indices, Indices]  # positions among the candidates, units on each


class Candidates(NamedTuple):
    """Per candidate: units and pods that fit, and the score of preferred affinity where it counts."""

    units: Indices
    pods: Indices
    scores: Indices | None = None

    def order(self, key: Indices) -> Indices:
        """Positions by score (highest first), then by `key`, then by fewer pods, then by level values (the sort is stable)."""
        return np.lexsort((self.pods, key)) if self.scores is None else np.lexsort((self.pods, key, -self.scores))
