"""Devices and claims on paper: as the API server has them, and as an inventory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core.podgroups.devices.claims import PodClaim, read_claim, read_claim_spec, read_class, read_slice
from core.podgroups.devices.inventory import Inventory

DRIVER = "gpu.example.com"
CLASS = "gpu.example.com"
TEMPLATE = "one-gpu"
Json = dict[str, Any]


def build_device_class(name: str = CLASS, *expressions: str) -> Json:
    selectors = [{"cel": {"expression": one}} for one in expressions or (f'device.driver == "{DRIVER}"',)]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name, "uid": name, "resourceVersion": "1"},
        "spec": {"selectors": selectors},
    }


def build_claim_spec(count: int = 1, *expressions: str, **exactly: Any) -> Json:
    """One request."""
    request = {"deviceClassName": CLASS, "allocationMode": "ExactCount", "count": count, **exactly}
    if expressions:
        request["selectors"] = [{"cel": {"expression": one}} for one in expressions]
    return {"devices": {"requests": [{"name": "gpus", "exactly": request}]}}


def build_template(name: str = TEMPLATE, spec: Json | None = None, namespace: str = "ns") -> Json:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": namespace, "uid": name, "resourceVersion": "1"},
        "spec": {"spec": spec or build_claim_spec()},
    }


def build_resource_slice(
    pool: str, devices: int | Sequence[Json], *, node: str = "", name: str = "", first: int = 0, driver: str = DRIVER, **spec: Any
) -> Json:
    """So many devices, or these, that one node reaches, or all; `spec` has more fields, and `generation` and `slices` of the pool."""
    made = [{"name": f"{name or node or pool}-{first + i}"} for i in range(devices)] if isinstance(devices, int) else list(devices)
    of_pool = {"name": pool, "generation": spec.pop("generation", 1), "resourceSliceCount": spec.pop("slices", 1)}
    reach = {"nodeName": node} if node else {} if "nodeSelector" in spec or "perDeviceNodeSelection" in spec else {"allNodes": True}
    named = name or f"{pool}-{node or 'all'}"
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": named, "uid": named, "resourceVersion": "1"},
        "spec": {"driver": driver, "pool": of_pool, "devices": made, **reach, **spec},
    }


def pool_of_nodes(pool: str, free: Mapping[str, int]) -> list[Json]:
    """A pool with a slice for each node."""
    return [build_resource_slice(pool, count, node=node, slices=len(free)) for node, count in free.items()]


def build_claim(
    name: str, devices: Sequence[tuple[str, str]] | None = None, *, spec: Json | None = None, namespace: str = "ns", **allocation: Any
) -> Json:
    """A claim; allocated with these devices (pool, name) if there are any."""
    metadata = {"name": name, "namespace": namespace, "uid": name, "resourceVersion": "1"}
    found: Json = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": spec or build_claim_spec()}
    if devices is not None:
        results = [{"request": "gpus", "driver": DRIVER, "pool": pool, "device": device} for pool, device in devices]
        found["status"] = {"allocation": {"devices": {"results": results}, **allocation}}
    return found


def build_inventory(*objects: Json) -> Inventory:
    """What is seen of some objects; a class and a template for one device are there anyway."""
    found = Inventory()
    for obj in (build_device_class(), build_template(), *objects):
        metadata = obj["metadata"]
        key = f"{metadata['namespace']}/{metadata['name']}" if "namespace" in metadata else metadata["name"]
        if obj["kind"] == "DeviceClass":
            found.observe_class(key, read_class(obj))
        elif obj["kind"] == "ResourceClaimTemplate":
            found.observe_template(key, read_claim_spec(obj["spec"]["spec"]))
        elif obj["kind"] == "ResourceSlice":
            found.observe_slice(key, read_slice(obj))
        else:
            found.observe_claim(key, read_claim(obj))
    return found


OWN = (PodClaim(TEMPLATE, ""),)
