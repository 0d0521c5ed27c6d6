"""Sequences in which the API server in memory once answered otherwise than the real one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.sim.contract import APPLY, MERGE, Op

Json = dict[str, Any]
_CONFIG_MAPS = "/api/v1/namespaces/{namespace}/configmaps"
_PODS = "/api/v1/namespaces/{namespace}/pods"
_WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/namespaces/{namespace}/workloads"
_HEAD = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload"}
_CONDITION = {"type": "A", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}
_READ = Op("GET", f"{_WORKLOADS}/w0", {})


def _make(**metadata: Any) -> Op:
    spec = {"queueName": "q", "podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": []}}}]}
    return Op("POST", _WORKLOADS, {"fieldManager": "zero"}, {**_HEAD, "metadata": {"name": "w0", **metadata}, "spec": spec})


def _apply(manager: str, **metadata: Any) -> Op:
    body = {**_HEAD, "metadata": {"name": "w0", **metadata}}
    return Op("PATCH", f"{_WORKLOADS}/w0", {"fieldManager": manager, "force": "true"}, body, APPLY)


def _apply_status(manager: str, **status: Any) -> Op:
    body = {**_HEAD, "metadata": {"name": "w0"}, "status": status}
    return Op("PATCH", f"{_WORKLOADS}/w0/status", {"fieldManager": manager, "force": "true"}, body, APPLY)


def _merge(body: Json) -> Op:
    return Op("PATCH", f"{_WORKLOADS}/w0", {"fieldManager": "four"}, body, MERGE)


def _replace(path: str, head: Json, **metadata: str) -> Op:
    name = path.rpartition("/")[2]
    return Op("PUT", path, {"fieldManager": "two"}, {**head, "metadata": {"name": name, **metadata}})


def _make_pod(**spec: Any) -> Op:
    given = {"schedulerName": "nobody", "automountServiceAccountToken": False, "containers": [{"name": "c", "image": "i"}], **spec}
    return Op("POST", _PODS, {"fieldManager": "one"}, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p0"}, "spec": given})


def _make_labelled(name: str) -> Op:
    return Op("POST", _CONFIG_MAPS, {"fieldManager": "one"}, {**_OF_MAP, "metadata": {"name": name, "labels": {"a": "1"}}})


_CHANGES_NOTHING = _merge({"metadata": {}})
_POD_SET = {"name": "main", "count": 1}
_WITH_NULL = {"spec": {"containers": [], "affinity": {"nodeAffinity": {"terms": [{}, None]}}}}
_OF_MAP = {"apiVersion": "v1", "kind": "ConfigMap"}
_MAKE_MAP = Op("POST", _CONFIG_MAPS, {"fieldManager": "one"}, {**_OF_MAP, "metadata": {"name": "c0"}, "data": {"x": "1"}})
_CHANGE_MAP = Op("PATCH", f"{_CONFIG_MAPS}/c0", {"fieldManager": "one"}, {"data": {"x": "2"}}, MERGE)

CASES: Mapping[str, list[Op]] = {
    "replace with another uid and an old version": [
        _MAKE_MAP,
        _CHANGE_MAP,
        _replace(f"{_CONFIG_MAPS}/c0", _OF_MAP, uid="another", resourceVersion="$old"),
        _replace(f"{_CONFIG_MAPS}/c0", _OF_MAP, uid="$uid", resourceVersion="$old"),
        _replace(f"{_CONFIG_MAPS}/c0", _OF_MAP, uid="another", resourceVersion="$version"),
        _make(),
        _replace(f"{_WORKLOADS}/w0", _HEAD, uid="another"),
        _replace(f"{_WORKLOADS}/w0", _HEAD, uid="another", resourceVersion="1"),
        _replace(f"{_WORKLOADS}/w0", _HEAD, uid="$uid"),
    ],
    "status left with an empty list is dropped": [
        _make(),
        _apply_status("two", conditions=[_CONDITION], reclaimablePods=[]),
        _apply_status("two"),
        _apply_status("two", requeueState={"count": 1}, reclaimablePods=[]),
        _apply_status("two", reclaimablePods=[]),
        _apply_status("two", requeueState={"count": 1}, reclaimablePods=[]),
        _apply_status("three", conditions=[_CONDITION]),
        _apply_status("two"),
        _apply_status("three"),
        _READ,
    ],
    "another manager owns the empty status": [
        _make(),
        _apply_status("three", conditions=[_CONDITION], reclaimablePods=[]),
        _apply_status("one"),
        _apply_status("three"),
        _READ,
    ],
    "another manager owns the empty status and all else is gone": [
        _make(),
        _apply_status("three", conditions=[_CONDITION]),
        _apply_status("one"),
        _apply_status("three", reclaimablePods=[]),
        _READ,
    ],
    "labels applied empty are dropped by the next write": [
        _make(labels={"a": "1"}),
        _apply("two", labels={}),
        _CHANGES_NOTHING,
        _merge({"metadata": {"labels": {"a": None}}}),
        _apply("two", labels={}),
        _CHANGES_NOTHING,
        _CHANGES_NOTHING,
        _apply("two", labels={}, finalizers=["example.com/f"]),
        _apply_status("three"),
        _apply_status("three"),
        _apply("two", labels={}, annotations={}, finalizers=["example.com/f"]),
        Op("DELETE", f"{_WORKLOADS}/w0", {}),
        _apply("two", labels={}, finalizers=["example.com/f"]),
        Op("DELETE", f"{_WORKLOADS}/w0", {}),
        Op("DELETE", f"{_WORKLOADS}/w0", {}),
    ],
    "labels applied empty are stored anew in another second": [
        _make(),
        _apply("two", labels={}),
        _apply("two", labels={}),
        _apply("two", labels={}),
        _READ,
    ],
    "labels are null after an apply": [
        _make(),
        _apply("two", labels={}),
        _apply("three", labels={"a": "1"}),
        _apply("two", labels={}),
        _apply("three"),
        _CHANGES_NOTHING,
        _CHANGES_NOTHING,
    ],
    "labels of a new object are applied empty": [
        Op("PATCH", f"{_WORKLOADS}/w0", {"fieldManager": "two"}, {**_make().body, "metadata": {"name": "w0", "labels": {}}}, APPLY),
        _CHANGES_NOTHING,
        _CHANGES_NOTHING,
    ],
    "a list holds null where the schema says nothing": [
        Op("POST", _WORKLOADS, {"fieldManager": "one"}, {**_make().body, "spec": {"podSets": [{**_POD_SET, "template": _WITH_NULL}]}}),
    ],
    "what is tried out changes nothing": [
        _make()._replace(params={"fieldManager": "zero", "dryRun": "All"}),
        _READ,
        _make(),
        _merge({"metadata": {"labels": {"a": "1"}}})._replace(params={"fieldManager": "four", "dryRun": "All"}),
        Op("DELETE", f"{_WORKLOADS}/w0", {"dryRun": "All"}),
        _READ,
    ],
    "objects of a collection are deleted by their labels": [
        _make_labelled("c0"),
        _make_labelled("c1"),
        _MAKE_MAP._replace(body={**_OF_MAP, "metadata": {"name": "c2"}}),
        Op("DELETE", _CONFIG_MAPS, {"labelSelector": "a=1"}),
        Op("GET", f"{_CONFIG_MAPS}/c0", {}),
        Op("GET", f"{_CONFIG_MAPS}/c2", {}),
    ],
    "limits of a container without requests": [
        _make_pod(
            containers=[{"name": "c", "image": "i", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}}]
        ),
    ],
    "a pod is evicted": [
        _make_pod(schedulingGates=[{"name": "example.com/x"}]),
        Op("POST", f"{_PODS}/p0/eviction", {}, {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p0"}}),
        Op("GET", f"{_PODS}/p0", {}),
    ],
}
