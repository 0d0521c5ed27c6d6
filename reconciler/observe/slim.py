"""Objects cut down to what topogate reads, before they are kept: pods and nodes are many."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from core.jobs.kinds.pod import Pod, compute_role_hash, has_admission_gate
from core.names import (
    COORDINATE_PREFIXES,
    MANAGED,
    MAX_NOT_READY_COUNT,
    MEMBER_OF_LABEL,
    POD_GROUP_FAST_ADMISSION,
    POD_GROUP_NAME,
    POD_GROUP_SERVING,
    POD_GROUP_TOTAL_COUNT,
    PODSET_GROUP_NAME,
    PODSET_LABEL,
    QUEUE_NAME_LABEL,
    RETRIABLE_IN_GROUP,
    ROLE_HASH,
    SLICE_NAME,
    SLICE_SIZE,
    SUSPENDING_PARENT,
    TOPOLOGY_ANNOTATIONS,
    TRACEPARENT_ANNOTATION,
    WORKLOAD_ANNOTATION,
)
from core.plan.steps.api_resources import build_owner_key
from core.podgroups.members import find_native_group
from core.resource import Obj
from core.state.owners import mark_uid

IDENTITY = ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp")  # fields of metadata, where they are set
_ANNOTATIONS = (WORKLOAD_ANNOTATION, SLICE_NAME, TRACEPARENT_ANNOTATION)
_OF_QUEUED_PODS = (
    MAX_NOT_READY_COUNT,
    POD_GROUP_FAST_ADMISSION,
    POD_GROUP_NAME,
    POD_GROUP_SERVING,
    POD_GROUP_TOTAL_COUNT,
    RETRIABLE_IN_GROUP,
    ROLE_HASH,
    SUSPENDING_PARENT,
)
_OF_WAITING_PODS = (*TOPOLOGY_ANNOTATIONS, SLICE_SIZE, PODSET_GROUP_NAME)  # what they ask for may change until they start

_READY = [{"type": "Ready", "status": "True"}]  # one for all pods that are


def slim_pod(pod: Obj) -> Obj:
    """Returns a pod cut down to its identity (`IDENTITY`), labels, times, place, gates, requests, phase, readiness, and what keeps other
    pods away from it. Pods that wait, are queued or belong to a group keep more. It has no apiVersion or kind, and of its owners only the
    controller. A queued pod without ROLE_HASH gets it as an annotation."""
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    annotations = metadata.get("annotations") or {}
    queued = (metadata.get("labels") or {}).get(MANAGED) == "true"
    waits = has_admission_gate(pod)
    names = _ANNOTATIONS + (_OF_QUEUED_PODS if queued else ()) + (_OF_WAITING_PODS if waits else ())
    if queued and ROLE_HASH not in annotations:  # marked by another's webhook, or an older one
        # A start adds a node selector and tolerations; from then on the label has the role.
        started_as = (metadata.get("labels") or {}).get(PODSET_LABEL) if not waits else None
        annotations = {**annotations, ROLE_HASH: started_as or compute_role_hash(spec)}
    member = MEMBER_OF_LABEL in (metadata.get("labels") or {}) or bool(find_native_group(pod))
    grouped = member and not spec.get("nodeName")  # keeps all fields that kube-scheduler uses
    return {
        "metadata": _pick(metadata, *IDENTITY, "labels", "creationTimestamp", "deletionGracePeriodSeconds")
        | (_pick(metadata, "finalizers") if queued else {})
        | _pick_controller(metadata)
        | {"annotations": {key: value for key, value in annotations.items() if key in names or key.startswith(COORDINATE_PREFIXES)}},
        "spec": _pick(spec, "nodeName", "schedulingGates", "nodeSelector", "overhead", "resources", "hostNetwork")
        | _pick(spec, "resourceClaims", *(("schedulingGroup",) if member else ()))
        | (_pick(spec, "tolerations") if waits else {})  # its flavor's are added when it starts
        | (
            _pick(spec, "affinity", "tolerations", "topologySpreadConstraints", "volumes", "priority")
            if grouped or find_native_group(pod)
            else _pick_anti_affinity(spec)
        )
        | {
            part: [_pick(c, "resources", "restartPolicy") | _pick_host_ports(c, spec) for c in spec[part]]
            for part in ("containers", "initContainers")
            if spec.get(part)
        },
        "status": _pick(status, "phase", *(("nominatedNodeName",) if grouped else ()), *(("resourceClaimStatuses",) if member else ()))
        | (_pick(status, "reason") if status.get("phase") == "Failed" else {})
        | _pick_conditions(pod, waits_for_scheduler=grouped),
    }


def mark_unknown_owners(obj: Obj, known: Collection[str]) -> Obj:
    """Returns a copy of an object with another uid (`mark_uid`) in each owner reference of a kind not in `known`; the object itself without
    any. Any user can name the uid of a job with such a kind. `known` has kinds with their groups (`build_owner_key`). References with known
    kinds are guarded by the policy `topogate-owners`."""
    metadata = obj["metadata"]
    owners = metadata.get("ownerReferences") or ()
    if all(build_owner_key(owner) in known for owner in owners):
        return obj
    marked = [
        owner if build_owner_key(owner) in known else {**owner, "uid": mark_uid(build_owner_key(owner), owner["uid"])} for owner in owners
    ]
    return {**obj, "metadata": {**metadata, "ownerReferences": marked}}


def remove_false_marks(pod: Obj, queued: Pod) -> Obj:
    """Returns the pod without the label of queued pods where the webhook leaves it alone, since what controls it is queued itself. Its
    labels are not judged, and its user can make it look like a member of a pod group.

    A pod that topogate has gated or started keeps the label, also where a Job or a DaemonSet has adopted it.
    """
    metadata = pod["metadata"]
    labels, notes = metadata.get("labels") or {}, metadata.get("annotations") or {}
    if MANAGED not in labels or WORKLOAD_ANNOTATION in notes or has_admission_gate(pod) or not queued.is_left_alone(pod):
        return pod
    return {**pod, "metadata": {**metadata, "labels": {key: value for key, value in labels.items() if key != MANAGED}}}


def _pick_conditions(pod: Obj, *, waits_for_scheduler: bool = False) -> dict[str, Any]:
    """Whether it is ready; of ours that wait for kube-scheduler also since when it finds no node, and why."""
    status = pod.get("status") or {}
    if _is_ready(status):
        return {"conditions": _READY}
    ours = waits_for_scheduler or WORKLOAD_ANNOTATION in (pod["metadata"].get("annotations") or {})
    if (pod.get("spec") or {}).get("nodeName") or not ours:
        return {}
    refused = [c for c in status.get("conditions") or () if c.get("type") == "PodScheduled" and c.get("reason") == "Unschedulable"]
    return {"conditions": [_pick(c, "type", "status", "reason", "message", "lastTransitionTime") for c in refused]} if refused else {}


def _is_ready(status: dict[str, Any]) -> bool:
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in status.get("conditions") or ())


def _pick_anti_affinity(spec: dict[str, Any]) -> dict[str, Any]:
    """The required terms by which a running pod keeps others away."""
    terms = _pick((spec.get("affinity") or {}).get("podAntiAffinity") or {}, "requiredDuringSchedulingIgnoredDuringExecution")
    return {"affinity": {"podAntiAffinity": terms}} if terms else {}


def _pick_host_ports(container: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    ports = [port for port in container.get("ports") or () if port.get("hostPort") or spec.get("hostNetwork")]
    return {"ports": [_pick(port, "hostPort", "containerPort", "protocol", "hostIP") for port in ports]} if ports else {}


def slim_node(node: Obj) -> Obj:
    """Returns a node cut down to its identity (`IDENTITY`), labels, creation, taints, cordon, allocatable amounts and condition Ready,
    without apiVersion and kind."""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    return {
        "metadata": _pick(node["metadata"], *IDENTITY, "labels", "creationTimestamp"),
        "spec": _pick(spec, "taints", "unschedulable"),
        "status": _pick(status, "allocatable")
        | {
            "conditions": [
                _pick(c, "type", "status", "lastTransitionTime") for c in status.get("conditions") or () if c.get("type") == "Ready"
            ]
        },
    }


def slim_daemon_set(daemon_set: Obj) -> Obj:
    """Returns a DaemonSet cut down to its identity (`IDENTITY`) and what of its template decides on which nodes its pods run, with which
    requests and ports. It has no apiVersion or kind."""
    template = daemon_set["spec"]["template"]
    spec = template.get("spec") or {}
    wanted = _pick(spec, "nodeName", "nodeSelector", "affinity", "tolerations", "hostNetwork", "overhead", "resources")
    parts = {
        part: [_pick(c, "resources", "restartPolicy", "ports") for c in spec[part]]
        for part in ("containers", "initContainers")
        if spec.get(part)
    }
    return {
        "metadata": _pick(daemon_set["metadata"], *IDENTITY),
        "spec": {"template": {"metadata": _pick(template.get("metadata") or {}, "labels"), "spec": wanted | parts}},
    }


def slim_stateful_set(stateful_set: Obj) -> Obj:
    """Returns a StatefulSet: whole but for `managedFields` if it names a queue, else only its identity (`IDENTITY`), labels and
    controller."""
    metadata = stateful_set["metadata"]
    if QUEUE_NAME_LABEL in (metadata.get("labels") or {}):
        return remove_managed_fields(stateful_set)
    return {"metadata": _pick(metadata, *IDENTITY, "labels") | _pick_controller(metadata)}


def slim_volume_claim(claim: Obj) -> Obj:
    """Returns a PersistentVolumeClaim cut down to its identity (`IDENTITY`), its volume, its access modes and its phase."""
    return {
        "metadata": _pick(claim["metadata"], *IDENTITY),
        "spec": _pick(claim.get("spec") or {}, "volumeName", "accessModes"),
        "status": _pick(claim.get("status") or {}, "phase"),
    }


def slim_volume(volume: Obj) -> Obj:
    """Returns a PersistentVolume cut down to its identity (`IDENTITY`), its node affinity, and namespace and name of its claim."""
    spec = volume.get("spec") or {}
    claim = _pick(spec.get("claimRef") or {}, "namespace", "name")
    return {"metadata": _pick(volume["metadata"], *IDENTITY), "spec": _pick(spec, "nodeAffinity") | {"claimRef": claim}}


def slim_between(obj: Obj) -> Obj:
    """Returns a Deployment or ReplicaSet cut down to its identity (`IDENTITY`), its controller, `replicas`, and `isQueued`: whether it
    names a queue. It has no label of a queue here: its pods are workloads of their own.
    """
    metadata = obj["metadata"]
    return {
        "metadata": _pick(metadata, *IDENTITY) | _pick_controller(metadata),
        "spec": _pick(obj.get("spec") or {}, "replicas") | {"isQueued": QUEUE_NAME_LABEL in (metadata.get("labels") or {})},
    }


def slim_definition(definition: Obj) -> Obj:
    """Returns a CustomResourceDefinition cut down to its identity (`IDENTITY`), group, kind and plural.
    It keeps name and `served` of each version, and type and status of condition Established; it has no apiVersion or kind of its own."""
    spec = definition["spec"]
    conditions = (definition.get("status") or {}).get("conditions") or ()
    return {
        "metadata": _pick(definition["metadata"], *IDENTITY),
        "spec": _pick(spec, "group")
        | {"names": _pick(spec["names"], "kind", "plural")}
        | {"versions": [_pick(version, "name", "served") for version in spec["versions"]]},
        "status": {
            "conditions": [_pick(condition, "type", "status") for condition in conditions if condition.get("type") == "Established"]
        },
    }


def remove_managed_fields(obj: Obj) -> Obj:
    """Returns a copy of the object without `managedFields`, the record of the writer of each field, which is the larger half of many
    objects."""
    return {**obj, "metadata": {key: value for key, value in obj["metadata"].items() if key != "managedFields"}}


def name_native(group: Obj) -> Obj:
    """Returns a copy of a PodGroup of kube-scheduler's own without `managedFields`, and with apiVersion and kind where a list has left them
    out."""
    return {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", **remove_managed_fields(group)}


def with_writers_of(path: Sequence[str | int]) -> Callable[[Obj], Obj]:
    """Returns a transform that copies an object without `managedFields`, but with the names of the managers that wrote the field at `path`,
    for `list_writers`."""

    def slim_field_managers(obj: Obj) -> Obj:
        slim = remove_managed_fields(obj)
        names = [entry.get("manager") for entry in obj["metadata"].get("managedFields") or () if _has_field(entry, path)]
        if names:
            slim["metadata"]["managedFields"] = [{"manager": name} for name in names]
        return slim

    return slim_field_managers


def list_writers(obj: Obj) -> set[str]:
    """Returns the names of the managers in `managedFields`: of an object that `with_writers_of` has copied, those that wrote its field.
    Empty where they are not known."""
    return {str(entry["manager"]) for entry in obj["metadata"].get("managedFields") or ()}


def _has_field(entry: Mapping[str, Any], path: Sequence[str | int]) -> bool:
    fields: Any = entry.get("fieldsV1")
    for part in path:
        fields = fields.get(f"f:{part}") if isinstance(fields, Mapping) else None
    return fields is not None


def _pick_controller(metadata: dict[str, Any]) -> dict[str, Any]:
    return {"ownerReferences": [owner for owner in metadata.get("ownerReferences") or () if owner.get("controller")]}


def _pick(obj: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: obj[name] for name in names if obj.get(name) is not None}
