"""Devices of queued pods from the claims that their templates ask for, through admission and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.admission import Admission, PodSetAdmission
from core.model.claimed_devices import name_devices
from core.model.configuration import ResourceRules, Transformation
from core.model.quantity import LARGEST
from core.model.transformation import compute_quota_requests
from core.plan.steps.excess import explain_excess, limit_to_admitted
from core.podgroups.devices.claims import read_class, read_template
from core.podgroups.devices.inventory import Inventory
from core.podgroups.devices.node_devices import NodeDevices
from core.podgroups.devices.queued_claims import QueuedClaims
from core.queueing.flavors.quota_shortage import compute_pod_set_usage
from core.state.facts import WorkloadFacts
from core.state.queue_facts import ClusterQueueFacts
from tests.builders import NAMESPACE, build_cluster_queue_json, build_pod_set_json, build_workload_json
from tests.podgroups.devices import build_device_class, build_template

CLASSES = {"a": "example.com/gpus", "b": "example.com/gpus", "c": "nvidia.com/gpu", "d": "example.com/nics"}
RULES = ResourceRules(device_classes=CLASSES)
QUEUE = ClusterQueueFacts.read(build_cluster_queue_json("cq", {"tas": "1"}))
Json = dict[str, Any]
COUNTS = st.one_of(st.integers(1, 6), st.sampled_from([2**31, 2**62 - 1, 2**63 - 1]))
TEMPLATES = st.dictionaries(st.sampled_from("xyz"), st.lists(st.tuples(st.sampled_from("abcd"), COUNTS), min_size=1, max_size=4))


def build_inventory(templates: dict[str, list[tuple[str, int]]]) -> Inventory:
    found = Inventory()
    for name in CLASSES:
        found.observe_class(name, read_class(build_device_class(name)))
    for name, asked in templates.items():
        requests = [{"name": f"r{at}", "exactly": {"deviceClassName": of, "count": count}} for at, (of, count) in enumerate(asked)]
        found.observe_template(f"{NAMESPACE}/{name}", read_template(build_template(name, {"devices": {"requests": requests}})))
    return found


def build_workload(names: list[str], count: int, **container: Any) -> Json:
    claims = [{"name": f"c{at}", "resourceClaimTemplateName": name} for at, name in enumerate(names)]
    pod_set = build_pod_set_json(count=count, resourceClaims=claims)
    pod_set["template"]["spec"]["containers"][0]["resources"]["requests"] |= container
    return build_workload_json("w", [pod_set])


def adjust(inventory: Inventory, workload: Json, usage: dict[str, int] | None = None, count: int = 0, **options: Any) -> WorkloadFacts:
    """With an admission if there is any usage."""
    facts = WorkloadFacts.read(workload)
    if usage is not None:
        given = PodSetAdmission("main", {}, usage, count)
        facts = WorkloadFacts.read(workload)
        object.__setattr__(facts, "admission", Admission("cq", (given,)))
    return QueuedClaims(inventory, options.pop("rules", RULES), **options).adjust(facts, workload)


@given(TEMPLATES, st.lists(st.sampled_from("xyz"), max_size=5), st.integers(1, 4), st.integers(0, 3))
def test_quota_counts_each_request_of_each_claim_of_each_pod(
    templates: dict[str, list[tuple[str, int]]], names: list[str], count: int, extended: int
):
    inventory = build_inventory(templates)
    workload = build_workload(names, count, **({"nvidia.com/gpu": str(extended)} if extended else {}))
    facts = adjust(inventory, workload)
    missing = set(names) - templates.keys()
    assert bool(facts.refused) == bool(missing)
    if missing:
        assert any(f"there is no ResourceClaimTemplate {name} in namespace {NAMESPACE}" in facts.refused for name in missing)
        return
    by_class = dict.fromkeys(CLASSES, 0)
    for name in names:
        for device_class, number in templates[name]:
            by_class[device_class] += number
    wanted = dict.fromkeys({*CLASSES.values(), "nvidia.com/gpu"}, 0)
    for device_class, number in by_class.items():
        wanted[CLASSES[device_class]] += min(number, LARGEST)
    wanted["nvidia.com/gpu"] += extended
    usage = compute_pod_set_usage(facts.pod_sets[0], QUEUE, RULES)
    assert {name: usage.get(name, 0) for name in wanted} == {name: number * count for name, number in wanted.items()}
    assert usage["cpu"] == 1000 * count


@given(TEMPLATES, TEMPLATES, st.lists(st.sampled_from("xyz"), min_size=1, max_size=3), st.integers(1, 4), st.booleans())
def test_an_admission_keeps_its_usage_whatever_becomes_of_the_templates(
    before: dict[str, list[tuple[str, int]]], after: dict[str, list[tuple[str, int]]], names: list[str], count: int, transforms: bool
):
    """What is read back of an admission comes to the same usage, by the templates of then, by others, and without any."""
    outputs = (Transformation("cpu", True, {"example.com/gpus": 2_000}),) if transforms else ()
    rules = ResourceRules((), outputs, device_classes=CLASSES)
    names = [name for name in names if name in before]
    workload = build_workload(names, count)
    facts = adjust(build_inventory(before), workload, rules=rules)
    usage = compute_pod_set_usage(facts.pod_sets[0], QUEUE, rules)
    for templates in (before, after, {}):
        admitted = adjust(build_inventory(templates), workload, usage, count, rules=rules)
        assert admitted.refused == ""
        assert compute_pod_set_usage(admitted.pod_sets[0], QUEUE, rules) == usage
    same = adjust(build_inventory(before), workload, usage, count, rules=rules)
    assert same.pod_sets[0].claimed == facts.pod_sets[0].claimed


def test_pods_of_a_job_with_extended_gpus_and_claims_may_not_request_more_of_the_former():
    inventory = build_inventory({"x": [("c", 2)]})
    usage = {"cpu": 2000, "nvidia.com/gpu": 6}
    facts = adjust(inventory, build_workload(["x"], 2, **{"nvidia.com/gpu": "1"}), usage, 2)
    grown = adjust(inventory, build_workload(["x"], 2, **{"nvidia.com/gpu": "1"}), usage, 2)
    assert facts.pod_sets[0].claimed == {name_devices("c"): 2}
    object.__setattr__(grown.pod_sets[0], "requests", {"cpu": 1000, "nvidia.com/gpu": 3})
    assert grown.admission is not None
    limited = limit_to_admitted(grown, grown.admission, ["cpu", "nvidia.com/gpu"], RULES, lambda _: {})
    assert limited.pod_sets[0].requests["nvidia.com/gpu"] == 1


@pytest.mark.parametrize(
    ("expressions", "capacity", "is_judged"), [([], None, True), (["true"], None, False), ([], {"requests": {"memory": "1Gi"}}, False)]
)
def test_claims_are_named_as_not_judged_where_nodes_are_not_compared_by_all_that_they_ask_for(
    expressions: list[str], capacity: Json | None, is_judged: bool
):
    inventory = build_inventory({})
    exactly: Json = {"deviceClassName": "a", "selectors": [{"cel": {"expression": one}} for one in expressions]}
    requests = [{"name": "r", "exactly": exactly | ({"capacity": capacity} if capacity else {})}]
    inventory.observe_template(f"{NAMESPACE}/x", read_template(build_template("x", {"devices": {"requests": requests}})))
    on_nodes = NodeDevices(inventory, CLASSES)
    facts = adjust(inventory, build_workload(["x"], 1), on_nodes=on_nodes)
    assert facts.pod_sets[0].traits.unjudged == (() if is_judged else ("resourceClaims",))
    assert facts.pod_sets[0].requests == {"cpu": 1000, name_devices("a"): 1}
    assert adjust(inventory, build_workload(["x"], 1)).pod_sets[0].requests == {"cpu": 1000}


def test_devices_are_not_excluded_and_not_transformed():
    rules = ResourceRules(("example.com/",), (Transformation("nvidia.com/gpu", False, {"x": 1000}),), device_classes=CLASSES)
    requests = {"example.com/gpus": 5, "nvidia.com/gpu": 2, name_devices("a"): 3, name_devices("c"): 4, name_devices("unknown"): 7}
    assert compute_quota_requests(requests, rules) == {"x": 2, "example.com/gpus": 3, "nvidia.com/gpu": 4}


def test_a_pod_with_more_devices_than_were_admitted_says_which_template_is_to_blame():
    text = explain_excess({"cpu": 1, name_devices("a"): 5}, {"cpu": 1, name_devices("a"): 2}, "main")
    assert text.startswith("the pod claims more than was admitted of a pod of main (devices of class a: 3 more), and stays gated.")
    assert "ResourceClaimTemplate" in text


@pytest.mark.parametrize(("usage", "claimed"), [({"cpu": 2000, "old.com/gpus": 8}, 4), ({"cpu": 2000, "example.com/gpus": 2}, 1)])
def test_an_admission_without_any_mapped_resource_counts_by_the_templates(usage: dict[str, int], claimed: int):
    """The mapping had another resource when it was admitted."""
    facts = adjust(build_inventory({"x": [("a", 4)]}), build_workload(["x"], 2), usage, 2)
    assert facts.pod_sets[0].claimed == {name_devices("a"): claimed}


@pytest.mark.parametrize("usage", [{"cpu": 2000}, {"cpu": 2000, "pods": 2}, {"cpu": 2000, "memory": 0}])
def test_pods_that_were_admitted_free_of_charge_claim_nothing_by_another_template(usage: dict[str, int]):
    """With admin access. Else any user of such a namespace has devices without quota: by a template that comes after the admission."""
    facts = adjust(build_inventory({"x": [("a", 8)]}), build_workload(["x"], 2, memory="0"), usage, 2)
    assert facts.pod_sets[0].claimed == {}
    text = explain_excess({"cpu": 1000, name_devices("a"): 8}, facts.pod_sets[0].counted_requests, "main")
    assert "(devices of class a: 8 more)" in text
