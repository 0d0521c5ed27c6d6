"""What topogate needs to know of each object, read once from its JSON: small, frozen, comparable.

Two objects with equal facts are the same to topogate, which is how heartbeats change nothing.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

from core.model.admission import Admission, decode_admission
from core.model.claimed_devices import is_devices
from core.model.node_health_rules import parse_threshold
from core.model.pod_resources import PODS, Resources, add, compute_pod_requests, list_zero_requests, parse_resources
from core.model.pod_traits import NO_TRAITS, Labels, PodTraits, read_pod_traits, read_template_traits
from core.model.podset import TopologyRequest, parse_topology_request, read_lends, read_spares
from core.model.quantity import LARGEST
from core.model.spare_nodes import read_held_spares, with_borrowed, with_spares
from core.model.topology_spreading import Spreading
from core.names import (
    ADMITTED,
    BORROWED_SPARES,
    COORDINATE_PREFIXES,
    DEACTIVATION_TARGET,
    EVICTED,
    FINISHED,
    JOB_NAME_LABELS,
    JOB_UID_LABELS,
    LEND_SPARES,
    LOCAL_QUEUE_LABEL,
    LOST_NODES_THRESHOLD,
    MADE_BY,
    MAIN_POD_SET,
    PLACEMENT_PROFILE,
    POD_INDEX_OFFSET,
    PODS_READY,
    PODSET_LABEL,
    QUOTA_RESERVED,
    REASON_ON_HOLD,
    SLICE_NAME,
    SLICE_REPLACES,
    SPARE_NODES,
    SPARES,
    TOPOLOGY_GATE,
    WORKLOAD_ANNOTATION,
    WORKLOAD_PREFERRED_TOPOLOGY,
    WORKLOAD_REQUIRED_TOPOLOGY,
)
from core.placement.algorithms.tied_pod_sets import OneDomain
from core.placement.topology.free_capacity import NodeState
from core.placement.topology.node_eligibility import read_taints

Json = Mapping[str, Any]
_NOTHING: Resources = {}


def build_object_key(obj: Json) -> str:
    """Returns `namespace/name` of an object, or the name alone of a cluster-wide one."""
    metadata = obj["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


def find_controller(obj: Json) -> Json | None:
    """Returns the first owner reference (JSON) of an object that is marked as its controller; None where none is."""
    owners: Sequence[Json] = obj["metadata"].get("ownerReferences") or ()
    for owner in owners:  # asked ten times for each object: a generator takes three times as long
        if owner.get("controller"):
            return owner
    return None


def as_text(value: Any, field: str) -> str:
    """Returns a value that has to be a string. Raises ValueError, which names the field, for any other."""
    if not isinstance(value, str):
        raise ValueError(f"{field}: {value!r} is no string")
    return value


def read_index(text: str) -> int | None:
    """Returns an index of 1 to 9 decimal digits as a number; None of any other text, as of a sign. Python refuses to read digits by the
    thousand."""
    return int(text) if text and re.fullmatch(r"[0-9]{1,9}", text) else None


def find_condition(obj: Json, kind: str) -> Json | None:
    """Returns the first condition (JSON) of a type in `status.conditions`, whatever its status; None where there is none."""
    return next((c for c in (obj.get("status") or {}).get("conditions") or () if c.get("type") == kind), None)


def is_condition_true(obj: Json, kind: str) -> bool:
    """Returns whether a condition of `status.conditions` is True; False also where it is absent."""
    condition = find_condition(obj, kind)
    return condition is not None and condition.get("status") == "True"


def find_pod_family(pod: Json) -> str | None:
    """Returns the name, without namespace, of the workload that a pod names by WORKLOAD_ANNOTATION; None without that. Pods of an elastic
    job outlive the workload that started them: for these it is the name of the job's first workload (SLICE_NAME)."""
    notes = pod["metadata"].get("annotations") or {}
    return (notes.get(SLICE_NAME) or notes[WORKLOAD_ANNOTATION]) if notes.get(WORKLOAD_ANNOTATION) else None


def find_family(workload: Json) -> str:
    """Returns the key (`namespace/name`) by which the pods of a Workload (JSON) are found: its own; for an elastic job that of the first
    workload."""
    metadata = workload["metadata"]
    name = (metadata.get("annotations") or {}).get(SLICE_NAME) or metadata["name"]
    return f"{metadata.get('namespace')}/{name}"


def find_replaced(workload: Json) -> str | None:
    """Returns the key of the workload that a workload of an elastic job replaces, with its pods and its place. None where it replaces none,
    or names itself or one of another namespace."""
    name, namespace = (workload["metadata"].get("annotations") or {}).get(SLICE_REPLACES), workload["metadata"].get("namespace")
    if not name:
        return None
    of, _, own = name.rpartition("/")
    is_other = of in ("", namespace) and own != workload["metadata"]["name"]  # nothing of another namespace is for this one to take
    return f"{namespace}/{own}" if is_other else None


def read_reclaimed_pods(workload: Json) -> dict[str, int]:
    """Returns the pods of a Workload (JSON) that have finished and are not replaced, by name of the pod set, as in its status. Others are
    absent."""
    return {entry["name"]: int(entry.get("count") or 0) for entry in (workload.get("status") or {}).get("reclaimablePods") or ()}


def read_profile_name(obj: Json) -> str | None:
    """Returns the placement profile that an object's annotation names, whether there is one of that name or not; None without the
    annotation."""
    return (obj["metadata"].get("annotations") or {}).get(PLACEMENT_PROFILE)


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A node: its place (labels) and its state."""

    name: str
    labels: Mapping[str, str]
    state: NodeState
    taint_keys: frozenset[str] = frozenset()  # of all its taints, including those that exclude no pod
    created: float = math.inf  # seconds since 1970; unknown: later than everything

    @classmethod
    def read(cls, node: Json) -> "NodeFacts":
        """Returns the facts of a Node (JSON). Raises InvalidQuantity where `status.allocatable` cannot be read, ValueError where a
        label is no text or the time of creation cannot be read. It is ready only if condition Ready is True and it is not being deleted."""
        spec, status = node.get("spec") or {}, node.get("status") or {}
        ready = next((c for c in status.get("conditions") or () if c.get("type") == "Ready"), None)
        return cls(
            node["metadata"]["name"],
            {key: as_text(value, f"metadata.labels[{key}]") for key, value in (node["metadata"].get("labels") or {}).items()},
            NodeState(
                parse_resources(status.get("allocatable")),
                read_taints(spec),
                ready is not None and ready.get("status") == "True" and not node["metadata"].get("deletionTimestamp"),
                bool(spec.get("unschedulable")),
            ),
            frozenset(taint["key"] for taint in spec.get("taints") or ()),
            datetime.fromisoformat(text).timestamp() if (text := node["metadata"].get("creationTimestamp")) else math.inf,
        )


@dataclass(frozen=True, slots=True)
class PodFacts:
    """A pod: where it is, what it uses, and the owner that it names."""

    key: str
    uid: str
    node: str
    terminal: bool
    terminating: bool
    gated: bool
    requests: Resources  # of one pod, its one of `pods` included
    workload: str | None  # key of the workload it names, of an elastic job that of the first one
    pod_set: str | None
    owner_uid: str | None
    labels: Mapping[str, str]
    node_selector: Mapping[str, str]
    traits: PodTraits | None = None  # of a pod that keeps others away
    coordinates: tuple[str, ...] = ()  # its labels and annotations that describe where a pod is
    of_daemon_set: bool = False
    succeeded: bool = False
    rejected: str = ""  # why the kubelet of its node refused it, if it did
    unschedulable_since: str = ""  # when kube-scheduler first found no node for it, while that is so
    unschedulable: str = ""  # the message of kube-scheduler
    created: str = ""
    dropped: bool = False  # deleted, and no kubelet has to end it any more: only finalizers keep the object
    claimed: Resources = field(default_factory=lambda: _NOTHING)  # devices that its claims ask for, as quota counts them, by class

    @property
    def counted_requests(self) -> Resources:
        """Returns what is compared with the admission of its workload: its requests, and the devices that its claims ask for."""
        if not self.claimed:
            return self.requests
        return {**{name: amount for name, amount in self.requests.items() if not is_devices(name)}, **self.claimed}

    @property
    def holds(self) -> bool:
        """Returns whether the pod takes something from a node: it is bound there and has not ended."""
        return bool(self.node) and not self.terminal

    @property
    def is_left_alone(self) -> bool:
        """Returns whether the pod is over but for its finalizers (`dropped`), or is being deleted and names no workload: its end is not
        waited for. Of an index that fails by itself the Job controller keeps the last pod until it makes another, which a stopped job never
        gets. A Job adopts whatever has its labels, and that may take years to end; pods that a start made name their workload."""
        return self.dropped or (self.terminating and self.workload is None)

    @classmethod
    def fill_node(cls, key: str, uid: str, node: str) -> "PodFacts":
        """Returns facts of a pod that cannot be read: it is bound to the node, runs, and requests the largest number of `pods`, so that
        nothing fits there as long as it is there."""
        return cls(key, uid, node, False, False, False, {PODS: LARGEST}, None, None, None, {}, {})

    @classmethod
    def read(cls, pod: Json) -> "PodFacts":
        """Returns the facts of a Pod (JSON). Raises InvalidQuantity where its requests cannot be read, ValueError where the name of its
        node is no text. A pod from a file with other wrong types may make it raise other errors; the API server has none such."""
        metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
        if not isinstance(spec.get("nodeName") or "", str):
            raise ValueError(f"spec.nodeName: {spec['nodeName']!r} is no name")
        requests = compute_pod_requests(spec)
        add(requests, {PODS: 1})
        name = find_pod_family(pod)
        labels = metadata.get("labels") or {}
        owner = find_controller(pod)
        return cls(
            build_object_key(pod),
            metadata.get("uid", ""),
            spec.get("nodeName") or "",
            status.get("phase") in ("Succeeded", "Failed"),
            bool(metadata.get("deletionTimestamp")),
            any(gate.get("name") == TOPOLOGY_GATE for gate in spec.get("schedulingGates") or ()),
            requests,
            f"{metadata.get('namespace')}/{name}" if name else None,
            labels.get(PODSET_LABEL),
            owner["uid"] if owner else None,
            dict(labels),
            dict(spec.get("nodeSelector") or {}),
            read_pod_traits(pod),
            tuple(sorted({name for name in (*labels, *(metadata.get("annotations") or {})) if name.startswith(COORDINATE_PREFIXES)})),
            owner is not None and owner.get("kind") == "DaemonSet",
            status.get("phase") == "Succeeded",
            _find_rejection(status),
            *_find_unschedulable(status),
            metadata.get("creationTimestamp") or "",
            bool(metadata.get("deletionTimestamp")) and metadata.get("deletionGracePeriodSeconds") == 0,
        )


# Reasons by which a kubelet fails a pod before it runs it.
_REJECTIONS = ("UnexpectedAdmissionError", "NodeAffinity", "PodOSNotSupported", "NodeShutdown")
_OUT_OF = "OutOf"


def _find_rejection(status: Json) -> str:
    reason = status.get("reason") or ""
    refused = status.get("phase") == "Failed" and (reason in _REJECTIONS or reason.startswith(_OUT_OF))
    return reason if refused else ""


def _find_unschedulable(status: Json) -> tuple[str, str]:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False" and condition.get("reason") == "Unschedulable":
            return condition.get("lastTransitionTime") or "", condition.get("message") or ""
    return "", ""


@dataclass(frozen=True, slots=True)
class TopologyFacts:
    """A Topology: its levels, coarse to fine."""

    name: str
    levels: tuple[str, ...]
    profile: str | None = None  # the placement profile that it names

    @classmethod
    def read(cls, topology: Json) -> "TopologyFacts":
        """Returns the facts of a Topology (JSON). Raises ValueError where the label of a level is no text."""
        levels = tuple(as_text(level["nodeLabel"], "spec.levels[].nodeLabel") for level in topology["spec"]["levels"])
        return cls(topology["metadata"]["name"], levels, read_profile_name(topology))


@dataclass(frozen=True, slots=True)
class FlavorFacts:
    """A ResourceFlavor: which nodes it means and, where it is topology-aware, by which topology."""

    name: str
    node_labels: Mapping[str, str]
    node_taints: tuple[Json, ...]
    tolerations: tuple[Json, ...]
    topology: str | None

    @classmethod
    def read(cls, flavor: Json) -> "FlavorFacts":
        """Returns the facts of a ResourceFlavor (JSON). Raises ValueError where the value of a label, or `spec.topologyName`, is no
        text."""
        spec = flavor.get("spec") or {}
        return cls(
            flavor["metadata"]["name"],
            {key: as_text(value, f"spec.nodeLabels[{key}]") for key, value in (spec.get("nodeLabels") or {}).items()},
            tuple(map(dict, spec.get("nodeTaints") or ())),
            tuple(map(dict, spec.get("tolerations") or ())),
            None if spec.get("topologyName") is None else as_text(spec["topologyName"], "spec.topologyName"),
        )


@dataclass(frozen=True, slots=True)
class PodSetFacts:
    """A pod set of a workload as its template has it, flavor aside. `count` is what it still needs, less what is `reclaimed`."""

    name: str
    count: int
    requests: Resources  # of one pod, without its one of `pods`
    topology: TopologyRequest | None
    node_selector: Mapping[str, str]
    affinity: Json | None
    tolerations: tuple[Json, ...]
    index_offset: int | None = None  # where the ranks of its pods start, if given (annotation pod-index-offset)
    group: str | None = None  # the group it belongs to, also where the rest of its request is nothing
    traits: PodTraits = NO_TRAITS
    none_of: tuple[str, ...] = ()  # resources that it requests with an amount of zero: they get a flavor, too
    min_count: int | None = None  # the fewest pods with which it may run; None: all
    reclaimed: int = 0  # pods that have finished and are not replaced (status.reclaimablePods)
    spares: int = 0  # nodes to be kept free beside those that its pods get
    lends: bool = False  # these, to workloads of lower priority, until it needs them
    spreading: Spreading | str | None = None  # its rules of topology spreading; a text: why these cannot be kept (`core.state.gated_facts`)
    # Devices that the claims of one pod ask for, by class; they are in `requests`, too, if nodes are compared by them.
    claimed: Resources = field(default_factory=lambda: _NOTHING)

    @property
    def counted_requests(self) -> Resources:
        """Returns what quota counts of one pod, before `ResourceRules` are applied: its requests and the devices that it claims."""
        return {**self.requests, **self.claimed} if self.claimed else self.requests

    @classmethod
    def read(cls, pod_set: Json, namespace: str = "", labels: Labels | None = None, reclaimed: int = 0) -> "PodSetFacts":
        """Returns the facts of a pod set (JSON of `spec.podSets[i]`). `labels` are those that its pods will have beside the template's.
        `reclaimed`: its pods that have finished and are not replaced, counted from 0 to its count.

        Without a count it has 1 pod, without a name that of MAIN_POD_SET. Annotations that cannot be read count as absent. Raises
        InvalidQuantity where its requests cannot be read, ValueError where its node selector has a value that is no text, or its affinity
        or tolerations are nested deeper than `MOST_LEVELS`.
        """
        count = int(pod_set.get("count", 1))
        reclaimed = max(0, min(reclaimed, count))
        name = pod_set.get("name") or MAIN_POD_SET
        template = pod_set.get("template") or {}
        spec = template.get("spec") or {}
        notes, requests = (template.get("metadata") or {}).get("annotations") or {}, compute_pod_requests(spec)
        selector = _require_flat(spec.get("nodeSelector"), "nodeSelector") or {}
        return cls(
            name,
            count - reclaimed,
            requests,
            parse_topology_request(pod_set.get("topologyRequest")),
            {key: as_text(value, f"nodeSelector[{key}]") for key, value in selector.items()},
            _require_flat(spec.get("affinity"), "affinity"),
            tuple(_require_flat(spec.get("tolerations"), "tolerations") or ()),
            read_index(notes.get(POD_INDEX_OFFSET, "").removeprefix("+")),
            (pod_set.get("topologyRequest") or {}).get("podSetGroupName"),
            read_template_traits(template, namespace, {**(labels or {}), PODSET_LABEL: name}),
            list_zero_requests(spec, requests),
            None if pod_set.get("minCount") is None else int(pod_set["minCount"]),
            reclaimed,
            _read_spares(notes) if count > reclaimed else 0,  # none for pods that are not replaced
            read_lends(notes.get(LEND_SPARES, "")) or False,
        )


def _read_spares(notes: Mapping[str, str]) -> int:
    return (read_spares(notes[SPARE_NODES]) if SPARE_NODES in notes else None) or 0


MOST_LEVELS = 16
"""Objects and lists within each other in affinity and tolerations, of which Kubernetes has nine: thousands would end what compares them."""


def _require_flat(value: Any, where: str) -> Any:
    if not value:
        return value
    level = [value]
    for _ in range(MOST_LEVELS):
        level = [inner for each in level if isinstance(each, dict | list) for inner in (each.values() if isinstance(each, dict) else each)]
        if not level:
            return value
    raise ValueError(f"{where}: it is nested deeper than {MOST_LEVELS} levels")


def _count_reclaimed(reclaimed: Mapping[str, int], pod_set: Json, *, waits: bool) -> int:
    """Pods of a pod set that are done. One that waits asks for whole slices: those that are left over of one share its domain."""
    done = reclaimed.get(pod_set.get("name") or MAIN_POD_SET, 0)
    request = parse_topology_request(pod_set.get("topologyRequest")) if done and waits else None
    size = max((layer.size for layer in request.slices), default=1) if request is not None else 1
    return done - done % max(1, size)  # a Workload may be written past the rules


def _list_future_labels(spec: Json, owner: Json | None) -> dict[str, str]:
    """Labels that the pods of a workload get when it starts: from us, and from the Job controller."""
    labels = {LOCAL_QUEUE_LABEL: spec["queueName"]} if spec.get("queueName") else {}
    if owner is not None and owner["kind"] == "Job":
        labels |= dict.fromkeys(JOB_NAME_LABELS, owner["name"]) | dict.fromkeys(JOB_UID_LABELS, owner["uid"])
    return labels


MOST_TERM_KEYS = 32
"""Label keys that the pod affinity of a Workload may ask for: each costs a look at every pod of the cluster."""


def _check_terms(pod_sets: Sequence[PodSetFacts]) -> None:
    terms = (term for pod_set in pod_sets for term in (*pod_set.traits.affinity, *pod_set.traits.anti_affinity))
    keys = {requirement.key for term in terms for requirement in term.selector or ()}
    if len(keys) > MOST_TERM_KEYS:
        raise ValueError(f"pod affinity of all pod sets: {len(keys)} label keys; at most {MOST_TERM_KEYS} are accepted")


@dataclass(frozen=True, slots=True)
class CheckState:
    """How far a workload is with one admission check."""

    name: str
    state: str
    since: str
    updates: tuple[Json, ...] = ()  # what its pod sets get when it is passed, as `podSetUpdates` has it

    @classmethod
    def read(cls, wire: Json) -> "CheckState":
        """Returns the facts of an entry of `status.admissionChecks` (JSON)."""
        return cls(wire["name"], wire.get("state") or "", wire.get("lastTransitionTime") or "", tuple(wire.get("podSetUpdates") or ()))


@dataclass(frozen=True, slots=True)
class WorkloadFacts:
    """A Workload: what it asks for and how far it is."""

    key: str
    uid: str
    queue: str  # key of its LocalQueue
    priority: int
    created: str
    queued_since: str  # the time for FIFO order: creation, or the latest eviction
    active: bool
    deleting: bool
    owner_uid: str | None
    pod_sets: tuple[PodSetFacts, ...]
    admission: Admission | None
    quota_reserved: bool
    admitted: bool
    evicted: bool
    finished: bool
    resource_version: int
    unhealthy_nodes: frozenset[str] = frozenset()
    together: OneDomain | None = None  # all pod sets in one domain
    profile: str | None = None  # the placement profile that it names
    reserved_at: str = ""  # since when it holds quota
    evicted_for: str | None = None  # the reason of its eviction, while it is evicted
    requeue_at: str | None = None  # before then it is not to be admitted
    pods_ready: bool = False
    checks: tuple[CheckState, ...] = ()
    remade: bool = True  # whether a controller recreates lost pods; false for a pod without a controller
    family: str = ""  # key by which its pods are found, where it is not its own
    replaces: str | None = None  # key of the workload of the same job that it replaces, with its pods and its place
    refused: str = ""  # why the API server would refuse its pods, if it would
    on_hold: bool = False  # its StatefulSet has no replicas
    made_by: str = ""  # of a pod that is alone: uid of the controller that makes another, with a Workload of its own, when that is gone
    most_lost_nodes: int | None = None  # up to so many lost nodes at once it is not evicted (annotation LOST_NODES_THRESHOLD)
    labels: Mapping[str, str] | None = None  # None: they are not read (`core.state.gated_facts`)

    @property
    def runs(self) -> bool:
        """Returns whether its pods may run: it is admitted, and neither evicted nor finished."""
        return self.admitted and not self.evicted and not self.finished

    @property
    def party(self) -> str:
        """Returns a text that is equal for all workloads of a party in preemptions: single pods that one controller (`made_by`) recreates,
        in the same queue and with the same priority. For any other workload it is its uid."""
        return f"{self.made_by} {self.queue} {self.priority}" if self.made_by else self.uid

    @property
    def pods_key(self) -> str:
        """Returns the key of the workload that its pods name: of an elastic job that of the first one, else its own."""
        return self.family or self.key

    def may_take_over(self, elder: "WorkloadFacts") -> bool:
        """Returns whether this one, which names `elder` as the one that it replaces, gets its pods and its place: both have one owner, and
        their pods name one workload. Else what is given back of one of them would be counted by the other."""
        return self.owner_uid is not None and (self.owner_uid, self.pods_key) == (elder.owner_uid, elder.pods_key)

    @classmethod
    def read(cls, workload: Json) -> "WorkloadFacts":
        """Returns the facts of a Workload (JSON). One with condition DeactivationTarget counts as inactive. While it has no admission, only
        whole slices of its reclaimed pods count as done. One with a pod as its controller keeps no nodes free.

        Raises InvalidQuantity where amounts cannot be read and InvalidAssignment where its assignment cannot be decoded. Raises
        ValueError where its pod affinity has more than `MOST_TERM_KEYS` label keys.
        """
        metadata, spec, status = workload["metadata"], workload.get("spec") or {}, workload.get("status") or {}
        owner = find_controller(workload)
        created = metadata.get("creationTimestamp") or ""
        conditions: dict[str, Json] = {c.get("type"): c for c in reversed(status.get("conditions") or ())}  # of several the first
        true = {kind for kind, condition in conditions.items() if condition.get("status") == "True"}
        evicted, notes = conditions.get(EVICTED) if EVICTED in true else None, metadata.get("annotations") or {}
        namespace, labels = metadata.get("namespace") or "", _list_future_labels(spec, owner)
        admission = decode_admission(status.get("admission"))
        reclaimed = partial(_count_reclaimed, read_reclaimed_pods(workload), waits=admission is None)
        since = max(created, evicted.get("lastTransitionTime") or "") if evicted is not None else created
        pod_sets = tuple(PodSetFacts.read(pod_set, namespace, labels, reclaimed(pod_set)) for pod_set in spec.get("podSets") or ())
        _check_terms(pod_sets)
        remade = owner is None or owner.get("kind") != "Pod"
        if admission is not None and (spares := notes.get(SPARES)):
            admission = with_spares(admission, read_held_spares(spares), {pod_set.name: pod_set.spares for pod_set in pod_sets})
        if admission is not None and (borrowed := notes.get(BORROWED_SPARES)):
            admission = with_borrowed(admission, read_held_spares(borrowed))
        facts = cls(
            build_object_key(workload),
            metadata.get("uid", ""),
            f"{metadata.get('namespace')}/{spec.get('queueName') or ''}",
            int(spec.get("priority") or 0),
            created,
            since,
            # A workload to be deactivated counts as inactive: between the two writes it must not be admitted once more.
            spec.get("active", True) is not False and DEACTIVATION_TARGET not in true,
            bool(metadata.get("deletionTimestamp")),
            owner["uid"] if owner else None,
            pod_sets,
            admission,
            QUOTA_RESERVED in true,
            ADMITTED in true,
            EVICTED in true,
            FINISHED in true,
            int(metadata.get("resourceVersion") or 0),
            frozenset(node["name"] for node in status.get("unhealthyNodes") or ()),
            _read_one_domain(notes),
            read_profile_name(workload),
            (conditions.get(QUOTA_RESERVED) or {}).get("lastTransitionTime") or "",
            (evicted.get("reason") or "") if evicted is not None else None,
            (status.get("requeueState") or {}).get("requeueAt"),
            PODS_READY in true,
            tuple(CheckState.read(check) for check in status.get("admissionChecks") or ()),
            remade,
            find_family(workload),
            find_replaced(workload),
            on_hold=(conditions.get(QUOTA_RESERVED) or {}).get("reason") == REASON_ON_HOLD,
            made_by=str(notes.get(MADE_BY) or ""),
            most_lost_nodes=parse_threshold(notes.get(LOST_NODES_THRESHOLD)),
        )
        return facts if remade else facts.copy_without_spares()  # a node that is kept free for a single pod would never be used

    def copy_without_spares(self) -> "WorkloadFacts":
        """Returns a copy that asks for no nodes to be kept free and holds none; itself where no pod set asks for any."""
        if not any(pod_set.spares for pod_set in self.pod_sets):
            return self
        admission = with_spares(self.admission, {}, {}) if self.admission is not None else None
        return replace(self, pod_sets=tuple(replace(pod_set, spares=0) for pod_set in self.pod_sets), admission=admission)


def _read_one_domain(annotations: Mapping[str, str]) -> OneDomain | None:
    for name, required in ((WORKLOAD_REQUIRED_TOPOLOGY, True), (WORKLOAD_PREFERRED_TOPOLOGY, False)):
        if annotations.get(name):
            return OneDomain(annotations[name], required, f"annotation {name}")
    return None
