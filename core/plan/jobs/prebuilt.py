"""A Workload that was created for a job beforehand: which job owns it, and whether it requests what the job will run."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from core.jobs.contract import JobKind, PodSetTemplate
from core.jobs.templates import remove_start, with_gate
from core.model.podset import Mode
from core.names import JOB_UID_LABEL, RESOURCE_IN_USE_FINALIZER, UNCONSTRAINED_TOPOLOGY
from core.placement.refusals import truncate
from core.podgroups.devices.claims import read_pod_claims
from core.state.facts import PodSetFacts

Json = Mapping[str, Any]
# Facts of a pod set by which it is queued and placed, as users know them.
_COMPARED = {
    "count": "count",
    "requests": "resource requests",
    "topology": "topology request",
    "node_selector": "node selector",
    "affinity": "affinity",
    "tolerations": "tolerations",
    "index_offset": "index offset",
    "group": "pod set group",
    "spares": "spare nodes",
}
_MAX_SHOWN_CHARS = 120


def build_adoption(kind: JobKind, job: Json, workload: Json) -> dict[str, Any]:
    """Returns the merge patch by which a Workload gets a job as its controller, the label of its uid, and topogate's finalizer. An earlier
    owner reference to the job is replaced. Other owners and finalizers stay; the caller has seen that none of them is a controller."""
    metadata, mine = workload["metadata"], job["metadata"]
    owner = {"apiVersion": f"{kind.group}/{kind.version}", "kind": kind.kind, "name": mine["name"], "uid": mine["uid"]}
    others = [reference for reference in metadata.get("ownerReferences") or () if reference.get("uid") != mine["uid"]]
    finalizers = metadata.get("finalizers") or []
    return {
        "metadata": {
            "ownerReferences": [*others, owner | {"controller": True, "blockOwnerDeletion": True}],
            "labels": {JOB_UID_LABEL: mine["uid"]},
            "finalizers": [*finalizers, *({RESOURCE_IN_USE_FINALIZER} - set(finalizers))],
        }
    }


def find_difference(wanted: Sequence[PodSetTemplate], workload: Json) -> str | None:
    """Returns a sentence about the first difference between the pod sets of a job and its Workload, with both values. None where they
    request the same.

    Names and order are compared first, then counts, requests, topology and what else decides queueing and placement. The creator of the
    Workload need not know an image, or what an API server adds to templates. Raises InvalidQuantity where requests cannot be read.
    """
    there = workload["spec"]["podSets"]
    names, theirs = [pod_set.name for pod_set in wanted], [pod_set.get("name") for pod_set in there]
    if names != theirs:
        return f"the job's pod sets are {', '.join(names) or 'none'}, the Workload's {', '.join(map(str, theirs)) or 'none'}"
    for pod_set, other in zip(wanted, there, strict=True):
        mine, its = PodSetFacts.read(pod_set.to_wire()), PodSetFacts.read(other)
        for field in fields(PodSetFacts):
            one, two = getattr(mine, field.name), getattr(its, field.name)
            if field.name == "index_offset":  # none is 0, but in a group
                one, two = one or 0, two or 0
            if field.name not in _COMPARED or one == two or (field.name == "topology" and _is_implied(one) and _is_implied(two)):
                continue
            shown = [truncate(str(value), _MAX_SHOWN_CHARS) for value in (one, two)]
            return f"pod set {pod_set.name}: {_COMPARED[field.name]} of the job: {shown[0]}, of the Workload: {shown[1]}"
        if find_more_claims(pod_set.template, its_template := other.get("template") or {}) or find_more_claims(
            its_template, pod_set.template
        ):
            return f"pod set {pod_set.name}: the spec.resourceClaims of the job are others than those of the Workload"
    return None


def find_more_claims(template: Json, admitted: Json) -> list[str]:
    """Returns the names of the templates and claims in spec.resourceClaims of a pod template that those of `admitted` have not, or not so
    often, sorted."""
    more = Counter(read_pod_claims({"spec": template.get("spec")})) - Counter(read_pod_claims({"spec": admitted.get("spec")}))
    return sorted(claim.template or claim.name for claim in more.elements())


def _is_implied(topology: Any) -> bool:
    """Whether a topology request is missing, or only names the source of the ranks."""
    return topology is None or topology.mode is Mode.IMPLIED


def list_originals(kind: JobKind, job: Json, workload: Json) -> list[dict[str, Any]]:
    """Returns new pod sets (JSON) of a job as they were before its start. Labels and annotations are the job's, without those of the start.
    Node selector and tolerations are those of the Workload's pod set of that name; None where it has none. A kind that is always gated has
    the gate on each. The Workload's template is another's, and need not be the job's in all else."""
    its = {pod_set["name"]: pod_set for pod_set in workload["spec"]["podSets"]}
    made = []
    for pod_set in kind.list_pod_sets(job):
        template, other = remove_start(pod_set.template), its.get(pod_set.name, {})
        spec, request = (other.get("template") or {}).get("spec") or {}, other.get("topologyRequest") or {}
        if not any(request.get(mode) for mode in ("required", "preferred", "unconstrained")):
            template["metadata"]["annotations"].pop(UNCONSTRAINED_TOPOLOGY, None)  # the start put it there (`start_infos`)
        template = with_gate(template) if kind.always_gated is not None else template
        template["spec"] = {
            **(template.get("spec") or {}),
            "nodeSelector": spec.get("nodeSelector"),
            "tolerations": spec.get("tolerations"),
        }
        made.append(pod_set.to_wire() | {"template": template})
    return made
