"""What holds of every cluster with devices: pools, claims and groups as they come."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from core.names import HOSTNAME_LABEL
from core.placement.topology.free_capacity import FreeCapacity
from core.podgroups.algorithm import Outcome, decide, default_plugins
from core.podgroups.devices.claims import PodClaim, read_claim
from core.podgroups.devices.device_placement import DevicePlacement
from core.podgroups.devices.inventory import Inventory, PlacedClaims
from core.podgroups.framework import PlacementCycle, Plugins, assume_placement
from core.podgroups.group import PodGroupInfo
from core.podgroups.group_explanation import explain
from core.podgroups.placement_feasibility import check_one
from core.podgroups.placements import build_whole
from tests.builders import build_view
from tests.podgroups.builders import build_node, count_placed_pods, group
from tests.podgroups.devices import build_claim, build_claim_spec, build_inventory, build_resource_slice, build_template

OWN = (PodClaim("some", ""),)
ON_FIRST_TWO = {"nodeSelectorTerms": [{"matchExpressions": [{"key": HOSTNAME_LABEL, "operator": "In", "values": ["n0", "n1"]}]}]}


@dataclass(frozen=True)
class Hall:
    """CPUs by node; by pool devices of each node, and those that the first two share; how many each pod claims; what is taken."""

    cpus: tuple[int, ...]
    own: dict[str, tuple[int, ...]]
    shared: dict[str, int]
    count: int
    pods: int
    taken: tuple[tuple[str, str], ...]

    @property
    def slices(self) -> list[dict[str, Any]]:
        found = []
        for pool, of_nodes in self.own.items():
            options: dict[str, Any] = {"slices": len(of_nodes) + 1}
            found += [
                build_resource_slice(pool, of_node, node=f"n{at}", name=f"{pool}-n{at}", **options) for at, of_node in enumerate(of_nodes)
            ]
            found.append(build_resource_slice(pool, self.shared[pool], name=f"{pool}-s", nodeSelector=ON_FIRST_TWO, **options))
        return found

    @property
    def inventory(self) -> Inventory:
        return build_inventory(build_template("some", build_claim_spec(self.count)), build_claim("other", self.taken), *self.slices)

    @property
    def view(self) -> FreeCapacity:
        return build_view([HOSTNAME_LABEL], [build_node(f"n{at}", "b", "r", cpu) for at, cpu in enumerate(self.cpus)])

    @property
    def asked(self) -> PodGroupInfo:
        return replace(group((self.pods, 1), by=()), claims=(OWN,))

    def free(self, pool: str) -> tuple[list[int], int]:
        """Devices of a pool that are free: on each node, and shared."""
        taken = {name for of_pool, name in self.taken if of_pool == pool}
        own = [sum(f"{pool}-n{at}-{i}" not in taken for i in range(count)) for at, count in enumerate(self.own[pool])]
        return own, sum(f"{pool}-s-{i}" not in taken for i in range(self.shared[pool]))

    def takes(self, pool: str, way: tuple[int, ...]) -> bool:
        """Whether so many pods on each node can have their devices from a pool."""
        own, shared = self.free(pool)
        beyond = [max(0, count * self.count - has) for count, has in zip(way, own, strict=True)]
        return not any(beyond[2:]) and sum(beyond) <= shared

    @property
    def is_possible(self) -> bool:
        ways = [way for way in product(*(range(cpu + 1) for cpu in self.cpus)) if sum(way) == self.pods]
        return any(self.takes(pool, way) for pool in self.own for way in ways)


@st.composite
def halls(draw: st.DrawFn) -> Hall:
    cpus = tuple(draw(st.lists(st.integers(0, 3), min_size=2, max_size=3)))
    pools = draw(st.lists(st.sampled_from(["p", "q"]), min_size=1, max_size=2, unique=True))
    own = {pool: tuple(draw(st.integers(0, 3)) for _ in cpus) for pool in pools}
    shared = {pool: draw(st.integers(0, 2)) for pool in pools}
    names = [(pool, f"{pool}-n{at}-{i}") for pool in pools for at, count in enumerate(own[pool]) for i in range(count)]
    names += [(pool, f"{pool}-s-{i}") for pool in pools for i in range(shared[pool])]
    taken = tuple(draw(st.lists(st.sampled_from(names), unique=True, max_size=3))) if names else ()
    return Hall(cpus, own, shared, draw(st.integers(1, 2)), draw(st.integers(1, 4)), taken)


def plugins_for(there: Inventory) -> tuple[DevicePlacement, Plugins]:
    devices, usual = DevicePlacement(there, "ns", ["some"], ()), default_plugins()
    return devices, replace(usual, generators=(*usual.generators, devices), states=(devices,))


def ask(hall: Hall, there: Inventory) -> Outcome:
    return decide(hall.view, hall.asked, plugins_for(there)[1])


@given(halls())
def test_a_group_has_a_place_just_when_some_way_gives_it_devices_of_one_pool(hall: Hall) -> None:
    outcome = ask(hall, hall.inventory)
    assert (outcome.chosen is not None) == hall.is_possible
    if outcome.chosen is not None:
        where = count_placed_pods(outcome)
        way = tuple(where.get(f"n{at}", 0) for at in range(len(hall.cpus)))
        assert sum(way) == hall.pods
        assert hall.takes(outcome.chosen.placement.name.rpartition("/")[2], way), "never more than are free"


@given(halls(), st.booleans())
@example(hall=Hall((0, 1), {"p": (1, 1), "q": (0, 0)}, {"p": 0, "q": 1}, 1, 1, (("p", "p-n1-0"),)), is_promised=False)
def test_a_claim_for_all_is_given_devices_that_all_of_its_pods_reach(hall: Hall, is_promised: bool) -> None:
    """On one node, or on several that reach no devices but those that they share."""
    there = hall.inventory
    there.observe_claim("ns/ours", read_claim(build_claim("ours", spec=build_claim_spec(hall.count))))
    if is_promised:
        there.record_claims("other", PlacedClaims("ns", "n0", OWN))
    outcome = decide(hall.view, replace(hall.asked, claims=((PodClaim("", "ours"),),)), plugins_for(there)[1])

    def fits(pool: str) -> bool:
        own, shared = hall.free(pool)
        promised = hall.count if is_promised else 0
        own[0], shared = max(0, own[0] - promised), max(0, shared - max(0, promised - own[0]))
        if any(cpu >= hall.pods and own[at] + (shared if at < 2 else 0) >= hall.count for at, cpu in enumerate(hall.cpus)):
            return True
        free = sum(cpu for at, cpu in enumerate(hall.cpus[:2]) if not any(of_nodes[at] for of_nodes in hall.own.values()))
        return shared >= hall.count and free >= hall.pods

    assert (outcome.chosen is not None) == any(map(fits, hall.own))


@given(halls(), st.randoms(use_true_random=False))
def test_the_order_in_which_slices_and_claims_come_does_not_matter(hall: Hall, chance: Any) -> None:
    objects = [build_template("some", build_claim_spec(hall.count)), build_claim("other", hall.taken), *hall.slices]
    chance.shuffle(objects)
    turned, straight = ask(hall, build_inventory(*objects)), ask(hall, hall.inventory)
    assert (turned.chosen is None) == (straight.chosen is None)
    if turned.chosen is not None:
        assert count_placed_pods(turned) == count_placed_pods(straight)


@given(halls())
def test_assume_then_revert_leaves_everything_as_it_was(hall: Hall) -> None:
    there = hall.inventory
    devices, _ = plugins_for(there)
    cycle = PlacementCycle(hall.view)
    (placements,) = devices.generate(cycle, hall.asked, (build_whole(cycle.view.tree),))
    free, why = cycle.view.free.copy(), cycle.why
    before = [check_one(cycle, hall.asked, placement)[0].count for placement in placements]
    for first, second in product(placements, placements):
        with assume_placement((devices,), cycle, hall.asked, first):
            assert cycle.limits is not None
            with assume_placement((devices,), cycle, hall.asked, second):
                inner = cycle.limits
            assert cycle.limits is not inner
        assert [cycle.limits, cycle.closed, cycle.notes, cycle.why] == [None, None, {}, why]
    assert (cycle.view.free == free).all()
    assert [check_one(cycle, hall.asked, placement)[0].count for placement in placements] == before
    assert there.kept == {}


@given(halls())
def test_groups_one_after_the_other_never_have_more_than_there_is(hall: Hall) -> None:
    """What is decided on counts for the next though nothing is allocated."""
    there, way = hall.inventory, Counter[str]()
    for number in range(4):
        outcome = ask(hall, there)
        if outcome.chosen is None:
            break
        for on, count in count_placed_pods(outcome).items():
            way[on] += count
            for pod in range(count):
                there.record_claims(f"{number}-{on}-{pod}", PlacedClaims("ns", on, OWN))
    devices = {name: sum(hall.free(pool)[0][int(name[1:])] for pool in hall.own) for name in way}
    of_all = sum(hall.free(pool)[1] for pool in hall.own)
    beyond = sum(max(0, count * hall.count - devices[name]) for name, count in way.items())
    assert beyond <= of_all


@given(halls())
def test_waiting_group_reports_the_missing_devices_of_each_pool(hall: Hall) -> None:
    view, (_, plugins) = hall.view, plugins_for(hall.inventory)
    outcome = decide(view, hall.asked, plugins)
    if outcome.chosen is None:
        for fact in explain(view, hall.asked, outcome.tried, plugins.states, outcome.why).facts:
            own, shared = hall.free(fact.name.rpartition("/")[2])
            assert sum(amount.amount for amount in fact.beside) == max(0, hall.pods * hall.count - sum(own) - shared)
