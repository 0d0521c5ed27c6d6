"""Jobs that ask for a PodGroup: their pods are made members of one, and whatever is wrong with the wish is told at once."""

from __future__ import annotations

import copy
import re
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.jobs.annotation_catalog import GROUPED, OF_A_TEMPLATE
from core.jobs.kinds.jobset import JobSet
from core.jobs.kinds.pod_kinds import list_pod_kinds
from core.jobs.kinds.registry import KINDS
from core.jobs.podgroup_annotation import Grouping
from core.model.gates import POD_GROUPS, ChosenGates
from core.names import (
    MEMBER_OF_LABEL,
    PODGROUP_GATE,
    PODGROUP_PLACED_BY,
    PODGROUP_TOPOLOGY,
    QUEUE_NAME_LABEL,
    REQUIRED_TOPOLOGY,
    SLICE_SIZE,
    WORKLOAD_REQUIRED_TOPOLOGY,
)
from tests.strategies import scale_examples
from tests.webhook.asking import Webhook, apply, get_causes, patch_of
from tests.webhook.reviews.test_misshapen import JSON, places, replaced
from webhook.lookup import LookupFailed
from webhook.registration import MUTATE_GROUP, VALIDATE_GROUP, build_hook_path
from webhook.review import Reviews

BLOCK, RACK = "cloud.provider.com/topology-block", "cloud.provider.com/topology-rack"
SHOWN = f"metadata.annotations[{PODGROUP_TOPOLOGY}]"
BY_NAME: dict[str, Grouping] = {kind.kind: kind for kind in (*KINDS, *list_pod_kinds()) if isinstance(kind, Grouping)}
Obj = dict[str, Any]


def build_template(**more: Any) -> Obj:
    return {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "registry.example/c:1"}], **more}}


def build_object(kind: str, text: str | None = RACK, **metadata: Any) -> Obj:
    """An object that asks for a group and has two templates, if its kind can."""
    specs: dict[str, Obj] = {
        "Job": {"parallelism": 4, "completions": 4, "template": build_template()},
        "JobSet": {
            "replicatedJobs": [
                {"name": name, "replicas": 2, "template": {"spec": {"parallelism": 2, "template": build_template()}}} for name in ("a", "b")
            ]
        },
        "MPIJob": {
            "mpiReplicaSpecs": {"Launcher": {"template": build_template()}, "Worker": {"replicas": 3, "template": build_template()}}
        },
        "LeaderWorkerSet": {
            "replicas": 2,
            "leaderWorkerTemplate": {"size": 3, "leaderTemplate": build_template(), "workerTemplate": build_template()},
        },
    }
    spec = specs[kind]
    own = {"name": "train", "namespace": "team-a", "annotations": {} if text is None else {PODGROUP_TOPOLOGY: text}, **metadata}
    of = BY_NAME[kind]
    return {"apiVersion": f"{of.group}/{of.version}", "kind": kind, "metadata": own, "spec": spec}


def get_path(action: str, kind: str) -> str:
    of = BY_NAME[kind]
    return build_hook_path(action, of.group, of.version, kind)


def mutated(obj: Obj, old: Obj | None = None, webhook: Webhook | None = None, **changes: Any) -> Obj:
    response = (webhook or Webhook()).ask(get_path(MUTATE_GROUP, obj["kind"]), obj, old, **changes)
    assert response["allowed"]
    assert "warnings" not in response
    return apply(obj, patch_of(response))


def validate_object(obj: Obj, old: Obj | None = None, webhook: Webhook | None = None) -> Obj:
    return (webhook or Webhook()).ask(get_path(VALIDATE_GROUP, obj["kind"]), obj, old)


def list_templates(obj: Obj) -> list[Obj]:
    return [cast("Obj", role.template) for role in BY_NAME[obj["kind"]].list_roles(obj)]


def list_groups(obj: Obj) -> list[str | None]:
    return [one["metadata"]["labels"].get(MEMBER_OF_LABEL) for one in list_templates(obj)]


def test_documented_kinds_of_pod_groups_equal_the_supported_kinds():
    assert set(BY_NAME) == set(GROUPED)


# --- membership -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", GROUPED)
def test_pods_of_all_templates_are_members_of_one_group_and_wait(kind: str):
    obj = build_object(kind)
    stored = mutated(obj)
    (name,) = set(list_groups(stored))
    assert name is not None
    assert re.fullmatch(f"{kind.lower()}-train-[0-9a-f]{{8}}", name)
    for one in list_templates(stored):
        assert one["spec"]["schedulingGates"] == [{"name": PODGROUP_GATE}]
        assert one["metadata"]["labels"]["app"] == "a"
    assert validate_object(stored) == {"uid": "4f0c", "allowed": True}


@pytest.mark.parametrize("kind", GROUPED)
def test_nothing_else_of_it_is_touched_and_without_the_annotation_nothing_at_all(kind: str):
    stored = mutated(build_object(kind))
    for one in list_templates(stored):
        del one["metadata"]["labels"][MEMBER_OF_LABEL], one["spec"]["schedulingGates"]
    assert stored == build_object(kind)
    assert mutated(build_object(kind, None)) == build_object(kind, None)
    assert validate_object(build_object(kind, None)) == {"uid": "4f0c", "allowed": True}


def test_a_job_of_the_same_name_that_comes_later_has_another_group_and_one_that_is_asked_about_again_the_same():
    first, again, later = (mutated(build_object("Job"), uid=uid) for uid in ("1", "1", "2"))
    assert list_groups(first) == list_groups(again) != list_groups(later)


def test_a_copy_of_another_job_does_not_join_that_ones_group():
    stored = mutated(build_object("Job"), uid="1")
    copied = mutated(stored, uid="2")
    assert list_groups(copied) != list_groups(stored)
    assert list_templates(copied)[0]["spec"]["schedulingGates"] == [{"name": PODGROUP_GATE}]


@pytest.mark.parametrize(
    ("metadata", "begins"),
    [
        ({"name": "n" * 63}, "job-" + "n" * 50 + "-"),
        ({"name": None, "generateName": "train-"}, "job-train-"),
        ({"name": "n" * 49 + ".b"}, "job-" + "n" * 49 + "-"),
    ],
)
def test_the_name_of_a_group_can_be_a_label_and_the_name_of_an_object(metadata: Obj, begins: str):
    given = {key: value for key, value in {**build_object("Job")["metadata"], **metadata}.items() if value is not None}
    (name,) = list_groups(mutated({**build_object("Job"), "metadata": given}))
    assert name is not None
    assert name.startswith(begins)
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", name)
    assert len(name) <= 63


@pytest.mark.parametrize("kind", GROUPED)
def test_replaced_object_keeps_its_pods_in_their_group(kind: str):
    stored = mutated(build_object(kind), uid="1")
    replaced = mutated(build_object(kind), stored, uid="2")
    assert replaced == stored
    assert validate_object(replaced, stored) == {"uid": "4f0c", "allowed": True}


def test_other_gates_stay():
    obj = build_object("Job")
    obj["spec"]["template"]["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    assert list_templates(mutated(obj))[0]["spec"]["schedulingGates"] == [{"name": "example.com/wait"}, {"name": PODGROUP_GATE}]


# --- what makes it: whoever is queued above it --------------------------------------------------------------


def with_owner() -> Obj:
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "set", "uid": "u", "controller": True}
    return build_object("Job", ownerReferences=[owner])


@pytest.mark.parametrize("is_queued", [True, False])
def test_child_of_a_queued_object_gets_a_warning_and_no_pod_group(is_queued: bool):
    webhook = Webhook()

    async def find(*_: object) -> Obj:
        return {"metadata": {"name": "set", "uid": "u", "labels": {QUEUE_NAME_LABEL: "main"} if is_queued else {}}}

    webhook.reviews = Reviews(webhook._has_default_queue, find=find, gates=ChosenGates({POD_GROUPS: True}))
    response = webhook.ask(get_path(MUTATE_GROUP, "Job"), with_owner())
    assert ("patch" in response) != is_queued
    says = f"{SHOWN}: has no effect: what made this object is queued, and its pods are placed by that"
    assert response.get("warnings") == ([says] if is_queued else None)


def test_group_review_with_a_failed_lookup_is_refused_with_503():
    webhook = Webhook()

    async def find(*_: object) -> Obj:
        raise LookupFailed("503: etcd is slow")

    webhook.reviews = Reviews(webhook._has_default_queue, find=find, gates=ChosenGates({POD_GROUPS: True}))
    response = webhook.ask(get_path(MUTATE_GROUP, "Job"), with_owner())
    assert not response["allowed"]
    assert response["status"]["code"] == 503


# --- the gate -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", GROUPED)
def test_with_the_feature_gate_off_it_changes_nothing_and_is_warned_of(kind: str):
    off = Webhook(groups=False)
    obj = build_object(kind, "no level at all", labels={QUEUE_NAME_LABEL: "main"})
    assert mutated(obj, webhook=off) == obj
    warned = validate_object(obj, webhook=off)
    assert (warned["allowed"], len(warned["warnings"])) == (True, 1)
    assert all(part in warned["warnings"][0] for part in (SHOWN, "TopologyAwareWorkloadScheduling"))
    assert validate_object(obj, obj, webhook=off) == {"uid": "4f0c", "allowed": True}
    assert validate_object(build_object(kind, None), webhook=off) == {"uid": "4f0c", "allowed": True}


# --- mistakes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", [RACK, f"{BLOCK},{RACK}", f" {BLOCK} , {RACK}:Preferred", "rack", f"{RACK}:Required", ",".join("abcdefghijklmnop")]
)
def test_levels_are_node_labels_or_their_aliases_and_may_be_preferred(text: str):
    assert validate_object(mutated(build_object("Job", text))) == {"uid": "4f0c", "allowed": True}


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("", '""', "a node label"),
        (f"{RACK},", '""', "a node label"),
        ("rack of ours", '"rack of ours"', "a node label"),
        (f"{RACK}?", f'"{RACK}?"', "a node label"),
        ("Rack/of/ours", '"Rack/of/ours"', "a node label"),
        ("rack:preferred", '"rack:preferred"', "rack:Required or rack:Preferred"),
        ("rack:", '"rack:"', "rack:Required or rack:Preferred"),
        ("rack, rack:Preferred", '"rack:Preferred"', "once"),
        (",".join("abcdefghijklmnopq"), "17", "16 levels"),
    ],
)
def test_a_value_that_names_no_levels(text: str, value: str, expected: str):
    message = get_causes(validate_object(build_object("Job", text)))[SHOWN]
    assert message.startswith(f"{value}: ")
    assert expected in message


@pytest.mark.parametrize("kind", GROUPED)
@pytest.mark.parametrize("name", OF_A_TEMPLATE)
def test_annotations_of_queued_jobs_on_a_template(kind: str, name: str):
    obj = build_object(kind)
    for one in list_templates(obj)[-1:]:
        one["metadata"]["annotations"] = {name: RACK}
    shown = BY_NAME[kind].list_roles(obj)[-1].annotations_shown
    ((field, message),) = get_causes(validate_object(obj)).items()
    assert field == f"{shown}[{name}]"
    assert PODGROUP_TOPOLOGY in message


@pytest.mark.parametrize("kind", GROUPED)
def test_all_mistakes_of_a_grouped_job_are_reported_at_once(kind: str):
    obj = build_object(kind, "rack of ours", labels={QUEUE_NAME_LABEL: "main"})
    obj["metadata"]["annotations"][WORKLOAD_REQUIRED_TOPOLOGY] = BLOCK
    for one in list_templates(obj):
        one["metadata"]["annotations"] = {REQUIRED_TOPOLOGY: RACK, SLICE_SIZE: "2"}
        one["spec"]["nodeName"] = "n"
    response = validate_object(obj)
    told = get_causes(response)
    shown = [role.annotations_shown for role in BY_NAME[kind].list_roles(obj)]
    expected = {SHOWN, f"metadata.labels[{QUEUE_NAME_LABEL}]", f"metadata.annotations[{WORKLOAD_REQUIRED_TOPOLOGY}]"}
    expected |= {f"{where}[{name}]" for where in shown for name in (REQUIRED_TOPOLOGY, SLICE_SIZE)}
    expected |= {f"{role.shown}.spec.nodeName" for role in BY_NAME[kind].list_roles(obj)}
    assert set(told) == expected
    assert f"{len(expected)} reasons" in response["status"]["message"]
    assert all(part in told[f"metadata.labels[{QUEUE_NAME_LABEL}]"] for part in ('"main"', PODGROUP_TOPOLOGY))
    assert mutated(obj) == obj, "a queued job is no member"


def test_jobs_of_a_job_set_are_groups_by_themselves_or_all_together():
    obj = build_object("JobSet")
    obj["spec"]["replicatedJobs"][1]["template"]["metadata"] = {"annotations": {PODGROUP_TOPOLOGY: BLOCK}}
    field = f"spec.replicatedJobs[1].template.metadata.annotations[{PODGROUP_TOPOLOGY}]"
    says = f'"{BLOCK}": may not stand beside that of the JobSet itself: what it makes would be a group by itself; keep one of them'
    assert get_causes(validate_object(obj)) == {field: says}
    stored = mutated(build_object("JobSet"))
    later = copy.deepcopy(stored)
    later["spec"]["replicatedJobs"][1]["template"]["metadata"] = {"annotations": {PODGROUP_TOPOLOGY: BLOCK}}
    assert get_causes(validate_object(later, stored)) == {field: says}


def test_grouped_job_that_its_managed_namespace_queues_is_refused_with_the_reason():
    webhook = Webhook(default_queue=True)
    stored = webhook.mutate(build_object("Job"))
    refused = get_causes(validate_object(stored, webhook=webhook))
    assert "managed by topogate" in refused[f"metadata.labels[{QUEUE_NAME_LABEL}]"]


def test_where_a_managed_namespace_has_no_default_queue_nothing_is_amiss():
    response = Webhook(default_queue=False).ask("/mutate-batch-v1-job", build_object("Job"))
    assert "warnings" not in response
    response = Webhook(default_queue=False, groups=False).ask("/mutate-batch-v1-job", build_object("Job"))
    assert QUEUE_NAME_LABEL in response["warnings"][0]


# --- by kube-scheduler --------------------------------------------------------------------------------------------

BY = f"metadata.annotations[{PODGROUP_PLACED_BY}]"


def by_kube_scheduler(kind: str = "Job", text: str = RACK, placed_by: str = "kube-scheduler") -> Obj:
    return build_object(kind, annotations={PODGROUP_TOPOLOGY: text, PODGROUP_PLACED_BY: placed_by})


def test_pods_that_kube_scheduler_places_name_its_group_and_have_no_gate():
    stored = mutated(by_kube_scheduler())
    (name,), (one,) = list_groups(stored), list_templates(stored)
    assert one["spec"]["schedulingGroup"] == {"podGroupName": name}
    assert "schedulingGates" not in one["spec"]
    assert validate_object(stored) == {"uid": "4f0c", "allowed": True}
    again = mutated(by_kube_scheduler(), stored)
    assert again == stored
    assert validate_object(again, stored) == {"uid": "4f0c", "allowed": True}


def test_placed_by_annotation_with_value_topogate_equals_the_default():
    assert mutated(by_kube_scheduler(placed_by="topogate"))["spec"] == mutated(build_object("Job"))["spec"]


def test_of_a_copy_the_gate_of_topogate_is_taken_and_others_stay():
    obj = by_kube_scheduler()
    obj["spec"]["template"]["spec"]["schedulingGates"] = [{"name": "example.com/wait"}, {"name": PODGROUP_GATE}]
    obj["spec"]["template"]["spec"]["schedulingGroup"] = {"podGroupName": "of-another"}
    (one,) = list_templates(mutated(obj))
    assert one["spec"]["schedulingGates"] == [{"name": "example.com/wait"}]
    assert one["spec"]["schedulingGroup"]["podGroupName"] == one["metadata"]["labels"][MEMBER_OF_LABEL]


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (by_kube_scheduler(placed_by="somebody"), {BY: '"somebody": topogate or kube-scheduler is expected'}),
        (
            by_kube_scheduler("JobSet"),
            {
                BY: '"kube-scheduler": is for Jobs only: pods of a JobSet cannot be members of kube-scheduler\'s own PodGroup; '
                f"leave out {PODGROUP_PLACED_BY}, and topogate places them"
            },
        ),
        (
            by_kube_scheduler(text=f"{BLOCK},{RACK}"),
            {
                SHOWN: "2: kube-scheduler takes one level for the pods of a group; name one, "
                f"or leave out {PODGROUP_PLACED_BY}, and topogate places them"
            },
        ),
        (
            by_kube_scheduler(text=f"{RACK}:Preferred"),
            {
                SHOWN: f'"{RACK}:Preferred": kube-scheduler only requires a level; name it without :Preferred, '
                f"or leave out {PODGROUP_PLACED_BY}, and topogate places them"
            },
        ),
    ],
)
def test_pod_group_that_kube_scheduler_cannot_express_is_refused_with_its_fields(obj: Obj, expected: dict[str, str]):
    assert get_causes(validate_object(mutated(obj))) == expected


def test_job_with_a_scheduling_group_that_the_api_server_drops_is_refused():
    stored = mutated(by_kube_scheduler())
    del stored["spec"]["template"]["spec"]["schedulingGroup"]
    ((field, message),) = get_causes(validate_object(stored)).items()
    assert field == "spec.template.spec.schedulingGroup"
    assert all(part in message for part in ("Kubernetes 1.36", "GenericWorkload", PODGROUP_PLACED_BY))


@pytest.mark.parametrize(("before", "after"), [("kube-scheduler", "topogate"), ("topogate", "kube-scheduler")])
def test_placed_by_annotation_is_immutable_after_creation(before: str, after: str):
    old = mutated(by_kube_scheduler(placed_by=before))
    new = copy.deepcopy(old)
    new["metadata"]["annotations"][PODGROUP_PLACED_BY] = after
    ((field, message),) = get_causes(validate_object(new, old)).items()
    assert field == BY
    assert all(part in message for part in (f'"{after}"', before))


# --- changes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", GROUPED)
@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (RACK, BLOCK, f"\"{BLOCK}\": is settled when the KIND is created: it keeps '{RACK}'; make another one"),
        (RACK, None, f"\"\": is settled when the KIND is created: it keeps '{RACK}'; make another one"),
        (None, RACK, f'"{RACK}": is settled when the KIND is created: it was made without; make another one'),
    ],
)
def test_it_is_settled_when_the_job_is_created(kind: str, before: str | None, after: str | None, says: str):
    old = mutated(build_object(kind, before))
    new = copy.deepcopy(old)
    new["metadata"]["annotations"] = {} if after is None else {PODGROUP_TOPOLOGY: after}
    assert get_causes(validate_object(new, old)) == {SHOWN: says.replace("KIND", kind)}


def test_a_job_that_was_made_while_the_gate_was_off_may_lose_the_annotation_that_does_nothing():
    assert validate_object(build_object("Job", None), build_object("Job"))["allowed"]


def test_queue_name_or_topology_added_to_a_grouped_job_is_refused():
    old = mutated(build_object("JobSet"))
    new = copy.deepcopy(old)
    new["metadata"]["labels"] = {QUEUE_NAME_LABEL: "main"}
    assert set(get_causes(validate_object(new, old))) == {f"metadata.labels[{QUEUE_NAME_LABEL}]"}
    new = copy.deepcopy(old)
    list_templates(new)[1]["metadata"]["annotations"] = {REQUIRED_TOPOLOGY: RACK}
    assert len(get_causes(validate_object(new, old))) == 1


def test_job_that_an_older_rule_accepted_may_be_labelled_and_finished():
    old = build_object("Job", "rack of ours", labels={QUEUE_NAME_LABEL: "main"})
    new = copy.deepcopy(old)
    new["metadata"]["labels"]["app"] = "x"
    new["spec"]["parallelism"] = 2
    assert validate_object(new, old)["allowed"]
    new["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "annotations": {}}
    assert validate_object(new, old)["allowed"]


@pytest.mark.parametrize("kind", GROUPED)
@settings(max_examples=scale_examples(0.5))
@given(data=st.data())
def test_review_with_random_json_in_any_field_is_answered_and_mutation_is_idempotent(kind: str, data: st.DataObject):
    whole = {**build_object(kind), "status": {}}
    at = data.draw(st.sampled_from([place for place in places(whole) if place and place[0] in ("metadata", "spec")]))
    obj = replaced(whole, at, data.draw(JSON))
    response = Webhook().ask(get_path(MUTATE_GROUP, kind), obj)
    assert response["allowed"]
    stored = apply(obj, patch_of(response))
    again = Webhook().ask(get_path(MUTATE_GROUP, kind), stored)
    assert apply(stored, patch_of(again)) == stored
    judged_obj(kind, stored, None)
    judged_obj(kind, stored, whole)
    judged_obj(kind, whole, stored)


def judged_obj(kind: str, obj: Obj, old: Obj | None) -> None:
    """No answer but yes or no."""
    assert Webhook().ask(get_path(VALIDATE_GROUP, kind), obj, old)["allowed"] in (True, False)


@pytest.mark.parametrize("kind", GROUPED)
def test_an_object_of_another_shape_is_refused_for_that(kind: str):
    obj = {**build_object(kind), "spec": "?"}
    assert mutated(obj) == obj
    assert list(get_causes(validate_object(obj))) == ["spec"]
    without = {
        **build_object(kind),
        "spec": {"leaderWorkerTemplate": {}} if kind == "LeaderWorkerSet" else {"template": None, "replicatedJobs": []},
    }
    validate_object(without)
    assert mutated(without) == without, "a template that is missing is not made"


@pytest.mark.parametrize(("groups", "allowed"), [(True, True), (False, False)])
def test_of_two_reviews_that_refuse_a_queue_beside_a_group_one_says_why(groups: bool, allowed: bool):
    """Whichever is heard first: the other has nothing against the gate that the annotation has brought, unless that has no effect."""
    stored = mutated(build_object("Job"))
    queued = copy.deepcopy(stored)
    queued["metadata"]["labels"] = {QUEUE_NAME_LABEL: "main"}
    response = Webhook(groups=groups).ask(get_path("validate", "Job"), queued, stored)
    assert response["allowed"] == allowed
    if not allowed:
        assert list(get_causes(response)) == ["spec.template.spec.schedulingGates"]
    assert list(get_causes(validate_object(queued, stored))) == [f"metadata.labels[{QUEUE_NAME_LABEL}]"]


def test_group_of_more_templates_than_a_workload_has_is_refused():
    """Found by a reader: a JobSet with 20 of them was admitted, and its PodGroup was never made."""
    obj = build_object("JobSet")
    one = obj["spec"]["replicatedJobs"][0]
    obj["spec"]["replicatedJobs"] = [{**one, "name": f"j{number}"} for number in range(40)]
    assert "at most" in get_causes(validate_object(obj))["spec"]
    assert JobSet().find_gang(obj).min_count > 0
