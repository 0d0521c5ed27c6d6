"""What the table of entry points (`test_entry_points`) is made of: a scene, a user of its namespace, attempts and outcomes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from core.jobs.kinds.pod import STATIC_POD
from core.jobs.kinds.registry import KINDS
from core.names import (
    ADMISSION_GATE,
    PODGROUP_GATE,
    PODSET_LABEL,
    QUEUE_NAME_LABEL,
    TOPOLOGY_GATE,
    WORKLOAD_ANNOTATION,
)
from e2e import manifests
from e2e.api import Api, ApiError, wait_for
from e2e.cluster import Cluster
from e2e.standins.jobset import JobSetStandIn
from e2e.standins.ray import RayClusterStandIn
from e2e.standins.training import PyTorchJobStandIn
from e2e.topogate import Topogate, build_managed_labels
from tests.e2e.users import RBAC, assert_refused, create_user, may
from tests.installed import Installed
from tests.reconciler.kinds.pods import build_template as pod_template
from tests.reconciler.kinds.pods import of_set
from tests.reconciler.kinds.test_jobset import build_jobset, replicated
from tests.reconciler.scenes import JOBS, Scene

pytestmark = pytest.mark.cluster
Obj = dict[str, Any]
QUOTA = 16
PODS, JOBSETS = "/api/v1/namespaces/{}/pods", "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets"
APPS = "/apis/apps/v1/namespaces/{}/{}"
RAY, TORCH = "/apis/ray.io/v1/namespaces/{}/rayclusters", "/apis/kubeflow.org/v1/namespaces/{}/pytorchjobs"
SMALL = pod_template(0)
RAY_SPEC: Obj = {
    "headGroupSpec": {"template": SMALL},
    "workerGroupSpecs": [{"groupName": "workers", "replicas": 1, "template": SMALL}],
}
TORCH_SPEC: Obj = {"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": SMALL}}}
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
_numbers = itertools.count(1)
NOBODY = {"name": "nobody", "uid": "11111111-2222-3333-4444-555555555555", "controller": True}


@dataclass(frozen=True)
class Stage:
    """A namespace with a running Job `train` (8 of 16 GPUs), a running JobSet `set` (4), a Job `greedy` that waits, and a
    RayCluster and a PyTorchJob that run without GPUs."""

    scene: Scene
    user: Api
    topogate: Topogate
    is_managed: bool

    def path(self, template: str, name: str = "", *more: str) -> str:
        return template.format(self.scene.namespace, *more) + (f"/{name}" if name else "")

    @property
    def train(self) -> Obj:
        """A running pod of `train`."""
        found = self.scene.api.list(self.path(PODS) + "?labelSelector=job-name%3Dtrain")
        return next(pod for pod in found if pod["spec"].get("nodeName"))

    @property
    def train_path(self) -> str:
        return self.path(PODS, self.train["metadata"]["name"])


MANAGED_NAMESPACE, LABELLED = "managed namespace", "jobs with a queue label"


@pytest.fixture(scope="module")
def stage(cluster: Cluster, installed: Installed, request: pytest.FixtureRequest) -> Iterator[Stage]:
    topogate = installed.run()
    with (
        JobSetStandIn(cluster.api) as jobsets,
        RayClusterStandIn(cluster.api) as ray,
        PyTorchJobStandIn(cluster.api) as torch,
    ):
        scene = Scene(cluster).open(quota=QUOTA)
        scene.create(manifests.build_local_queue("default", scene.namespace, f"{scene.prefix}queue"))
        is_managed = request.param == MANAGED_NAMESPACE
        if is_managed:
            cluster.api.patch(f"/api/v1/namespaces/{scene.namespace}", {"metadata": {"labels": build_managed_labels()}})
        user = create_user(cluster.api, scene.namespace)
        _may_write_all_kinds(cluster.api, scene.namespace)
        user.create(JOBS.format(scene.namespace), manifests.build_job("train", scene.namespace, pods=1, gpus=8, required=scene.rack))
        user.create(JOBS.format(scene.namespace), manifests.build_job("greedy", scene.namespace, pods=3, gpus=8, required=scene.rack))
        user.create(JOBSETS.format(scene.namespace), build_jobset(scene, "set", replicated("workers", 1, 1)))
        user.create(RAY.format(scene.namespace), of_kind(scene, "ray.io/v1", "RayCluster", RAY_SPEC))
        user.create(TORCH.format(scene.namespace), of_kind(scene, "kubeflow.org/v1", "PyTorchJob", TORCH_SPEC))
        scene.until_bound("train", 1)
        scene.until_waiting("greedy", "ExceedsMaxQuota")
        scene.until_bound("set", 1)
        scene.eventually("Ray and PyTorch to run", lambda now: len([p for p in now.pods if is_small(p) and p["spec"].get("nodeName")]) == 3)
        opened = Stage(scene, user, topogate, is_managed)
        _await_rules(opened)
        yield opened
        for running in (f"{RAY.format(scene.namespace)}/raycluster", f"{TORCH.format(scene.namespace)}/pytorchjob"):
            user.delete(running)
        user.delete(f"{JOBSETS.format(scene.namespace)}/set")
        wait_for("its Job to be gone", lambda: cluster.api.find(part(opened)) is None)
        user.close()
        scene.close()
    for standin in (jobsets, ray, torch):
        standin.uninstall()


def of_kind(scene: Scene, group_version: str, kind: str, spec: Obj) -> Obj:
    metadata = {"name": kind.lower(), "namespace": scene.namespace, "labels": {QUEUE_NAME_LABEL: "main"}}
    return {"apiVersion": group_version, "kind": kind, "metadata": metadata, "spec": spec}


def is_small(pod: Obj) -> bool:
    return bool(pod["metadata"].get("labels", {}).keys() & {"ray.io/cluster", "training.kubeflow.org/job-name"})


def _may_write_all_kinds(api: Api, namespace: str) -> None:
    """Operators ship such roles, aggregated to `edit`."""
    rules = [{"apiGroups": [kind.group], "resources": [kind.plural, f"{kind.plural}/scale"], "verbs": ["*"]} for kind in KINDS]
    rules.append({"apiGroups": [""], "resources": ["pods/resize"], "verbs": ["patch"]})
    api.create(f"{RBAC.format(namespace)}/roles", {"metadata": {"name": "kinds"}, "rules": rules})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "kinds"}
    subject = {"kind": "ServiceAccount", "name": "user", "namespace": namespace}
    api.create(f"{RBAC.format(namespace)}/rolebindings", {"metadata": {"name": "kinds"}, "subjects": [subject], "roleRef": reference})


def _await_rules(stage: Stage) -> None:
    """The API server reads policies, roles and a namespace's label a moment after they are written."""
    wait_for("the rights", partial(may, stage.user, "create", "kubeflow.org", "pytorchjobs", stage.scene.namespace))

    def judged() -> bool:
        try:
            stage.user.patch(f"{stage.train_path}?dryRun=All", {"metadata": {"labels": {PODSET_LABEL: "b"}}})
        except ApiError as error:
            return "cannot be changed" in str(error)
        return False

    wait_for("the policies to hold", judged)
    probe = build_pod(stage, "probe", labels={} if stage.is_managed else {QUEUE_NAME_LABEL: "main"})
    wait_for("the label of the namespace", lambda: gated(stage.user.create(f"{stage.path(PODS)}?dryRun=All", probe)))


def gated(obj: Obj) -> bool:
    return {ADMISSION_GATE, TOPOLOGY_GATE} <= {gate["name"] for gate in obj["spec"].get("schedulingGates") or ()}


def build_pod(stage: Stage, name: str, gpus: int = 8, **metadata: Any) -> Obj:
    spec = {**pod_template(gpus)["spec"], "nodeSelector": dict(stage.scene.pool.labels)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": stage.scene.namespace, **metadata}, "spec": spec}


def owned(stage: Stage, api_version: str, kind: str) -> Obj:
    return build_pod(stage, f"owned-{next(_numbers)}", ownerReferences=[{"apiVersion": api_version, "kind": kind, **NOBODY}])


def build_daemon_set(stage: Stage, name: str, **container: Any) -> Obj:
    made = of_set("StatefulSet", stage.scene, name, 1, pod_template(8))
    template = made["spec"]["template"]
    template["spec"]["containers"][0] |= container
    metadata = {"name": name, "namespace": stage.scene.namespace}
    spec = {"selector": made["spec"]["selector"], "template": template}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": spec}


def build_mirror_pod(stage: Stage) -> Obj:
    made = build_pod(stage, "mirror", annotations={STATIC_POD: "0123456789"})
    made["spec"]["nodeName"] = f"{stage.scene.prefix}b1-r1-n1"
    return made


def part(stage: Stage) -> str:
    return stage.path(JOBS, "set-workers-0")


Act = Callable[[Stage], Any]
Outcome = Callable[[Stage, Act], None]


def is_refused(told: str, status: int = 403) -> Outcome:
    return lambda stage, act: assert_refused(status, told, lambda: act(stage))


def is_gated(stage: Stage, act: Act) -> None:
    created = act(stage)
    try:
        assert gated(created)
        assert created["metadata"]["labels"][QUEUE_NAME_LABEL] == "default"
    finally:
        stage.scene.api.delete(stage.path(PODS, created["metadata"]["name"]), grace_period_s=0)


def is_allowed(stage: Stage, act: Act) -> None:
    act(stage)


def is_allowed_unless_managed(stage: Stage, act: Act) -> None:
    """What looks like a pod of a started job, and has no controller, is queued by itself in a managed namespace."""
    if stage.is_managed:
        assert_refused(422, "a pod that topogate places has at most", lambda: act(stage))
    else:
        act(stage)


def patches_train(body: Any) -> Act:
    return lambda stage: stage.user.patch(stage.train_path, body)


def patches_finalizers(path: Callable[[Stage], str]) -> Act:
    def act(stage: Stage) -> Obj:
        now = stage.user.get(path(stage))["metadata"].get("finalizers") or []
        return stage.user.patch(f"{path(stage)}?dryRun=All", {"metadata": {"finalizers": [*now, "orphan"]}})

    return act


def deletes(path: Callable[[Stage], str], options: str) -> Act:
    return lambda stage: stage.user.request("DELETE", f"{path(stage)}?dryRun=All&{options}")


def creates_pod(make: Callable[[Stage], Obj]) -> Act:
    return lambda stage: stage.user.create(stage.path(PODS), make(stage))


def patches_greedy(body: Any) -> Act:
    return lambda stage: stage.user.patch(stage.path(JOBS, "greedy"), body)


def creates_job(**metadata: Any) -> Act:
    def act(stage: Stage) -> Obj:
        job = manifests.build_job("another", stage.scene.namespace, pods=3, gpus=8)
        return stage.user.create(stage.path(JOBS), {**job, "metadata": {**job["metadata"], **metadata}})

    return act


def terms(count: int, values: int = 1) -> Obj:
    selector = {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": [f"v{i}" for i in range(values)]}]}
    term = {"labelSelector": selector, "namespaceSelector": {}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term] * count}}


def nodes(*values: int) -> Obj:
    each = [{"matchExpressions": [{"key": "a", "operator": "In", "values": [f"v{i}" for i in range(count)]}]} for count in values]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": each}}}


def tolerations(count: int) -> list[Obj]:
    return [{"key": f"k{i}", "operator": "Exists"} for i in range(count)]


CLAIMS = [{"name": "gpu", "resourceClaimTemplateName": "one"}]


def asking(stage: Stage, queue: str | None, gates: bool = False, **spec: Any) -> Obj:
    """A pod without requests in its queue, or behind the gate of a PodGroup."""
    made = build_pod(stage, f"asking-{next(_numbers)}", gpus=0, labels={QUEUE_NAME_LABEL: queue} if queue else {})
    made["spec"] |= spec | ({"schedulingGates": [{"name": PODGROUP_GATE}]} if gates else {})
    return made


def changes_pod(before: Obj, body: Obj) -> Act:
    def act(stage: Stage) -> Any:
        path = stage.path(PODS, stage.user.create(stage.path(PODS), asking(stage, "main", **before))["metadata"]["name"])
        try:
            return stage.user.patch(path, body)
        finally:
            stage.scene.api.delete(path, grace_period_s=0)

    return act


def of_started_template(stage: Stage) -> Obj:
    """Whose flavor has added tolerations to as many as a template may have."""
    made = build_pod(stage, "started", gpus=0, labels={}, annotations={WORKLOAD_ANNOTATION: "w"})
    made["spec"] |= {"tolerations": tolerations(82), "schedulingGates": [{"name": TOPOLOGY_GATE}]}
    return made


def resizes(cpu: str) -> Act:
    """Of a pod that waits in its queue and requests one CPU."""

    def act(stage: Stage) -> Any:
        path = stage.path(PODS, stage.user.create(stage.path(PODS), asking(stage, "main"))["metadata"]["name"])
        container = {"name": stage.user.get(path)["spec"]["containers"][0]["name"], "resources": {"requests": {"cpu": cpu}}}
        try:
            return stage.user.patch(f"{path}/resize", {"spec": {"containers": [container]}}, STRATEGIC_PATCH)
        finally:
            stage.scene.api.delete(path, grace_period_s=0)

    return act


def scales(kind: str, replicas: int, *, is_part: bool) -> Act:
    """Of an object that an administrator made: as a part of an admitted AppWrapper, or queued itself."""

    def act(stage: Stage) -> Any:
        name, path = f"scaled-{next(_numbers)}", stage.path(APPS, "", f"{kind.lower()}s")
        made = of_set(kind, stage.scene, name, 0, pod_template(8, notes={WORKLOAD_ANNOTATION: "w"} if is_part else {}))
        if is_part:
            owner = {"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", **NOBODY}
            made["metadata"] |= {"labels": {}, "ownerReferences": [owner]}
        stage.scene.api.create(path, made)
        try:
            return stage.user.patch(f"{path}/{name}/scale", {"spec": {"replicas": replicas}})
        finally:
            stage.scene.api.delete(f"{path}/{name}")

    return act


def creates_job_asking(**spec: Any) -> Act:
    def act(stage: Stage) -> Obj:
        return stage.user.create(
            f"{stage.path(JOBS)}?dryRun=All", manifests.build_job("another", stage.scene.namespace, pods=1, pod_spec=spec)
        )

    return act


def dry_pod(queue: str | None, gates: bool = False, **spec: Any) -> Act:
    return lambda stage: stage.user.create(f"{stage.path(PODS)}?dryRun=All", asking(stage, queue, gates, **spec))


def ports(count: int) -> Obj:
    """A container with host ports."""
    return {"name": "c", "image": "x", "ports": [{"containerPort": 1 + i, "hostPort": 20_001 + i} for i in range(count)]}


TOO_MANY: tuple[tuple[str, Obj, Obj], ...] = (
    ("terms between pods", {"affinity": terms(17)}, {"affinity": terms(16)}),
    ("values of terms", {"affinity": terms(2, 256)}, {"affinity": terms(2, 255)}),
    ("values of nodes", {"affinity": nodes(256, 290)}, {"affinity": nodes(256, 253)}),
    ("tolerations", {"tolerations": tolerations(81)}, {"tolerations": tolerations(64)}),
    ("seconds to end", {"terminationGracePeriodSeconds": 3601}, {"terminationGracePeriodSeconds": 3600}),
    ("host ports", {"containers": [ports(65)]}, {"containers": [ports(64)]}),
)


def patches_status(path: Callable[[Stage], str]) -> Act:
    """By the subresource: what is over gives its quota back."""
    over = {"status": {"phase": "Succeeded", "conditions": [{"type": "Complete", "status": "True"}]}}
    return lambda stage: stage.user.patch(f"{path(stage)}/status", over)


def patches(collection: str, name: str, body: Obj) -> Act:
    return lambda stage: stage.user.patch(stage.path(collection, name), body)


def creates(collection: str, group_version: str, kind: str, spec: Obj) -> Act:
    def act(stage: Stage) -> Obj:
        made = of_kind(stage.scene, group_version, kind, spec)
        return stage.user.create(f"{stage.path(collection)}?dryRun=All", {**made, "metadata": {**made["metadata"], "name": "another"}})

    return act


NO_AUTOSCALING, UNKNOWN_TYPE = "else workers that are added would not be admitted", "Master or Worker is expected"
WRONG_TYPE = {"pytorchReplicaSpecs": {"worker": {"replicas": 9, "template": SMALL}}}
IS_SETTLED = "is settled while the job runs"


def marks(part: str, name: str, value: str) -> Obj:
    return {"metadata": {part: {name: value}}}


KEEPS_OWNER, KEEPS_LABELS = "only the controller of Job may release a pod", "the labels of a pod of an admitted workload"
NAMES_NO_QUEUE = "the name of a LocalQueue is expected"
PART_IS_KEPT = "this object is a part of a JobSet"
SCALED_PART = "was admitted as a part of AppWrapper nobody"
NO_DAEMON_SETS = "no quota counts a DaemonSet"
