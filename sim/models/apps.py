"""Controllers of apps/v1: ReplicaSets, Deployments and StatefulSets."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from e2e.standins.pods import has_condition
from sim.models.base import POD, Json, Key, OwnerModel, build_owner_reference, get_key, get_phase, is_over, make_pod

REPLICA_SET, DEPLOYMENT, STATEFUL_SET = ("apps", "replicasets"), ("apps", "deployments"), ("apps", "statefulsets")
HASH, REVISION_HASH = "pod-template-hash", "controller-revision-hash"
REVISION, DESIRED, MOST = (f"deployment.kubernetes.io/{name}" for name in ("revision", "desired-replicas", "max-replicas"))


class ReplicaSetController(OwnerModel):
    """As many pods as it says, the youngest and least ready deleted first."""

    user = "system:serviceaccount:kube-system:replicaset-controller"
    resource, owner_kind = REPLICA_SET, "ReplicaSet"
    resources = (REPLICA_SET, POD)

    def look(self, resource: tuple[str, str], key: Key) -> None:
        obj = self.find(REPLICA_SET, key)
        if obj is None:
            return
        live = [pod for pod in self.find_owned(POD, obj) if not is_over(pod)]
        active = [pod for pod in live if not pod["metadata"].get("deletionTimestamp")]
        wanted = obj["spec"]["replicas"]
        if not obj["metadata"].get("deletionTimestamp"):
            for _ in range(wanted - len(active)):
                pod = make_pod(build_owner_reference(obj, "apps/v1", "ReplicaSet"), obj["spec"]["template"], {})
                pod["metadata"]["generateName"] = f"{key[1]}-"
                self.create(POD, key[0], pod)
            for pod in sorted(active, key=_rank_to_delete)[: max(0, len(active) - wanted)]:
                self.delete(POD, pod)
        labels = (obj["spec"]["template"].get("metadata") or {}).get("labels") or {}
        ready = sum(is_ready(pod) for pod in active)
        whole = sum(labels.items() <= (pod["metadata"].get("labels") or {}).items() for pod in active)
        status: Json = {"replicas": len(active), "terminatingReplicas": len(live) - len(active)}
        status |= {"fullyLabeledReplicas": whole or None, "readyReplicas": ready or None, "availableReplicas": ready or None}
        self.set_status(obj, status | {"observedGeneration": obj["metadata"]["generation"]})


def _rank_to_delete(pod: Json) -> tuple[bool, bool, bool, str]:
    """Unbound ones first, then those that do not run, that are not ready, then the youngest (all of one name are alike)."""
    return bool(pod["spec"].get("nodeName")), get_phase(pod) == "Running", is_ready(pod), pod["metadata"]["name"]


def is_ready(pod: Json) -> bool:
    """Whether a pod is ready."""
    return has_condition(pod, "Ready")


class DeploymentController(OwnerModel):
    """A ReplicaSet for each template, the newest scaled up and others down as `rollingUpdate` lets it."""

    user = "system:serviceaccount:kube-system:deployment-controller"
    resource, owner_kind = DEPLOYMENT, "Deployment"
    resources = (DEPLOYMENT, REPLICA_SET)

    def look(self, resource: tuple[str, str], key: Key) -> None:
        obj = self.find(DEPLOYMENT, key)
        if obj is None or obj["metadata"].get("deletionTimestamp"):
            return
        owned = sorted(self.find_owned(REPLICA_SET, obj), key=lambda each: str(each["metadata"]["creationTimestamp"]))
        digest = _compute_digest(obj["spec"]["template"])
        newest = next((each for each in owned if each["metadata"]["labels"][HASH] == digest), None)
        if newest is None:
            self._make(obj, digest, owned)
            return
        older = [each for each in owned if each is not newest]
        if self._renumber(obj, newest, older) or self._rescale(obj, owned):
            return  # that brings us back
        self._scale(obj, newest, older)
        self._report(obj, newest, owned)

    def _make(self, obj: Json, digest: str, owned: Sequence[Json]) -> None:
        metadata, spec = obj["metadata"], obj["spec"]
        number = 1 + max(map(_get_revision, owned), default=0)
        if (metadata.get("annotations") or {}).get(REVISION) != str(number):
            self.patch(DEPLOYMENT, get_key(obj), {"metadata": {"annotations": {REVISION: str(number)}}})
        template = {**spec["template"], "metadata": {**(spec["template"].get("metadata") or {})}}
        template["metadata"]["labels"] = {**(template["metadata"].get("labels") or {}), HASH: digest}
        selector = {**spec["selector"], "matchLabels": {**(spec["selector"].get("matchLabels") or {}), HASH: digest}}
        total = sum(each["spec"]["replicas"] for each in owned)
        replicas = (
            min(spec["replicas"], max(0, spec["replicas"] + _compute_pod_count(spec, "maxSurge") - total)) if owned else spec["replicas"]
        )
        body = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": f"{metadata['name']}-{digest}",
                "labels": template["metadata"]["labels"],
                "annotations": self._notes(spec) | {REVISION: str(number)},
                "ownerReferences": [build_owner_reference(obj, "apps/v1", "Deployment")],
            },
            "spec": {"replicas": replicas, "selector": selector, "template": template},
        }
        self.create(REPLICA_SET, metadata["namespace"], body)

    def _renumber(self, obj: Json, newest: Json, older: Sequence[Json]) -> bool:
        """Makes a ReplicaSet that is rolled back to the latest revision; returns whether it was not."""
        latest, now = max(map(_get_revision, older), default=0), _get_revision(newest)
        if now > latest:
            return False
        known = newest["metadata"]["annotations"].get(f"{REVISION}-history")
        notes = {REVISION: str(latest + 1), f"{REVISION}-history": f"{known},{now}" if known else str(now)}
        self.patch(DEPLOYMENT, get_key(obj), {"metadata": {"annotations": {REVISION: str(latest + 1)}}})
        self.patch(REPLICA_SET, get_key(newest), {"metadata": {"annotations": notes}})
        return True

    def _rescale(self, obj: Json, owned: Sequence[Json]) -> bool:
        """Gives what a Deployment that is scaled gains or loses to its ReplicaSets in proportion to their sizes (the largest has the
        rest); returns whether it was scaled."""
        wanted, active = obj["spec"]["replicas"], [each for each in owned if each["spec"]["replicas"]]
        if all(each["metadata"]["annotations"][DESIRED] == str(wanted) for each in active):
            return False
        if len(active) == 1:
            self._set_replicas(obj, active[0], wanted)
            return True
        most = wanted + _compute_pod_count(obj["spec"], "maxSurge") if wanted else 0
        more = most - sum(each["spec"]["replicas"] for each in active)
        newer_first = list(reversed(active)) if more > 0 else active
        by_size = sorted(newer_first, key=lambda each: -int(each["spec"]["replicas"]))
        sizes, left = [int(each["spec"]["replicas"]) for each in by_size], more
        for number, each in enumerate(by_size):
            share = round(sizes[number] * most / int(each["metadata"]["annotations"][MOST])) - sizes[number]
            share = min(share, left) if more > 0 else max(share, left)
            sizes[number] += share
            left -= share
        sizes[0] = max(0, sizes[0] + left)
        for each, size in zip(by_size, sizes, strict=True):
            self._set_replicas(obj, each, size)
        return True

    @staticmethod
    def _notes(spec: Json) -> Json:
        most = spec["replicas"] + _compute_pod_count(spec, "maxSurge")
        return {DESIRED: str(spec["replicas"]), MOST: str(most)}

    def _scale(self, obj: Json, newest: Json, older: Sequence[Json]) -> None:
        spec = obj["spec"]
        wanted, total = spec["replicas"], sum(each["spec"]["replicas"] for each in (newest, *older))
        now = newest["spec"]["replicas"]
        room = max(0, wanted + _compute_pod_count(spec, "maxSurge") - total)
        self._set_replicas(obj, newest, wanted if not any(each["spec"]["replicas"] for each in older) else min(wanted, now + room))
        available = {get_key(each): (each.get("status") or {}).get("availableReplicas") or 0 for each in (newest, *older)}
        least = wanted - _compute_pod_count(spec, "maxUnavailable")
        spare = total - least - (now - available[get_key(newest)])
        for each in older:  # first what does not run, then what may go
            has = each["spec"]["replicas"]
            idle = min(max(0, spare), has - available[get_key(each)])
            going = min(max(0, sum(available.values()) - least), has - idle, max(0, spare - idle))
            if idle or going:
                self._set_replicas(obj, each, has - idle - going)
                spare -= idle + going
                available[get_key(each)] -= going
            else:
                self._set_replicas(obj, each, has)

    def _set_replicas(self, obj: Json, owned: Json, count: int) -> None:
        notes = self._notes(obj["spec"])
        known = owned["metadata"].get("annotations") or {}
        if owned["spec"]["replicas"] != count or not notes.items() <= known.items():
            self.patch(REPLICA_SET, get_key(owned), {"metadata": {"annotations": notes}, "spec": {"replicas": count}})

    def _report(self, obj: Json, newest: Json, owned: Sequence[Json]) -> None:
        counts = {name: sum((each.get("status") or {}).get(name) or 0 for each in owned) for name in ("replicas", "readyReplicas")}
        available = sum((each.get("status") or {}).get("availableReplicas") or 0 for each in owned)
        wanted, updated = obj["spec"]["replicas"], (newest.get("status") or {}).get("replicas") or 0
        status: Json = {**counts, "updatedReplicas": updated, "availableReplicas": available}
        status |= {"unavailableReplicas": max(0, sum(each["spec"]["replicas"] for each in owned) - available)}
        status = {name: count or None for name, count in status.items()} | {"observedGeneration": obj["metadata"]["generation"]}
        status["terminatingReplicas"] = sum((each.get("status") or {}).get("terminatingReplicas") or 0 for each in owned)
        name, known = newest["metadata"]["name"], {c["type"]: c for c in (obj.get("status") or {}).get("conditions") or ()}
        is_done = updated == wanted == available == counts["replicas"]
        before = known.get("Progressing") or {"reason": "", "message": ""}
        is_done |= before["reason"] == "NewReplicaSetAvailable" and before["message"] == name
        is_available = available >= wanted - _compute_pod_count(obj["spec"], "maxUnavailable")
        self._set_condition(known, "Available", is_available, f"MinimumReplicas{'Available' if is_available else 'Unavailable'}", "")
        self._set_condition(known, "Progressing", True, "NewReplicaSetAvailable" if is_done else "ReplicaSetUpdated", name)
        self.set_status(obj, {**status, "conditions": list(known.values())})

    def _set_condition(self, known: dict[str, Json], kind: str, is_true: bool, reason: str, message: str) -> None:
        new = {"type": kind, "status": str(is_true), "reason": reason, "message": message}
        old = known.get(kind) or {}
        if new.items() <= old.items():
            return
        since = old["lastTransitionTime"] if old.get("status") == new["status"] else self.time()
        known[kind] = {**new, "lastUpdateTime": self.time(), "lastTransitionTime": since}


def _get_revision(replica_set: Json) -> int:
    return int(replica_set["metadata"]["annotations"][REVISION])


def _compute_digest(template: Json) -> str:
    return hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:10]


def _compute_pod_count(spec: Json, name: str) -> int:
    """`maxSurge` or `maxUnavailable` as a number of pods: of percents the one rounded up, the other down; both are not 0."""
    rolling = (spec.get("strategy") or {}).get("rollingUpdate") or {}

    def resolve(key: str, rounded_up: bool) -> int:
        part: Any = rolling.get(key, "25%")
        if not isinstance(part, str):
            return int(part)
        share: int = int(part[:-1]) * spec["replicas"]
        return -(-share // 100) if rounded_up else share // 100

    surge, unavailable = resolve("maxSurge", True), resolve("maxUnavailable", False)
    return surge if name == "maxSurge" else unavailable or int(not surge)


class StatefulSetController(OwnerModel):
    """Pods by ordinal: one after the other where they are ordered, all at once where they are parallel. What has ended is made anew."""

    user = "system:serviceaccount:kube-system:statefulset-controller"
    resource, owner_kind = STATEFUL_SET, "StatefulSet"
    resources = (STATEFUL_SET, POD)

    def look(self, resource: tuple[str, str], key: Key) -> None:
        obj = self.find(STATEFUL_SET, key)
        if obj is None:
            return
        pods = {pod["metadata"]["name"]: pod for pod in self.find_owned(POD, obj)}
        revision = f"{key[1]}-{_compute_digest(obj['spec']['template'])}"
        current = (obj.get("status") or {}).get("currentRevision") or revision
        if not obj["metadata"].get("deletionTimestamp"):
            self._update(obj, pods, revision)
        self._report(obj, list(pods.values()), current, revision)

    def _update(self, obj: Json, pods: dict[str, Json], revision: str) -> None:
        name, spec = obj["metadata"]["name"], obj["spec"]
        first = (spec.get("ordinals") or {}).get("start", 0)
        wanted = {f"{name}-{number}": number for number in range(first, first + spec["replicas"])}
        is_ordered = spec["podManagementPolicy"] == "OrderedReady"
        for each, number in wanted.items():
            pod = pods.get(each)
            if pod is None:
                self._make(obj, each, number, revision)
            elif is_over(pod) and not pod["metadata"].get("deletionTimestamp"):
                self.delete(POD, pod)
            if is_ordered and (pod is None or not is_ready(pod) or pod["metadata"].get("deletionTimestamp")):
                return
        surplus = sorted((pod for each, pod in pods.items() if each not in wanted), key=_parse_ordinal, reverse=True)
        for pod in surplus[:1] if is_ordered else surplus:
            if not pod["metadata"].get("deletionTimestamp"):
                self.delete(POD, pod)
        if surplus and is_ordered:
            return
        for each in sorted(wanted, key=wanted.__getitem__, reverse=True):
            pod = pods.get(each)
            if pod is None or pod["metadata"].get("deletionTimestamp"):
                return
            if pod["metadata"]["labels"].get(REVISION_HASH) != revision:
                self.delete(POD, pod)
                return
            if not is_ready(pod):
                return

    def _make(self, obj: Json, name: str, number: int, revision: str) -> None:
        labels = {
            "statefulset.kubernetes.io/pod-name": name,
            "apps.kubernetes.io/pod-index": str(number),
            REVISION_HASH: revision,
        }
        pod = make_pod(build_owner_reference(obj, "apps/v1", "StatefulSet"), obj["spec"]["template"], labels)
        pod["metadata"] |= {"name": name, "generateName": f"{obj['metadata']['name']}-"}
        pod["spec"] |= {"hostname": name} | ({"subdomain": obj["spec"]["serviceName"]} if obj["spec"].get("serviceName") else {})
        self.create(POD, obj["metadata"]["namespace"], pod)

    def _report(self, obj: Json, pods: Sequence[Json], current: str, revision: str) -> None:
        live = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
        updated = sum(pod["metadata"]["labels"].get(REVISION_HASH) == revision for pod in live)
        ready = sum(is_ready(pod) and get_phase(pod) == "Running" for pod in pods)
        if current != revision and updated == len(live) == obj["spec"]["replicas"] == ready:
            current = revision
        of_current = sum(pod["metadata"]["labels"].get(REVISION_HASH) == current for pod in live)
        status: Json = {"observedGeneration": obj["metadata"]["generation"], "replicas": len(pods), "collisionCount": 0}
        status |= {"currentRevision": current, "updateRevision": revision, "availableReplicas": ready}
        self.set_status(
            obj, {**status, "currentReplicas": of_current or None, "updatedReplicas": updated or None, "readyReplicas": ready or None}
        )


def _parse_ordinal(pod: Json) -> int:
    return int(pod["metadata"]["name"].rpartition("-")[2])
