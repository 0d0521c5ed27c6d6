"""Names that are misspelt, or labels where annotations are read: let in with a warning that names the right one."""

from __future__ import annotations

from typing import Any

import pytest

from core import names
from core.jobs import annotation_catalog
from core.jobs.annotation_catalog import ANNOTATIONS, LABELS, MOST_UNKNOWN, find_meant
from core.names import (
    PLACEMENT_PROFILE,
    POD_GROUP_NAME,
    POD_GROUP_TOTAL_COUNT,
    PODGROUP_TOPOLOGY,
    PRIORITY_CLASS_LABEL,
    QUEUE_NAME_LABEL,
    REQUIRED_TOPOLOGY,
    SLICE_SIZE,
    UNCONSTRAINED_TOPOLOGY,
    WORKLOAD_REQUIRED_TOPOLOGY,
)
from tests.webhook.asking import Webhook, get_api

RACK = "cloud.provider.com/rack"
POD_SPEC = {"containers": [{"name": "c", "image": "registry.example/c:1"}]}
GROUP = "kueue.x-k8s.io"


def made(kind: str, own: dict[str, Any] | None = None, template: dict[str, Any] | None = None) -> dict[str, Any]:
    """An object in a queue; `own` and `template` are metadata of it and of its pod template."""
    group, version, _ = get_api(kind)
    own = own or {}
    metadata = {"name": "x", "namespace": "team-a", **own, "labels": {QUEUE_NAME_LABEL: "main", **own.get("labels", {})}}
    spec = POD_SPEC if kind == "Pod" else {"template": {"metadata": template or {}, "spec": POD_SPEC}}
    return {"apiVersion": f"{group}/{version}".lstrip("/"), "kind": kind, "metadata": metadata, "spec": spec}


def list_messages(obj: dict[str, Any], before: dict[str, Any] | None = None) -> list[str]:
    response = Webhook().validate(obj, before)
    assert response["allowed"], "a warning refuses nothing"
    return list(response.get("warnings", []))


# --- which name was meant -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("kueue.x-k8s.io/queue-nam", QUEUE_NAME_LABEL),
        ("kueue.x-k8s.io/quue-name", QUEUE_NAME_LABEL),
        ("kueue.x-k8s.io/qeueu-name", QUEUE_NAME_LABEL),
        ("kueue.x-k8s.io/queuename", QUEUE_NAME_LABEL),
        ("kueue.x-k8s.io/queueName", QUEUE_NAME_LABEL),
        ("kueue.x-k8s.io/Queue-Name", QUEUE_NAME_LABEL),
        ("topogate.dev/queue-name", QUEUE_NAME_LABEL),
        ("kueue.x-k8s.io/priority-clas", PRIORITY_CLASS_LABEL),
        ("kueue.x-k8s.io/priority-class-name", PRIORITY_CLASS_LABEL),
        ("kueue.x-k8s.io/required-topology", REQUIRED_TOPOLOGY),
        ("kueue.x-k8s.io/requird-topology", REQUIRED_TOPOLOGY),
        ("kueue.x-k8s.io/slice-size", SLICE_SIZE),
        ("topogate.dev/podset-required-topology", REQUIRED_TOPOLOGY),
        ("kueue.x-k8s.io/podset-requird-topology", REQUIRED_TOPOLOGY),
        ("topogate.dev/workload-requred-topology", WORKLOAD_REQUIRED_TOPOLOGY),
        ("kueue.x-k8s.io/placement-profile", PLACEMENT_PROFILE),
        ("kueue.x-k8s.io/pod-group-total", POD_GROUP_TOTAL_COUNT),
        ("kueue.x-k8s.io/podgroup-name", POD_GROUP_NAME),
        ("topogate.dev/pod-group-topology", PODGROUP_TOPOLOGY),
        ("topogate.dev/podgroup-topologies", PODGROUP_TOPOLOGY),
    ],
)
def test_a_name_close_to_one_that_users_write_was_meant_to_be_that(written: str, meant: str):
    assert find_meant(written) == meant


def test_every_name_that_we_know_means_itself():
    for name in (value for value in vars(names).values() if isinstance(value, str)):
        assert find_meant(name) is None, name
    assert len({*ANNOTATIONS, *LABELS}) == len(ANNOTATIONS) + len(LABELS)


@pytest.mark.parametrize(
    "name",
    [
        # What the peer's other features read.
        "kueue.x-k8s.io/prebuilt-workload-name",
        "kueue.x-k8s.io/workload-slice-name",
        "kueue.x-k8s.io/workload-slice-replacement-for",
        "kueue.x-k8s.io/multikueue-origin",
        "kueue.x-k8s.io/safe-to-forcefully-delete",
        "kueue.x-k8s.io/tas",
        "kueue.x-k8s.io/node-to-replace",
        "kueue.x-k8s.io/priority-boost",
        "topogate.dev/level-3",
        "example.com/queue-nam",
        "queue-name",
        "kueue.x-k8s.io/",
        "",
    ],
)
def test_annotation_far_from_all_known_names_gets_no_warning(name: str):
    assert find_meant(name) is None
    assert (
        list_messages(made("Job", {"annotations": {name: "1"}, "labels": {name: "1"}}, {"annotations": {name: "1"}, "labels": {name: "1"}}))
        == []
    )


# --- on the object itself -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["Job", "StatefulSet", "Deployment", "Pod"])
@pytest.mark.parametrize("name", [QUEUE_NAME_LABEL, PRIORITY_CLASS_LABEL])
def test_a_label_given_as_an_annotation(kind: str, name: str):
    shown = f"metadata.annotations[{name}]: this is a label and does nothing as an annotation: set it in metadata.labels"
    assert list_messages(made(kind, {"annotations": {name: "main"}})) == [shown]


@pytest.mark.parametrize(
    ("kind", "name", "place"),
    [
        ("Job", UNCONSTRAINED_TOPOLOGY, "as an annotation on the pod template (spec.template.metadata.annotations)"),
        ("Job", PLACEMENT_PROFILE, "in metadata.annotations"),
        ("Deployment", PLACEMENT_PROFILE, "as an annotation on the pod template (spec.template.metadata.annotations)"),
        ("Pod", UNCONSTRAINED_TOPOLOGY, "in metadata.annotations"),
    ],
)
def test_an_annotation_given_as_a_label(kind: str, name: str, place: str):
    shown = f"metadata.labels[{name}]: this is an annotation and does nothing as a label: set it {place}"
    assert list_messages(made(kind, {"labels": {name: "true"}})) == [shown]


@pytest.mark.parametrize(
    ("part", "name", "known"),
    [
        ("labels", "kueue.x-k8s.io/priority-clas", f"this label is not known and does nothing; did you mean {PRIORITY_CLASS_LABEL}?"),
        (
            "annotations",
            "kueue.x-k8s.io/queue-nam",
            f"this annotation is not known and does nothing; did you mean the label {QUEUE_NAME_LABEL}?",
        ),
        (
            "annotations",
            "kueue.x-k8s.io/required-topology",
            f"this annotation is not known and does nothing; did you mean {REQUIRED_TOPOLOGY}, on the pod template?",
        ),
        (
            "annotations",
            "topogate.dev/placement-profil",
            f"this annotation is not known and does nothing; did you mean {PLACEMENT_PROFILE}?",
        ),
        (
            "labels",
            "topogate.dev/workload-required-topolgy",
            f"this label is not known and does nothing; did you mean the annotation {WORKLOAD_REQUIRED_TOPOLOGY}?",
        ),
    ],
)
def test_a_misspelt_name(part: str, name: str, known: str):
    assert list_messages(made("Job", {part: {name: "x"}})) == [f"metadata.{part}[{name}]: {known}"]


def test_misspelt_label_is_reported_when_added_and_not_on_later_changes():
    wrong = made("Job", {"labels": {"kueue.x-k8s.io/priority-clas": "x"}})
    assert len(list_messages(wrong, made("Job"))) == 1, "kubectl label job x ..."
    assert list_messages(wrong, wrong) == []


@pytest.mark.parametrize("name", ["kueue.x-k8s.io/podset-requird-topology", "kueue.x-k8s.io/required-topology"])
def test_misspelt_annotation_of_a_pod_is_reported_once(name: str):
    shown = f"metadata.annotations[{name}]: this annotation is not known and does nothing; did you mean {REQUIRED_TOPOLOGY}?"
    assert list_messages(made("Pod", {"annotations": {name: RACK}})) == [shown]


# --- on its templates -----------------------------------------------------------------------------------

TEMPLATE = "spec.template.metadata"


@pytest.mark.parametrize(
    ("part", "name", "shown"),
    [
        (
            "annotations",
            QUEUE_NAME_LABEL,
            "this is a label and does nothing as an annotation: set it in metadata.labels of the job itself",
        ),
        (
            "labels",
            UNCONSTRAINED_TOPOLOGY,
            "this is an annotation and does nothing as a label: set it in spec.template.metadata.annotations",
        ),
        (
            "labels",
            PLACEMENT_PROFILE,
            "this is an annotation and does nothing as a label: set it in metadata.annotations of the job itself",
        ),
        ("annotations", "kueue.x-k8s.io/slice-size", f"this annotation is not known and does nothing; did you mean {SLICE_SIZE}?"),
        ("labels", "kueue.x-k8s.io/slice-size", f"this label is not known and does nothing; did you mean the annotation {SLICE_SIZE}?"),
        (
            "labels",
            "kueue.x-k8s.io/priority-clas",
            f"this label is not known and does nothing; did you mean {PRIORITY_CLASS_LABEL}, on the job itself?",
        ),
    ],
)
def test_on_a_pod_template(part: str, name: str, shown: str):
    assert list_messages(made("Job", template={part: {name: "true"}})) == [f"{TEMPLATE}.{part}[{name}]: {shown}"]


def test_misspelt_label_in_a_deployment_template_gets_a_warning_with_the_right_place():
    shown = f"this label is not known and does nothing; did you mean {PRIORITY_CLASS_LABEL}?"
    assert list_messages(made("Deployment", template={"labels": {"kueue.x-k8s.io/priority-clas": "x"}})) == [
        f"{TEMPLATE}.labels[kueue.x-k8s.io/priority-clas]: {shown}"
    ]
    place = f"set it in {TEMPLATE}.annotations"
    (warning,) = list_messages(made("Deployment", template={"labels": {PLACEMENT_PROFILE: "kep"}}))
    assert warning.endswith(place)


# --- the annotation of a group, of an object that is queued ---------------------------------------------


@pytest.mark.parametrize("kind", ["StatefulSet", "Deployment", "Pod", "RayCluster"])
def test_pod_group_topology_on_a_kind_that_ignores_it_gets_a_warning(kind: str):
    asks = {"annotations": {PODGROUP_TOPOLOGY: RACK}}
    shown = f"[{PODGROUP_TOPOLOGY}]: this annotation does nothing here; Job, JobSet, MPIJob and LeaderWorkerSet read it"
    assert list_messages(made(kind, asks)) == [f"metadata.annotations{shown}"]
    if kind == "Deployment":
        assert list_messages(made(kind, template=asks)) == [f"{TEMPLATE}.annotations{shown}"]


def test_on_the_pod_template_of_a_job_the_job_itself_is_named():
    asks = {"annotations": {PODGROUP_TOPOLOGY: RACK}}
    shown = "this annotation does nothing here; set it on the job itself"
    assert list_messages(made("Job", template=asks)) == [f"{TEMPLATE}.annotations[{PODGROUP_TOPOLOGY}]: {shown}"]
    assert list_messages(made("Job", asks)) == [], "beside a queue it is refused, by the reviews of groups"


def test_placed_by_annotation_without_a_group_gets_a_warning():
    asks = {"annotations": {names.PODGROUP_PLACED_BY: "kube-scheduler"}}
    shown = f"[{names.PODGROUP_PLACED_BY}]: this annotation does nothing without {PODGROUP_TOPOLOGY}"
    assert list_messages(made("Job", asks)) == [f"metadata.annotations{shown}"]
    asks["annotations"][PODGROUP_TOPOLOGY] = RACK
    assert list_messages(made("Job", asks)) == []


# --- auto is no level of a whole job --------------------------------------------------------------------


@pytest.mark.parametrize("name", [WORKLOAD_REQUIRED_TOPOLOGY, names.WORKLOAD_PREFERRED_TOPOLOGY])
@pytest.mark.parametrize("kind", ["Job", "StatefulSet", "Pod", "Deployment"])
def test_auto_for_a_whole_job_is_refused_when_it_is_created(kind: str, name: str):
    notes = {"annotations": {name: "auto"}}
    response = Webhook().validate(made(kind, template=notes) if kind == "Deployment" else made(kind, notes))
    (cause,) = response["status"]["details"]["causes"]
    assert cause["field"] == (f"{TEMPLATE}.annotations[{name}]" if kind == "Deployment" else f"metadata.annotations[{name}]")
    assert cause["message"].startswith('"auto": ')


def test_a_profile_that_there_is_not_is_refused_on_the_template_of_a_deployment_where_it_counts():
    response = Webhook().validate(made("Deployment", template={"annotations": {PLACEMENT_PROFILE: "dense"}}))
    assert [cause["field"] for cause in response["status"]["details"]["causes"]] == [f"{TEMPLATE}.annotations[{PLACEMENT_PROFILE}]"]


@pytest.mark.parametrize("kind", ["Job", "Pod"])
@pytest.mark.parametrize("part", ["annotations", "labels"])
def test_of_very_many_unknown_names_the_first_are_compared(kind: str, part: str, monkeypatch: pytest.MonkeyPatch):
    """Found by an attack: 6,000 of them in one object took 1 s of the event loop of the webhook."""
    compared: list[str] = []
    find = annotation_catalog.find_meant

    def count(name: str) -> str | None:
        compared.append(name)
        return find(name)

    monkeypatch.setattr(annotation_catalog, "find_meant", count)
    many = {f"{GROUP}/unknown-{number:04}": "x" for number in range(3_000)}
    response = Webhook().validate(made(kind, own={part: many}, template={part: many}), None)
    assert response["allowed"]
    unknown = [name for name in compared if name in many]
    assert unknown
    assert len(unknown) <= 2 * MOST_UNKNOWN
