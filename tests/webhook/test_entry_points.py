"""One table: for each rule the entry points that lead to what it forbids, each driven by a namespace user on the real API server.

The user has the role `edit` and may write all kinds of job; the namespace is managed, or its jobs name a queue. All rows share one
set of objects.
A row is an attempt and its outcome: refused, or let in behind gates, or allowed because it is harmless. At the end no more runs
than was admitted before.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from core.jobs.kinds.pod import STATIC_POD
from core.names import (
    ALLOW_DAEMON_SETS,
    ELASTIC_JOB,
    MANAGED,
    MAX_EXEC_TIME_LABEL,
    MIN_PARALLELISM,
    PREBUILT_WORKLOAD,
    QUEUE_NAME_LABEL,
    WORKLOAD_ANNOTATION,
)
from e2e import manifests
from e2e.api import ApiError, wait_for
from e2e.cluster import Cluster
from e2e.topogate import SYSTEM_NAMESPACE
from tests.e2e.users import RBAC, assert_refused, create_user, may
from tests.reconciler.kinds.pods import build_template as pod_template
from tests.reconciler.kinds.pods import of_set
from tests.reconciler.scenes import GPU, JOBS, WORKLOADS
from tests.webhook import entry_points
from tests.webhook.entry_points import (
    APPS,
    CLAIMS,
    IS_SETTLED,
    JOBSETS,
    KEEPS_LABELS,
    KEEPS_OWNER,
    LABELLED,
    MANAGED_NAMESPACE,
    NAMES_NO_QUEUE,
    NO_AUTOSCALING,
    NO_DAEMON_SETS,
    NOBODY,
    PART_IS_KEPT,
    PODS,
    RAY,
    RAY_SPEC,
    SCALED_PART,
    STRATEGIC_PATCH,
    TOO_MANY,
    TORCH,
    UNKNOWN_TYPE,
    WRONG_TYPE,
    Act,
    Obj,
    Outcome,
    Stage,
    build_daemon_set,
    build_mirror_pod,
    build_pod,
    changes_pod,
    creates,
    creates_job,
    creates_job_asking,
    creates_pod,
    deletes,
    dry_pod,
    is_allowed,
    is_allowed_unless_managed,
    is_gated,
    is_refused,
    marks,
    nodes,
    of_kind,
    of_started_template,
    owned,
    part,
    patches,
    patches_finalizers,
    patches_greedy,
    patches_status,
    patches_train,
    resizes,
    scales,
    tolerations,
)

pytestmark = pytest.mark.cluster
stage = entry_points.stage

TABLE: tuple[tuple[str, str, Act, Outcome], ...] = (
    # rule, entry point, attempt, outcome
    ("a pod keeps its owner", "metadata: none", patches_train({"metadata": {"ownerReferences": None}}), is_refused(KEEPS_OWNER)),
    (
        "a pod keeps its owner",
        "metadata: owner and labels",
        patches_train({"metadata": {"ownerReferences": None, "labels": {"job-name": None, "batch.kubernetes.io/controller-uid": None}}}),
        is_refused(KEEPS_OWNER),
    ),
    (
        "a pod keeps its owner",
        "metadata: no controller",
        lambda stage: stage.user.patch(
            stage.train_path, {"metadata": {"ownerReferences": [stage.train["metadata"]["ownerReferences"][0] | {"controller": False}]}}
        ),
        is_refused(KEEPS_OWNER),
    ),
    (
        "a pod keeps its owner",
        "metadata: another",
        lambda stage: stage.user.patch(
            stage.train_path, {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", **NOBODY}]}}
        ),
        is_refused(KEEPS_OWNER),
    ),
    *(
        (
            "a pod keeps its labels",
            f"metadata: {name}={value}",
            patches_train({"metadata": {"labels": {name: value}}}),
            is_refused(KEEPS_LABELS),
        )
        for name in ("batch.kubernetes.io/controller-uid", "job-name")
        for value in (None, "another")
    ),
    (
        "a pod keeps its labels",
        "metadata: marked as queued itself",
        patches_train({"metadata": {"labels": {MANAGED: "true"}}}),
        is_refused(f"{MANAGED} names the owner of this pod"),
    ),
    ("a pod keeps its labels", "metadata: another is added", patches_train({"metadata": {"labels": {"mine": "still"}}}), is_allowed),
    ("a pod keeps its labels", "metadata: an annotation", patches_train({"metadata": {"annotations": {"mine": "still"}}}), is_allowed),
    *(
        ("a part is deleted with its pods", f"delete: {options}", deletes(part, options), is_refused(PART_IS_KEPT))
        for options in (
            "propagationPolicy=Orphan",
            "orphanDependents=true",
            "gracePeriodSeconds=0",
        )  # the last is Orphan of a Job
    ),
    (
        "a part is deleted with its pods",
        "delete: collection",
        deletes(lambda stage: stage.path(JOBS), "propagationPolicy=Orphan"),
        is_refused(PART_IS_KEPT),
    ),
    ("a part is deleted with its pods", "metadata: a finalizer", patches_finalizers(part), is_refused(PART_IS_KEPT)),
    *(
        ("a part is deleted with its pods", f"delete: {options}", deletes(part, options), is_allowed)
        for options in ("propagationPolicy=Background", "propagationPolicy=Foreground")
    ),
    (
        "a pod is deleted with its pods",
        "delete",
        deletes(lambda stage: stage.train_path, "propagationPolicy=Orphan"),
        is_refused("only the controller of Job may delete this pod with the policy Orphan"),
    ),
    (
        "a pod is deleted with its pods",
        "metadata: a finalizer",
        patches_finalizers(lambda stage: stage.train_path),
        is_refused("a pod of an admitted workload cannot have the finalizer orphan"),
    ),
    ("a pod is deleted with its pods", "delete: none", deletes(lambda stage: stage.train_path, "gracePeriodSeconds=0"), is_allowed),
    (
        "a part keeps its labels",
        "metadata",
        lambda stage: stage.user.patch(part(stage), {"metadata": {"labels": {"jobset.sigs.k8s.io/jobset-name": None}}}),
        is_refused(PART_IS_KEPT),
    ),
    (
        "a part keeps its owner",
        "owner change",
        lambda stage: stage.user.patch(part(stage), {"metadata": {"ownerReferences": None}}),
        is_refused(PART_IS_KEPT),
    ),
    (
        "a part keeps its size",
        "update",
        lambda stage: stage.user.patch(part(stage), {"spec": {"parallelism": 2}}),
        is_refused(PART_IS_KEPT),
    ),
    (
        "a part keeps its labels",
        "metadata: another is added",
        lambda stage: stage.user.patch(part(stage), {"metadata": {"labels": {"mine": "still"}}}),
        is_allowed,
    ),
    # An owner of a kind that is queued itself: `batch` is a version of the core group, not the group batch.
    *(
        (
            "a pod is queued",
            f"create: owner {api_version} {kind}",
            creates_pod(partial(owned, api_version=api_version, kind=kind)),
            is_gated,
        )
        for api_version, kind in (("batch", "Job"), ("apps", "DaemonSet"), ("/batch", "Job"))
    ),
    *(
        (
            "a pod is queued",
            f"create: owner {api_version} {kind}",
            creates_pod(partial(owned, api_version=api_version, kind=kind)),
            is_refused(f"only the controller of {kind} may make"),
        )
        for api_version, kind in (("batch/v1", "Job"), ("batch/v9", "Job"), ("apps/v1", "DaemonSet"))
    ),
    (
        "what makes pods has no pod as its controller",
        "create: owner /v1 Pod",
        lambda stage: stage.user.create(stage.path(APPS, "", "statefulsets"), owned_set(stage, "/v1")),
        is_refused("a Pod may be an owner of this object, but not its controller"),
    ),
    (
        "a pod is queued",
        "create: mirror pod",
        creates_pod(build_mirror_pod),
        is_refused(f"only the kubelet of its node may make a pod with {STATIC_POD}"),
    ),
    ("a queue has a name", "create: Job", creates_job(labels={QUEUE_NAME_LABEL: ""}), is_refused(NAMES_NO_QUEUE, 422)),
    (
        "a queue has a name",
        "create: Pod",
        creates_pod(partial(build_pod, name="another", labels={QUEUE_NAME_LABEL: ""})),
        is_refused(NAMES_NO_QUEUE, 422),
    ),
    (
        "a queue has a name",
        "metadata: Job",
        patches_greedy({"metadata": {"labels": {QUEUE_NAME_LABEL: ""}}}),
        is_refused(NAMES_NO_QUEUE, 422),
    ),
    (
        "a queue has a name",
        "update: unsuspended with it",
        patches_greedy(
            {"metadata": {"labels": {QUEUE_NAME_LABEL: ""}}, "spec": {"suspend": False, "template": {"spec": {"schedulingGates": None}}}}
        ),
        is_refused("is taken off by topogate"),
    ),
    (
        "a job stays queued",
        "metadata",
        patches_greedy({"metadata": {"labels": {QUEUE_NAME_LABEL: None}}}),
        is_refused("cannot be taken off"),
    ),
    *(
        row
        for what, wrong, right in TOO_MANY
        for row in (
            (f"limit of {what}", "create: Job", creates_job_asking(**wrong), is_refused("at most", 422)),
            (f"limit of {what}", "create: Pod", dry_pod("main", **wrong), is_refused("at most", 422)),
            (
                f"limit of {what}",
                "create: Pod of a PodGroup",
                dry_pod(None, True, **wrong),
                is_refused("a pod that topogate places has at most", 422),
            ),
            (f"limit of {what}", "create: Job at the limit", creates_job_asking(**right), is_allowed),
            (f"limit of {what}", "create: Pod at the limit", dry_pod("main", **right), is_allowed),
        )
    ),
    (
        "limit of tolerations",
        "update: Pod",
        changes_pod({"tolerations": tolerations(4)}, {"spec": {"tolerations": tolerations(81)}}),
        is_refused("a pod that topogate places has at most 64 tolerations", 422),
    ),
    (
        "limit of values of nodes",
        "update: Pod",
        changes_pod(
            {"affinity": nodes(1)},
            {
                "spec": {
                    "affinity": {
                        "nodeAffinity": {
                            "requiredDuringSchedulingIgnoredDuringExecution": {
                                "nodeSelectorTerms": [
                                    {
                                        "matchExpressions": [
                                            *nodes(1)["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
                                                "nodeSelectorTerms"
                                            ][0]["matchExpressions"],
                                            {"key": "b", "operator": "NotIn", "values": [f"v{i}" for i in range(600)]},
                                        ]
                                    }
                                ]
                            }
                        }
                    }
                }
            },
        ),
        is_refused("a pod that topogate places has at most 512", 422),
    ),
    (
        "no autoscaler",
        "create: RayCluster",
        creates(RAY, "ray.io/v1", "RayCluster", RAY_SPEC | {"enableInTreeAutoscaling": True}),
        is_refused(NO_AUTOSCALING, 422),
    ),
    (
        "no autoscaler",
        "update: running RayCluster",
        patches(RAY, "raycluster", {"spec": {"enableInTreeAutoscaling": True}}),
        is_refused(NO_AUTOSCALING, 422),
    ),
    (
        "replica types are known",
        "create: PyTorchJob",
        creates(TORCH, "kubeflow.org/v1", "PyTorchJob", WRONG_TYPE),
        is_refused(UNKNOWN_TYPE, 422),
    ),
    (
        "replica types are known",
        "update: running PyTorchJob",
        patches(TORCH, "pytorchjob", {"spec": WRONG_TYPE}),
        is_refused(UNKNOWN_TYPE, 422),
    ),
    (
        "topogate chooses nodes",
        "update: running PyTorchJob",
        patches(TORCH, "pytorchjob", {"spec": {"pytorchReplicaSpecs": {"Worker": {"template": {"spec": {"nodeName": "n"}}}}}}),
        is_refused("a running job keeps its pod templates", 422),
    ),
    *(
        ("marks of a running job are settled", f"metadata: {name}", patches(JOBS, "train", marks(part, name, value)), is_refused(told, 422))
        for part, name, value, told in (
            ("labels", MAX_EXEC_TIME_LABEL, "never", IS_SETTLED),
            ("labels", MAX_EXEC_TIME_LABEL, "60", IS_SETTLED),
            ("labels", PREBUILT_WORKLOAD, "another", IS_SETTLED),
            ("annotations", ELASTIC_JOB, "perhaps", "is settled when the job is created"),
            ("annotations", MIN_PARALLELISM, "77", "a running job keeps it"),
        )
    ),
    (
        "marks can be read",
        "metadata: waiting Job",
        patches(JOBS, "greedy", marks("labels", MAX_EXEC_TIME_LABEL, "never")),
        is_refused("a whole number of seconds", 422),
    ),
    (
        "only steps of topogate are not judged",
        "metadata: waiting Job, with its field manager",
        lambda stage: stage.user.patch(
            f"{stage.path(JOBS, 'greedy')}?fieldManager=topogate", marks("labels", MAX_EXEC_TIME_LABEL, "never")
        ),
        is_refused("a whole number of seconds", 422),
    ),
    *(
        (
            "a status is written by controllers",
            f"status: {what}",
            patches_status(path),
            is_refused("cannot patch resource"),
        )
        for what, path in (
            ("Pod", lambda stage: stage.train_path),
            ("Job", lambda stage: stage.path(JOBS, "train")),
            ("JobSet", lambda stage: stage.path(JOBSETS, "set")),
            ("PyTorchJob", lambda stage: stage.path(TORCH, "pytorchjob")),
            ("Workload", lambda stage: stage.path(WORKLOADS, stage.train["metadata"]["annotations"][WORKLOAD_ANNOTATION])),
        )
    ),
    ("a pod keeps its requests", "resize", resizes("2"), is_refused("a pod that topogate places keeps its requests")),
    *(
        row
        for kind in ("Deployment", "StatefulSet")
        for row in (
            ("a part keeps its size", f"scale: {kind}", scales(kind, 2, is_part=True), is_refused(SCALED_PART, 422)),
            ("a part keeps its size", f"scale: {kind} to what it has", scales(kind, 0, is_part=True), is_allowed),
            ("a part keeps its size", f"scale: {kind} that is queued itself", scales(kind, 1, is_part=False), is_allowed),
        )
    ),
    (
        "limit of tolerations",
        "create: Pod of a started template",
        lambda stage: stage.user.create(f"{stage.path(PODS)}?dryRun=All", of_started_template(stage)),
        is_allowed_unless_managed,
    ),
    (
        "claims are counted",
        "create: Job",
        creates_job_asking(resourceClaims=CLAIMS),
        is_refused("no quota counts the devices of ResourceClaims", 422),
    ),
    (
        "claims are counted",
        "create: Pod",
        dry_pod("main", resourceClaims=CLAIMS),
        is_refused("no quota counts the devices of ResourceClaims", 422),
    ),
    (
        "no DaemonSet",
        "create",
        lambda stage: stage.user.create(stage.path(APPS, "", "daemonsets"), build_daemon_set(stage, "everywhere")),
        is_refused(NO_DAEMON_SETS),
    ),
    (
        "no DaemonSet",
        "create: without requests",
        lambda stage: stage.user.create(stage.path(APPS, "", "daemonsets"), build_daemon_set(stage, "everywhere", resources={})),
        is_refused(NO_DAEMON_SETS),
    ),
)


def owned_set(stage: Stage, api_version: str) -> Obj:
    made = of_set("StatefulSet", stage.scene, "forged", 0, pod_template(8))
    made["metadata"] |= {"labels": {}, "ownerReferences": [{"apiVersion": api_version, "kind": "Pod", **NOBODY}]}
    return made


# Rules about objects that name no queue: elsewhere these run as if topogate were not there.
IN_MANAGED_ONLY = ("a pod is queued", "what makes pods has no pod as its controller", "a job stays queued", "no DaemonSet")
NAMESPACES = (MANAGED_NAMESPACE, LABELLED)


def is_in_managed_only(rule: str, entry: str) -> bool:
    return rule in IN_MANAGED_ONLY and "mirror" not in entry and "v1 Job" not in entry


def rows(*, in_managed_only: bool) -> list[Any]:
    chosen = (row for row in TABLE if is_in_managed_only(row[0], row[1]) == in_managed_only)
    return [pytest.param(act, outcome, id=f"{rule} - {entry}") for rule, entry, act, outcome in chosen]


@pytest.mark.parametrize("stage", NAMESPACES, indirect=True)
@pytest.mark.parametrize(("act", "outcome"), rows(in_managed_only=False))
def test_entry_point_driven_by_namespace_user_is_judged(act: Act, outcome: Outcome, stage: Stage) -> None:
    outcome(stage, act)


@pytest.mark.parametrize("stage", [MANAGED_NAMESPACE], indirect=True)
@pytest.mark.parametrize(("act", "outcome"), rows(in_managed_only=True))
def test_entry_point_of_managed_namespace_driven_by_its_user_is_judged(act: Act, outcome: Outcome, stage: Stage) -> None:
    outcome(stage, act)


@pytest.mark.parametrize("stage", [MANAGED_NAMESPACE], indirect=True)
def test_daemon_set_where_administrator_allows_it_is_created(stage: Stage) -> None:
    """The annotation of the Namespace lets users make DaemonSets; an administrator makes them anyway."""
    path, namespace = stage.path(APPS, "", "daemonsets"), f"/api/v1/namespaces/{stage.scene.namespace}"
    made = build_daemon_set(stage, "agent", resources={})
    made["spec"]["template"]["spec"]["nodeSelector"] = {"none": "matches"}
    stage.scene.api.create(path, made)
    stage.user.patch(f"{path}/agent", {"metadata": {"labels": {"mine": "still"}}})
    change = {"spec": {"minReadySeconds": 1}}
    assert_refused(403, NO_DAEMON_SETS, lambda: stage.user.patch(f"{path}/agent", change))
    stage.scene.api.patch(namespace, {"metadata": {"annotations": {ALLOW_DAEMON_SETS: "true"}}})
    try:
        wait_for("the annotation to be read", lambda: is_done(lambda: stage.user.patch(f"{path}/agent", change)))
    finally:
        stage.scene.api.patch(namespace, {"metadata": {"annotations": {ALLOW_DAEMON_SETS: None}}})
        stage.scene.api.delete(f"{path}/agent")


def is_done(act: Callable[[], Any]) -> bool:
    try:
        act()
    except ApiError:
        return False
    return True


@pytest.mark.parametrize("stage", NAMESPACES, indirect=True)
def test_reconciler_account_changing_pod_beyond_gates_is_refused(stage: Stage, cluster: Cluster) -> None:
    """In all namespaces, kube-system included."""
    token = cluster.api.create(
        f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/serviceaccounts/topogate-reconciler/token",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
    )
    thief = cluster.api.for_token(str(token["status"]["token"]))
    container = {"name": "c", "image": "registry.example/c:1"}
    system = "/api/v1/namespaces/kube-system/pods"
    cluster.api.create(system, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "victim"}, "spec": {"containers": [container]}})
    try:
        for path in (f"{system}/victim", stage.train_path):
            name = cluster.api.get(path)["spec"]["containers"][0]["name"]
            image = {"spec": {"containers": [{"name": name, "image": "registry.example/evil:1"}]}}
            assert_refused(403, "reconciler does not change spec.containers", partial(thief.patch, path, image, STRATEGIC_PATCH))
            deadline = {"spec": {"activeDeadlineSeconds": 1}}
            assert_refused(403, "reconciler does not change spec.activeDeadlineSeconds", partial(thief.patch, path, deadline))
            owner = {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", **NOBODY}]}}
            assert_refused(403, "reconciler does not change metadata.ownerReferences", partial(thief.patch, path, owner))
            thief.patch(path, {"metadata": {"annotations": {"topogate.dev/rank": "0"}}})
    finally:
        thief.close()
        cluster.api.delete(f"{system}/victim", grace_period_s=0)


@pytest.mark.parametrize("stage", NAMESPACES, indirect=True)
def test_part_with_queue_label_is_unsuspended_by_controller_of_its_owner_only(stage: Stage) -> None:
    """Former defect: KubeRay copies the labels of a RayService onto its RayCluster, and was refused.

    An owner of a kind that is not known gives no right.
    """
    scene = stage.scene
    operator = create_user(scene.api, scene.namespace, "operator", "view")
    role = {"metadata": {"name": "kuberay"}, "rules": [{"apiGroups": ["ray.io"], "resources": ["rayservices/status"], "verbs": ["update"]}]}
    scene.api.create(f"{RBAC.format(scene.namespace)}/roles", role)
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "kuberay"}
    subject = {"kind": "ServiceAccount", "name": "operator", "namespace": scene.namespace}
    binding = {"metadata": {"name": "kuberay"}, "subjects": [subject], "roleRef": reference}
    scene.api.create(f"{RBAC.format(scene.namespace)}/rolebindings", binding)
    wait_for("the rights", partial(may, operator, "update", "ray.io", "rayservices/status", scene.namespace))
    start = {"spec": {"suspend": False}}
    for name, kind, group_version, is_known in (("a", "RayService", "ray.io/v1", True), ("b", "Other", "example.com/v1", False)):
        part = of_kind(scene, "ray.io/v1", "RayCluster", RAY_SPEC | {"suspend": True})
        owner = {"apiVersion": group_version, "kind": kind, **NOBODY}
        part["metadata"] |= {"name": f"part-{name}", "labels": {QUEUE_NAME_LABEL: "none"}, "ownerReferences": [owner]}
        scene.api.create(RAY.format(scene.namespace), part)
        path = stage.path(RAY, f"part-{name}") + "?dryRun=All"
        assert_refused(403, "Ray", lambda path=path: stage.user.patch(path, start))  # by two policies where the owner is known
        if is_known:
            operator.patch(path, start)
        else:
            assert_refused(403, "a queued RayCluster is started by topogate", lambda path=path: operator.patch(path, start))
        scene.api.delete(stage.path(RAY, f"part-{name}"))
    operator.close()


@pytest.mark.parametrize("stage", NAMESPACES, indirect=True)
def test_pods_of_job_deleted_with_orphans_are_released(stage: Stage) -> None:
    """The garbage collector takes the owner off, and the Job controller its finalizers."""
    job = manifests.build_job("orphaned", stage.scene.namespace, pods=1, required=stage.scene.rack)
    stage.user.create(stage.path(JOBS), job)
    stage.scene.until_bound("orphaned", 1)
    stage.user.request("DELETE", f"{stage.path(JOBS, 'orphaned')}?propagationPolicy=Orphan")

    def orphans() -> list[Obj]:
        found = stage.scene.api.list(stage.path(PODS) + "?labelSelector=job-name%3Dorphaned")
        return [pod for pod in found if not pod["metadata"].get("ownerReferences")]

    found = wait_for("the pod to be released", orphans)
    assert WORKLOAD_ANNOTATION in found[0]["metadata"]["annotations"]
    for each in found:
        stage.user.delete(stage.path(PODS, each["metadata"]["name"]), grace_period_s=0)
    wait_for("the pod to be gone", lambda: not orphans())


@pytest.mark.parametrize("stage", NAMESPACES, indirect=True)
def test_gpus_that_run_after_all_attempts_are_within_quota(stage: Stage) -> None:
    """The sum of all rows: what runs is what was admitted before the first of them."""
    now = stage.scene.read()
    running = [pod for pod in now.pods if pod["metadata"]["namespace"] == stage.scene.namespace and pod["spec"].get("nodeName")]
    asked = sum(int((c["resources"].get("limits") or {}).get(GPU, 0)) for pod in running for c in pod["spec"]["containers"])
    assert asked == 12
    assert len(now.pods_of("train")) == 1
