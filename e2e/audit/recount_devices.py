"""Devices that pods claim (DRA), for the audit from objects alone: as if containers requested them, and nodes had them to give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

Obj = Mapping[str, Any]


def add_claimed(pods: Iterable[Obj], templates: Iterable[Obj], resources: Mapping[str, str], claims: Iterable[Obj] = ()) -> list[Obj]:
    """Pods as if the devices of their claims were requested as these resources, by DeviceClass. A claim that is not made yet is counted as
    its template has it now."""
    asked = {_get_key(each): _count(each["spec"]["spec"], resources) for each in templates}
    made = {_get_key(each): _count(each["spec"], resources) for each in claims}
    return [_add(pod, asked, made) for pod in pods]


def _get_key(obj: Obj) -> tuple[str, str]:
    return obj["metadata"]["namespace"], obj["metadata"]["name"]


def _count(spec: Obj, resources: Mapping[str, str]) -> Counter[str]:
    found = Counter[str]()
    for request in spec["devices"]["requests"]:
        exactly = request["exactly"]
        if exactly["deviceClassName"] in resources:
            found[resources[exactly["deviceClassName"]]] += exactly["count"]
    return found


def _add(pod: Obj, asked: Mapping[tuple[str, str], Counter[str]], made: Mapping[tuple[str, str], Counter[str]]) -> Obj:
    namespace, total = pod["metadata"]["namespace"], Counter[str]()
    own = {each["name"]: each["resourceClaimName"] for each in (pod.get("status") or {}).get("resourceClaimStatuses") or ()}
    for each in pod["spec"].get("resourceClaims") or ():
        if "resourceClaimTemplateName" in each:
            by_template = asked.get((namespace, each["resourceClaimTemplateName"]), Counter[str]())
            total += made.get((namespace, own.get(each["name"], "")), by_template)
    if not total:
        return pod
    claims = {"name": "claims", "resources": {"requests": {resource: str(count) for resource, count in total.items()}}}
    return {**pod, "spec": {**pod["spec"], "containers": [*pod["spec"]["containers"], claims]}}


def add_offered(nodes: Iterable[Obj], slices: Iterable[Obj], resource: str) -> list[Obj]:
    """Nodes as if they offered the devices of their ResourceSlices, all of one class, as this resource."""
    counts = Counter[str]()
    for each in slices:
        counts[each["spec"].get("nodeName") or ""] += len(each["spec"]["devices"])
    return [_offer(node, {resource: str(counts[node["metadata"]["name"]])}) for node in nodes]


def _offer(node: Obj, more: Mapping[str, str]) -> Obj:
    status = node.get("status") or {}
    return {**node, "status": {**status, "allocatable": {**(status.get("allocatable") or {}), **more}}}
