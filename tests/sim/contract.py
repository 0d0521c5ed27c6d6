"""The same random operations on two API servers. Their answers are equal but for times, and names and versions that a server gives."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

Json = dict[str, Any]
MERGE, STRATEGIC, APPLY = (f"application/{name}" for name in ("merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml"))
WORKLOADS, PODS, CONFIG_MAPS = "/apis/kueue.x-k8s.io/v1beta2", "/api/v1", "/api/v1"


_UPDATED = re.compile(r"\bat \d{4}-\d\d-\d\dT[\d:]+Z")
_VERSIONS = re.compile(r"\(\d+\)")
_STORAGE = re.compile("StorageError: .* AdditionalErrorMsg: ")


class Op(NamedTuple):
    """A request; `{namespace}` in the path and marks like `$uid` in the body are filled in by who makes it."""

    method: str
    path: str
    params: Mapping[str, str]
    body: Any = None
    content_type: str = "application/json"


class Side(Protocol):
    """One of the servers."""

    def request(self, op: Op) -> tuple[int, Json]: ...


class Sequence:
    """A random sequence of operations in one namespace. What is asked next depends on the seed alone."""

    def __init__(self, seed: int, length: int = 20) -> None:
        self._chance = random.Random(seed)
        begin = [self._make_first(make) for make in (self._workload, self._workload, self._pod, self._config_map)]
        self.ops = [*begin, *(self._choose() for _ in range(length))]

    @staticmethod
    def _make_first(make: Callable[[], Op]) -> Op:
        while (op := make()).method != "POST":
            pass
        return op

    def _choose(self) -> Op:
        chance = self._chance
        make = chance.choice([self._workload, self._workload, self._workload, self._pod, self._pod, self._config_map])
        return make()

    # --- objects of a custom resource ---------------------------------------------------------------

    def _workload(self) -> Op:
        chance = self._chance
        name = chance.choice(["w0", "w1"])
        whole, one = "/apis/kueue.x-k8s.io/v1beta2/namespaces/{namespace}/workloads", f"/{name}"
        path = whole + one
        head = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload"}
        roll = chance.randrange(15)
        if roll < 3:
            spec: Json = {
                "queueName": "q",
                "podSets": [{"name": "main", "count": chance.randint(1, 3), "template": {"spec": {"containers": []}}}],
            }
            if chance.random() < 0.3:
                spec["active"] = chance.random() < 0.5
            body: Json = {**head, "metadata": {"name": name, **self._some_metadata()}, "spec": spec}
            if chance.random() < 0.15:
                body["spec"]["podSets"] = []
            if chance.random() < 0.2:
                body["spec"]["unknown"] = {"x": 1}
            if chance.random() < 0.2:
                body["status"] = {"conditions": [self._condition()]}
            return Op("POST", whole, self._manager(), body)
        if roll < 5:
            body = {"metadata": {**self._preconditions(), **self._some_metadata(can_remove=True)}}
            if chance.random() < 0.4:
                body["spec"] = {"active": chance.random() < 0.5}
            return Op("PATCH", path, self._manager(), body, MERGE)
        if roll < 9:
            status: Json = {"conditions": [self._condition() for _ in range(chance.randrange(3))]}
            if len({condition["type"] for condition in status["conditions"]}) < len(status["conditions"]):
                del status["conditions"][1:]
            if not status["conditions"] or chance.random() < 0.3:
                status = {"requeueState": {"count": chance.randint(1, 2)}} if chance.random() < 0.5 else {}
            if chance.random() < 0.3:
                status["admission"] = self._admission()
            if chance.random() < 0.3:
                status["reclaimablePods"] = [{"name": "main", "count": chance.randint(0, 1)}] if chance.random() < 0.5 else []
            body = {**head, "metadata": {"name": name, **self._preconditions()}, "status": status}
            params = {**self._manager(), **({"force": "true"} if chance.random() < 0.7 else {})}
            return Op("PATCH", f"{path}/status", params, body, APPLY)
        if roll < 10:
            body = {**head, "metadata": {"name": name, **self._some_metadata()}}
            return Op("PATCH", path, {**self._manager(), "force": "true"}, body, APPLY)
        if roll < 11:
            body = {"metadata": self._preconditions(), "status": {"requeueState": chance.choice([None, {"count": 3}])}}
            return Op("PATCH", f"{path}/status", self._manager(), body, MERGE)
        if roll < 12:
            body = {"metadata": {"finalizers": []}}
            return Op("PATCH", path, self._manager(), body, MERGE)
        if roll < 13:
            return self._delete(path)
        if roll < 14:
            return Op("GET", path, {})
        params = {"limit": "1"} if chance.random() < 0.5 else {}
        return Op(
            "GET", whole, {**params, **({"labelSelector": chance.choice(["a=1", "a!=1", "b", "!b"])} if chance.random() < 0.5 else {})}
        )

    # --- objects of Kubernetes itself ---------------------------------------------------------------

    def _pod(self) -> Op:
        chance, name = self._chance, self._chance.choice(["p0", "p1"])
        whole = "/api/v1/namespaces/{namespace}/pods"
        path = f"{whole}/{name}"
        roll = chance.randrange(10)
        if roll < 3:
            gates = [{"name": f"example.com/{gate}"} for gate in ("x", "y") if chance.random() < 0.7]
            spec = {
                "schedulerName": "nobody",
                "automountServiceAccountToken": False,
                "containers": [{"name": "c", "image": "i"}],
                "schedulingGates": gates,
            }
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **self._some_metadata()}, "spec": spec}
            return Op("POST", whole, self._manager(), body)
        if roll < 5:
            spec = {"schedulingGates": [{"$patch": "delete", "name": f"example.com/{chance.choice('xy')}"}]}
            body = {"metadata": {**self._preconditions(), "labels": {"a": chance.choice(["1", "2", None])}}, "spec": spec}
            return Op("PATCH", path, self._manager(), body, STRATEGIC)
        if roll < 6:
            body = {"metadata": {**self._preconditions(), "$deleteFromPrimitiveList/finalizers": ["example.com/f"]}}
            return Op("PATCH", path, self._manager(), body, STRATEGIC)
        if roll < 7:
            condition = {"type": chance.choice("AB"), "status": "True", "reason": chance.choice("rs")}
            body = {"metadata": self._preconditions(), "status": {"phase": chance.choice(["Pending", "Failed"]), "conditions": [condition]}}
            return Op("PATCH", f"{path}/status", self._manager(), body, STRATEGIC)
        if roll < 8:
            return self._delete(path)
        if roll < 9:
            return Op("GET", path, {})
        return Op("GET", whole, {"fieldSelector": chance.choice(["metadata.name=p0", "spec.nodeName=", "status.phase!=Failed"])})

    def _config_map(self) -> Op:
        chance, whole = self._chance, "/api/v1/namespaces/{namespace}/configmaps"
        path, roll = f"{whole}/c0", chance.randrange(5)
        body: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c0", **self._some_metadata()}, "data": self._data()}
        if roll < 2:
            return Op("POST", whole, self._manager(), body)
        if roll < 3:
            body["metadata"] |= self._preconditions()
            return Op("PUT", path, self._manager(), body)
        if roll < 4:
            return Op("PATCH", path, self._manager(), {"data": {"x": self._chance.choice(["1", None])}}, MERGE)
        return self._delete(path)

    # --- parts --------------------------------------------------------------------------------------

    def _data(self) -> Json:
        return {key: self._chance.choice("12") for key in "xy" if self._chance.random() < 0.6}

    def _manager(self) -> dict[str, str]:
        return {"fieldManager": self._chance.choice(["one", "two", "three"])}

    def _condition(self) -> Json:
        chance = self._chance
        condition = {"type": chance.choice(["A", "B", "C"]), "status": chance.choice(["True", "False"]), "reason": "R"}
        return condition | {"message": chance.choice(["m", "n"]), "lastTransitionTime": "2026-01-01T00:00:00Z"}

    def _admission(self) -> Json:
        """With lists that are replaced as a whole, and with keys."""
        chance = self._chance
        given: Json = {"name": "main", "count": chance.randint(1, 2), "flavors": {"cpu": chance.choice("fg")}}
        if chance.random() < 0.6:
            levels = ["a", "b"][: chance.randint(1, 2)]
            values = [{"universal": chance.choice("xy")} for _ in levels]
            slices = [{"domainCount": 1, "podCounts": {"universal": 1}, "valuesPerLevel": values}]
            given["topologyAssignment"] = {"levels": levels, "slices": slices}
        return {"clusterQueue": chance.choice("pq"), "podSetAssignments": [given]}

    def _preconditions(self) -> Json:
        chance, found = self._chance, {}
        if chance.random() < 0.3:
            found["uid"] = "$uid" if chance.random() < 0.6 else "another"
        if chance.random() < 0.3:
            found["resourceVersion"] = "$version" if chance.random() < 0.6 else "$old"
        return found

    def _some_metadata(self, *, can_remove: bool = False) -> Json:
        chance, found = self._chance, Json()
        if chance.random() < 0.4:
            values = ["1", "2", None] if can_remove else ["1", "2"]
            found["labels"] = {key: chance.choice(values) for key in "ab" if chance.random() < 0.7}
        if chance.random() < 0.2:
            found["annotations"] = {"note": chance.choice("12")}
        if chance.random() < 0.25:
            found["finalizers"] = ["example.com/f"]
        return found

    def _delete(self, path: str) -> Op:
        chance, options = self._chance, Json()
        if chance.random() < 0.4:
            return Op("GET", path, {})
        if chance.random() < 0.4:
            wanted = self._preconditions()
            options = {"apiVersion": "v1", "kind": "DeleteOptions", **({"preconditions": wanted} if wanted else {})}
        if chance.random() < 0.2:
            options |= {"propagationPolicy": "Background"}
        return Op("DELETE", path, {}, options or None)


class Player:
    """Plays a sequence on one side and writes down what came of it."""

    def __init__(self, side: Side, namespace: str) -> None:
        self._side, self._namespace = side, namespace
        self._known: dict[str, tuple[str, list[str]]] = {}  # uid and versions by path
        self._names: dict[str, str] = {}
        self.answers: list[tuple[int, Any]] = []

    def play(self, ops: Iterable[Op]) -> None:
        for op in ops:
            self._play(op)

    def _play(self, op: Op) -> None:
        path = op.path.removesuffix("/status")
        uid, versions = self._known.get(path, ("", []))
        body = _fill(op.body, {"$uid": uid or "none", "$version": (versions or ["1"])[-1], "$old": (versions or ["1"])[0]})
        code, answer = self._side.request(op._replace(path=op.path.format(namespace=self._namespace), body=body))
        for obj in answer.get("items") or [answer]:
            metadata = obj.get("metadata") or {}
            if metadata.get("uid") and "resourceVersion" in metadata:
                at = path if obj is answer and op.method != "POST" else f"{path}/{metadata['name']}"
                versions = self._known.get(at, ("", []))[1] if self._known.get(at, ("",))[0] == metadata["uid"] else []
                self._known[at] = metadata["uid"], [*versions, metadata["resourceVersion"]]
        if "items" in answer:
            del answer["metadata"]["resourceVersion"]  # other objects are written meanwhile
        self.answers.append((code, self.normalize(answer) if code < 300 else (answer.get("reason"), self._shorten(code, answer))))

    def _shorten(self, code: int, answer: Json) -> Any:
        """Of a refusal the message, but not of one by the schema: which of its words a server chooses is its own."""
        return (
            None
            if code in (422, 400)
            else self._rename(_VERSIONS.sub("(a version)", _UPDATED.sub("at a time", _STORAGE.sub("", str(answer.get("message"))))))
        )

    def normalize(self, value: Any, name: str = "") -> Any:
        """Without times, and with names for what a server gives, by the order in which it was first seen."""
        if isinstance(value, dict):
            return {key: self.normalize(inner, key) for key, inner in sorted(value.items()) if key not in ("time", "selfLink")}
        if name == "managedFields":  # in the order of their times, of which many are equal
            value = sorted(value, key=lambda entry: (entry["operation"], entry["manager"], entry.get("subresource", "")))
        if isinstance(value, list):
            return [self.normalize(item) for item in value]
        if name == "continue" and value:
            return "a token"
        if name in ("uid", "resourceVersion") and value:
            return self._names.setdefault(f"{name} {value}", f"{name} {len(self._names)}")
        if name in ("creationTimestamp", "deletionTimestamp", "lastTransitionTime"):
            return "a time"
        return self._rename(value) if isinstance(value, str) else value

    def _rename(self, text: str) -> str:
        for known, shown in self._names.items():
            value = known.partition(" ")[2]
            if known.startswith("uid ") and value in text:
                text = text.replace(value, shown)
        return text.replace(self._namespace, "NAMESPACE")


def _fill(value: Any, marks: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _fill(inner, marks) for key, inner in value.items()}
    if isinstance(value, list):
        return [_fill(item, marks) for item in value]
    return marks.get(value, value) if isinstance(value, str) else value


def find_difference(one: Any, other: Any, path: str = "") -> str:
    """The first place where two answers differ; empty where they are equal."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            if key not in one or key not in other:
                return f"{path}.{key}: {json.dumps(one.get(key, '(not there)'))} != {json.dumps(other.get(key, '(not there)'))}"
            if found := find_difference(one[key], other[key], f"{path}.{key}"):
                return found
        return ""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        differences = (find_difference(a, b, f"{path}[{number}]") for number, (a, b) in enumerate(zip(one, other, strict=False)))
        found = next((each for each in differences if each), "")
        return found or ("" if len(one) == len(other) else f"{path}: {len(one)} and {len(other)} elements: {json.dumps([one, other])}")
    return "" if one == other else f"{path}: {json.dumps(one)} != {json.dumps(other)}"
