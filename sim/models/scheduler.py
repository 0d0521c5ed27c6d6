"""kube-scheduler: a pod is bound where there is room."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sim.apiserver.server import Change
from sim.models.base import NODE, POD, Json, Key, Model, get_key, is_over, set_pod_condition
from sim.models.devices import CLAIM, find_devices
from sim.models.evictions import can_tolerate

NAME = "default-scheduler"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


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
        if pod["spec"]["schedulerName"] != NAME:
            return
        used, nominated = self._count_used(pod), (pod.get("status") or {}).get("nominatedNodeName")
        for (_, name), stored in sorted(self.server.objects[NODE].items(), key=lambda item: (item[0][1] != nominated, item[0])):
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

    def _count_used(self, pod: Json) -> dict[str, dict[str, int]]:
        """What others use, by node: those that are bound, and those nominated there that are as important as a pod."""
        used: dict[str, dict[str, int]] = {}
        for stored in self.server.objects[POD].values():
            node = stored.obj["spec"].get("nodeName")
            if not node and stored.obj["metadata"]["uid"] != pod["metadata"]["uid"]:
                is_less = (stored.obj["spec"].get("priority") or 0) < (pod["spec"].get("priority") or 0)
                node = None if is_less else (stored.obj.get("status") or {}).get("nominatedNodeName")
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
    terms = (((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED) or {}).get("nodeSelectorTerms")
    if terms is not None and not any(_is_chosen(node, term) for term in terms):
        return False
    spec, status = node.get("spec") or {}, node.get("status") or {}
    if spec.get("unschedulable") or not all(_can_tolerate_taint(pod, taint) for taint in spec.get("taints") or ()):
        return False
    room = {name: read_amount(name, text) for name, text in (status.get("allocatable") or {}).items()}
    return all(used.get(name, 0) + amount <= room.get(name, 0) for name, amount in compute_requests(pod).items())


def _is_chosen(node: Json, term: Json) -> bool:
    """Whether a term of a node selector chooses a node; one without requirements chooses none."""
    labels, fields = node["metadata"].get("labels") or {}, {"metadata.name": node["metadata"]["name"]}
    asked = [(labels, one) for one in term.get("matchExpressions") or ()] + [(fields, one) for one in term.get("matchFields") or ()]
    return bool(asked) and all(_fits(known.get(one["key"]), one["operator"], one.get("values") or ()) for known, one in asked)


def _fits(value: str | None, operator: str, values: Sequence[str]) -> bool:
    if operator in ("Gt", "Lt"):
        return value is not None and (int(value) > int(values[0])) == (operator == "Gt") and value != values[0]
    return {"In": value in values, "NotIn": value not in values, "Exists": value is not None, "DoesNotExist": value is None}[operator]


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
