"""Claims of queued pods (DRA): quota counts their devices, nodes bound them if the gate says so, and what comes late is judged again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from core.model.claimed_devices import UNCOUNTED_DEVICES, name_devices
from core.model.configuration import ResourceRules
from core.names import HOSTNAME_LABEL, REASON_MISCONFIGURED
from core.placement.algorithms.profile import STANDARD
from core.plan.steps import api_resources as r
from core.queueing.cycle.cycle import Cycle
from core.queueing.flavors.outcome import Admissible, NotAdmissible
from core.resource import Obj
from core.runtime.http.client import Client
from core.state.facts import WorkloadFacts
from reconciler.observe.observed import Observed
from tests.builders import (
    NAMESPACE,
    RACK,
    Node,
    build_cluster_queue_json,
    build_flavor_json,
    build_local_queue_json,
    build_node_json,
    build_pod_json,
    build_pod_set_json,
    build_topology_json,
    build_workload_json,
)
from tests.podgroups.devices import CLASS, TEMPLATE, build_claim, build_claim_spec, build_device_class, build_resource_slice, build_template
from tests.reconciler.observe.test_volumes import versioned
from tests.reconciler.pods.test_pods_to_come import settle
from tests.runtime.fakes import ManualClock

GPUS, ROW = "example.com/gpus", name_devices(CLASS)
CLAIMS = [{"name": "gpu", "resourceClaimTemplateName": TEMPLATE}]
NODES = ("a0", "a1", "b0", "b1")  # of racks ra and rb
KEY = f"{NAMESPACE}/w"


def cluster(*objects: Obj, classes: Mapping[str, str] | None = None, bounds: bool = True, quota: int = 100) -> Observed:
    """Four nodes in two racks, and a queue with quota for GPUs; the class of devices is there."""
    rules = ResourceRules(device_classes={CLASS: GPUS} if classes is None else classes)
    found = Observed(Client.make_offline(), ManualClock(), resource_rules=rules, bounds_devices=bounds)
    assert found.devices is not None
    found.namespaces.put(versioned({"metadata": {"name": NAMESPACE}}))
    found.topologies.put(versioned(build_topology_json("t", [RACK, HOSTNAME_LABEL])))
    found.flavors.put(versioned(build_flavor_json("tas", "t")))
    queue = build_cluster_queue_json("cq", {"tas": "100"})
    (group,) = queue["spec"]["resourceGroups"]
    group["coveredResources"].append(GPUS)
    group["flavors"][0]["resources"].append({"name": GPUS, "nominalQuota": str(quota)})
    found.cluster_queues.put(versioned(queue))
    found.local_queues.put(versioned(build_local_queue_json("lq", "cq")))
    for name in NODES:
        labels = {RACK: f"r{name[0]}", HOSTNAME_LABEL: name}
        found.nodes.put(versioned(build_node_json(Node(name, labels, {"cpu": 8000, "pods": 10}))))
    for informer in found.devices.informers:
        informer.fill([])
    for obj in (build_device_class(), *objects):
        put(found, obj)
    return found


def put(found: Observed, obj: Obj, version: int = 1) -> None:
    devices = found.devices
    assert devices is not None
    informer = next(one for one in devices.informers if one.resource.kind == obj["kind"])
    namespace = {"namespace": NAMESPACE} if informer.resource.namespaced else {}
    informer.put({**obj, "metadata": {**obj["metadata"], **namespace, "resourceVersion": str(version)}})


def make_for(pod: str, claim: Obj, uid: str = "", *, entry: str = "gpu", **owner: Any) -> Obj:
    """A claim as the resource claim controller makes it for a pod."""
    reference = {"kind": "Pod", "name": pod, "uid": uid or f"uid-{pod}", "controller": True, **owner}
    notes = {"resource.kubernetes.io/pod-claim-name": entry} if entry else {}
    return {**claim, "metadata": {"name": claim["metadata"]["name"], "ownerReferences": [reference], "annotations": notes}}


def delete(found: Observed, kind: str) -> None:
    """All objects of a kind."""
    devices = found.devices
    assert devices is not None
    next(one for one in devices.informers if one.resource.kind == kind).fill([])


async def count(found: Observed) -> None:
    """Everything that changed is counted and read again."""
    assert found.counted is not None
    await found.counted.settle()
    await settle(found)


def submit(found: Observed, count: int = 2, claims: list[dict[str, str]] | None = None, **spec: Any) -> None:
    pod_set = build_pod_set_json(count=count, topology={"required": RACK}, resourceClaims=CLAIMS if claims is None else claims, **spec)
    found.workloads.put(build_workload_json("w", [pod_set]))


def judge(found: Observed) -> Admissible | NotAdmissible:
    (verdict,) = Cycle(found.state, STANDARD).run()
    return verdict.outcome


def read(found: Observed) -> WorkloadFacts:
    return found.state.workloads.facts[KEY]


def find_usage(found: Observed) -> dict[str, int]:
    outcome = judge(found)
    assert isinstance(outcome, Admissible), outcome
    return dict(outcome.admission.pod_sets[0].usage)


def list_slices(free: Mapping[str, int]) -> list[Obj]:
    """A pool for each node, as drivers make them."""
    return [build_resource_slice(node, number, node=node) for node, number in free.items()]


# --- quota ----------------------------------------------------------------------------------------------------


def test_devices_of_a_template_are_counted_once_for_each_pod():
    found = cluster(build_template(spec=build_claim_spec(3)), bounds=False)
    submit(found, 2)
    assert find_usage(found) == {"cpu": 2000, GPUS: 6}


def test_a_job_that_claims_more_devices_than_the_quota_waits_for_quota():
    found = cluster(build_template(spec=build_claim_spec(3)), bounds=False, quota=5)
    submit(found, 2)
    outcome = judge(found)
    assert isinstance(outcome, NotAdmissible)
    assert f"requests 6 {GPUS}, more than its whole nominal quota of 5" in outcome.message


def test_several_claims_and_classes_count_as_the_resources_of_their_mappings():
    both = {"devices": {"requests": [*build_claim_spec(1)["devices"]["requests"], {"name": "b", "exactly": {"deviceClassName": "nic"}}]}}
    classes = {CLASS: GPUS, "nic": GPUS}
    found = cluster(build_device_class("nic"), build_template(spec=both), build_template("two", build_claim_spec(2)), classes=classes)
    submit(found, 1, [*CLAIMS, {"name": "same", "resourceClaimTemplateName": TEMPLATE}, {"name": "c", "resourceClaimTemplateName": "two"}])
    assert read(found).pod_sets[0].claimed == {ROW: 4, name_devices("nic"): 2}


def test_without_the_gate_nodes_are_not_compared_by_devices():
    found = cluster(build_template(), bounds=False)
    submit(found)
    outcome = judge(found)
    assert isinstance(outcome, Admissible)
    assert outcome.choices[0].unjudged == ("resourceClaims",)
    assert all(ROW not in node.state.allocatable for node in found.state.nodes.values())


# --- what is not counted ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("objects", "claims", "says"),
    [
        pytest.param([], CLAIMS, f"there is no ResourceClaimTemplate one-gpu in namespace {NAMESPACE}; create it", id="no template"),
        pytest.param(
            [build_template()], [{"name": "g", "resourceClaimName": "ours"}], "ResourceClaim ours is for several pods", id="shared"
        ),
        pytest.param([build_template(spec=build_claim_spec(deviceClassName="fpga"))], CLAIMS, f"has {CLASS}", id="class without quota"),
        pytest.param([build_template(spec=build_claim_spec(allocationMode="All"))], CLAIMS, "exactly.allocationMode All is not", id="all"),
        pytest.param(
            [build_template(spec={"devices": {"requests": [{"name": "x", "firstAvailable": [{"name": "y"}]}]}})],
            CLAIMS,
            "spec.spec.devices.requests[x].firstAvailable is not served: each request names one DeviceClass",
            id="prioritized list",
        ),
        pytest.param(
            [build_template(spec={"devices": {**build_claim_spec()["devices"], "constraints": [{"matchAttribute": "a/b"}]}})],
            CLAIMS,
            "devices.constraints is not served",
            id="constraints",
        ),
        pytest.param([build_template(spec={"devices": {}})], CLAIMS, "devices.requests, which is empty, is not served", id="empty"),
        pytest.param(
            [build_template(spec={"devices": {"requests": build_claim_spec()["devices"]["requests"] * 10_000}})],
            CLAIMS,
            "devices.requests with 10000 entries, more than 32, is not served",
            id="10,000 requests",
        ),
        pytest.param([build_template(spec=build_claim_spec(-1))], CLAIMS, "exactly.count -1 is not served", id="negative"),
    ],
)
def test_claims_that_cannot_be_counted_make_the_job_wait_with_the_reason(objects: list[Obj], claims: list[dict[str, str]], says: str):
    found = cluster(*objects)
    submit(found, claims=claims)
    outcome = judge(found)
    assert isinstance(outcome, NotAdmissible)
    assert outcome.reason == REASON_MISCONFIGURED
    assert says in outcome.message
    assert "pod set main: " in outcome.message


@pytest.mark.parametrize("mode", ["ExactCount", "All"])
@pytest.mark.parametrize("device_class", [CLASS, "unmapped"])
async def test_devices_with_admin_access_are_free_of_charge(mode: str, device_class: str):
    """The API server accepts such requests only in namespaces that an administrator has labelled."""
    watching = build_claim_spec(allocationMode=mode, adminAccess=True, deviceClassName=device_class)["devices"]["requests"]
    own = [{"name": "own", "exactly": {"deviceClassName": CLASS, "count": 2}}]
    found = cluster(build_template(spec={"devices": {"requests": [*watching, *own]}}), *list_slices({"a0": 2}))
    await count(found)
    submit(found, 1)
    outcome = judge(found)
    assert isinstance(outcome, Admissible)
    assert dict(outcome.admission.pod_sets[0].usage)[GPUS] == 2
    assert outcome.choices[0].unjudged == ("resourceClaims",)


async def test_tolerations_of_a_request_with_admin_access_do_not_unbound_nodes_for_the_others():
    watching = build_claim_spec(adminAccess=True, tolerations=[{"operator": "Exists"}])["devices"]["requests"]
    own = [{"name": "own", "exactly": {"deviceClassName": CLASS, "count": 2}}]
    found = cluster(build_template(spec={"devices": {"requests": [*watching, *own]}}), *list_slices({"a0": 2}))
    await count(found)
    submit(found, 2)
    assert isinstance(judge(found), NotAdmissible)  # no node has devices for the second pod


def test_a_job_that_only_watches_devices_needs_no_quota_for_them():
    found = cluster(build_template(spec=build_claim_spec(adminAccess=True)), bounds=False, quota=0)
    submit(found)
    assert find_usage(found).get(GPUS, 0) == 0


def test_claims_of_an_api_that_is_not_listed_make_the_job_wait():
    found = cluster(build_template())
    assert found.devices is not None
    found.devices.are_missing = True
    submit(found)
    outcome = judge(found)
    assert isinstance(outcome, NotAdmissible)
    assert "claims of its pods cannot be counted: the API server does not serve" in outcome.message


async def test_quota_alone_reads_no_slices_and_waits_for_templates_and_classes_only():
    rules = ResourceRules(device_classes={CLASS: GPUS})
    found = Observed(Client.make_offline(), ManualClock(), resource_rules=rules)
    assert found.devices is not None
    assert r.RESOURCE_SLICES not in {informer.resource for informer in found.devices.informers}
    found.devices.templates.fill([])
    submit(found)
    assert "have not been listed yet" in read(found).refused
    found.devices.classes.fill([])
    put(found, build_device_class())
    put(found, build_template())
    for notify in found.devices.on_listed:
        notify()
    await settle(found)
    assert read(found).refused == ""


@pytest.mark.parametrize("number", [2**62, 2**63 - 1])
def test_counts_near_the_largest_number_are_cut_where_no_quota_has_them(number: int):
    found = cluster(build_template(spec=build_claim_spec(number)), *list_slices({"a0": 8}))
    submit(found, 1_000, [*CLAIMS, {"name": "again", "resourceClaimTemplateName": TEMPLATE}])
    outcome = judge(found)
    assert isinstance(outcome, NotAdmissible)
    assert "more than its whole nominal quota of 100" in outcome.message


@pytest.mark.parametrize("number", [64, 65, 10_000])
def test_a_pod_with_more_than_64_claims_is_not_counted(number: int):
    found = cluster(build_template(), bounds=False, quota=10_000)
    submit(found, 2, [{"name": f"c{number}", "resourceClaimTemplateName": TEMPLATE} for number in range(number)])
    if number <= 64:
        assert find_usage(found)[GPUS] == 2 * number
    else:
        assert f"spec.resourceClaims has {number} entries; at most 64 are counted" in read(found).refused


# --- what comes late ------------------------------------------------------------------------------------------------


async def test_a_waiting_job_is_judged_again_when_its_template_comes():
    found = cluster(bounds=False)
    submit(found)
    assert isinstance(judge(found), NotAdmissible)
    woken: list[int] = []
    found.state.on_free.append(lambda: woken.append(1))
    put(found, build_template())
    await settle(found)
    assert woken
    assert find_usage(found)[GPUS] == 2


async def test_a_waiting_job_is_judged_again_when_its_class_comes():
    found = cluster(build_template(), bounds=False)
    delete(found, "DeviceClass")
    submit(found)
    outcome = judge(found)
    assert isinstance(outcome, NotAdmissible)
    assert f"there is no DeviceClass {CLASS}; create it" in outcome.message
    put(found, build_device_class())
    await settle(found)
    assert find_usage(found)[GPUS] == 2


async def test_a_waiting_job_waits_when_its_template_is_deleted():
    found = cluster(build_template(), bounds=False)
    submit(found)
    delete(found, "ResourceClaimTemplate")
    await settle(found)
    assert isinstance(judge(found), NotAdmissible)


async def test_a_template_among_ten_thousand_changes_the_jobs_that_name_it_alone():
    found = cluster(*(build_template(f"t{number}") for number in range(10_000)), build_template(), bounds=False)
    submit(found)
    assert read(found).pod_sets[0].claimed == {ROW: 1}
    put(found, build_template("t77", build_claim_spec(5)), 2)
    assert list(found._to_read._keys) == []
    put(found, build_template(spec=build_claim_spec(5)), 2)
    await settle(found)
    assert read(found).pod_sets[0].claimed == {ROW: 5}


# --- after the admission ---------------------------------------------------------------------------------------------


def admit(found: Observed, count: int, gpus: int, *, claims: list[dict[str, str]] | None = None) -> None:
    """A workload with a place for its pods, of which quota for so many GPUs is reserved."""
    outcome_free = build_pod_set_json(count=count, topology={"required": RACK}, resourceClaims=CLAIMS if claims is None else claims)
    given = {
        "name": "main",
        "flavors": {"cpu": "tas", GPUS: "tas"},
        "resourceUsage": {"cpu": str(count), GPUS: str(gpus)},
        "count": count,
        "topologyAssignment": {
            "levels": [HOSTNAME_LABEL],
            "slices": [{"domainCount": 1, "valuesPerLevel": [{"universal": "a0"}], "podCounts": {"universal": count}}],
        },
    }
    conditions = [{"type": name, "status": "True"} for name in ("QuotaReserved", "Admitted")]
    admission = {"clusterQueue": "cq", "podSetAssignments": [given]}
    found.workloads.put(build_workload_json("w", [outcome_free], admission=admission, conditions=conditions))


@pytest.mark.parametrize(
    ("template", "claimed"),
    [
        (build_claim_spec(2), {ROW: 2}),
        (build_claim_spec(5), {ROW: 2}),
        (build_claim_spec(allocationMode="All"), {ROW: 2}),
        (None, {ROW: 2}),
    ],
    ids=["same", "larger", "not countable", "gone"],
)
def test_an_admitted_job_keeps_the_devices_that_quota_was_reserved_for(template: Obj | None, claimed: dict[str, int]):
    found = cluster(*([] if template is None else [build_template(spec=template)]))
    admit(found, 3, 6)
    assert read(found).pod_sets[0].claimed == claimed
    assert read(found).refused == ""
    assert found.state.quota.get_usage("cq")["tas", GPUS] == 6


def test_devices_of_a_resource_that_containers_request_too_are_told_apart_in_the_admission():
    found = cluster(build_template(spec=build_claim_spec(5)))
    containers = [{"name": "c", "resources": {"requests": {"cpu": "1", GPUS: "3"}}}]
    admit(found, 2, 10)
    workload = found.workloads.store.get(KEY)
    assert workload is not None
    workload["spec"]["podSets"][0]["template"]["spec"]["containers"] = containers
    found.workloads.put({**workload, "metadata": {**workload["metadata"], "resourceVersion": "2"}})
    assert read(found).pod_sets[0].claimed == {ROW: 2}  # 10 for 2 pods, less the 3 of its container


async def test_a_gated_pod_shows_that_its_template_has_changed():
    found = cluster(build_template())
    pod = build_pod_json("p", workload="w", gated=True)
    pod["spec"]["resourceClaims"] = CLAIMS
    found.pods.put(versioned(pod))
    assert found.pod_facts[f"{NAMESPACE}/p"].claimed == {ROW: 1}
    put(found, build_template(spec=build_claim_spec(4)), 2)
    await settle(found)
    assert found.pod_facts[f"{NAMESPACE}/p"].claimed == {ROW: 4}
    delete(found, "ResourceClaimTemplate")
    await settle(found)
    assert found.pod_facts[f"{NAMESPACE}/p"].claimed == {UNCOUNTED_DEVICES: 1}
    put(found, make_for("p", build_claim("c")))
    await settle(found)
    assert found.pod_facts[f"{NAMESPACE}/p"].claimed == {ROW: 1}  # its claim was made before


async def test_a_gated_pod_that_claims_other_devices_brings_its_workload_back():
    found, seen = cluster(build_template()), list[str]()
    found.on_pod_read.append(lambda pod: seen.append(pod["metadata"]["name"]))
    pod = build_pod_json("p", workload="w", gated=True)
    pod["spec"]["resourceClaims"] = CLAIMS
    found.pods.put(versioned(pod))
    put(found, build_template(spec=build_claim_spec(4)), 2)
    await settle(found)
    assert seen == ["p"]


@pytest.mark.parametrize(
    ("claim", "claimed"),
    [
        pytest.param(make_for("p", build_claim("c")), 1, id="its own"),
        pytest.param(make_for("p", build_claim("c"), "before"), 4, id="of a pod that had its name before"),
        pytest.param(make_for("p", build_claim("c"), controller=False), 4, id="of an owner that is no controller"),
        pytest.param(make_for("p", build_claim("c"), kind="Job"), 4, id="of an owner that is no pod"),
        pytest.param(make_for("p", build_claim("c"), entry=""), 4, id="for an extended resource"),
        pytest.param(make_for("p", build_claim("c"), entry="other"), 4, id="for an entry that it has not"),
    ],
)
async def test_a_pod_has_the_claim_of_its_uid_and_its_entry_alone(claim: Obj, claimed: int):
    found = cluster(build_template(spec=build_claim_spec(4)))
    pod = build_pod_json("p", workload="w", gated=True)
    pod["spec"]["resourceClaims"] = CLAIMS
    found.pods.put(versioned(pod))
    put(found, claim)
    await settle(found)
    assert found.pod_facts[f"{NAMESPACE}/p"].claimed == {ROW: claimed}


async def test_ten_thousand_claims_of_one_entry_are_all_counted():
    """Any user can make claims for a pod by hand: they show that it claims more than was admitted."""
    found = cluster(build_template(spec=build_claim_spec(4)))
    pod = build_pod_json("p", workload="w", gated=True)
    pod["spec"]["resourceClaims"] = [{**CLAIMS[0], "name": f"e{number}"} for number in range(64)]
    found.pods.put(versioned(pod))
    for number in range(10_000):
        put(found, make_for("p", build_claim(f"c{number}", spec=build_claim_spec(1)), entry="e7"))
    await count(found)
    assert found.pod_facts[f"{NAMESPACE}/p"].claimed == {ROW: 10_000 + 63 * 4}


async def test_each_entry_of_a_pod_counts_by_its_own_claim():
    found = cluster(build_template(spec=build_claim_spec(4)))
    pod = build_pod_json("p", workload="w", gated=True)
    pod["spec"]["resourceClaims"] = [*CLAIMS, {"name": "more", "resourceClaimTemplateName": TEMPLATE}]
    found.pods.put(versioned(pod))
    put(found, make_for("p", build_claim("c")))
    put(found, make_for("p", build_claim("extended"), entry=""))
    await settle(found)
    assert found.pod_facts[f"{NAMESPACE}/p"].claimed == {ROW: 1 + 4}


async def test_devices_of_a_claim_with_another_owner_count_on_the_node_of_their_holder():
    """Any user can write an owner reference; `reservedFor` is kube-scheduler's."""
    found = cluster(*list_slices({"a0": 4}))
    await count(found)
    pod = build_pod_json("p", node="a0", phase="Running")
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "c"}]
    found.pods.put(versioned(pod))
    claim = make_for("another", build_claim("c", [("a0", "a0-0")]))
    claim["status"]["reservedFor"] = [{"resource": "pods", "name": "p", "uid": "uid-p"}]
    put(found, claim)
    await count(found)
    assert found.pod_facts[f"{NAMESPACE}/p"].requests[ROW] == 1


async def test_events_that_change_no_claim_and_no_template_read_nothing_again():
    found = cluster(build_template(), bounds=False)
    submit(found)
    pod = build_pod_json("p", workload="w", gated=True)
    found.pods.put(versioned({**pod, "spec": {**pod["spec"], "resourceClaims": CLAIMS}}))
    claim = make_for("p", build_claim("c"))
    put(found, claim)
    await settle(found)
    woken: list[int] = []
    found.state.on_free.append(lambda: woken.append(1))
    noted = {**build_template(), "metadata": {**build_template()["metadata"], "labels": {"a": "b"}}}
    put(found, noted, 2)
    put(found, {**claim, "metadata": {**claim["metadata"], "labels": {"a": "b"}}}, 2)
    assert [list(again._keys) for again in found.again] == [[]] * len(found.again)
    put(found, make_for("p", build_claim("c", [("a0", "a0-0")])), 3)
    await settle(found)
    assert woken == []  # a claim of a gated pod frees nothing
