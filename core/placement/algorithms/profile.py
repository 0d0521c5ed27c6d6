"""Which algorithm serves which mode: the profiles of KEP-2724, Selecting the algorithm, Since v0.15."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from core.model.gates import (
    BALANCED_PLACEMENT,
    GATES,
    PROFILE_BEST_FIT,
    PROFILE_GATES,
    PROFILE_LEAST_FREE,
    PROFILE_MIXED,
    PROFILE_MOST_FREE,
    RESPECT_PREFERRED_AFFINITY,
)
from core.model.podset import Mode
from core.names import BALANCED_PROFILE, BEST_FIT_PROFILE, COMPACT_PROFILE, KEP_PROFILE, LEAST_FREE_PROFILE, PLACEMENT_PROFILE
from core.placement.algorithms import best_fit, least_free, most_free
from core.placement.algorithms.candidates import Candidates, Chosen, choose_tightest
from core.placement.topology.tree import Indices

# Candidates and units wanted to the chosen ones, or None if all together are too small.
Select = Callable[[Candidates, int], Chosen | None]


@dataclass(frozen=True, slots=True)
class Algorithm:
    """How domains are chosen among candidates.

    `choose` selects one that holds everything, `spread` several where none does, `fill` those on the way down. `order`
    is the order in which they are used; `tightest`: the last one is chosen again, as the tightest that is enough.
    """

    name: str
    order: Callable[[Candidates], Indices]
    choose: Select
    spread: Select
    fill: Select
    tightest: bool = False


BEST_FIT = Algorithm("BestFit", best_fit.order, choose_tightest, best_fit.fill, best_fit.fill, tightest=True)
LEAST_FREE_CAPACITY = Algorithm("LeastFreeCapacity", least_free.order, choose_tightest, least_free.spread, least_free.fill)
MOST_FREE_CAPACITY = Algorithm("MostFreeCapacity", most_free.order, most_free.choose, most_free.fill, most_free.fill)


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

    def get_algorithm(self, mode: Mode) -> Algorithm:
        """Returns the algorithm for a mode; the implied mode is unconstrained."""
        return {Mode.REQUIRED: self.required, Mode.PREFERRED: self.preferred}.get(mode, self.unconstrained)

    def is_balanced(self, mode: Mode) -> bool:
        """Whether BalancedPlacement is tried first for a mode: in a balanced profile, and only for a preferred level."""
        return self.balanced and mode is Mode.PREFERRED


MIXED = Profile("kep")
ALWAYS_BEST_FIT = Profile("kep-best-fit", unconstrained=BEST_FIT)
ALWAYS_LEAST_FREE = Profile("kep-least-free", LEAST_FREE_CAPACITY, LEAST_FREE_CAPACITY, LEAST_FREE_CAPACITY)
ALWAYS_MOST_FREE = Profile("kep-most-free", MOST_FREE_CAPACITY, MOST_FREE_CAPACITY, MOST_FREE_CAPACITY)
COMPACT = Profile("compact", compact=True)
# Profiles that gates leave as they are; each places as `kep` does with the one gate of its algorithm.
_NAMED = {
    COMPACT_PROFILE: COMPACT,
    BEST_FIT_PROFILE: ALWAYS_BEST_FIT,
    LEAST_FREE_PROFILE: ALWAYS_LEAST_FREE,
    BALANCED_PROFILE: replace(MIXED, balanced=True),
}


def read_profile(gates: Mapping[str, bool]) -> Profile:
    """Returns the profile `kep` under feature gates given by name, of several gates of an algorithm that of the last in the order of
    `PROFILE_GATES`. Without any it is the default (TASProfileMixed); where that is off, BestFit for all modes. Other names are ignored."""
    chosen = MIXED if gates.get(PROFILE_MIXED, True) else ALWAYS_BEST_FIT
    for gate, profile in (
        (PROFILE_BEST_FIT, ALWAYS_BEST_FIT),
        (PROFILE_LEAST_FREE, ALWAYS_LEAST_FREE),
        (PROFILE_MOST_FREE, ALWAYS_MOST_FREE),
    ):
        if gates.get(gate, False):
            chosen = profile
    return replace(
        chosen, respects_preferred_affinity=gates.get(RESPECT_PREFERRED_AFFINITY, False), balanced=gates.get(BALANCED_PLACEMENT, False)
    )


class ContradictingProfile(ValueError):
    """A profile and a gate that both define how pods are placed."""


@dataclass(frozen=True, slots=True)
class Profiles:
    """What the names of profiles mean to one process, and the one that stands where nothing nearer to a workload names one."""

    named: Mapping[str, Profile]
    default: Profile

    def find_nearest(self, *names: str | None) -> Profile:
        """Returns the profile of the first name that is one, else the default; names come nearest to the workload first."""
        return next((self.named[name] for name in names if name is not None and name in self.named), self.default)


def read_profiles(gates: Mapping[str, bool], default: str = KEP_PROFILE) -> Profiles:
    """Returns the profiles of a process: gates select how `kep` places, and for each profile whether preferred affinity counts.

    `default` must be the name of a profile (else KeyError). Raises ContradictingProfile where it is not `kep` and a gate selects an
    algorithm.
    """
    kep = read_profile(gates)
    respects = kep.respects_preferred_affinity
    named = {KEP_PROFILE: kep} | {
        name: replace(profile, name=name, respects_preferred_affinity=respects) for name, profile in _NAMED.items()
    }
    if default != KEP_PROFILE and replace(kep, respects_preferred_affinity=False) != MIXED:
        gate, value = next((name, value) for name, value in gates.items() if name in _CHOOSING and value != GATES[name].default)
        raise ContradictingProfile(
            f"{gate}={str(value).lower()} and the placement profile {default} each say how pods are placed; leave one out"
            f" (annotation {PLACEMENT_PROFILE} chooses {default} for a job, a queue or a topology)"
        )
    return Profiles(named, named[default])


_CHOOSING = (*PROFILE_GATES, BALANCED_PLACEMENT)
STANDARD = read_profiles({})
