"""The same random operations of users on two clusters, each of which comes to rest after each. At rest their objects are equal but for
names, times and what else a server gives."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from core.names import TOPOLOGY_GATE
from e2e.api import Api
from e2e.binaries import find_kubernetes_minor
from e2e.manifests import RUN_SECONDS
from sim.models import kubelets

Json = dict[str, Any]
PATHS = {
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "ReplicaSet": "/apis/apps/v1/namespaces/{}/replicasets",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets",
    "Pod": "/api/v1/namespaces/{}/pods",
}
MAKERS = ("Job", "ReplicaSet", "Deployment", "StatefulSet")
COMPLETE = "e2e.topogate.dev/complete"
POOL_LABEL = "example.com/contract"
_TIMES = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")


class Op(NamedTuple):
    """What a user does with one object, or with one of its pods. `value` is a body, or how an object is deleted."""

    verb: str  # create, patch, delete, delete pod
    kind: str
    name: str
    value: Any = None


class Life:
    """Operations on one object of a kind; which ones depends on kind and seed alone."""

    def __init__(self, kind: str, seed: int, length: int = 4) -> None:
        self._kind, self._chance = kind, random.Random(f"{kind} {seed}")
        self._is_suspended = False
        self.name = f"{kind.lower()}-{seed}"
        self.ops = [Op("create", kind, self.name, self._make()), *(self._choose() for _ in range(length)), self._delete()]

    def _make(self) -> Json:
        chance, labels = self._chance, {"app": self.name}
        notes = {"example.com/edit": "0"}
        if self._kind == "Job" and chance.random() < 0.5:
            notes |= {COMPLETE: "true", RUN_SECONDS: "1s", kubelets.RUN_SECONDS: "1"}
        pod: Json = {
            "nodeSelector": {POOL_LABEL: "yes"},
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "c", "image": "i:1"}],
        }
        if chance.random() < 0.25:
            pod["schedulingGates"] = [{"name": TOPOLOGY_GATE}]
        spec: Json = {"template": {"metadata": {"labels": labels, "annotations": notes}, "spec": pod}}
        if self._kind == "Job":
            pod["restartPolicy"] = "Never"
            count, self._is_suspended = chance.randint(1, 3), chance.random() < 0.3
            spec |= {"parallelism": count, "completions": count + chance.randint(0, 1), "suspend": self._is_suspended}
            spec["completionMode"] = chance.choice(["Indexed", "NonIndexed"])
        else:
            spec |= {"replicas": chance.randint(0, 3), "selector": {"matchLabels": labels}}
            if self._kind == "StatefulSet":
                spec |= {"serviceName": self.name, "podManagementPolicy": chance.choice(["OrderedReady", "Parallel"])}
                spec["ordinals"] = {"start": chance.choice([0, 2])}
        version = "batch/v1" if self._kind == "Job" else "apps/v1"
        return {"apiVersion": version, "kind": self._kind, "metadata": {"name": self.name}, "spec": spec}

    def _choose(self) -> Op:
        if self._chance.random() < 0.3 and self._kind != "Job":  # a Job makes another pod only after ten seconds
            return Op("delete pod", self._kind, self.name)
        return Op("patch", self._kind, self.name, {"spec": self._change()})

    def _change(self) -> Json:
        chance = self._chance
        if self._kind == "Job":
            if chance.random() < 0.6:
                self._is_suspended = not self._is_suspended
                return {"suspend": self._is_suspended}
            return {"parallelism": chance.randint(0, 3)}
        if self._kind != "ReplicaSet" and chance.random() < 0.4:
            return {"template": {"metadata": {"annotations": {"example.com/edit": chance.choice("012")}}}}
        return {"replicas": chance.randint(0, 3)}

    def _delete(self) -> Op:
        return Op("delete", self._kind, self.name, self._chance.choice(["Background", "Foreground", "Orphan"]))


def carry_out(api: Api, namespace: str, op: Op) -> None:
    """Makes one request. Raises ApiError."""
    path = PATHS[op.kind].format(namespace)
    if op.verb == "create":
        api.create(path, op.value)
    elif op.verb == "patch":
        api.patch(f"{path}/{op.name}", op.value)
    elif op.verb == "delete":
        api.request("DELETE", f"{path}/{op.name}?propagationPolicy={op.value}")
    else:
        pods = sorted(_list_pods(api, namespace, op.name), key=lambda pod: str(pod["metadata"]["name"]))
        if pods:
            api.delete(f"{PATHS['Pod'].format(namespace)}/{pods[0]['metadata']['name']}")


def _list_pods(api: Api, namespace: str, app: str) -> list[Json]:
    return [pod for pod in api.list(PATHS["Pod"].format(namespace)) if pod["metadata"]["labels"].get("app") == app]


def read_state(api: Api, namespace: str) -> list[str]:
    """All objects of a namespace, one a line, without what differs from server to server, in the order of these lines."""
    return sorted(show({"kind": kind, **_pick(kind, obj)}) for kind, path in PATHS.items() for obj in api.list(path.format(namespace)))


def _pick(kind: str, obj: Json) -> Json:
    metadata = obj["metadata"]
    owners = [(owner["kind"], owner.get("controller")) for owner in metadata.get("ownerReferences") or ()]
    kept = {name: metadata.get(name) for name in ("annotations", "finalizers")}
    kept["generateName"] = _HASH.sub("-HASH-", metadata.get("generateName") or "")
    labels = {name: value for name, value in (metadata.get("labels") or {}).items() if not name.endswith(("uid", "-hash", "pod-name"))}
    found = {**kept, "labels": labels, "owners": owners, "is ending": "deletionTimestamp" in metadata}
    status = {name: value for name, value in (obj.get("status") or {}).items() if name not in _GIVEN}
    if "conditions" in status:
        status["conditions"] = sorted((c["type"], c["status"], c.get("reason")) for c in status["conditions"] if c["type"] not in _KUBELETS)
    if kind == "Pod":
        spec = obj["spec"]
        asked = {name: spec.get(name) for name in ("nodeSelector", "schedulingGates", "hostname", "subdomain", "tolerations")}
        return {**found, **asked, "is bound": "nodeName" in spec, "phase": status["phase"], "conditions": status.get("conditions")}
    asked = {name: value for name, value in obj["spec"].items() if name not in ("selector", "template")}
    return {**found, "name": _HASH.sub("-HASH", metadata["name"]), **asked, **status}


_HASH = re.compile(r"(?<=\d)-[a-z0-9]{7,10}-?$")  # of a ReplicaSet of a Deployment
_NEWER = ("terminatingReplicas",) if find_kubernetes_minor() == "1.34" else ()  # the models are of the newest Kubernetes
_GIVEN = ("startTime", "completionTime", "currentRevision", "updateRevision", "observedGeneration", *_NEWER)
_KUBELETS = ("PodReadyToStartContainers", "PodScheduled")


def show(value: Json) -> str:
    """A line without what is empty, and without times."""
    return _TIMES.sub("a time", json.dumps({key: inner for key, inner in value.items() if inner not in (None, [], {}, "")}, sort_keys=True))


def find_difference(real: Sequence[str], ours: Sequence[str]) -> str:
    """What only one of two states has, empty where they are equal."""
    left, more = list(real), []
    for line in ours:
        if line in left:
            left.remove(line)
        else:
            more.append(line)
    return "\n".join((*(f"  real: {line}" for line in left), *(f"  ours: {line}" for line in more)))


def list_lives(first: int, count: int) -> Iterator[Life]:
    """So many lives of each kind."""
    for seed in range(first, first + count):
        for kind in MAKERS:
            yield Life(kind, seed)
