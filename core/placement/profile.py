"""Which algorithm serves which mode: the profiles of KEP-2724, Selecting the algorithm, Since v0.15."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from core.model.podset import Mode
from core.placement import best_fit, least_free
from core.placement.tree import Indices

# (units that fit per candidate, pods that fit per candidate, units wanted) -> (candidates, units for each), or None.
Select = Callable[[Indices, Indices, int], "tuple[Indices, Indices] | None"]


@dataclass(frozen=True, slots=True)
class Algorithm:
    """How domains are chosen among candidates: `choose` at the level asked for, `fill` on the way down."""

    name: str
    choose: Select
    fill: Select


BEST_FIT = Algorithm("BestFit", best_fit.choose, best_fit.choose)
LEAST_FREE_CAPACITY = Algorithm("LeastFreeCapacity", least_free.choose, least_free.fill)


@dataclass(frozen=True, slots=True)
class Profile:
    """One algorithm per mode."""

    name: str
    required: Algorithm = BEST_FIT
    preferred: Algorithm = BEST_FIT
    unconstrained: Algorithm = LEAST_FREE_CAPACITY

    def algorithm(self, mode: Mode) -> Algorithm:
        """The algorithm for a mode; the implied mode is unconstrained."""
        return {Mode.REQUIRED: self.required, Mode.PREFERRED: self.preferred}.get(mode, self.unconstrained)


MIXED = Profile("kep")
ALWAYS_BEST_FIT = Profile("kep-best-fit", unconstrained=BEST_FIT)


def profile_from_gates(gates: Mapping[str, bool]) -> Profile:
    """Profile of a set of feature gates given by name; without any, the default (TASProfileMixed)."""
    return MIXED if gates.get("TASProfileMixed", True) and not gates.get("TASProfileBestFit", False) else ALWAYS_BEST_FIT
