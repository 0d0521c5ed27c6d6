"""Stand-ins for KubeRay (ray.io/v1): RayCluster, and RayJob and RayService, which make RayClusters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

from e2e.standins.base import StandIn
from e2e.standins.pods import Obj, PodStandIn, Wanted, has_condition

JOBS = "/apis/batch/v1/namespaces/{}/jobs"


class RayClusterStandIn(PodStandIn):
    """Pods of several hosts a replica are indexed as KubeRay 1.5 does it."""

    group, version, kind, plural = "ray.io", "v1", "RayCluster", "rayclusters"

    def wanted(self, obj: Obj, pods: Mapping[str, Obj]) -> Iterable[Wanted]:
        name = obj["metadata"]["name"]
        labels = {"ray.io/cluster": name, "ray.io/is-ray-node": "yes"}
        yield Wanted(f"{name}-head", obj["spec"]["headGroupSpec"]["template"], labels | {"ray.io/node-type": "head"})
        for group in obj["spec"].get("workerGroupSpecs") or ():
            hosts = group.get("numOfHosts", 1)
            for replica in range(_count_replicas(group)):
                for host in range(hosts):
                    indexes = {"ray.io/worker-group-replica-index": str(replica)} | (
                        {"ray.io/replica-host-index": str(host)} if hosts > 1 else {}
                    )
                    own = labels | {"ray.io/node-type": "worker", "ray.io/group": group["groupName"]} | indexes
                    yield Wanted(f"{name}-{group['groupName']}-worker-{replica}-{host}", group["template"], own)

    def status(self, obj: Obj, wanted: Iterable[Wanted], pods: Mapping[str, Obj]) -> Obj:
        return {"state": "suspended" if self.is_suspended(obj) else "ready"}


def _count_replicas(group: Mapping[str, Any]) -> int:
    """As KubeRay: between the two bounds, and none while the group is suspended."""
    least, most = group.get("minReplicas", 0), group.get("maxReplicas", 2**31 - 1)
    wanted = most if least > most else min(max(group.get("replicas", 1), least), most)
    return 0 if group.get("suspend") else int(wanted)


class RayJobStandIn(StandIn):
    """One RayCluster, and a Job that submits to it in K8sJobMode; both are deleted when it is suspended, the cluster when the Job ends."""

    group, version, kind, plural = "ray.io", "v1", "RayJob", "rayjobs"

    def reconcile(self, obj: Obj) -> None:
        if obj["metadata"].get("deletionTimestamp"):
            return
        namespace, name = obj["metadata"]["namespace"], obj["metadata"]["name"]
        made: list[tuple[str, dict[str, Any]]] = [
            (f"{self.path}/namespaces/{namespace}/rayclusters", ray_cluster(self, obj, obj["spec"]["rayClusterSpec"])),
        ]
        if obj["spec"].get("submissionMode", "K8sJobMode") == "K8sJobMode":
            template = deepcopy(obj["spec"]["submitterPodTemplate"]) if obj["spec"].get("submitterPodTemplate") else None
            if template is not None:
                template["spec"].setdefault("restartPolicy", "Never")
            if template is not None or obj["spec"].get("suspend"):  # by its name it is deleted, though its template may be gone
                metadata = {"name": name, "namespace": namespace, "ownerReferences": [self.owner_of(obj)]}
                submitter = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}
                made.append((JOBS.format(namespace), submitter))
        if (obj.get("status") or {}).get("jobDeploymentStatus") in ("Complete", "Failed"):
            path, cluster = made[0]
            self.api.delete(f"{path}/{cluster['metadata']['name']}")
            return
        suspended = bool(obj["spec"].get("suspend"))
        for path, child in made:
            there = self.api.find(f"{path}/{child['metadata']['name']}")
            if suspended and there is not None:
                self.api.request("DELETE", f"{path}/{child['metadata']['name']}?propagationPolicy=Background")
            elif not suspended and there is None:
                self.api.create(path, child)
        running = {"rayClusterName": made[0][1]["metadata"]["name"]} | self._status(namespace, name)
        self.set_status(obj, {"jobDeploymentStatus": "Suspended", "rayClusterName": None} if suspended else running)

    def _status(self, namespace: str, name: str) -> Obj:
        submitter = self.api.find(f"{JOBS.format(namespace)}/{name}") or {}
        if has_condition(submitter, "Complete"):
            return {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}
        return (
            {"jobDeploymentStatus": "Failed", "jobStatus": "FAILED"}
            if has_condition(submitter, "Failed")
            else {"jobDeploymentStatus": "Running"}
        )


class RayServiceStandIn(StandIn):
    """One RayCluster, which has the suspension in its own description. How many workers it has is its autoscaler's where it has one."""

    group, version, kind, plural = "ray.io", "v1", "RayService", "rayservices"

    def reconcile(self, obj: Obj) -> None:
        if obj["metadata"].get("deletionTimestamp"):
            return
        path = f"{self.path}/namespaces/{obj['metadata']['namespace']}/rayclusters"
        child = ray_cluster(self, obj, obj["spec"]["rayClusterConfig"])
        there = self.children(path, obj).get(child["metadata"]["name"])
        if there is not None and child["spec"].get("enableInTreeAutoscaling"):
            for group, now in zip(child["spec"]["workerGroupSpecs"], there["spec"]["workerGroupSpecs"], strict=True):
                group["replicas"] = now["replicas"]
        if there is None:
            self.api.create(path, child)
        elif there["spec"] != child["spec"]:
            self.api.replace(f"{path}/{child['metadata']['name']}", there | {"spec": child["spec"]})
        active = {"rayClusterName": child["metadata"]["name"]}
        self.set_status(obj, {"serviceStatus": "" if child["spec"].get("suspend") else "Running", "activeServiceStatus": active})


def ray_cluster(maker: StandIn, obj: Obj, spec: Mapping[str, Any]) -> Obj:
    """The RayCluster of an object."""
    metadata = {
        "name": f"{obj['metadata']['name']}-cluster",
        "namespace": obj["metadata"]["namespace"],
        "ownerReferences": [maker.owner_of(obj)],
    }
    return {"apiVersion": f"{maker.group}/{maker.version}", "kind": "RayCluster", "metadata": metadata, "spec": deepcopy(dict(spec))}
