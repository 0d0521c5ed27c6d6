"""Which algorithm serves which mode: the profiles of KEP-2724, Selecting the algorithm, Since v0.15."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from core.model.podset import Mode
from core.placement import best_fit, least_free
from core.placement.candidates import Candidates, Chosen, choose_tightest
from core.placement.tree import Indices

# Candidates and units wanted to the chosen ones, or None if all together are too small.
Select = Callable[[Candidates, int], Chosen | None]


@dataclass(frozen=True, slots=True)
class Algorithm:
    """How domains are chosen among candidates.

    `choose` one that holds everything, `spread` over several where none does, `fill` on the way down;
    `order` is the order in which they are taken, `tightest` says whether the last one is chosen anew.
    """

    name: str
    order: Callable[[Candidates], Indices]
    choose: Select
    spread: Select
    fill: Select
    tightest: bool = False


BEST_FIT = Algorithm("BestFit", best_fit.order, choose_tightest, best_fit.fill, best_fit.fill, tightest=True)
LEAST_FREE_CAPACITY = Algorithm("LeastFreeCapacity", least_free.order, choose_tightest, least_free.spread, least_free.fill)


@dataclass(frozen=True, slots=True)
class Profile:
    """One algorithm per mode; `respects_preferred_affinity` is gate TASRespectNodeAffinityPreferred.

    `balanced` is gate TASBalancedPlacement: a preferred level is served by BalancedPlacement where that can be,
    and by `preferred` where it falls back. With `compact` what the algorithms find is what the most compact answer
    has to be better than.
    """

    name: str
    required: Algorithm = BEST_FIT
    preferred: Algorithm = BEST_FIT
    unconstrained: Algorithm = LEAST_FREE_CAPACITY
    respects_preferred_affinity: bool = False
    balanced: bool = False
    compact: bool = False

    def algorithm(self, mode: Mode) -> Algorithm:
        """The algorithm for a mode; the implied mode is unconstrained."""
        return {Mode.REQUIRED: self.required, Mode.PREFERRED: self.preferred}.get(mode, self.unconstrained)

    def balances(self, mode: Mode) -> bool:
        """Whether BalancedPlacement is tried first."""
        return self.balanced and mode is Mode.PREFERRED


MIXED = Profile("kep")
ALWAYS_BEST_FIT = Profile("kep-best-fit", unconstrained=BEST_FIT)
COMPACT = Profile("compact", compact=True)

PROFILES: Mapping[str, Profile] = {profile.name: profile for profile in (MIXED, COMPACT)}


def profile_named(name: str) -> Profile:
    """The profile that a setting names. Raises ValueError."""
    if name not in PROFILES:
        raise ValueError(f"no placement profile {name!r}; there are {', '.join(PROFILES)}")
    return PROFILES[name]


def profile_from_gates(gates: Mapping[str, bool]) -> Profile:
    """Profile of a set of feature gates given by name; without any, the default (TASProfileMixed)."""
    chosen = MIXED if gates.get("TASProfileMixed", True) and not gates.get("TASProfileBestFit", False) else ALWAYS_BEST_FIT
    return replace(
        chosen,
        respects_preferred_affinity=gates.get("TASRespectNodeAffinityPreferred", False),
        balanced=gates.get("TASBalancedPlacement", False),
    )
