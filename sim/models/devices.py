"""Devices that pods claim (DRA): the controller that makes their claims, and what kube-scheduler gives of a node."""

from collections.abc import Iterator, Mapping
from typing import Any

from sim.apiserver.server import Change, Request, Server
from sim.models.base import POD, Json, Key, Model, build_owner_reference, get_controller, get_key, is_over

GROUP = "resource.k8s.io"
DEVICE_CLASS, DEVICES_RESOURCE = "gpu.example.com", "example.com/devices"  # the class of all devices, and as what quota counts them
CLAIM, TEMPLATE, SLICE = (GROUP, "resourceclaims"), (GROUP, "resourceclaimtemplates"), (GROUP, "resourceslices")
_CLASS = "DeviceClass"


class ClaimController(Model):
    """Makes a claim for each of a pod's templates once it has no gate, and takes the devices back when its containers have ended. The
    garbage collector deletes the claims of a pod that is gone."""

    resources = (POD,)

    def find_due(self, change: Change) -> Iterator[tuple[tuple[str, str], Key]]:
        if change.new is not None and change.new["spec"].get("resourceClaims"):
            yield POD, get_key(change.new)

    def look(self, resource: tuple[str, str], key: Key) -> None:
        pod = self.find(POD, key)
        if pod is None or pod["metadata"].get("deletionTimestamp") or pod["spec"].get("schedulingGates"):
            return
        made = {each["name"]: each["resourceClaimName"] for each in (pod.get("status") or {}).get("resourceClaimStatuses") or ()}
        if is_over(pod):
            for name in made.values():
                claim = self.find(CLAIM, (key[0], name))
                if claim is not None and (claim.get("status") or {}).get("allocation"):
                    self.patch(CLAIM, (key[0], name), {"status": {"allocation": None, "reservedFor": None}}, "status")
            return
        missing = [entry for entry in pod["spec"]["resourceClaims"] if entry["name"] not in made]
        for entry in missing:
            template = self.find(TEMPLATE, (key[0], entry["resourceClaimTemplateName"]))
            if template is None:
                self.add(POD, key, 1.0)
                return
            name = f"{key[1]}-{entry['name']}-{pod['metadata']['uid'][-5:]}"
            if self.find(CLAIM, (key[0], name)) is None:
                notes = {"resource.kubernetes.io/pod-claim-name": entry["name"]}
                metadata = {"name": name, "annotations": notes, "ownerReferences": [build_owner_reference(pod, "v1", "Pod")]}
                body = {"apiVersion": f"{GROUP}/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": template["spec"]["spec"]}
                self.server.create(Request("create", self.kind(CLAIM), key[0], "", "", {}, body, user=self.user))
            made[entry["name"]] = name
        if missing:
            statuses = [{"name": name, "resourceClaimName": claim} for name, claim in made.items()]
            self.patch(POD, key, {"status": {"resourceClaimStatuses": statuses}}, "status")


def find_devices(server: Server, pod: Json, node: str) -> dict[Key, list[Json]] | None:
    """What a node gives for each claim of a pod that has nothing yet; None where it has too little, or a claim is not made yet."""
    entries = pod["spec"].get("resourceClaims") or ()
    if not entries:
        return {}
    made = {each["name"]: each["resourceClaimName"] for each in (pod.get("status") or {}).get("resourceClaimStatuses") or ()}
    keys = [(pod["metadata"]["namespace"], made.get(entry["name"], "")) for entry in entries]
    claims = server.objects[CLAIM]
    if any(key not in claims for key in keys):
        return None
    taken = {
        (result["pool"], result["device"])
        for stored in claims.values()
        for result in _list_results(stored.obj)
        if (get_controller(stored.obj) or {}).get("uid") != pod["metadata"]["uid"]
    }
    free = [
        {"request": "devices", "driver": spec["driver"], "pool": spec["pool"]["name"], "device": device["name"]}
        for stored in server.objects[SLICE].values()
        if (spec := stored.obj["spec"]).get("nodeName") == node
        for device in spec["devices"]
        if (spec["pool"]["name"], device["name"]) not in taken
    ]
    given: dict[Key, list[Json]] = {}
    for key in keys:
        wanted = count_asked(claims[key].obj["spec"])
        if wanted > len(free):
            return None
        given[key], free = free[:wanted], free[wanted:]
    return given


def _list_results(claim: Json) -> list[Json]:
    found: list[Json] = (((claim.get("status") or {}).get("allocation") or {}).get("devices") or {}).get("results") or []
    return found


def count_asked(spec: Mapping[str, Any]) -> int:
    """How many devices the spec of a claim asks for."""
    return sum(request["exactly"]["count"] for request in spec["devices"]["requests"])


def build_class() -> Json:
    """The class of all devices."""
    selectors = [{"cel": {"expression": f'device.driver == "{DEVICE_CLASS}"'}}]
    return {"apiVersion": f"{GROUP}/v1", "kind": _CLASS, "metadata": {"name": DEVICE_CLASS}, "spec": {"selectors": selectors}}


def build_slice(node: str, count: int) -> Json:
    """The devices of a node."""
    devices = [{"name": f"{node}-{number}"} for number in range(count)]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DEVICE_CLASS, "pool": pool, "devices": devices, "nodeName": node}
    return {"apiVersion": f"{GROUP}/v1", "kind": "ResourceSlice", "metadata": {"name": node}, "spec": spec}


def build_template(name: str, namespace: str, count: int) -> Json:
    """A template of claims on so many devices."""
    exactly = {"deviceClassName": DEVICE_CLASS, "allocationMode": "ExactCount", "count": count}
    spec = {"spec": {"devices": {"requests": [{"name": "devices", "exactly": exactly}]}}}
    head = {"apiVersion": f"{GROUP}/v1", "kind": "ResourceClaimTemplate"}
    return {**head, "metadata": {"name": name, "namespace": namespace}, "spec": spec}
