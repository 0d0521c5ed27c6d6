"""Devices that pods claim (DRA), for the audit from objects alone: as if containers requested them, and nodes had them to give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

Obj = Mapping[str, Any]


def add_claimed(pods: Iterable[Obj], templates: Iterable[Obj], resources: Mapping[str, str]) -> list[Obj]:
    """Pods as if the devices of their claim templates were requested as these resources, by DeviceClass."""
    asked = {(each["metadata"]["namespace"], each["metadata"]["name"]): _count(each, resources) for each in templates}
    return [_add(pod, asked) for pod in pods]


def _count(template: Obj, resources: Mapping[str, str]) -> Counter[str]:
    found = Counter[str]()
    for request in template["spec"]["spec"]["devices"]["requests"]:
        exactly = request["exactly"]
        if exactly["deviceClassName"] in resources:
            found[resources[exactly["deviceClassName"]]] += exactly["count"]
    return found


def _add(pod: Obj, asked: Mapping[tuple[str, str], Counter[str]]) -> Obj:
    names = [each["resourceClaimTemplateName"] for each in pod["spec"].get("resourceClaims") or () if "resourceClaimTemplateName" in each]
    total = sum((asked.get((pod["metadata"]["namespace"], name), Counter()) for name in names), Counter[str]())
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
