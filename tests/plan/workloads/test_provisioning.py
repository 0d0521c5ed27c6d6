"""What is done about ProvisioningRequests: each state by a table, and whole lives with failures, evictions and lost writes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.admission import Admission, PodSetAdmission
from core.names import PROVISIONING_CONTENT, QUOTA_RESERVED
from core.plan.workloads.checks import GiveBack, count_attempts, plan_refused, reset_checks
from core.plan.workloads.desired_workload import find_changed_annotations
from core.plan.workloads.provisioning import (
    Drop,
    Make,
    SetState,
    WaitForProvider,
    build_active_condition,
    list_superseded,
    list_withdrawn,
    plan_provisioning,
)
from core.plan.workloads.provisioning_objects import build_template_name, build_wanted, list_needed_pod_sets, request_name
from core.state.check_facts import CheckFacts, ProvisioningConfig, RetryStrategy
from core.state.facts import FlavorFacts
from tests.builders import build_condition_json, build_flavor_json, build_pod_set_json, build_workload_json

Json = dict[str, Any]
NOW, BEFORE = "2026-02-02T00:00:00Z", "2026-01-01T00:00:00Z"
FLAVORS = {
    "gpu": FlavorFacts.read(build_flavor_json("gpu", nodeLabels={"pool": "gpu"}, tolerations=[{"key": "gpu", "operator": "Exists"}]))
}
CONFIG = ProvisioningConfig("config", "class", {"a": "1"}, retry=RetryStrategy(limit=2, base_s=10, max_s=15))
OWNER = [{"kind": "Workload", "name": "w", "uid": "uid-w", "controller": True}]


def build_workload(*pod_sets: Json, annotations: Json | None = None, reserved: str = BEFORE) -> Json:
    wire = build_workload_json(
        "w", pod_sets or (build_pod_set_json(count=2),), conditions=[build_condition_json(QUOTA_RESERVED, time=reserved)]
    )
    wire["metadata"]["annotations"] = annotations or {}
    return wire


def build_admission(wire: Json) -> Admission:
    given = (PodSetAdmission(p["name"], {"cpu": "gpu"}, {"cpu": 1}, p["count"]) for p in wire["spec"]["podSets"])
    return Admission("cq", tuple(given))


def entry(state: str = "Pending", **more: Any) -> Json:
    return {"name": "nodes", "state": state, "lastTransitionTime": BEFORE, "message": "", **more}


def request(wire: Json, *conditions: Json, attempt: int = 1, config: ProvisioningConfig = CONFIG, **status: Any) -> Json:
    made = build_wanted(wire, build_admission(wire), config, request_name("w", "nodes", attempt), FLAVORS).request
    made["metadata"] |= {"uid": f"pr-{attempt}", "resourceVersion": "1"}
    return made | {"status": {"conditions": list(conditions), **status}}


def plan(wire: Json, check: Json, *requests: Json, admitted: bool = False, config: ProvisioningConfig | None = CONFIG) -> Any:
    by_name = {found["metadata"]["name"]: found for found in requests}
    return plan_provisioning(wire, build_admission(wire), check, config, by_name, FLAVORS, admitted=admitted, now=NOW)


def judged(action: Any) -> Json:
    assert isinstance(action, SetState), action
    return action.entry


# --- states -------------------------------------------------------------------------------------------


def test_provisioning_request_that_does_not_exist_is_created_once():
    wire = build_workload()
    action = plan(wire, entry())
    assert isinstance(action, Make)
    assert action.wanted.request["metadata"]["name"] == "w-nodes-1"
    assert not isinstance(plan(wire, entry(message="ProvisioningRequest w-nodes-1 is pending"), request(wire)), Make)


@pytest.mark.parametrize(
    ("state", "kind", "admitted", "becomes"),
    [
        ("Pending", "Failed", False, "Retry"),
        ("Pending", "CapacityRevoked", False, "Retry"),
        ("Pending", "BookingExpired", False, "Retry"),
        ("Pending", "Provisioned", False, "Ready"),
        ("Pending", "Accepted", False, "Pending"),
        ("Ready", "Failed", False, "Retry"),
        ("Ready", "BookingExpired", False, "Retry"),
        ("Ready", "CapacityRevoked", False, "Retry"),
        ("Ready", "Provisioned", False, None),
        ("Ready", "Failed", True, None),
        ("Ready", "BookingExpired", True, None),
        ("Ready", "CapacityRevoked", True, "Retry"),
        ("Retry", "Failed", False, None),
        ("Rejected", "Failed", False, None),
    ],
)
def test_condition_of_a_provisioning_request_sets_the_check_state(state: str, kind: str, admitted: bool, becomes: str | None):
    wire = build_workload()
    action = plan(wire, entry(state), request(wire, build_condition_json(kind, message="so it is")), admitted=admitted)
    if becomes is None:
        assert action == WaitForProvider()
    else:
        check = judged(action)
        assert check["state"] == becomes
        assert "so it is" in check["message"]
        assert check["lastTransitionTime"] == (NOW if becomes != state else BEFORE)


@pytest.mark.parametrize(("failures", "state", "after"), [(0, "Retry", 10), (1, "Retry", 15), (2, "Rejected", None), (7, "Rejected", None)])
def test_attempts_are_counted_and_wait_longer_each_time(failures: int, state: str, after: int | None):
    wire, check = build_workload(), entry(retryCount=failures)
    action = plan(wire, check, request(wire, build_condition_json("Failed", message="none left"), attempt=failures + 1))
    got = judged(action)
    assert (got["state"], got.get("requeueAfterSeconds")) == (state, after)
    assert got["retryCount"] == failures + (state == "Retry")
    assert "none left" in got["message"]


@pytest.mark.parametrize(("attempt", "delay"), [(1, 60), (2, 120), (5, 960), (6, 1800), (10_000, 1800)])
def test_the_backoff_doubles_up_to_its_maximum(attempt: int, delay: int):
    assert RetryStrategy().compute_delay_s(attempt) == delay


def test_ready_provisioning_check_adds_annotations_and_node_selectors_to_pod_sets():
    wire = build_workload(build_pod_set_json("a"), build_pod_set_json("b"))
    config = ProvisioningConfig("config", "class", selectors=(("group", "NodeGroup"), ("zone", "Missing")))
    found = request(wire, build_condition_json("Provisioned"), config=config, provisioningClassDetails={"NodeGroup": "g-7"})
    check = judged(plan(wire, entry(), found, config=config))
    annotations = {
        "autoscaling.x-k8s.io/consume-provisioning-request": "w-nodes-1",
        "autoscaling.x-k8s.io/provisioning-class-name": "class",
    }
    assert check["podSetUpdates"] == [{"name": name, "annotations": annotations, "nodeSelector": {"group": "g-7"}} for name in ("a", "b")]


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        ([], "ProvisioningRequest w-nodes-1 is pending"),
        ([build_condition_json("Accepted", message="queued")], "queued"),
        ([build_condition_json("Accepted", message="queued"), build_condition_json("Provisioned", False, message="in 5 min")], "in 5 min"),
    ],
)
def test_the_providers_words_are_the_checks(conditions: list[Json], message: str):
    wire = build_workload()
    check = judged(plan(wire, entry(), request(wire, *conditions)))
    assert check == entry(message=message)
    assert plan(wire, check, request(wire, *conditions)) == WaitForProvider()


def test_a_request_for_something_else_is_dropped_first():
    wire = build_workload()
    other = ProvisioningConfig("config", "another class")
    assert isinstance(plan(wire, entry(), request(wire), config=other), Drop)
    assert plan(wire, entry("Ready"), request(wire), config=other) == WaitForProvider(), "what has been provisioned is used"


def test_provisioning_request_expired_in_an_earlier_reservation_is_dropped_without_a_retry():
    """Bookings always expire; who was preempted after that has lost no attempt by it."""
    old = request(build_workload(reserved=BEFORE), build_condition_json("Provisioned"), build_condition_json("BookingExpired"))
    assert isinstance(plan(build_workload(reserved=NOW), entry(), old), Drop)
    good = request(build_workload(reserved=BEFORE), build_condition_json("Provisioned"))
    assert judged(plan(build_workload(reserved=NOW), entry(), good))["state"] == "Ready", "nodes that are still booked are used"


def test_a_request_that_is_being_deleted_is_waited_for():
    wire = build_workload()
    found = request(wire)
    found["metadata"]["deletionTimestamp"] = NOW
    assert plan(wire, entry(), found) == WaitForProvider()


def test_another_workloads_request_is_left_alone():
    wire = build_workload()
    found = request(wire, build_condition_json("Provisioned"))
    found["metadata"]["ownerReferences"][0]["uid"] = "uid-other"
    refused = judged(plan(wire, entry(), found))
    assert refused["state"] == "Pending"
    assert "w-nodes-1" in refused["message"]
    assert list_superseded(wire, {"nodes": entry(retryCount=1)}, {"w-nodes-1": found, "w-nodes-2": request(wire, attempt=2)}) == []


def test_provisioning_check_without_its_config_waits_with_a_message():
    waits = judged(plan(build_workload(), entry(), config=None))
    assert waits["state"] == "Pending"
    assert "AdmissionCheck nodes" in waits["message"]
    assert plan(build_workload(), entry("Ready"), config=None) == WaitForProvider()


def test_ready_check_without_its_request_before_admission_becomes_pending():
    """It was given up with the quota that the workload had before, and was still seen when that came back."""
    found = judged(plan(build_workload(), entry("Ready", podSetUpdates=[])))
    assert found["state"] == "Pending"
    assert "w-nodes-1" in found["message"]
    assert "podSetUpdates" not in found
    assert plan(build_workload(), entry("Ready"), admitted=True) == WaitForProvider()
    assert plan(build_workload(build_pod_set_json(count=0)), entry("Ready")) == WaitForProvider(), "none was needed"


def test_earlier_attempts_go_when_the_next_one_is_there():
    wire, check = build_workload(), {"nodes": entry(retryCount=1)}
    first, second = request(wire), request(wire, attempt=2)
    assert list_superseded(wire, check, {"w-nodes-1": first}) == []
    assert list_superseded(wire, check, {"w-nodes-1": first, "w-nodes-2": second}) == [first]


@pytest.mark.parametrize(
    ("active", "holds", "finished", "condition", "goes"),
    [
        (False, False, False, "Accepted", True),
        (True, False, True, "Accepted", True),
        (True, False, False, "Accepted", False),  # it is queued again, and takes it up
        (False, True, False, "Accepted", False),  # its quota goes first
        (False, False, False, "Provisioned", True),
        (True, False, False, "Provisioned", True),  # booked for it, and it may wait for long
        (True, True, False, "Provisioned", False),
        (True, True, True, "Provisioned", True),
        (False, False, False, "Failed", False),
    ],
)
def test_provisioning_request_of_a_workload_that_cannot_use_it_is_withdrawn(
    active: bool, holds: bool, finished: bool, condition: str, goes: bool
):
    wire = build_workload()
    found = request(wire, build_condition_json(condition))
    wire["spec"]["active"] = active
    wire["status"]["conditions"] = [build_condition_json(QUOTA_RESERVED, holds), build_condition_json("Finished", finished)]
    assert list_withdrawn(wire, {"w-nodes-1": found}) == ([found] if goes else [])


@pytest.mark.parametrize(
    ("spec", "installed", "reason"),
    [
        ({}, True, "MissingParameters"),
        ({"parameters": {"apiGroup": "example.com", "kind": "Other", "name": "config"}}, True, "BadParametersRef"),
        ({"parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "none"}}, True, "ParametersNotFound"),
        ({"parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "config"}}, False, "NotInstalled"),
        ({"parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "config"}}, True, "Active"),
    ],
)
def test_provisioning_check_condition_names_its_missing_parts(spec: Json, installed: bool, reason: str):
    check = CheckFacts.read({"metadata": {"name": "nodes"}, "spec": {"controllerName": "c", **spec}})
    condition = build_active_condition(check, {"config": CONFIG}, installed=installed)
    assert (condition.reason, condition.status) == (reason, reason == "Active")


def test_a_config_is_read_with_the_defaults_of_the_api():
    bare = ProvisioningConfig.read({"metadata": {"name": "config"}, "spec": {"provisioningClassName": "class"}})
    assert bare == ProvisioningConfig("config", "class")
    spec = {
        "provisioningClassName": "class",
        "managedResources": ["gpu"],
        "retryStrategy": {"backoffLimitCount": 0},
        "podSetUpdates": {"nodeSelector": [{"key": "k", "valueFromProvisioningClassDetail": "D"}]},
        "podSetMergePolicy": "IdenticalPodTemplates",
    }
    full = ProvisioningConfig.read({"metadata": {"name": "config"}, "spec": spec})
    assert (full.managed_resources, full.retry, full.selectors) == (frozenset({"gpu"}), RetryStrategy(limit=0), (("k", "D"),))
    assert full.merge_policy == "IdenticalPodTemplates"


# --- objects --------------------------------------------------------------------------------------------


def build(wire: Json, config: ProvisioningConfig = CONFIG) -> Any:
    return build_wanted(wire, build_admission(wire), config, "w-nodes-1", FLAVORS)


def test_provisioning_pod_template_is_the_pod_set_without_topogate_gates():
    gates = [{"name": "kueue.x-k8s.io/topology"}, {"name": "kueue.x-k8s.io/admission"}, {"name": "example.com/own"}]
    containers = [{"name": "c", "resources": {"limits": {"gpu": "8", "cpu": "4"}, "requests": {"cpu": "1"}}}]
    wire = build_workload(build_pod_set_json(schedulingGates=gates, nodeSelector={"a": "b"}, containers=containers))
    (template,) = build(wire).templates
    spec = template["template"]["spec"]
    assert spec["schedulingGates"] == [{"name": "example.com/own"}]
    assert spec["nodeSelector"] == {"a": "b", "pool": "gpu"}
    assert spec["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    assert spec["containers"][0]["resources"]["requests"] == {"gpu": "8", "cpu": "1"}
    assert wire["spec"]["podSets"][0]["template"]["spec"]["schedulingGates"] == gates, "what is shared is not changed"


def test_parameters_of_the_job_win():
    wire = build_workload(annotations={"provreq.kueue.x-k8s.io/a": "2", "provreq.kueue.x-k8s.io/b": "3", "other": "4"})
    assert build(wire).request["spec"]["parameters"] == {"a": "2", "b": "3"}


def test_a_waiting_job_may_change_its_parameters():
    wire = build_workload(annotations={"provreq.kueue.x-k8s.io/a": "2", "provreq.kueue.x-k8s.io/b": "3", "other": "4"})
    changed = find_changed_annotations({"provreq.kueue.x-k8s.io/a": "5", "provreq.kueue.x-k8s.io/c": "6", "another": "7"}, wire)
    assert changed == {"provreq.kueue.x-k8s.io/a": "5", "provreq.kueue.x-k8s.io/b": None, "provreq.kueue.x-k8s.io/c": "6"}


def test_pod_sets_that_need_nothing_of_it_are_left_out():
    wire = build_workload(
        build_pod_set_json("driver"), build_pod_set_json("gpus", containers=[{"name": "c", "resources": {"limits": {"gpu": "1"}}}])
    )
    config = ProvisioningConfig("config", "class", managed_resources=frozenset({"gpu"}))
    assert [part["podTemplateRef"]["name"] for part in build(wire, config).request["spec"]["podSets"]] == ["ppt-w-nodes-1-gpus"]
    none = ProvisioningConfig("config", "class", managed_resources=frozenset({"tpu"}))
    check = judged(plan(wire, entry(), config=none))
    assert (check["state"], check.get("podSetUpdates")) == ("Ready", None)


@pytest.mark.parametrize(
    ("policy", "counts"),
    [(None, [1, 2, 4, 8]), ("IdenticalPodTemplates", [3, 4, 8]), ("IdenticalWorkloadSchedulingRequirements", [7, 8])],
)
def test_pod_sets_that_are_alike_are_asked_for_as_one(policy: str | None, counts: list[int]):
    image = {"name": "c", "image": "other", "resources": {"requests": {"cpu": "1"}}}
    wire = build_workload(
        build_pod_set_json("a", 1),
        build_pod_set_json("b", 2),
        build_pod_set_json("image", 4, containers=[image]),
        build_pod_set_json("larger", 8, cpu="2"),
    )
    wanted = build(wire, ProvisioningConfig("config", "class", merge_policy=policy))
    assert [part["count"] for part in wanted.request["spec"]["podSets"]] == counts
    assert [t["metadata"]["name"] for t in wanted.templates] == [p["podTemplateRef"]["name"] for p in wanted.request["spec"]["podSets"]]


def test_provisioning_content_differs_between_flavors():
    wire = build_workload()
    first = build(wire).request["metadata"]["annotations"][PROVISIONING_CONTENT]
    other = {"gpu": FlavorFacts.read(build_flavor_json("gpu", nodeLabels={"pool": "other"}))}
    moved = build_wanted(wire, build_admission(wire), CONFIG, "w-nodes-1", other).request
    assert moved["metadata"]["annotations"][PROVISIONING_CONTENT] != first
    assert moved["spec"] == build(wire).request["spec"]


# Built, since strings that long cost seconds where they are drawn by a pattern.
labels = st.builds(
    lambda first, pairs, last: f"{first}{'x-' * pairs}{last}"[:62] + last,
    *[st.sampled_from("ab07"), st.integers(0, 31), st.sampled_from("ab07")],
)
names = st.lists(labels, min_size=1, max_size=3).map(".".join)


@given(names, names, st.integers(1, 2**31), labels, labels)
def test_provisioning_names_are_valid_and_unique_for_attempts_and_pod_sets(
    workload_name: str, check: str, attempt: int, one: str, other: str
):
    name = request_name(workload_name, check, attempt)
    for made in (name, build_template_name(name, one)):
        assert len(made) <= 253
        assert all(part and part[0] != "-" and part[-1] != "-" for part in made.split("."))
    assert name == request_name(workload_name, check, attempt)
    assert name != request_name(workload_name, check, attempt + 1)
    assert (build_template_name(name, one) == build_template_name(name, other)) == (one == other)


# --- lives ------------------------------------------------------------------------------------------------


class Life:
    """One workload, its check and its requests, as the API server has them; every write may be lost before it is done."""

    def __init__(self) -> None:
        self.check, self.requests = entry(), dict[str, Json]()
        self.reservation = 0
        self.made: list[str] = []
        self.failures = 0  # that were the provider's, in the reservation that they were asked for in
        self.rejected = False

    @property
    def wire(self) -> Json:
        return build_workload(reserved=f"2026-01-01T00:{self.reservation // 60:02}:{self.reservation % 60:02}Z")

    def step(self) -> bool:
        """Does what is planned; says whether there was anything to do."""
        refused = plan_refused([self.check])
        if isinstance(refused, GiveBack):
            self.rejected = refused.deactivates
            self.evict()
            return True
        action = plan(self.wire, self.check, *self.requests.values())
        match action:
            case Make(wanted):
                name = wanted.request["metadata"]["name"]
                assert name not in self.requests
                wanted.request["metadata"] |= {"uid": f"{name}-{len(self.made)}", "resourceVersion": "1"}
                self.requests[name] = wanted.request | {"status": {"conditions": []}}
                self.made.append(name)
            case Drop(found):
                del self.requests[found["metadata"]["name"]]
            case SetState(changed):
                self.check = changed
            case _:
                return False
        for old in list_superseded(self.wire, {"nodes": self.check}, self.requests):
            del self.requests[old["metadata"]["name"]]
        return True

    def settle(self) -> None:
        for _ in range(20):
            if self.rejected or not self.step():
                return
        raise AssertionError("it never comes to rest")

    def evict(self) -> None:
        (self.check,) = reset_checks([self.check], NOW)
        without_quota = {**self.wire, "status": {}}
        for old in list_withdrawn(without_quota, self.requests):
            del self.requests[old["metadata"]["name"]]
        self.reservation += 1

    def say(self, kind: str) -> None:
        """The provider's condition on the request of the current attempt."""
        found = self.requests.get(request_name("w", "nodes", count_attempts(self.check)))
        if found is None or any(condition["type"] in ("Failed", "BookingExpired") for condition in found["status"]["conditions"]):
            return
        if (kind == "Provisioned") == any(condition["type"] == "Provisioned" for condition in found["status"]["conditions"]):
            return
        self.failures += kind != "Provisioned"
        found["status"]["conditions"].append(build_condition_json(kind, message=kind))


@given(st.lists(st.sampled_from(["Provisioned", "Failed", "BookingExpired", "evict", "restart", "deleted"]), max_size=30))
def test_every_failure_is_counted_once_whatever_happens_between(events: list[str]):
    life = Life()
    life.settle()
    for event in events:
        if life.rejected:
            break
        if event == "evict":
            life.evict()
        elif event == "restart":
            life.step()  # and the process is gone before the next
        elif event == "deleted":
            life.requests.clear()
        else:
            life.settle()
            if event == "BookingExpired" and life.check["state"] != "Ready":
                continue
            if event == "Failed" and life.check["state"] == "Ready":
                continue
            life.say(event)
        if event != "restart":
            life.settle()
        assert len(life.requests) <= 1 or event == "restart"
        assert life.failures <= CONFIG.retry.limit + 1
        assert life.rejected == (life.failures == CONFIG.retry.limit + 1)
        if not life.rejected:
            assert count_attempts(life.check) == life.failures + 1
            assert request_name("w", "nodes", count_attempts(life.check)) in life.requests or event == "restart"


def test_pod_sets_without_pods_are_not_in_a_request_for_nodes():
    """Former defect: the CRD of ProvisioningRequests refuses a pod set of 0 pods, every 30 s, while quota was held."""
    pod_sets = [{"name": name, "count": count, "template": {"spec": {}}} for name, count in (("head", 1), ("workers", 0))]
    needed = list_needed_pod_sets({"spec": {"podSets": pod_sets}}, ProvisioningConfig("c", "class"))
    assert [pod_set["name"] for pod_set in needed] == ["head"]


def test_earlier_attempts_go_though_another_check_needs_no_request():
    wire, checks = build_workload(), {"nodes": entry(retryCount=1), "others": entry()}
    first, second = request(wire), request(wire, attempt=2)
    assert list_superseded(wire, checks, {"w-nodes-1": first, "w-nodes-2": second}) == [first]
    assert list_superseded(wire, checks, {"w-nodes-1": first}) == []


def test_retry_count_of_any_size_costs_nothing():
    wire, check = build_workload(), {"nodes": entry(retryCount=2**31 - 1)}
    last, former = request(wire, attempt=2**31), request(wire, attempt=2**31 - 1)
    assert list_superseded(wire, check, {one["metadata"]["name"]: one for one in (last, former)}) == [former]
