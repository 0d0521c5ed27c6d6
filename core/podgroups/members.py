"""Pods that name a group: what they request, where they are, and where a place is kept for them.

The pods themselves record the whole placement of a group, so that a restarted process knows the same. A pod that waits
has topogate's gate. A gated pod with a place has it in `status.nominatedNodeName`; an ungated one has it in a node
affinity by `metadata.name`.
"""

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from core.model.pod_resources import compute_pod_requests
from core.model.pod_traits import PodTerm, read_template_traits
from core.model.podset import PodSetRequest
from core.names import (
    INDEX_LABELS,
    JOBSET_JOB_INDEX_LABEL,
    JOBSET_ROLE_LABEL,
    LWS_GROUP_INDEX_LABEL,
    LWS_NAME_LABEL,
    LWS_WORKER_INDEX_LABEL,
    MANAGED,
    MEMBER_OF_LABEL,
    PODGROUP_GATE,
    REPLICA_LABEL,
    WORKLOAD_ANNOTATION,
)
from core.placement.topology.pod_affinity import Neighbours
from core.podgroups.devices.claims import PodClaim, read_pod_claims

Json = Mapping[str, Any]
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_NODE_NAME = "metadata.name"
NO_REPLICA = -1
MOST_PODS, MOST_SETS, MOST_TERMS = 20_000, 256, 288


class GroupTooLarge(Exception):
    """A group requests more than is placed together; the message describes the limit."""


@dataclass(frozen=True, slots=True, order=True)
class GroupKey:
    """One replica of a PodGroup: what is placed together."""

    namespace: str
    name: str
    replica: int = 0

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" + (f"[{self.replica}]" if self.replica else "")


@dataclass(frozen=True, slots=True)
class Member:
    """A pod of a group. `request` is of one pod; its name has no meaning.

    `node`: where it is bound; `sent`: the only node that it may go to, without the gate; `kept`: where a place is kept
    for it. Only a pod with a `kept` place was pinned by topogate: any user may write the node that a pod must use, but
    not the one for which it is nominated.
    """

    key: str
    uid: str
    group: GroupKey
    request: PodSetRequest
    gated: bool
    node: str = ""
    sent: str = ""
    kept: str = ""
    index: int | None = None
    over: bool = False
    succeeded: bool = False
    leaving: bool = False
    priority: int = 0
    created: str = ""
    unschedulable: str = ""  # the message of kube-scheduler about it, without the gate
    claims: tuple[PodClaim, ...] = ()
    native: bool = False  # whether kube-scheduler places it, by its own PodGroup: an ungated pod of topogate's is pinned to its node
    part: tuple[str, int] = ("", 0)  # of a JobSet: the replicated job, and which of its Jobs
    kind: str = ""  # equal pods but for their labels have the same

    @property
    def place(self) -> str:
        """Returns the node that it has or is to have: where it is bound, else where its place is kept, as long as it is gated or pinned to
        that node. Empty while none is known."""
        return self.node or (self.kept if self.gated or self.sent == self.kept else "")

    @property
    def is_live(self) -> bool:
        """Returns whether it is there to stay: it has neither ended nor is it being deleted."""
        return not self.over and not self.leaving


def group_of(pod: Json) -> GroupKey | None:
    """Returns the group that a pod names by the label MEMBER_OF_LABEL, or else by `spec.schedulingGroup`. None where it names none, is
    queued itself (label `MANAGED`), or has its place by a workload. A replica that is no number is `NO_REPLICA`; without a label it is 0.

    The templates of a LeaderWorkerSet cannot contain the replica: it is the group index of the LeaderWorkerSet, unless the pod names
    another. Its webhook, or its controller a moment later, labels the pod; until then it returns None.
    """
    metadata = pod["metadata"]
    labels = metadata.get("labels") or {}
    name = labels.get(MEMBER_OF_LABEL) or find_native_group(pod)
    if not name or labels.get(MANAGED) == "true" or WORKLOAD_ANNOTATION in (metadata.get("annotations") or {}):
        return None
    replica = labels.get(REPLICA_LABEL, labels.get(LWS_GROUP_INDEX_LABEL) if LWS_NAME_LABEL in labels else "0")
    if replica is None:
        return None
    return GroupKey(metadata.get("namespace") or "", name, int(replica) if re.fullmatch(r"[0-9]{1,9}", replica) else NO_REPLICA)


def find_native_group(pod: Json) -> str:
    """Returns the name of kube-scheduler's own PodGroup that a pod is a member of (`spec.schedulingGroup`); empty where it is of none."""
    named = (pod.get("spec") or {}).get("schedulingGroup")
    name = named.get("podGroupName") if isinstance(named, Mapping) else None
    return name if isinstance(name, str) else ""


def read_member(pod: Json) -> Member | None:
    """Returns a pod (JSON) as a member of its group, with a request for one pod in canonical amounts; None where `group_of` returns None.
    Raises InvalidQuantity where it requests what is no quantity."""
    group = group_of(pod)
    if group is None:
        return None
    request, claims = _request_of(pod, group.namespace), read_pod_claims(pod)
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    gated = any(gate.get("name") == PODGROUP_GATE for gate in spec.get("schedulingGates") or ())
    return Member(
        f"{group.namespace}/{metadata['name']}",
        metadata.get("uid", ""),
        group,
        request,
        gated,
        spec.get("nodeName") or "",
        find_pinned_node(spec),
        status.get("nominatedNodeName") or "",
        _index(metadata.get("labels") or {}),
        status.get("phase") in ("Succeeded", "Failed"),
        status.get("phase") == "Succeeded",
        bool(metadata.get("deletionTimestamp")),
        int(spec.get("priority") or 0),
        metadata.get("creationTimestamp") or "",
        _find_refusal(status),
        claims,
        bool(find_native_group(pod)) and not gated and not find_pinned_node(spec),
        _parse_part(metadata.get("labels") or {}),
        _build_kind(request, claims),
    )


def _request_of(pod: Json, namespace: str) -> PodSetRequest:
    spec = pod.get("spec") or {}
    return PodSetRequest(
        "",
        1,
        compute_pod_requests(spec),
        node_selector=dict(spec.get("nodeSelector") or {}),
        affinity=spec.get("affinity"),
        tolerations=tuple(spec.get("tolerations") or ()),
        traits=read_template_traits({"metadata": {"labels": _find_shared_labels(pod)}, "spec": spec}, namespace),
    )


def _find_shared_labels(pod: Json) -> dict[str, str]:
    """Returns the labels without those that differ between equal pods."""
    labels = pod["metadata"].get("labels") or {}
    own = (*INDEX_LABELS, "statefulset.kubernetes.io/pod-name")
    return {key: value for key, value in labels.items() if key not in own}


def find_pinned_node(spec: Json) -> str:
    """Returns the only node that all terms of a pod's required node affinity name; empty where one names none, or they name several. Terms
    without any condition do not count: they match nothing."""
    terms = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED, {}).get("nodeSelectorTerms") or ()
    found = {_find_named_node(term) for term in terms if _is_pinning(term)}
    return found.pop() if len(found) == 1 else ""


def _is_pinning(term: Json) -> bool:
    return bool(term.get("matchExpressions") or term.get("matchFields"))


def _find_named_node(term: Json) -> str:
    for field in term.get("matchFields") or ():
        values = list(field.get("values") or ())
        if field.get("key") == _NODE_NAME and field.get("operator") == "In" and len(values) == 1:
            return str(values[0])
    return ""


def build_pin(spec: Json, node: str) -> dict[str, Any]:
    """Returns a copy of a pod's `nodeAffinity` (of its `spec`, in JSON) by which it may go to one node only, in addition to its other
    terms.

    Terms that match nothing stay as they are: the API server accepts no additions to them.
    """
    affinity = dict((spec.get("affinity") or {}).get("nodeAffinity") or {})
    terms: list[dict[str, Any]] = (affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms") or []
    field = {"key": _NODE_NAME, "operator": "In", "values": [node]}
    pinned = [{**term, "matchFields": [*(term.get("matchFields") or ()), field]} if _is_pinning(term) else term for term in terms]
    return {**affinity, _REQUIRED: {"nodeSelectorTerms": pinned or [{"matchFields": [field]}]}}


def _index(labels: Mapping[str, str]) -> int | None:
    """The ordinal of a leader of a LeaderWorkerSet is that of its replica, so that its own label comes first."""
    text = next((labels[label] for label in (LWS_WORKER_INDEX_LABEL, *INDEX_LABELS) if label in labels), "")
    return _number(text)


def _parse_part(labels: Mapping[str, str]) -> tuple[str, int]:
    return labels.get(JOBSET_ROLE_LABEL, ""), _number(labels.get(JOBSET_JOB_INDEX_LABEL, "")) or 0


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None


def _find_refusal(status: Json) -> str:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "Unschedulable" and condition.get("status") == "False":
            return condition.get("message") or "Unschedulable"
    return ""


def order_members(members: Iterable[Member]) -> list[Member]:
    """Returns the members job by job (`part`). In each those with an index come first, by it; the others follow by age, then by key: ranks
    follow each other."""
    return sorted(members, key=lambda one: (one.part, one.index is None, one.index or 0, one.created, one.key))


def split(members: Sequence[Member], neighbours: Neighbours) -> list[list[Member]]:
    """Returns sets of equal pods, in order: consecutive ones each, or all that are equal where there would be more than `MOST_SETS`.

    Labels count only as far as a term of pod affinity asks for them: controllers distinguish the pods of each Job by some. Raises
    GroupTooLarge where there are more than `MOST_PODS` pods, `MOST_SETS` sets or `MOST_TERMS` terms between pods.
    """
    if len(members) > MOST_PODS:
        raise GroupTooLarge(f"pods: {len(members)} wait; at most {MOST_PODS} are placed together")
    read_kind = _read_kinds(members, neighbours)
    sets = [list(equal) for _, equal in groupby(members, key=read_kind)]
    if len(sets) > MOST_SETS:
        kinds: dict[Hashable, list[Member]] = {}
        for equal in sets:
            kinds.setdefault(read_kind(equal[0]), []).extend(equal)
        sets = list(kinds.values())
    if len(sets) > MOST_SETS:
        raise GroupTooLarge(f"pods: {len(sets)} of them ask for different things; at most {MOST_SETS} are accepted")
    terms = sum(len(_list_terms(equal[0])) for equal in sets)
    if terms > MOST_TERMS:
        raise GroupTooLarge(
            f"pods: spec.affinity: pods that ask for different things have {terms} terms between pods; at most {MOST_TERMS} are accepted"
        )
    return sets


def as_pod_sets(sets: Iterable[Sequence[Member]]) -> tuple[PodSetRequest, ...]:
    """Returns the request of each set of equal pods, which must not be empty: that of its first pod, with the number of pods as count and
    named by its position: 0, 1, 2, ..."""
    return tuple(replace(equal[0].request, name=f"{i}", count=len(equal)) for i, equal in enumerate(sets))


def list_set_claims(sets: Iterable[Sequence[Member]]) -> tuple[tuple[PodClaim, ...], ...]:
    """Returns the claims that the pods of each of these sets name; of claims that are made for each pod only the template."""
    return tuple(_remove_names(equal[0].claims) for equal in sets)


def _read_kinds(members: Iterable[Member], neighbours: Neighbours) -> Callable[[Member], Hashable]:
    keys = {requirement.key for member in members for term in _list_terms(member) for requirement in term.selector or ()}

    def read_kind(member: Member) -> Hashable:
        traits = member.request.traits
        labels = frozenset((key, traits.labels[key]) for key in keys & traits.labels.keys()) if keys else None
        repelled_by = frozenset(term for term, _ in neighbours.find_repelling(traits)) if neighbours.is_repelled(traits) else None
        return member.kind, labels, repelled_by

    return read_kind


def _list_terms(member: Member) -> tuple[PodTerm, ...]:
    traits = member.request.traits
    return (*traits.affinity, *traits.anti_affinity)


def _build_kind(request: PodSetRequest, claims: Sequence[PodClaim]) -> str:
    bare = replace(request, requests=dict(sorted(request.requests.items())), traits=replace(request.traits, labels={}))
    return repr((bare, _remove_names(claims)))


def _remove_names(claims: Sequence[PodClaim]) -> tuple[PodClaim, ...]:
    return tuple(claim._replace(name="") if claim.template else claim for claim in claims)
