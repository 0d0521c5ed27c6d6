"""Pods by way of what stands between them and what was queued for them, in a namespace where every workload is queued: they
are a part of that, and are not queued a second time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from functools import partial

import pytest

from core.names import ADMISSION_GATE, MANAGED_NAMESPACE_LABEL, QUEUE_NAME_LABEL
from e2e import manifests
from e2e.api import Api, wait_for
from e2e.audit import truth
from e2e.cluster import Cluster
from e2e.standins.appwrapper import AppWrapperStandIn
from e2e.standins.pods import Obj, Wanted
from e2e.standins.sparkapplication import SparkApplicationStandIn
from e2e.topogate import Topogate, build_managed_labels
from tests.e2e.users import may
from tests.reconciler.kinds.pods import bound, build_template, list_live_pods, list_workload_names, of_set
from tests.reconciler.scenes import GPU, Scene

pytestmark = pytest.mark.cluster
PODS = "/api/v1/namespaces/{}/pods"
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/{}"


@pytest.fixture
def managed_scene(cluster: Cluster, topogate: Topogate) -> Iterable[Scene]:
    """A scene whose queue is the namespace's default one, too, and has memory."""
    scene = Scene(cluster).open()
    scene.create(manifests.build_local_queue("default", scene.namespace, f"{scene.prefix}queue"))
    queue = manifests.build_cluster_queue(f"{scene.prefix}queue", {f"{scene.prefix}flavor": {"cpu": 1000, GPU: 32, "memory": "1000Gi"}})
    scene.api.patch(f"{manifests.get_path(queue)}/{scene.prefix}queue", {"spec": {"resourceGroups": queue["spec"]["resourceGroups"]}})
    scene.api.patch(f"/api/v1/namespaces/{scene.namespace}", {"metadata": {"labels": build_managed_labels()}})
    _await_managed(scene)
    yield scene
    scene.close()


def _await_managed(scene: Scene) -> None:
    """The API server sees a namespace's label a moment later."""
    path = PODS.format(scene.namespace)
    probe = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"}, "spec": build_template(0)["spec"]}

    def is_managed() -> bool:
        return QUEUE_NAME_LABEL in (scene.api.create(f"{path}?dryRun=All", probe)["metadata"].get("labels") or {})

    wait_for(f"the label {MANAGED_NAMESPACE_LABEL} to be seen", is_managed)


@pytest.mark.parametrize("kind", ["StatefulSet", "Deployment"])
def test_pods_of_a_component_of_an_app_wrapper_run_by_its_admission(kind: str, managed_scene: Scene) -> None:
    scene = managed_scene
    wrapped = of_set(kind, scene, "inner", 2, build_template(8, required=scene.block))
    wrapped["metadata"] = {"name": "inner"}
    metadata = {"name": "wrapper", "namespace": scene.namespace, "labels": {QUEUE_NAME_LABEL: "main"}}
    spec = {"components": [{"template": wrapped}]}
    with AppWrapperStandIn(scene.api) as standin:
        scene.create({"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "metadata": metadata, "spec": spec})
        now = scene.eventually("its pods to be bound", lambda now: bound(list_live_pods(now, scene, app="inner"), 2))
        assert len(list_workload_names(now, scene)) == 1
        assert all(QUEUE_NAME_LABEL not in pod["metadata"]["labels"] for pod in list_live_pods(now, scene, app="inner"))
    standin.uninstall()


class Driver(SparkApplicationStandIn):
    """Without the executors, which the driver makes with a token of its own."""

    def wanted(self, obj: Obj, pods: Mapping[str, Obj]) -> Iterable[Wanted]:
        return [next(iter(super().wanted(obj, pods)))]


def test_executors_that_a_driver_makes_run_by_the_admission_of_its_application(managed_scene: Scene) -> None:
    scene = managed_scene
    with Driver(scene.api) as standin:
        pod = {
            "cores": 1,
            "memory": "512m",
            "gpu": {"name": GPU, "quantity": 4},
            "annotations": build_template(0, required=scene.rack)["metadata"]["annotations"],
        }
        spec = {"type": "Scala", "mode": "cluster", "driver": pod, "executor": {**pod, "instances": 1}}
        metadata = {"name": "spark", "namespace": scene.namespace, "labels": {QUEUE_NAME_LABEL: "main"}}
        path = f"{standin.path}/namespaces/{scene.namespace}/sparkapplications"
        scene.api.create(
            path, {"apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication", "metadata": metadata, "spec": spec}
        )
        now = scene.eventually("the driver to be bound", lambda now: bound(list_live_pods(now, scene), 1))
        (driver,) = list_live_pods(now, scene)
        application = scene.api.get(f"{path}/spark")
        wanted = list(SparkApplicationStandIn.wanted(standin, application, {"spark-driver": driver}))[1]
        executor = standin.pod(application, wanted.name, wanted.template, wanted.labels)
        executor["metadata"]["ownerReferences"] = [dict(wanted.owner or {})]
        pods = PODS.format(scene.namespace)
        forged = scene.api.create(f"{pods}?dryRun=All", executor)
        assert ADMISSION_GATE in list_gates(forged), "an administrator is not the driver"
        with closing(as_driver(scene, driver)) as own:
            own.create(pods, executor)
        now = scene.eventually("the executor to be bound, too", lambda now: bound(list_live_pods(now, scene), 2))
        assert len(list_workload_names(now, scene)) == 1
        assert truth.as_assigned(now, "spark") == []
    standin.uninstall()


def list_gates(pod: Obj) -> list[str]:
    return [gate["name"] for gate in pod["spec"].get("schedulingGates") or ()]


def as_driver(scene: Scene, driver: Obj) -> Api:
    """The API with the token that is mounted into a pod, whose service account may make pods."""
    role = {"metadata": {"name": "driver"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]}]}
    scene.api.create(f"{RBAC.format(scene.namespace)}/roles", role)
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": scene.namespace}
    bound_to = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "driver"}
    binding = {"metadata": {"name": "driver"}, "subjects": [subject], "roleRef": bound_to}
    scene.api.create(f"{RBAC.format(scene.namespace)}/rolebindings", binding)
    reference = {"apiVersion": "v1", "kind": "Pod", "name": driver["metadata"]["name"], "uid": driver["metadata"]["uid"]}
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"boundObjectRef": reference}}
    token = scene.api.create(f"/api/v1/namespaces/{scene.namespace}/serviceaccounts/default/token", asked)
    own = scene.api.for_token(str(token["status"]["token"]))
    wait_for("the role to hold", partial(may, own, "create", "", "pods", scene.namespace))
    return own
