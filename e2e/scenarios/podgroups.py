"""The 25 situations that Kubernetes 1.36's own suite for topology-aware PodGroups puts its scheduler in, as facts: which nodes there are,
what is asked, and where pods must be then (reference: kube-scheduler-podgroups.md, A4).

Every node has 2 CPUs. A group asks for one rack, or one zone; a gang by `minimum`, a basic one without.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

RACK, ZONE = "example.com/rack", "example.com/zone"
CPUS_A_NODE = 2


@dataclass(frozen=True)
class Ask:
    """A group of this name is made, if there is none yet, and pods of so many CPUs for it."""

    group: str
    cpus: tuple[int, ...]
    minimum: int | None = None
    level: str = RACK


@dataclass(frozen=True)
class Free:
    """What stood on a node goes."""

    node: str


@dataclass(frozen=True)
class Expect:
    """So many pods of a group are bound, no more, all of them in these domains of its level; in any single one where none is named."""

    group: str
    bound: int
    within: str = ""


Step = Ask | Free | Expect


@dataclass(frozen=True)
class Scenario:
    """`racks`: zone and number of nodes; nodes are called `r1-0`, `r1-1`, ... `taken`: CPUs that others use on nodes from the beginning."""

    name: str
    racks: Mapping[str, tuple[str, int]]
    steps: tuple[Step, ...]
    taken: Mapping[str, int] = field(default_factory=dict)


def _place_in_one_zone(**racks: int) -> dict[str, tuple[str, int]]:
    return {name: ("z1", nodes) for name, nodes in racks.items()}


SCENARIOS = (
    # Gangs.
    Scenario(
        "gang: another group's pod leaves room in one rack only",
        {"r1": ("z1", 3), "r2": ("z1", 2), "r3": ("z2", 1)},
        (Ask("a", (1, 1, 1), 3), Expect("a", 3, "r1")),
        {"r2-0": 2},
    ),
    Scenario(
        "gang: no rack has a node for each pod",
        {"r1": ("z1", 2), "r2": ("z1", 1), "r3": ("z2", 1)},
        (Ask("a", (2, 2, 2), 3), Expect("a", 0)),
    ),
    Scenario(
        "gang: waits until somebody else's pod is gone",
        _place_in_one_zone(r1=3),
        (Ask("a", (1, 1, 1), 3), Expect("a", 0), Free("r1-0"), Expect("a", 3, "r1")),
        {"r1-0": 2, "r1-2": 2},
    ),
    Scenario(
        "gang: of two racks the one that it fills more",
        {"r1": ("z1", 2), "r2": ("z2", 3), "r3": ("z2", 1)},
        (Ask("a", (1, 1, 1), 3), Expect("a", 3, "r1")),
    ),
    Scenario(
        "gang: what others use counts for how full a rack is",
        {"r1": ("z1", 2), "r2": ("z2", 3), "r3": ("z2", 3), "r4": ("z2", 1)},
        (Ask("a", (1, 1, 1), 3), Expect("a", 3, "r2")),
        {"r2-0": 2, "r3-2": 1},
    ),
    Scenario(
        "two gangs: the second has what the first leaves",
        _place_in_one_zone(r1=3, r2=2),
        (Ask("a", (2, 2, 2), 3), Expect("a", 3, "r1"), Ask("b", (1, 1), 2), Expect("b", 2, "r2")),
    ),
    Scenario(
        "two gangs: both in the only rack that takes them",
        _place_in_one_zone(r1=3, r2=1),
        (Ask("a", (2, 1), 2), Expect("a", 2, "r1"), Ask("b", (1, 1, 1), 3), Expect("b", 3, "r1")),
    ),
    Scenario(
        "two gangs: one wants a rack, the other a zone",
        {"r1": ("z1", 2), "r2": ("z1", 1), "r3": ("z2", 3)},
        (Ask("a", (2, 2, 2), 3), Expect("a", 3, "r3"), Ask("b", (2, 2, 2), 3, ZONE), Expect("b", 3, "z1")),
    ),
    Scenario(
        "two gangs: there is room for the first",
        _place_in_one_zone(r1=2),
        (Ask("a", (1, 1, 1), 3), Expect("a", 3, "r1"), Ask("b", (1, 1), 2), Expect("b", 0)),
    ),
    Scenario(
        "gang: pods beyond its minimum come along",
        _place_in_one_zone(r1=2, r2=2),
        (Ask("a", (1, 1, 1), 2), Expect("a", 3)),
    ),
    Scenario(
        "gang: pods that come later stay in its rack, or wait",
        {"r1": ("z1", 3), "r2": ("z1", 2), "r3": ("z2", 1)},
        (Ask("a", (1, 1, 1), 3), Expect("a", 3, "r2"), Ask("a", (1,)), Expect("a", 4, "r2"), Ask("a", (1,)), Expect("a", 4, "r2")),
    ),
    Scenario(
        "gang: nobody is preempted for it",
        _place_in_one_zone(r1=2),
        (Ask("a", (1, 1, 1), 3), Expect("a", 0)),
        {"r1-1": 2},
    ),
    # Basic groups.
    Scenario("basic: the only rack", _place_in_one_zone(r1=2), (Ask("a", (1, 1, 1)), Expect("a", 3, "r1"))),
    Scenario(
        "basic: any of three racks, and all pods in it",
        {"r1": ("z1", 2), "r2": ("z1", 2), "r3": ("z2", 2)},
        (Ask("a", (1, 1, 1)), Expect("a", 3)),
    ),
    Scenario("basic: more pods than any rack takes", _place_in_one_zone(r1=1, r2=1), (Ask("a", (1, 1, 1)), Expect("a", 2))),
    Scenario("basic: pods that are larger than any node", _place_in_one_zone(r1=1, r2=1), (Ask("a", (3, 3)), Expect("a", 0))),
    Scenario("basic: one pod larger than any node, one not", _place_in_one_zone(r1=1, r2=1), (Ask("a", (3, 1)), Expect("a", 1))),
    Scenario(
        "basic: of two racks the one that it fills more",
        {"r1": ("z1", 2), "r2": ("z2", 3)},
        (Ask("a", (1, 1, 1)), Expect("a", 3, "r1")),
    ),
    Scenario(
        "basic: what others use counts for how full a rack is",
        {"r1": ("z1", 3), "r2": ("z2", 3), "r3": ("z2", 4)},
        (Ask("a", (1, 1, 1)), Expect("a", 3, "r2")),
        {"r1-0": 1, "r2-1": 1, "r2-2": 1},
    ),
    Scenario(
        "basic: the first pod chooses the rack, whatever comes later",
        _place_in_one_zone(r1=4, r2=1),
        (Ask("a", (1,)), Expect("a", 1, "r2"), Ask("a", (1, 1)), Expect("a", 2, "r2")),
        {"r1-0": 2},
    ),
    Scenario(
        "two basic: each in a rack of its own",
        _place_in_one_zone(r1=3, r2=1),
        (Ask("a", (1, 1)), Expect("a", 2, "r2"), Ask("b", (1, 1)), Expect("b", 2, "r1")),
    ),
    Scenario(
        "two basic: both in the only rack",
        _place_in_one_zone(r1=3),
        (Ask("a", (1, 1)), Ask("b", (1, 1, 1)), Expect("a", 2, "r1"), Expect("b", 3, "r1")),
    ),
    Scenario(
        "two basic: one wants a rack, the other a zone",
        {"r1": ("z1", 1), "r2": ("z2", 2), "r3": ("z2", 2)},
        (Ask("a", (1, 1)), Expect("a", 2, "r1"), Ask("b", (2, 2, 2), None, ZONE), Expect("b", 3, "z2")),
    ),
    Scenario(
        "two basic: the second has the rack that the first cannot use",
        _place_in_one_zone(r1=2, r2=1),
        (
            Ask("a", (1,)),
            Expect("a", 1, "r2"),
            Ask("a", (1, 1)),
            Expect("a", 2, "r2"),
            Ask("b", (1, 1, 1)),
            Expect("b", 3, "r1"),
            Expect("a", 2, "r2"),
        ),
    ),
    Scenario(
        "basic: goes on in its rack once somebody else's pod is gone",
        _place_in_one_zone(r1=1, r2=1),
        (Ask("a", (1,)), Expect("a", 1, "r1"), Ask("a", (1,)), Expect("a", 1, "r1"), Free("r1-0"), Expect("a", 2, "r1")),
        {"r1-0": 1},
    ),
)
