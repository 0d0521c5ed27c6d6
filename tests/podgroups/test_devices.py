"""Devices that lie together: which pool a group gets, and how many of its pods each node takes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from core.names import HOSTNAME_LABEL
from core.placement.topology.free_capacity import FreeCapacity
from core.podgroups.algorithm import Outcome, decide, default_plugins
from core.podgroups.devices.claims import Matcher, NotServed, PodClaim, PoolId, read_claim
from core.podgroups.devices.device_placement import DevicePlacement
from core.podgroups.devices.inventory import Inventory, PlacedClaims
from core.podgroups.framework import Plugins
from core.podgroups.group import PodGroupInfo
from core.podgroups.group_explanation import explain
from tests.builders import RACK, build_view
from tests.podgroups.builders import build_node, count_placed_pods, group, name_of
from tests.podgroups.devices import (
    DRIVER,
    OWN,
    TEMPLATE,
    build_claim,
    build_claim_spec,
    build_inventory,
    build_resource_slice,
    build_template,
    pool_of_nodes,
)


def build_group(pods: int, *claims: PodClaim, by: tuple[str, ...] = (), **other: Any) -> PodGroupInfo:
    """Equal pods of one CPU, each with these claims."""
    return replace(group((pods, 1), by=by, **other), claims=(claims or OWN,))


def build_plugins(there: Inventory, templates: tuple[str, ...] = (TEMPLATE,), running: tuple[tuple[PodClaim, ...], ...] = ()) -> Plugins:
    of_devices, usual = DevicePlacement(there, "ns", templates, running), default_plugins()
    return replace(usual, generators=(*usual.generators, of_devices), states=(of_devices,))


def ask(view: FreeCapacity, there: Inventory, wanted: PodGroupInfo, **other: Any) -> Outcome:
    return decide(view, wanted, build_plugins(there, **other))


def get_message(view: FreeCapacity, there: Inventory, wanted: PodGroupInfo, **other: Any) -> str:
    plugins = build_plugins(there, **other)
    outcome = decide(view, wanted, plugins)
    assert outcome.chosen is None
    return str(explain(view, wanted, outcome.tried, plugins.states, outcome.why))


NODES = ("a", "b", "c", "d")


def build_nodes_view() -> FreeCapacity:
    """Four nodes of eight CPUs, two to a rack."""
    return build_view([HOSTNAME_LABEL], [build_node(name, "b", f"r{at // 2 + 1}", 8) for at, name in enumerate(NODES)])


@pytest.fixture
def view() -> FreeCapacity:
    return build_nodes_view()


def test_all_pods_go_where_one_pool_has_devices_for_them(view: FreeCapacity) -> None:
    there = build_inventory(*pool_of_nodes("p", {"a": 1, "b": 2}), *pool_of_nodes("q", {"c": 2, "d": 2}))
    outcome = ask(view, there, build_group(4))
    assert name_of(outcome) == "pool gpu.example.com/q"
    assert count_placed_pods(outcome) == {"c": 2, "d": 2}


def test_group_without_a_sufficient_pool_waits_and_reports_the_lack_of_each_pool(view: FreeCapacity) -> None:
    there = build_inventory(*pool_of_nodes("p", {"a": 1, "b": 1}), *pool_of_nodes("q", {"c": 2, "d": 1}))
    message = get_message(view, there, build_group(4))
    best, _, other = message.partition(";")
    assert all(part in best for part in ("2 placements", "4 pods", "pool gpu.example.com/q 3 of 4", "1 device of claim template one-gpu"))
    assert all(part in other for part in ("pool gpu.example.com/p 2 of 4", "2 devices of claim template one-gpu"))


def test_allocated_device_is_not_free(view: FreeCapacity) -> None:
    there = build_inventory(*pool_of_nodes("p", {"a": 2, "b": 2}), build_claim("other", [("p", "a-0")]))
    assert ask(view, there, build_group(4)).chosen is None
    assert count_placed_pods(ask(view, there, build_group(3))) == {"b": 2, "a": 1}
    there.observe_claim("ns/other", None)
    assert sum(count_placed_pods(ask(view, there, build_group(4))).values()) == 4


def test_devices_that_all_nodes_reach_are_counted_once(view: FreeCapacity) -> None:
    there = build_inventory(build_resource_slice("fabric", 3))
    assert ask(view, there, build_group(4)).chosen is None
    outcome = ask(view, there, build_group(3))
    assert count_placed_pods(outcome) == {"a": 3}


def test_own_and_shared_devices_of_one_pool_add_up(view: FreeCapacity) -> None:
    own = [build_resource_slice("p", 1, node=name, slices=3) for name in ("a", "c")]
    there = build_inventory(*own, build_resource_slice("p", 2, slices=3))
    assert sum(count_placed_pods(ask(view, there, build_group(4))).values()) == 4
    assert ask(view, there, build_group(5)).chosen is None


def test_a_rack_and_a_pool_are_both_shared(view: FreeCapacity) -> None:
    there = build_inventory(*pool_of_nodes("p", {"a": 1, "c": 2, "d": 1}))
    outcome = ask(view, there, build_group(3, by=(RACK,)))
    assert (name_of(outcome), count_placed_pods(outcome)) == ("r2 pool gpu.example.com/p", {"c": 2, "d": 1})
    message = get_message(view, there, build_group(4, by=(RACK,)))
    assert all(part in message for part in (f"{RACK} r2 pool gpu.example.com/p 3 of 4", "1 device"))


def test_pods_that_are_placed_count_until_their_devices_are_allocated(view: FreeCapacity) -> None:
    there = build_inventory(*pool_of_nodes("p", {"a": 2}))
    there.record_claims("uid", PlacedClaims("ns", "a", (PodClaim(TEMPLATE, "its-claim"),)))
    assert ask(view, there, build_group(2)).chosen is None
    assert count_placed_pods(ask(view, there, build_group(1))) == {"a": 1}
    there.observe_claim("ns/its-claim", get_claim(build_claim("its-claim", [("p", "a-1")])))
    assert count_placed_pods(ask(view, there, build_group(1))) == {"a": 1}
    assert ask(view, there, build_group(2)).chosen is None
    there.record_claims("uid", None)
    there.observe_claim("ns/its-claim", None)
    assert count_placed_pods(ask(view, there, build_group(2))) == {"a": 2}


def get_claim(obj: dict[str, Any]) -> Any:

    return read_claim(obj)


def test_those_that_come_later_go_to_the_pool_that_the_others_have_devices_of(view: FreeCapacity) -> None:
    there = build_inventory(
        *pool_of_nodes("p", {"a": 2, "b": 2}),
        *pool_of_nodes("q", {"c": 8}),
        build_claim("mine", [("p", "a-0")]),
        build_claim("apart", [("q", "c-0")]),
    )
    late = build_group(2, running={"a": 1})
    mine, apart = (PodClaim(TEMPLATE, "mine"),), (PodClaim(TEMPLATE, "apart"),)
    assert name_of(ask(view, there, late, running=(mine,))) == "pool gpu.example.com/p"
    message = get_message(view, there, late, running=(mine, apart))
    assert all(part in message for part in ("claim template one-gpu", "pools gpu.example.com/p (1), gpu.example.com/q (1)"))
    assert "not allocated" in get_message(view, there, late, running=(OWN,))


def test_one_claim_for_all_is_one_allocation(view: FreeCapacity) -> None:
    shared = PodClaim("", "ours")
    there = build_inventory(
        build_template("four", build_claim_spec(4)),
        build_claim("ours", spec=build_claim_spec(4)),
        build_resource_slice("small", 3),
        build_resource_slice("large", 4),
    )
    outcome = ask(view, there, build_group(8, shared), templates=("four",))
    assert (name_of(outcome), sum(count_placed_pods(outcome).values())) == ("pool gpu.example.com/large", 8)
    there.observe_slice("large-all", None)
    assert "1 device of claim template four" in get_message(view, there, build_group(8, shared), templates=("four",))


def test_an_allocated_claim_for_all_confines_the_group(view: FreeCapacity) -> None:
    on_c = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["c"]}]}]}
    there = build_inventory(build_claim("ours", [("p", "x")], nodeSelector=on_c), build_resource_slice("p", [{"name": "x"}], node="c"))
    assert count_placed_pods(ask(view, there, build_group(2, PodClaim("", "ours")))) == {"c": 2}
    assert ask(view, there, build_group(9, PodClaim("", "ours"))).chosen is None
    there.observe_slice("p-c", None)
    assert count_placed_pods(ask(view, there, build_group(2, PodClaim("", "ours")))) == {"c": 2}, (
        "kube-scheduler asks for no slice of what is allocated"
    )


@pytest.mark.parametrize(
    ("name", "least", "nodes"),
    [
        ("memory", "40Gi", {"b": 1}),
        ("gpu.example.com/memory", "42949672960", {"b": 1}),
        ("memory", "81Gi", {}),
        ("nothing", "1", {}),
        ("share", "600m", {"b": 1}),
    ],
)
def test_devices_with_less_than_the_requested_capacity_are_left_out(
    view: FreeCapacity, name: str, least: str, nodes: dict[str, int]
) -> None:
    """`capacity` of a request."""
    small, large = (
        [{"name": size, "capacity": {"memory": {"value": size}, "share": {"value": share}}}]
        for size, share in (("20Gi", "500m"), ("80Gi", "1500m"))
    )
    there = build_inventory(
        build_template("large", build_claim_spec(capacity={"requests": {name: least}})),
        build_resource_slice("p", small, node="a"),
        build_resource_slice("q", large, node="b"),
    )
    outcome = ask(view, there, build_group(1, PodClaim("large", "")), templates=("large",))
    assert (count_placed_pods(outcome) if outcome.chosen is not None else {}) == nodes


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"devices": {"requests": [{"name": "any", "firstAvailable": [{"name": "a"}]}]}}, "devices.requests[any].firstAvailable"),
        (build_claim_spec(allocationMode="All"), "devices.requests[gpus].exactly.allocationMode All"),
        (build_claim_spec(adminAccess=True), "devices.requests[gpus].exactly.adminAccess"),
        (build_claim_spec(capacity={"odd": {"memory": "1Gi"}}), "devices.requests[gpus].exactly.capacity.odd"),
        (build_claim_spec(capacity={"requests": {"memory": "much"}}), "devices.requests[gpus].exactly.capacity.requests[memory] much"),
        ({"devices": {"constraints": [{"matchAttribute": "a/b"}], **build_claim_spec()["devices"]}}, "devices.constraints"),
        (build_claim_spec(deviceClassName="none"), "there is no DeviceClass none"),
        (build_claim_spec(1, "device.nothing == 1"), "cannot be evaluated for device"),
    ],
)
def test_unsupported_device_request_is_refused_with_its_field(view: FreeCapacity, spec: dict[str, Any], says: str) -> None:
    there = build_inventory(build_template("odd", spec), build_resource_slice("p", 2))
    with pytest.raises(NotServed) as told:
        ask(view, there, build_group(1, PodClaim("odd", "")), templates=("odd",))
    assert says in str(told.value)


@pytest.mark.parametrize(
    ("odd", "says"),
    [
        ({"consumesCounters": [{"counterSet": "c"}]}, "consumesCounters"),
        ({"allowMultipleAllocations": True}, "allowMultipleAllocations"),
        ({"taints": [{"key": "broken", "effect": "NoExecute"}]}, "taint broken:NoExecute"),
    ],
)
def test_devices_that_are_not_understood_are_left_out_and_told(view: FreeCapacity, odd: dict[str, Any], says: str) -> None:
    there = build_inventory(build_resource_slice("p", [{"name": "x", **odd}, {"name": "y"}]))
    assert count_placed_pods(ask(view, there, build_group(1))) == {"a": 1}
    text = get_message(view, there, build_group(2))
    assert "1 device of claim template one-gpu" in text
    assert all(part in text for part in (says, "pool gpu.example.com/p (1)"))


def test_tolerated_device_taint_does_not_exclude_the_device(view: FreeCapacity) -> None:
    taints = [{"key": "test", "value": "x", "effect": "NoSchedule"}]
    there = build_inventory(
        build_template("hard", build_claim_spec(tolerations=[{"key": "test", "operator": "Exists"}])),
        build_resource_slice("p", [{"name": "x", "taints": taints}]),
    )
    assert count_placed_pods(ask(view, there, build_group(1, PodClaim("hard", "")), templates=("hard",))) == {"a": 1}


def test_a_pool_that_is_not_complete_is_not_used(view: FreeCapacity) -> None:
    there = build_inventory(build_resource_slice("p", 2, node="a", slices=2), build_resource_slice("q", 1))
    message = get_message(view, there, build_group(2))
    assert all(part in message for part in ("pool gpu.example.com/p", "1 of 2 ResourceSlices"))


def test_older_generations_do_not_count(view: FreeCapacity) -> None:
    there = build_inventory(build_resource_slice("p", 8, name="old"), build_resource_slice("p", 1, name="new", generation=2))
    assert ask(view, there, build_group(2)).chosen is None
    assert count_placed_pods(ask(view, there, build_group(1))) == {"a": 1}


def test_a_template_that_no_pod_has_a_claim_of_is_told(view: FreeCapacity) -> None:
    with pytest.raises(NotServed, match="no pod of it has a claim made from ResourceClaimTemplate one-gpu"):
        ask(view, build_inventory(build_resource_slice("p", 2)), build_group(1, PodClaim("other", "")))
    with pytest.raises(NotServed, match="there is no ResourceClaimTemplate none"):
        ask(view, build_inventory(), build_group(1), templates=("none",))


def test_each_device_constraint_has_a_pool_and_requests_of_both_for_one_pool_are_added(view: FreeCapacity) -> None:
    """Pods with a claim from either of two templates that ask for the same."""
    both = PodClaim("one-gpu", ""), PodClaim("another", "")
    there = build_inventory(build_template("another"), build_resource_slice("p", 3), build_resource_slice("q", 2))
    found = ask(view, there, build_group(2, *both), templates=("one-gpu", "another"))
    assert name_of(found) in ("pool gpu.example.com/p pool gpu.example.com/q", "pool gpu.example.com/q pool gpu.example.com/p")
    assert ask(view, there, build_group(3, *both), templates=("one-gpu", "another")).chosen is None
    there.observe_slice("q-all", None)
    assert ask(view, there, build_group(2, *both), templates=("one-gpu", "another")).chosen is None, "four devices of one pool"
    assert name_of(ask(view, there, build_group(1, *both), templates=("one-gpu", "another"))) == "pool gpu.example.com/p"


def test_pods_without_a_claim_go_where_the_others_have_devices(view: FreeCapacity) -> None:
    there = build_inventory(*pool_of_nodes("p", {"c": 2}))
    wanted = replace(group((2, 1), (1, 2), by=()), claims=(OWN, ()))
    assert count_placed_pods(ask(view, there, wanted)) == {"c": 3}


def test_unlike_devices_of_one_claim_are_each_counted(view: FreeCapacity) -> None:
    spec = build_claim_spec(1, f'{ATTRIBUTES}.kind == "fast"')
    spec["devices"]["requests"].append({"name": "any", "exactly": {"deviceClassName": "gpu.example.com", "count": 1}})
    kinds = [{"name": f"x-{at}", "attributes": {"kind": {"string": kind}}} for at, kind in enumerate(("fast", "fast", "fast", "slow"))]
    there = build_inventory(build_template("mixed", spec), build_resource_slice("p", kinds, node="a"))
    mixed = PodClaim("mixed", "")
    assert count_placed_pods(ask(view, there, build_group(2, mixed), templates=("mixed",))) == {"a": 2}
    assert "2 devices of claim template mixed" in get_message(view, there, build_group(3, mixed), templates=("mixed",))
    there.observe_claim("ns/other", get_claim(build_claim("other", [("p", "x-3")])))
    assert count_placed_pods(ask(view, there, build_group(1, mixed), templates=("mixed",))) == {"a": 1}
    there.observe_claim("ns/another", get_claim(build_claim("another", [("p", "x-0"), ("p", "x-1")])))
    assert ask(view, there, build_group(1, mixed), templates=("mixed",)).chosen is None


ATTRIBUTES = 'device.attributes["gpu.example.com"]'


def test_device_expected_for_pods_of_another_template_is_not_free(view: FreeCapacity) -> None:
    fast = build_template("fast", build_claim_spec(1, f'{ATTRIBUTES}.kind == "fast"'))
    kinds = [{"name": f"x-{kind}", "attributes": {"kind": {"string": kind}}} for kind in ("fast", "slow")]
    there = build_inventory(fast, build_resource_slice("p", kinds, node="a"))
    there.record_claims("uid", PlacedClaims("ns", "a", OWN))
    assert ask(view, there, build_group(1, PodClaim("fast", "")), templates=("fast",)).chosen is None, "it may be given the fast one"
    there.record_claims("uid", PlacedClaims("ns", "b", OWN))
    assert count_placed_pods(ask(view, there, build_group(1, PodClaim("fast", "")), templates=("fast",))) == {"a": 1}, (
        "its node does not reach that"
    )


def test_pods_outside_a_placement_use_devices_shared_by_its_nodes(view: FreeCapacity) -> None:
    there = build_inventory(build_resource_slice("fabric", 2))
    there.record_claims("uid", PlacedClaims("ns", "d", OWN))
    assert ask(view, there, build_group(2, by=(RACK,))).chosen is None
    assert sum(count_placed_pods(ask(view, there, build_group(1, by=(RACK,)))).values()) == 1


def test_shared_claim_excludes_nodes_with_devices_that_other_nodes_do_not_reach(view: FreeCapacity) -> None:
    own = build_resource_slice("own", 1, node="a")
    there = build_inventory(build_claim("ours"), build_resource_slice("fabric", 1), own)
    ours = PodClaim("", "ours")
    outcome = ask(view, there, build_group(9, ours))
    assert name_of(outcome) == "pool gpu.example.com/fabric"
    assert (sum(count_placed_pods(outcome).values()), "a" in count_placed_pods(outcome)) == (9, False)
    assert ask(view, there, build_group(25, ours)).chosen is None, "three nodes of eight CPUs"
    mixed = build_inventory(build_claim("ours"), build_resource_slice("p", 1, slices=2), build_resource_slice("p", 1, node="a", slices=2))
    assert "a" not in count_placed_pods(ask(view, mixed, build_group(9, ours)))


def test_devices_that_no_node_reaches_are_no_place(view: FreeCapacity) -> None:
    elsewhere = get_message(view, build_inventory(build_resource_slice("p", 4, node="elsewhere")), build_group(1))
    assert all(part in elsewhere for part in ("no node", "claim template one-gpu"))
    nowhere = get_message(view, build_inventory(), build_group(1))
    assert all(part in nowhere for part in ("no pool", "ResourceClaimTemplate one-gpu"))


def test_too_many_unlike_devices_are_not_looked_for(view: FreeCapacity) -> None:
    def ask_for(first: int, count: int) -> dict[str, Any]:
        spec = build_claim_spec(1, f"{first} < 9")
        for number in range(first + 1, first + count):
            exactly = {"deviceClassName": "gpu.example.com", "selectors": [{"cel": {"expression": f"{number} < 9"}}]}
            spec["devices"]["requests"].append({"name": f"r{number}", "exactly": exactly})
        return spec

    def refuse(templates: tuple[str, ...], match: str, *objects: dict[str, Any]) -> None:
        wanted = build_group(1, *(PodClaim(name, "") for name in templates))
        with pytest.raises(NotServed, match=match):
            ask(view, build_inventory(*objects, build_resource_slice("p", 9)), wanted, templates=templates)

    refuse(("odd",), "Template odd: spec.spec asks for 6 unlike devices; at most 5 are served", build_template("odd", ask_for(0, 6)))
    both = build_template("one", ask_for(0, 3)), build_template("other", ask_for(3, 3))
    refuse(("one", "other"), "ResourceClaimTemplates one, other together ask for 6 unlike devices; at most 5 are served", *both)


def test_a_preferred_rack_is_given_up_for_the_pool(view: FreeCapacity) -> None:
    there = build_inventory(*pool_of_nodes("p", {"a": 1, "c": 1}))
    outcome = ask(view, there, build_group(2, by=(RACK,), preferred=(RACK,)))
    assert (name_of(outcome), count_placed_pods(outcome)) == ("pool gpu.example.com/p", {"a": 1, "c": 1})


def test_unlike_pods_take_of_the_same_devices(view: FreeCapacity) -> None:
    there = build_inventory(*pool_of_nodes("p", {"c": 2, "d": 1}))
    assert ask(view, there, replace(group((2, 1), (2, 2), by=()), claims=(OWN, OWN))).chosen is None
    assert sum(count_placed_pods(ask(view, there, replace(group((2, 1), (1, 2), by=()), claims=(OWN, OWN)))).values()) == 3


def test_a_claim_for_all_that_is_to_come_is_counted_once(view: FreeCapacity) -> None:
    there = build_inventory(build_resource_slice("p", 3, node="a"), build_claim("ours"))
    for pod in ("one", "other"):
        there.record_claims(pod, PlacedClaims("ns", "a", (PodClaim("", "ours"),)))
    assert count_placed_pods(ask(view, there, build_group(2))) == {"a": 2}
    assert ask(view, there, build_group(3)).chosen is None


def test_pods_outside_a_placement_use_devices_of_their_own_node_first(view: FreeCapacity) -> None:
    there = build_inventory(build_resource_slice("p", 1, node="d", slices=2), build_resource_slice("p", 1, slices=2))
    there.record_claims("uid", PlacedClaims("ns", "d", OWN))
    plugins, wanted = build_plugins(there), build_group(2, by=(RACK,))
    facts = explain(view, wanted, decide(view, wanted, plugins).tried, plugins.states).facts
    assert {fact.name: fact.fit for fact in facts} == {"r1 pool gpu.example.com/p": 1, "r2 pool gpu.example.com/p": 1}


def test_device_taint_with_effect_none_does_not_exclude_the_device(view: FreeCapacity) -> None:
    there = build_inventory(build_resource_slice("p", [{"name": "x", "taints": [{"key": "seen", "effect": "None"}]}], node="a"))
    assert count_placed_pods(ask(view, there, build_group(1))) == {"a": 1}


def test_admin_access_claim_does_not_occupy_its_device(view: FreeCapacity) -> None:
    looking = build_claim("admin", [("p", "a-0")])
    looking["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = True
    there = build_inventory(build_resource_slice("p", 1, node="a"), looking)
    assert count_placed_pods(ask(view, there, build_group(1))) == {"a": 1}


def test_expression_that_was_given_up_raises_the_same_error_from_then_on(view: FreeCapacity) -> None:
    there = build_inventory(build_resource_slice("p", 8), build_template())
    ((one, (matcher,)),) = there.list_unevaluated("ns", (TEMPLATE, "none"))
    judging = one.evaluate_in_pieces(matcher)
    next(judging)
    with pytest.raises(StopIteration):
        judging.throw(NotServed("it takes long"))
    for _ in range(2):
        with pytest.raises(NotServed, match="it takes long"):
            ask(view, there, build_group(1))


def test_answers_of_many_matchers_are_not_kept_for_ever() -> None:
    (one,) = build_inventory(build_resource_slice("p", 1)).pools[PoolId(DRIVER, "p")].slices
    for number in range(300):
        assert one.judge(Matcher((f"device.driver == '{DRIVER}' || {number} == 0",))) == ("",)
    assert len(one.answers) == 256


@pytest.mark.parametrize("expression", [f'device.attributes["{DRIVER}"].model == "a"', "no expression"])
def test_pool_for_which_an_expression_of_another_group_fails_is_served(view: FreeCapacity, expression: str) -> None:
    bad = build_template("bad", build_claim_spec(1, expression), namespace="other")
    there = build_inventory(*pool_of_nodes("p", {"a": 2, "b": 1}), bad)
    there.record_claims("theirs", PlacedClaims("other", "a", (PodClaim("bad", ""),)))
    assert count_placed_pods(ask(view, there, build_group(3))) == {"a": 2, "b": 1}
