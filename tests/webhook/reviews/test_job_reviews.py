"""What admission makes of a Job: suspended, gated where it asks for topology, queued by default where it may; all mistakes at once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from core.model.gates import GROUPED_SLICES, PARTIAL_SLICES
from core.names import (
    MIN_PARALLELISM,
    PLACEMENT_PROFILE,
    PLACEMENT_PROFILES,
    PODSET_GROUP_NAME,
    PREFERRED_TOPOLOGY,
    QUEUE_NAME_LABEL,
    REQUIRED_TOPOLOGY,
    SLICE_CONSTRAINTS,
    SLICE_REQUIRED_TOPOLOGY,
    SLICE_SIZE,
    TOPOLOGY_GATE,
    TRACEPARENT_ANNOTATION,
    UNCONSTRAINED_TOPOLOGY,
)
from e2e import manifests
from tests.webhook.asking import MUTATE_JOB, NAMESPACE, Webhook, apply, get_causes, hook, patch_of

RACK = "cloud.provider.com/topology-rack"


def build_job(**options: Any) -> dict[str, Any]:
    return manifests.build_job("train", NAMESPACE, pods=4, **options)


def list_gates(stored: dict[str, Any]) -> list[str]:
    return [gate["name"] for gate in stored["spec"]["template"]["spec"].get("schedulingGates") or []]


@pytest.mark.parametrize("suspend", [None, False, True])
def test_a_queued_job_is_stored_suspended(suspend: bool | None):
    stored = Webhook().mutate(build_job(spec={} if suspend is None else {"suspend": suspend}))
    assert stored["spec"]["suspend"] is True


@pytest.mark.parametrize(
    "asked",
    [{"required": RACK}, {"preferred": RACK}, {"unconstrained": "true"}, {"slice_topology": RACK, "slice_size": 2}, {"required": "auto"}],
    ids=lambda asked: next(iter(asked)),
)
def test_a_template_that_asks_for_topology_is_gated(asked: dict[str, Any]):
    assert list_gates(Webhook().mutate(build_job(**asked))) == [TOPOLOGY_GATE]


@pytest.mark.parametrize("annotations", [{}, {"example.com/x": "y"}, {SLICE_SIZE: "2"}], ids=["none", "another", "a size alone"])
def test_queued_job_without_topology_request_is_gated_too(annotations: dict[str, str]):
    assert list_gates(Webhook().mutate(build_job(annotations=annotations))) == [TOPOLOGY_GATE]
    assert list_gates(Webhook().mutate(build_job(annotations=annotations, queue=None))) == []


def test_gates_of_others_are_kept_and_ours_is_not_put_twice():
    others = {"schedulingGates": [{"name": "example.com/wait"}]}
    assert list_gates(Webhook().mutate(build_job(required=RACK, pod_spec=others))) == ["example.com/wait", TOPOLOGY_GATE]
    both = {"schedulingGates": [{"name": TOPOLOGY_GATE}, {"name": "example.com/wait"}]}
    assert list_gates(Webhook().mutate(build_job(required=RACK, pod_spec=both))) == [TOPOLOGY_GATE, "example.com/wait"]


def test_a_job_without_queue_gets_the_default_one_where_the_namespace_has_it():
    webhook = Webhook(default_queue=True)
    stored = webhook.mutate(build_job(queue=None, required=RACK, labels={"app": "x"}))
    assert stored["metadata"]["labels"] == {"app": "x", QUEUE_NAME_LABEL: "default"}
    assert stored["spec"]["suspend"] is True
    assert list_gates(stored) == [TOPOLOGY_GATE]
    assert webhook.lookups == [NAMESPACE]


@pytest.mark.parametrize("labels", [None, {}])
def test_a_job_without_any_labels_gets_the_default_queue_too(labels: Any):
    unlabelled = build_job(queue=None)
    unlabelled["metadata"]["labels"] = labels
    assert Webhook(default_queue=True).mutate(unlabelled)["metadata"]["labels"] == {QUEUE_NAME_LABEL: "default"}


def test_a_job_with_a_queue_keeps_it_and_nothing_is_looked_up():
    webhook = Webhook(default_queue=None)
    assert webhook.mutate(build_job(queue="main"))["metadata"]["labels"] == {QUEUE_NAME_LABEL: "main"}
    assert webhook.lookups == []


def test_a_job_that_gets_no_queue_is_not_touched_and_its_user_is_warned():
    response = Webhook(default_queue=False).ask(MUTATE_JOB, build_job(queue=None, required=RACK))
    assert response["allowed"]
    assert "patch" not in response
    (warning,) = response["warnings"]
    assert len(warning) < 256, "longer ones may be dropped by the API server"
    assert NAMESPACE in warning
    assert "no LocalQueue 'default'" in warning
    assert QUEUE_NAME_LABEL in warning


@pytest.mark.parametrize("kind", ["Job", "Pod", "StatefulSet", "JobSet"])
def test_warning_about_a_missing_queue_names_the_kind_of_the_object(kind: str):
    made = {"kind": kind, "metadata": {"name": "x"}, "spec": {"containers": [], "template": {}}}
    (warning,) = Webhook(default_queue=False).ask(hook("mutate", kind), made)["warnings"]
    assert f"this {kind} is" in warning
    assert QUEUE_NAME_LABEL in warning


def test_job_of_a_queue_that_cannot_be_looked_up_is_refused_with_a_retry_hint():
    response = Webhook(default_queue=None).ask(MUTATE_JOB, build_job(queue=None))
    assert response["allowed"] is False
    status = response["status"]
    assert (status["code"], status["reason"]) == (503, "ServiceUnavailable")
    assert "(503: etcd is slow)" in status["message"]
    assert status["details"]["retryAfterSeconds"] == 1, "client-go tries again by itself"


@pytest.mark.parametrize("asked", [{}, {"required": RACK}, {"queue": None, "unconstrained": "true"}], ids=["plain", "gated", "no queue"])
def test_a_second_pass_changes_nothing(asked: dict[str, Any]):
    webhook = Webhook(default_queue=True)
    once = webhook.mutate(build_job(**asked))
    assert webhook.ask(MUTATE_JOB, once) == {"uid": "4f0c", "allowed": True}


def test_patch_of_a_job_review_contains_only_changed_fields():
    operations = patch_of(Webhook().ask(MUTATE_JOB, build_job(required=RACK)))
    assert sorted((operation["op"], operation["path"]) for operation in operations) == [
        ("add", "/spec/suspend"),
        ("add", "/spec/template/spec/schedulingGates"),
    ]


def test_without_traces_no_traceparent_is_written():
    assert TRACEPARENT_ANNOTATION not in (Webhook().mutate(build_job())["metadata"].get("annotations") or {})


@pytest.mark.parametrize("kind", ["StatefulSet", "Deployment"])
def test_object_that_leaves_its_queue_keeps_no_queue_metadata_on_its_template(kind: str):
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c"}]}}
    metadata = {"name": "x", "namespace": NAMESPACE, "labels": {QUEUE_NAME_LABEL: "main"}}
    queued = Webhook().mutate({"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": {"replicas": 0, "template": template}})
    assert queued["spec"]["template"]["metadata"]["labels"][QUEUE_NAME_LABEL] == "main"
    left = {**queued, "metadata": {**metadata, "labels": {}}}
    stored = apply(left, patch_of(Webhook().ask(hook("mutate", kind), left, queued)))
    assert stored["spec"]["template"]["metadata"]["labels"] == {"app": "x"}
    assert not stored["spec"]["template"]["metadata"]["annotations"]
    assert Webhook().ask(hook("mutate", kind), left, left) == {"uid": "4f0c", "allowed": True}, "who was not queued is not touched"


# --- validation -----------------------------------------------------------------------------------------


def test_job_with_three_mistakes_is_refused_with_field_value_and_allowed_values_of_each():
    annotations = {
        REQUIRED_TOPOLOGY: "not a label",
        UNCONSTRAINED_TOPOLOGY: "perhaps",
        SLICE_REQUIRED_TOPOLOGY: RACK,
        SLICE_SIZE: "3",
    }
    response = Webhook().validate(build_job(annotations=annotations))
    status, path = response["status"], "spec.template.metadata.annotations"
    found = get_causes(response)
    assert status["code"] == 422
    expected = {
        f"{path}[{REQUIRED_TOPOLOGY}]": ('"not a label"', "a node label name such as"),
        f"{path}[{UNCONSTRAINED_TOPOLOGY}]": ('"perhaps"', '"true" or "false" is expected'),
        f"{path}[{SLICE_SIZE}]": ('"3"', "one of 1, 2, 4 is expected"),
    }
    for field, (value, accepted) in expected.items():
        assert value in found[field]
        assert accepted in found[field]
        assert f"{field}: {found[field]}" in status["message"], "many clients show the message alone"
    assert f"for {len(found)} reasons:" in status["message"].splitlines()[0]
    assert len(status["message"].splitlines()) == len(found) + 1


def test_a_long_value_does_not_crowd_the_other_mistakes_out():
    response = Webhook().validate(build_job(annotations={REQUIRED_TOPOLOGY: "x " * 50_000, UNCONSTRAINED_TOPOLOGY: "perhaps"}))
    assert f"{UNCONSTRAINED_TOPOLOGY}]" in response["status"]["message"]
    assert '"perhaps"' in response["status"]["message"]
    assert len(response["status"]["message"]) < 2000


def test_a_job_without_queue_is_not_judged():
    assert Webhook().validate(build_job(queue=None, required="not a label"))["allowed"]


def test_a_change_of_queue_while_it_runs_is_refused_and_its_loss_too():
    running = build_job(spec={"suspend": False})
    for queue in ("other", None):
        found = get_causes(Webhook().validate(build_job(queue=queue, spec={"suspend": False, "parallelism": 2}), running))
        assert list(found) == [f"metadata.labels[{QUEUE_NAME_LABEL}]"]
    assert Webhook().validate(build_job(queue="other", spec={"suspend": True}), build_job(spec={"suspend": True}))["allowed"]


def test_a_wrong_change_of_a_suspended_job_is_refused():
    suspended = {"suspend": True}
    response = Webhook().validate(build_job(required="not a label", spec=suspended), build_job(required=RACK, spec=suspended))
    assert list(get_causes(response)) == [f"spec.template.metadata.annotations[{REQUIRED_TOPOLOGY}]"]


def test_job_with_an_old_mistake_may_be_labelled_or_deleted():
    """It may have come while the webhook was away, or under an older version's rules."""
    wrong = build_job(required="not a label", spec={"suspend": True})
    labelled = build_job(required="not a label", spec={"suspend": True}, labels={"seen": "true"})
    going = build_job(required="not a label", spec={"suspend": True, "parallelism": 2})
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not Webhook().validate(wrong)["allowed"]
    assert Webhook().validate(labelled, wrong)["allowed"]
    assert Webhook().validate(going, wrong)["allowed"]


# --- annotations of the job itself --------------------------------------------------------------------


def profiled(profile: str | None, **options: Any) -> dict[str, Any]:
    made = build_job(**options)
    if profile is not None:
        made["metadata"]["annotations"] = {PLACEMENT_PROFILE: profile}
    return made


@pytest.mark.parametrize("profile", [None, *PLACEMENT_PROFILES])
def test_a_placement_profile_that_exists_is_accepted(profile: str | None):
    assert Webhook().validate(profiled(profile, required=RACK))["allowed"]


def test_an_unknown_placement_profile_is_refused_beside_all_other_mistakes():
    causes = get_causes(Webhook().validate(profiled("Compact", slice_topology=RACK, slice_size=3)))
    fields = [f"metadata.annotations[{PLACEMENT_PROFILE}]", f"spec.template.metadata.annotations[{SLICE_SIZE}]"]
    assert sorted(causes) == fields
    profile, size = (causes[field] for field in fields)
    assert profile.startswith('"Compact": ')
    assert ", ".join(PLACEMENT_PROFILES) in profile
    assert size.startswith('"3": ')
    assert all(part in size for part in ("4 pods", "1, 2, 4"))


@pytest.mark.parametrize(
    ("made", "accepted"),
    [
        pytest.param({"slice_topology": RACK, "slice_size": 3}, "", id="a rest"),
        pytest.param({"annotations": {SLICE_CONSTRAINTS: json.dumps([{"topology": RACK, "size": 3}])}}, "", id="a rest in the one layer"),
        pytest.param({"slice_topology": RACK, "slice_size": 5}, "a slice must not have more than the 4 pods", id="more than there are"),
        pytest.param(
            {"annotations": {SLICE_CONSTRAINTS: json.dumps([{"topology": RACK, "size": 6}])}},
            "a slice must not have more than the 4 pods",
            id="more than there are in the one layer",
        ),
        pytest.param(
            {"annotations": {SLICE_CONSTRAINTS: json.dumps([{"topology": RACK, "size": 3}, {"topology": "host", "size": 1}])}},
            "slices must evenly divide the 4 pods: one of 1, 2, 4 is expected where there is more than one layer",
            id="a rest of two layers",
        ),
        pytest.param(
            {"annotations": {SLICE_CONSTRAINTS: json.dumps([{"topology": RACK, "size": 4}, {"topology": "host", "size": 3}])}},
            "a divisor of the 4 of the layer above is expected",
            id="an inner layer that does not divide",
        ),
        pytest.param(
            {"slice_topology": RACK, "slice_size": 3, "job_annotations": {MIN_PARALLELISM: "2"}},
            "slices must evenly divide the 4 pods: one of 1, 2, 4 is expected where a job can do with fewer pods",
            id="a job that can do with fewer pods",
        ),
    ],
)
def test_slices_that_leave_pods_over_are_accepted_with_the_gate_alone(made: dict[str, Any], accepted: str):
    """Table 1.2 of the wire contract of Kueue 0.20."""
    job = build_job(required=RACK, **{name: value for name, value in made.items() if name != "job_annotations"})
    job["metadata"]["annotations"] = made.get("job_annotations", {})
    off, answer = get_causes(Webhook().validate(job)), Webhook(**{PARTIAL_SLICES: True}).validate(job)
    on = {} if answer["allowed"] else get_causes(answer)
    assert next(iter(on.values()), "").partition(": ")[2].startswith(accepted)
    assert bool(on) == bool(accepted)
    assert ("TASPartialSlices" in next(iter(off.values()))) == (not accepted)


SLICED = {SLICE_REQUIRED_TOPOLOGY: RACK, SLICE_SIZE: "2"}
LAYERED = {SLICE_CONSTRAINTS: json.dumps([{"topology": RACK, "size": 4}, {"topology": "host", "size": 2}])}


def build_led_job(workers: dict[str, str], count: int = 4, leader: dict[str, str] | None = None) -> dict[str, Any]:
    """A PyTorchJob with a master and workers of one group, which require a block; `workers` and `leader` are annotations besides."""
    shared = {PODSET_GROUP_NAME: "g", REQUIRED_TOPOLOGY: "block"}
    spec = {"containers": [{"name": "pytorch", "image": "i"}]}
    roles = {
        role: {"replicas": replicas, "template": {"metadata": {"annotations": {**shared, **notes}}, "spec": spec}}
        for role, replicas, notes in (("Master", 1, leader or {}), ("Worker", count, workers))
    }
    metadata = {"name": "train", "namespace": NAMESPACE, "labels": {QUEUE_NAME_LABEL: "main"}}
    made = {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": roles}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": metadata, "spec": made}


def list_causes(job: dict[str, Any], **gates: bool) -> list[tuple[str, str]]:
    """Reason and field of each error of the workers; the field without the path of their annotations."""
    response = Webhook(**gates).validate(job)
    path = "spec.pytorchReplicaSpecs[Worker].template.metadata.annotations"
    causes = [] if response["allowed"] else response["status"]["details"]["causes"]
    return [(cause["reason"], cause["field"].removeprefix(path)) for cause in causes]


OF_GROUP, OF_SIZE = f"[{PODSET_GROUP_NAME}]", f"[{SLICE_SIZE}]"
FORBIDDEN, INVALID = "FieldValueForbidden", "FieldValueInvalid"


@pytest.mark.parametrize(
    ("workers", "count", "off", "on"),
    [
        pytest.param(SLICED, 4, [(FORBIDDEN, OF_GROUP)] * 2, [], id="a size and a level"),
        pytest.param(LAYERED, 4, [(FORBIDDEN, OF_GROUP)], [], id="layers"),
        pytest.param(
            {SLICE_SIZE: "2"},
            4,
            [(FORBIDDEN, OF_SIZE), (FORBIDDEN, OF_GROUP)],
            [(FORBIDDEN, OF_SIZE)],
            id="a size without a level",
        ),
        pytest.param(SLICED, 3, [(INVALID, OF_SIZE), *[(FORBIDDEN, OF_GROUP)] * 2], [(INVALID, OF_SIZE)], id="a rest"),
        pytest.param({}, 4, [], [], id="no slices"),
    ],
)
def test_slices_of_a_group_are_accepted_with_the_gate_alone(
    workers: dict[str, str], count: int, off: list[tuple[str, str]], on: list[tuple[str, str]]
):
    """Section 2 of the wire contract of Kueue 0.20."""
    job = build_led_job(workers, count)
    assert list_causes(job) == off
    assert list_causes(job, **{GROUPED_SLICES: True}) == on


def test_slices_of_a_group_that_leave_pods_over_need_both_gates():
    job = build_led_job(SLICED, 3)
    assert not Webhook(**{PARTIAL_SLICES: True}).validate(job)["allowed"]
    assert Webhook(**{PARTIAL_SLICES: True, GROUPED_SLICES: True}).validate(job)["allowed"]


def test_group_without_a_level_is_refused_though_it_may_have_slices():
    job = build_led_job(SLICED)
    for role in job["spec"]["pytorchReplicaSpecs"].values():
        del role["template"]["metadata"]["annotations"][REQUIRED_TOPOLOGY]
    assert (FORBIDDEN, OF_GROUP) in list_causes(job, **{GROUPED_SLICES: True})
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"]["annotations"][PREFERRED_TOPOLOGY] = "block"
    assert not Webhook(**{GROUPED_SLICES: True}).validate(job)["allowed"], "the members must ask for the same"


def test_slices_of_a_leader_are_refused_beside_those_of_its_workers():
    response = Webhook(**{GROUPED_SLICES: True}).validate(build_led_job(SLICED, leader=SLICED))
    ((field, message),) = get_causes(response).items()
    assert field == f"spec.pytorchReplicaSpecs[Master].template.metadata.annotations[{SLICE_SIZE}]"
    assert "a slice must not have more than the 1 pods" in message


def test_stored_group_with_slices_can_change_where_the_gate_is_off_again():
    job = build_led_job(SLICED)
    labelled = {**job, "metadata": {**job["metadata"], "labels": {**job["metadata"]["labels"], "seen": "true"}}}
    fewer = build_led_job(SLICED, 2)
    assert Webhook().validate(labelled, job)["allowed"]
    assert Webhook().validate(fewer, job)["allowed"], "an error that was there before"


def test_a_placement_profile_is_judged_when_it_changes():
    webhook, before, after = Webhook(), profiled("kep", required=RACK), profiled("dense", required=RACK)
    assert list(get_causes(webhook.validate(after, before))) == [f"metadata.annotations[{PLACEMENT_PROFILE}]"]
    assert webhook.validate(after, after)["allowed"], "what was there before, a label or a status must not fail for"
    assert webhook.validate(profiled("dense", queue=None), profiled("kep", queue=None))["allowed"], "not our job"
    assert webhook.validate(before, after)["allowed"]


def test_a_placement_profile_on_a_pod_template_does_nothing_and_the_user_is_told():
    response = Webhook().validate(build_job(required=RACK, annotations={PLACEMENT_PROFILE: "compact"}))
    assert response["allowed"]
    (warning,) = response["warnings"]
    assert warning.startswith(f"spec.template.metadata.annotations[{PLACEMENT_PROFILE}]: ")
