"""A stand-in for the LeaderWorkerSet controller (leaderworkerset.x-k8s.io/v1)."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from e2e.api import ApiError
from e2e.standins.base import StandIn, get_pods_path

STATEFUL_SETS = "/apis/apps/v1/namespaces/{}/statefulsets"
NAME, GROUP, WORKER = (f"leaderworkerset.sigs.k8s.io/{part}" for part in ("name", "group-index", "worker-index"))


class LeaderWorkerSetStandIn(StandIn):
    """A StatefulSet of leaders, and one of workers for each leader, owned by it, as the real one makes them; the StatefulSet
    controller makes the pods. The labels that differ from pod to pod come from a pod webhook of the real one: here they
    come a moment later, while the pods are gated. Restarts and rolling updates are not modelled."""

    group, version, kind, plural = "leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets"

    def reconcile(self, obj: dict[str, Any]) -> None:
        if obj["metadata"].get("deletionTimestamp"):
            return
        try:
            self._make(obj)
        except ApiError as error:
            if "being terminated" not in str(error):  # its namespace goes away
                raise

    def _make(self, obj: dict[str, Any]) -> None:
        name, namespace = obj["metadata"]["name"], obj["metadata"]["namespace"]
        path, template = STATEFUL_SETS.format(namespace), obj["spec"]["leaderWorkerTemplate"]
        replicas, size = obj["spec"].get("replicas", 1), template.get("size", 1)
        leader = template.get("leaderTemplate") or template["workerTemplate"]
        leaders = self.children(path, obj).get(name)
        if leaders is None:
            self.api.create(path, self._stateful_set(obj, self.owner_of(obj), name, leader, replicas, {}))
            return
        if leaders["spec"]["replicas"] != replicas:
            self.api.patch(f"{path}/{name}", {"spec": {"replicas": replicas}})
        pods = self.api.list(get_pods_path(obj))
        for pod in pods:
            self._label(obj, pod)
        of_workers = {s["metadata"]["name"] for s in self.api.list(path) if s["metadata"].get("labels", {}).get(NAME) == name}
        for pod in pods:
            labels, metadata = pod["metadata"].get("labels") or {}, pod["metadata"]
            leads = labels.get(NAME) == name and labels.get(WORKER) == "0" and not metadata.get("deletionTimestamp")
            if leads and size > 1 and metadata["name"] not in of_workers:
                owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"], "controller": True}
                workers = template["workerTemplate"]
                own = {GROUP: labels[GROUP]}
                self.api.create(path, self._stateful_set(obj, owner, metadata["name"], workers, size - 1, own, first=1))
        ready = sum(1 for pod in pods if (pod["metadata"].get("labels") or {}).get(NAME) == name and pod["spec"].get("nodeName"))
        self.set_status(obj, {"replicas": replicas, "readyReplicas": ready // size})

    def _stateful_set(
        self,
        obj: dict[str, Any],
        owner: dict[str, Any],
        name: str,
        template: dict[str, Any],
        replicas: int,
        labels: dict[str, str],
        first: int = 0,
    ) -> dict[str, Any]:
        mine = {NAME: obj["metadata"]["name"], **labels}
        chosen = {**mine, "role": name}
        pod = deepcopy(template)
        metadata = pod.setdefault("metadata", {})
        metadata["labels"] = {**(metadata.get("labels") or {}), **chosen}
        own = {"name": name, "namespace": obj["metadata"]["namespace"], "labels": mine, "ownerReferences": [owner]}
        spec = {
            "replicas": replicas,
            "serviceName": obj["metadata"]["name"],
            "podManagementPolicy": "Parallel",
            "ordinals": {"start": first},
            "selector": {"matchLabels": chosen},
            "template": pod,
        }
        return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": own, "spec": spec}

    def _label(self, obj: dict[str, Any], pod: dict[str, Any]) -> None:
        metadata = pod["metadata"]
        labels = metadata.get("labels") or {}
        if labels.get(NAME) != obj["metadata"]["name"] or WORKER in labels or metadata.get("deletionTimestamp"):
            return
        ordinal = metadata["name"].rpartition("-")[2]
        told = {WORKER: ordinal} if GROUP in labels else {WORKER: "0", GROUP: ordinal}
        self.api.patch(f"{get_pods_path(obj)}/{metadata['name']}", {"metadata": {"labels": told}})
