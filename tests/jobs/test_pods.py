"""Pods that are queued themselves, and the kinds that hand their queue on to them: defaults and rules."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from core.jobs.contract import Defaults, Rules
from core.jobs.kinds.pod import Pod, compute_role_hash
from core.jobs.kinds.pod_kinds import POD_SETS, list_pod_kinds
from core.names import (
    ADMISSION_GATE,
    MANAGED,
    POD_GROUP_INDEX_LABEL,
    POD_GROUP_NAME,
    POD_GROUP_TOTAL_COUNT,
    POD_INDEX_OFFSET,
    PODSET_LABEL,
    QUEUE_NAME_LABEL,
    ROLE_HASH,
    SUSPENDING_PARENT,
    TOPOLOGY_GATE,
    WORKLOAD_ANNOTATION,
)

Json = dict[str, Any]
KINDS = {kind.kind: kind for kind in list_pod_kinds()}
POD = next(kind for kind in list_pod_kinds() if isinstance(kind, Pod))


def build_pod(labels: Json | None = None, notes: Json | None = None, owner: tuple[str, str] | None = None, **spec: Any) -> Json:
    owners = [{"apiVersion": owner[1], "kind": owner[0], "name": "x", "uid": "u", "controller": True}] if owner else []
    metadata = {"name": "p", "namespace": "ns", "labels": labels or {}, "annotations": notes or {}, "ownerReferences": owners}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [{"name": "c"}], **spec}}


QUEUED = {QUEUE_NAME_LABEL: "main"}


def list_gates(obj: Json) -> list[str]:
    return [gate["name"] for gate in obj["spec"].get("schedulingGates") or ()]


def list_fields(rules: Rules) -> list[str]:
    return [error.field for error in rules.errors]


def test_a_queued_pod_is_gated_twice_and_marked_and_that_again_changes_nothing():
    once = POD.default(build_pod(QUEUED, schedulingGates=[{"name": "own"}]), Defaults())
    assert list_gates(once) == ["own", ADMISSION_GATE, TOPOLOGY_GATE]
    assert once["metadata"]["labels"][MANAGED] == "true"
    assert once["metadata"]["finalizers"] == [MANAGED]
    assert POD.default(once, Defaults()) == once


def test_pod_of_group_with_index_that_is_no_number_draws_a_warning():
    labels = {**QUEUED, POD_GROUP_INDEX_LABEL: "x"}
    (warning,) = POD.validate_create(build_pod(labels)).warnings
    assert warning.startswith(f"metadata.labels[{POD_GROUP_INDEX_LABEL}]: 'x' ")


@pytest.mark.parametrize(
    "owner", [("Job", "batch/v1"), ("JobSet", "jobset.x-k8s.io/v1alpha2"), ("DaemonSet", "apps/v1"), ("RayCluster", "ray.io/v1")]
)
def test_pods_of_queued_owners_or_daemon_sets_are_not_changed(owner: tuple[str, str]):
    for labels in ({}, QUEUED):
        theirs = build_pod(labels, owner=owner)
        assert POD.default(theirs, Defaults("default")) == theirs
        assert POD.validate_create(build_pod(labels, {POD_GROUP_TOTAL_COUNT: "x"}, owner=owner)) == Rules()


def test_pods_without_a_known_owner_in_a_managed_namespace_get_the_default_queue():
    for owner in (None, ("ReplicaSet", "apps/v1"), ("Anything", "example.com/v1")):
        assert POD.default(build_pod(owner=owner), Defaults("default"))["metadata"]["labels"][QUEUE_NAME_LABEL] == "default"
    static = build_pod(notes={"kubernetes.io/config.mirror": "x"})
    assert POD.default(static, Defaults("default")) == static


def test_a_pod_cannot_choose_its_role():
    assert POD.default(build_pod(QUEUED, {ROLE_HASH: "a-small-one"}), Defaults())["metadata"]["annotations"][
        ROLE_HASH
    ] == compute_role_hash(build_pod()["spec"])


def test_queued_pod_with_forged_start_labels_loses_them():
    marked = POD.default(build_pod({**QUEUED, PODSET_LABEL: "main"}, {WORKLOAD_ANNOTATION: "other"}), Defaults())
    assert PODSET_LABEL not in marked["metadata"]["labels"]
    assert WORKLOAD_ANNOTATION not in marked["metadata"]["annotations"]


def test_role_hash_of_a_pod_depends_on_its_scheduling_fields():
    def asking(cpu: str, **spec: Any) -> str:
        return compute_role_hash({"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}], **spec})

    assert asking("1") == "dc85db45", "the peer's name for it"
    assert len({asking("1"), asking("2"), asking("1", nodeSelector={"a": "b"}), asking("1", tolerations=[{"operator": "Exists"}])}) == 4


@pytest.mark.parametrize(
    "more",
    [
        {"resources": {"requests": {"cpu": "8"}}},
        {"resources": {"limits": {"cpu": "8"}}},
        {"hostNetwork": True},
        {"initContainers": [{"name": "i", "restartPolicy": "Always"}]},
    ],
    ids=lambda more: next(iter(more)),
)
def test_role_hash_of_pods_that_count_differently_differs(more: dict[str, Any]):
    """Former defect: two unlike pods were one role, and the second one stayed gated for ever."""
    plain: dict[str, Any] = {"containers": [{"name": "c"}]} | ({"initContainers": [{"name": "i"}]} if "initContainers" in more else {})
    assert compute_role_hash(plain) != compute_role_hash({**plain, **more})
    assert compute_role_hash({**plain, **more}) != compute_role_hash({**plain, "resources": {"requests": {"cpu": "9"}}})


@pytest.mark.parametrize("total", ["0", "-1", "two", "", "100001", "1e3", "٣"])
def test_a_total_that_is_no_number_of_pods_is_refused(total: str):
    assert list_fields(POD.validate_create(build_pod({**QUEUED, POD_GROUP_NAME: "g"}, {POD_GROUP_TOTAL_COUNT: total}))) == [
        f"metadata.annotations[{POD_GROUP_TOTAL_COUNT}]"
    ]


def test_group_and_total_stand_together():
    assert list_fields(POD.validate_create(build_pod({**QUEUED, POD_GROUP_NAME: "g"}))) == [
        f"metadata.annotations[{POD_GROUP_TOTAL_COUNT}]"
    ]
    assert list_fields(POD.validate_create(build_pod(QUEUED, {POD_GROUP_TOTAL_COUNT: "1"}))) == [f"metadata.labels[{POD_GROUP_NAME}]"]
    assert list_fields(POD.validate_create(build_pod({**QUEUED, POD_GROUP_NAME: "Not_A_Name"}, {POD_GROUP_TOTAL_COUNT: "1"}))) == [
        f"metadata.labels[{POD_GROUP_NAME}]"
    ]


def test_queue_metadata_of_a_pod_is_immutable_after_creation():
    queued = POD.default(build_pod({**QUEUED, POD_GROUP_NAME: "g"}, {POD_GROUP_TOTAL_COUNT: "2"}), Defaults())

    def changed(part: str, name: str, value: str | None, gated: bool = True) -> list[str]:
        old, new = deepcopy(queued), deepcopy(queued)
        for obj in (old, new):
            if not gated:
                obj["spec"]["schedulingGates"] = []
        new["metadata"][part].pop(name, None)
        if value is not None:
            new["metadata"][part][name] = value
        return list_fields(POD.validate_update(old, new))

    assert changed("labels", QUEUE_NAME_LABEL, "other") == []
    assert changed("labels", QUEUE_NAME_LABEL, "other", gated=False) == [f"metadata.labels[{QUEUE_NAME_LABEL}]"]
    assert changed("labels", QUEUE_NAME_LABEL, None) == [f"metadata.labels[{QUEUE_NAME_LABEL}]"]
    assert changed("labels", POD_GROUP_NAME, "h") == [f"metadata.labels[{POD_GROUP_NAME}]"]
    assert changed("labels", MANAGED, None) == [f"metadata.labels[{MANAGED}]"]
    for name in (POD_GROUP_TOTAL_COUNT, ROLE_HASH, SUSPENDING_PARENT):
        assert changed("annotations", name, "7") == [f"metadata.annotations[{name}]"]
    assert changed("labels", "app", "x") == []


def test_a_total_count_that_is_found_as_a_label_is_told():
    """Beside two labels of a group it is easily taken for one."""
    (error,) = POD.validate_create(build_pod({**QUEUED, POD_GROUP_NAME: "g", POD_GROUP_TOTAL_COUNT: "2"})).errors
    assert error.field == f"metadata.annotations[{POD_GROUP_TOTAL_COUNT}]"
    assert "as a label" in error.accepted
    (error,) = POD.validate_create(build_pod({**QUEUED, POD_GROUP_NAME: "g"})).errors
    assert "label" not in error.accepted


KEPT = [
    ("labels", POD_GROUP_NAME, "h", True, "a pod stays in its group 'g'; delete it and create it in the other"),
    ("annotations", POD_GROUP_NAME, "h", True, "a pod that was created in no group joins none; delete it and create it in that group"),
    ("labels", QUEUE_NAME_LABEL, "other", False, "an admitted pod keeps its queue 'main'"),
    (
        "labels",
        QUEUE_NAME_LABEL,
        None,
        True,
        "a queued pod stays queued; name 'main' or another queue, or delete it and create it without",
    ),
    ("labels", MANAGED, "false", True, "is settled when the pod is created: it keeps 'true'"),
    ("annotations", POD_GROUP_TOTAL_COUNT, "3", True, "is settled when the pod is created: it keeps '4'"),
    ("annotations", SUSPENDING_PARENT, "job", True, "is settled when the pod is created: none was given"),
]


@pytest.mark.parametrize(("part", "name", "value", "gated", "told"), KEPT)
def test_immutable_pod_metadata_error_names_the_kept_value(part: str, name: str, value: str | None, gated: bool, told: str):
    old = POD.default(build_pod({**QUEUED, POD_GROUP_NAME: "g"}, {POD_GROUP_TOTAL_COUNT: "4"}), Defaults())
    if not gated:
        old["spec"]["schedulingGates"] = []
    new = deepcopy(old)
    new["metadata"][part] = {k: v for k, v in {**old["metadata"][part], name: value}.items() if v is not None}
    (error,) = POD.validate_update(old, new).errors
    assert (error.field, error.accepted) == (f"metadata.{part}[{name}]", told)


def test_a_pod_is_not_queued_later():
    for name in (QUEUE_NAME_LABEL, MANAGED, POD_GROUP_NAME):
        assert list_fields(POD.validate_update(build_pod(), build_pod({name: "true"}))) == [f"metadata.labels[{name}]"]


# --- parents ------------------------------------------------------------------------------------------


def build_parent(kind: str, labels: Json | None = None, **spec: Any) -> Json:
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c"}]}}
    return {"kind": kind, "metadata": {"name": "x", "labels": QUEUED | (labels or {})}, "spec": {"template": template, **spec}}


@pytest.mark.parametrize("kind", ["StatefulSet", "Deployment"])
def test_queue_and_priority_are_handed_on_and_that_again_changes_nothing(kind: str):
    once = KINDS[kind].default(build_parent(kind, {"kueue.x-k8s.io/priority-class": "high"}), Defaults())
    metadata = once["spec"]["template"]["metadata"]
    assert metadata["labels"] == {"app": "x", QUEUE_NAME_LABEL: "main", "kueue.x-k8s.io/priority-class": "high"}
    assert metadata["annotations"][SUSPENDING_PARENT] == kind.lower()
    assert KINDS[kind].default(once, Defaults()) == once


def test_without_a_queue_nothing_is_handed_on():
    unqueued = build_parent("Deployment")
    unqueued["metadata"]["labels"] = {}
    assert KINDS["Deployment"].default(unqueued, Defaults()) == unqueued


@pytest.mark.parametrize("kind", ["StatefulSet", "Deployment", "LeaderWorkerSet"])
def test_parent_with_a_ready_pod_keeps_its_queue(kind: str):
    """Former defect: it kept its queue while any pod was there, so that one which waited could not change queues."""
    asked = KINDS[kind]

    def queued_in(queue: str | None, **status: int) -> Json:
        obj = build_lws(False) if kind == "LeaderWorkerSet" else build_parent(kind)
        labels = {QUEUE_NAME_LABEL: queue} if queue is not None else {}
        return {**obj, "metadata": {"name": "x", "labels": labels}, "status": status}

    field = [f"metadata.labels[{QUEUE_NAME_LABEL}]"]
    assert asked.validate_update(queued_in("main"), queued_in("other")) == Rules()
    assert asked.validate_update(queued_in("main", replicas=2), queued_in("other")) == Rules()
    assert list_fields(asked.validate_update(queued_in("main", replicas=2, readyReplicas=1), queued_in("other"))) == field
    assert list_fields(asked.validate_update(queued_in("main", replicas=2), queued_in(None))) == field, "its pods would stay gated"


@pytest.mark.parametrize("kind", ["StatefulSet", "Deployment"])
def test_parent_cannot_clear_its_priority_class(kind: str):
    name = "kueue.x-k8s.io/priority-class"
    high, low, none = build_parent(kind, {name: "high"}), build_parent(kind, {name: "low"}), build_parent(kind)
    assert list_fields(KINDS[kind].validate_update(high, none)) == [f"metadata.labels[{name}]"]
    assert list_fields(KINDS[kind].validate_update(high, low)) == list_fields(KINDS[kind].validate_update(none, high)) == []


def build_lws(leader: bool, **labels: str) -> Json:
    template = {"metadata": {"annotations": {"own": "x"}}, "spec": {"containers": [{"name": "c"}]}}
    spec = {
        "replicas": 0,
        "leaderWorkerTemplate": {"size": 2, "workerTemplate": template} | ({"leaderTemplate": template} if leader else {}),
    }
    return {"kind": "LeaderWorkerSet", "metadata": {"name": "x", "labels": labels}, "spec": spec}


UNQUEUED = {
    "a set": ("StatefulSet", build_parent("StatefulSet")),
    "one that counts from 3": ("StatefulSet", build_parent("StatefulSet", ordinals={"start": 3})),
    "pods one by one": ("Deployment", build_parent("Deployment")),
    "workers": ("LeaderWorkerSet", build_lws(False)),
    "a leader and workers": ("LeaderWorkerSet", build_lws(True)),
}


@pytest.mark.parametrize(("kind", "plain"), UNQUEUED.values(), ids=UNQUEUED)
def test_queue_metadata_of_a_template_is_removed_when_its_parent_leaves_the_queue(kind: str, plain: Json):
    """Pods that would still name the queue that their parent has left would stay gated for ever."""
    mine = "kueue.x-k8s.io/priority-class"
    queued = KINDS[kind].default({**plain, "metadata": {"name": "x", "labels": QUEUED | {mine: "high"}}}, Defaults())
    left = {**queued, "metadata": {"name": "x", "labels": {}}}
    parent_of = KINDS[kind]
    assert not isinstance(parent_of, Pod)
    back = parent_of.restore_templates(left, queued)
    for role, before in zip(parent_of.list_roles(back), parent_of.list_roles(plain), strict=True):
        metadata = role.template["metadata"]
        kept = {part: metadata[part] for part in ("labels", "annotations") if metadata.get(part)}
        assert kept == before.template["metadata"]
    # Who keeps its queue keeps its marks, and what another wrote stays.
    assert parent_of.default(parent_of.restore_templates(queued, queued), Defaults()) == queued
    assert parent_of.restore_templates(queued, left) == queued


def test_a_first_ordinal_that_is_taken_away_is_no_offset_any_more():
    kind = KINDS["StatefulSet"]
    assert not isinstance(kind, Pod)
    before = kind.default(build_parent("StatefulSet", ordinals={"start": 3}), Defaults())
    assert before["spec"]["template"]["metadata"]["annotations"][POD_INDEX_OFFSET] == "3"
    after = {**before, "spec": {"template": before["spec"]["template"]}}
    assert (
        POD_INDEX_OFFSET
        not in kind.default(kind.restore_templates(after, before), Defaults())["spec"]["template"]["metadata"]["annotations"]
    )


def test_a_leader_worker_set_of_too_many_workloads_is_refused_and_costs_no_more_than_the_most():
    kind = next(kind for kind in POD_SETS if kind.kind == "LeaderWorkerSet")

    def of(replicas: int, **labels: str) -> Json:
        template = {"size": 2, "workerTemplate": {"metadata": {}, "spec": {"containers": [{"name": "c"}]}}}
        spec = {"replicas": replicas, "leaderWorkerTemplate": template}
        return {"kind": "LeaderWorkerSet", "metadata": {"name": "x", "labels": QUEUED | labels}, "spec": spec}

    most, beyond = of(10_000), of(2_000_000_000)
    assert list_fields(kind.validate_create(most)) == []
    assert list_fields(kind.validate_create(beyond)) == ["spec.replicas"]
    assert list_fields(kind.validate_update(most, beyond)) == ["spec.replicas"]
    unqueued = {**beyond, "metadata": {"name": "x", "labels": {}}}
    assert list_fields(kind.validate_update(unqueued, beyond)) == ["spec.replicas"]
    assert list_fields(kind.validate_update(beyond, of(2_000_000_000, app="x"))) == [], "what is there may be changed in other ways"
    assert list_fields(kind.validate_update(beyond, most)) == []
    assert kind.count_workloads(beyond) == 10_000


@pytest.mark.parametrize(
    ("replicas", "surge", "made", "workloads"),
    [
        (4, 1, 5, 5),  # a rollout has made its replica
        (4, 1, 4, 4),
        (4, 1, 9, 5),  # scaled down from 9, or a status of before
        (4, "50%", 6, 6),
        (4, 0, 5, 4),
        (4, None, 5, 4),
        (0, 1, 1, 0),  # scaled to 0: nothing is rolled out
        (10_000, 1, 10_001, 10_000),
    ],
)
def test_leader_worker_set_has_a_workload_for_each_replica_of_a_surge(replicas: int, surge: Any, made: int, workloads: int):
    """Former defect: replicas of the surge had no Workload, so that a rollout with `maxUnavailable: 0` never ended."""
    kind, obj = next(kind for kind in POD_SETS if kind.kind == "LeaderWorkerSet"), build_lws(False)
    rolling = {"rolloutStrategy": {"rollingUpdateConfiguration": {"maxSurge": surge, "maxUnavailable": 0}}}
    assert (
        kind.count_workloads({**obj, "spec": {**obj["spec"], **rolling, "replicas": replicas}, "status": {"replicas": made}}) == workloads
    )


def test_a_stateful_set_is_one_workload_however_large():
    assert list_fields(KINDS["StatefulSet"].validate_create(build_parent("StatefulSet", replicas=20_000))) == []


def test_slices_of_a_pod_with_a_parent_are_validated_by_the_parent():
    """Former defect: pods of a StatefulSet with slices in its template were all refused, while its Workload held quota."""
    notes = {"kueue.x-k8s.io/podset-required-topology": "rack", "kueue.x-k8s.io/podset-slice-required-topology": "host"}
    notes |= {"kueue.x-k8s.io/podset-slice-size": "2"}
    pod = {"metadata": {"name": "p", "labels": {"kueue.x-k8s.io/queue-name": "main"}, "annotations": notes}, "spec": {"containers": []}}
    assert [error.field for error in Pod().validate_create(pod).errors] != []
    notes["kueue.x-k8s.io/pod-suspending-parent"] = "statefulset"
    assert Pod().validate_create(pod).errors == ()
