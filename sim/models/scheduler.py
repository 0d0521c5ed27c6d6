"""kube-scheduler: a pod is bound where there is room."""

from collections.abc import Iterator, Mapping
from typing import Any

from sim.apiserver.server import Change
from sim.models.base import NODE, POD, Json, Key, Model, get_key, is_over, set_pod_condition
from sim.models.devices import CLAIM, find_devices
from sim.models.evictions import can_tolerate


class Scheduler(Model):
    """kube-scheduler: binds pods without gates to nodes that take them."""

    user = "system:kube-scheduler"
    resources = (POD, NODE, CLAIM)
    backs_off_s = 0.0  # before a pod that was refused is looked at again (podInitialBackoffSeconds)

    def find_due(self, change: Change) -> Iterator[tuple[tuple[str, str], Key]]:
        for resource, key in self._find_changed(change):
            pod = self.find(resource, key)
            if self.backs_off_s and pod is not None and _is_refused(pod):
                self.add(resource, key, self.backs_off_s)
            else:
                yield resource, key

    def _find_changed(self, change: Change) -> Iterator[tuple[tuple[str, str], Key]]:
        if change.resource == POD and change.new is not None and not is_over(change.new):
            yield POD, get_key(change.new)
        else:  # room may have come
            for key, stored in sorted(self.server.objects[POD].items()):
                if not stored.obj["spec"].get("nodeName"):
                    yield POD, key

    def look(self, resource: tuple[str, str], key: Key) -> None:
        pod = self.find(POD, key)
        if pod is None or pod["spec"].get("nodeName") or pod["spec"].get("schedulingGates") or pod["metadata"].get("deletionTimestamp"):
            return
        used = self._count_used()
        for (_, name), stored in sorted(self.server.objects[NODE].items()):
            given = find_devices(self.server, pod, name) if is_feasible(stored.obj, pod, used.get(name, {})) else None
            if given is not None:
                for claim, results in given.items():
                    allocation = {"devices": {"results": results}}
                    reserved = [{"resource": "pods", "name": key[1], "uid": pod["metadata"]["uid"]}]
                    self.patch(CLAIM, claim, {"status": {"allocation": allocation, "reservedFor": reserved}}, "status")
                self.patch(POD, key, {"spec": {"nodeName": name}})
                self.patch(
                    POD, key, {"status": {"conditions": [*_list_other_conditions(pod), _build_scheduled_condition(self.time())]}}, "status"
                )
                return
        conditions = set_pod_condition(pod, "PodScheduled", "False", self.time(), "Unschedulable")
        if conditions:
            self.patch(POD, key, {"status": {"conditions": conditions}}, "status")

    def _count_used(self) -> dict[str, dict[str, int]]:
        used: dict[str, dict[str, int]] = {}
        for stored in self.server.objects[POD].values():
            node = stored.obj["spec"].get("nodeName")
            if node and not is_over(stored.obj):
                on_node = used.setdefault(node, {})
                for name, amount in compute_requests(stored.obj).items():
                    on_node[name] = on_node.get(name, 0) + amount
        return used


def is_feasible(node: Json, pod: Json, used: Mapping[str, int]) -> bool:
    """Whether a node has room for a pod beside what is used, and the pod may run there."""
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(name) != value for name, value in (pod["spec"].get("nodeSelector") or {}).items()):
        return False
    spec, status = node.get("spec") or {}, node.get("status") or {}
    if spec.get("unschedulable") or not all(_can_tolerate_taint(pod, taint) for taint in spec.get("taints") or ()):
        return False
    room = {name: read_amount(name, text) for name, text in (status.get("allocatable") or {}).items()}
    return all(used.get(name, 0) + amount <= room.get(name, 0) for name, amount in compute_requests(pod).items())


def _can_tolerate_taint(pod: Json, taint: Json) -> bool:
    return taint["effect"] == "PreferNoSchedule" or any(can_tolerate(each, taint) for each in pod["spec"].get("tolerations") or ())


def _list_other_conditions(pod: Json) -> list[Json]:
    return [condition for condition in (pod.get("status") or {}).get("conditions") or () if condition["type"] != "PodScheduled"]


def _is_refused(pod: Json) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "PodScheduled" and each.get("reason") == "Unschedulable" for each in conditions)


def _build_scheduled_condition(time: str) -> Json:
    return {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": time}


def compute_requests(pod: Mapping[str, Any]) -> dict[str, int]:
    """What a pod requests of a node, in thousandths of a core or whole units; a pod counts as one."""
    asked = {"pods": 1}
    for container in pod["spec"].get("containers") or ():
        for name, text in ((container.get("resources") or {}).get("requests") or {}).items():
            asked[name] = asked.get(name, 0) + read_amount(name, text)
    return asked


def read_amount(name: str, text: Any) -> int:
    """A quantity of a scenario: whole numbers, with `m`, or with a binary suffix."""
    value, scale = str(text), 1000 if name == "cpu" else 1
    if value.endswith("m"):
        return int(value[:-1]) * scale // 1000
    for suffix, factor in (("Ki", 1 << 10), ("Mi", 1 << 20), ("Gi", 1 << 30), ("Ti", 1 << 40)):
        if value.endswith(suffix):
            return int(value[: -len(suffix)]) * factor * scale
    return int(value) * scale
