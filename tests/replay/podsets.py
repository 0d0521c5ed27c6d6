"""The podsets family: what jobs ask for, defaults and what a start adds, through `core.jobs` and `core.plan`."""

from collections.abc import Mapping
from typing import Any

from core.jobs.annotations import build_topology_request
from core.jobs.contract import Defaults
from core.jobs.kinds.pod import Pod
from core.jobs.kinds.pod_parents import PodParent
from core.model.admission import Admission, PodSetAdmission
from core.model.wire.assignment import DomainCount, TopologyAssignment
from core.names import EVENT_CREATED_WORKLOAD, PODSET_LABEL, TOPOLOGY_GATE, WORKLOAD_ANNOTATION
from core.plan.workloads.desired_workload import MissingFlavor, build_workload, start_infos
from core.state.facts import FlavorFacts
from tests.replay import kinds, pods
from tests.replay.rules import Case, Template, annotations_of, name_of, touching

_RESULTS = {
    "topology_request": ("topology_request",),
    "pod_sets": ("pod_sets",),
    "defaulting": ("object_after",),
    "reconcile": ("workloads_after", "events"),
    "start_info": ("info", "errors"),
}


def leave_out(case: Mapping[str, Any]) -> str | None:
    """Why a case is not replayed, if it is not."""
    return pods.leave_out(case)


def answer(case: Mapping[str, Any]) -> dict[str, Any]:
    """The fields in which a case holds its result."""
    match case["kind"]:
        case "topology_request":
            return {"topology_request": _request(case)}
        case "pod_sets":
            return {"pod_sets": _pod_sets(case)}
        case "defaulting":
            return {"object_after": _defaulted(case)}
        case "reconcile":
            return pods.reconciled(case) if case["framework"] in pods.FRAMEWORKS else _reconciled(case)
        case _:
            return _start_info(case)


def _defaulted(case: Mapping[str, Any]) -> dict[str, Any]:
    """In a namespace with a default queue where the kind is one of pods."""
    kind = kinds.kind_of(case)
    return kind.default(case["object"], Defaults("default" if isinstance(kind, PodParent) else None))


def _request(case: Mapping[str, Any]) -> dict[str, Any] | None:
    return build_topology_request(
        case.get("annotations") or {},
        pod_index_label=case.get("pod_index_label"),
        sub_group_index_label=case.get("sub_group_index_label"),
        sub_group_count=case.get("sub_group_count"),
    )


def _pod_sets(case: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = []
    for pod_set in kinds.kind_of(case).list_pod_sets(kinds.job_of(case)):
        wire: dict[str, Any] = {"name": pod_set.name, "count": pod_set.count}
        wire |= {"minCount": pod_set.min_count} if pod_set.min_count is not None else {}
        if pod_set.topology_request:
            wire["topologyRequest"] = dict(pod_set.topology_request)
        if pod_set.template.get("metadata") and case["framework"] != "pod":  # of a pod it is the pod's own
            wire["template_metadata"] = pod_set.template["metadata"]
        found.append(wire)
    return found


def _reconciled(case: Mapping[str, Any]) -> dict[str, Any]:
    """A job that has no workload yet, and what it refers to."""
    case = {**case, "object": case["objects"][0]}
    kind, job = kinds.kind_of(case), kinds.job_of(case)
    assert not isinstance(kind, Pod | PodParent)
    job["metadata"].setdefault("uid", "")
    built = build_workload(kind, job, priority=0, priority_class=None)
    metadata = {key: built["metadata"][key] for key in ("labels", "name", "namespace")}
    name = f"{job['metadata']['namespace']}/{job['metadata']['name']}"
    pod_sets = [{key: value for key, value in pod_set.items() if key != "template"} for pod_set in built["spec"]["podSets"]]
    return {
        "workloads_after": [{"metadata": metadata, "spec": {"podSets": pod_sets}}],
        "events": [{"object": name, "reason": EVENT_CREATED_WORKLOAD, "type": "Normal"}],
    }


def _start_info(case: Mapping[str, Any]) -> dict[str, Any]:
    """Less what every start adds: the names by which pods are found."""
    given, count = case["assignment"], case["assignment"].get("count", case["default_count"])
    domains = (given.get("topologyAssignment") or {}).get("levels")
    assignment = TopologyAssignment(tuple(domains), (DomainCount(("rack1",), count),)) if domains else None
    admission = Admission("", (PodSetAdmission(given["name"], given["flavors"], {}, count, assignment),))
    flavors = {flavor["metadata"]["name"]: FlavorFacts.read(flavor) for flavor in case["flavors"]}
    workload = {"metadata": {"name": "workload"}, "spec": {"podSets": [{"name": given["name"], "count": count}]}}
    info = {"name": given["name"], "count": count, "labels": {}, "annotations": {}, "nodeSelector": {}}
    empty: dict[str, Any] = {"tolerations": [], "schedulingGates": []}
    try:
        (start,) = start_infos(workload, admission, flavors, "")
    except MissingFlavor:
        return {"info": info | empty, "errors": [{"api_reason": "NotFound", "type": "Error"}]}
    info |= {
        "labels": {key: value for key, value in start.labels.items() if key != PODSET_LABEL},
        "annotations": {key: value for key, value in start.annotations.items() if key != WORKLOAD_ANNOTATION},
        "nodeSelector": dict(start.node_selector),
        "tolerations": list(start.tolerations),
        "schedulingGates": [{"name": TOPOLOGY_GATE}] if start.gated else [],
    }
    return {"info": info, "errors": []}


def differences(case: Mapping[str, Any], got: Mapping[str, Any]) -> list[str]:
    """What differs in the result, but for rules."""
    if case["kind"] == "topology_request" and case["errors"]:
        return []  # what cannot be read is refused by the webhook (family validation) and left out here
    rules = touching(_facts(case))
    if case["kind"] in ("topology_request", "pod_sets", "start_info") and any(rule.requests for rule in rules):
        got, case = _without_requests(got), _without_requests(case)
    if case["kind"] == "pod_sets" and any(rule.counts for rule in rules):
        got, case = _without(got, "count", "minCount"), _without(case, "count", "minCount")
    if case["kind"] == "reconcile" and case["framework"] in pods.FRAMEWORKS:
        if pods.rule(case):
            return []
        case = {**case, **pods.expected(case)}
    names = _RESULTS[case["kind"]]
    return [f"{name}: {got[name]}, not {case.get(name)}" for name in names if (got[name] or None) != (case.get(name) or None)]


def _without_requests(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result but for what the rules that touch it change: the topology requests, and with them whether pods are gated."""
    found = dict(result)
    if "pod_sets" in found:
        found = _without(found, "topologyRequest")
    if "topology_request" in found:
        found["topology_request"] = None
    if "info" in found:
        found["info"] = {key: value for key, value in found["info"].items() if key not in ("annotations", "schedulingGates")}
    return found


def _without(result: Mapping[str, Any], *names: str) -> dict[str, Any]:
    pod_sets = [{key: value for key, value in pod_set.items() if key not in names} for pod_set in result["pod_sets"]]
    return {**result, "pod_sets": pod_sets}


def _facts(case: Mapping[str, Any]) -> Case:
    templates = kinds.templates_of(case) if "object" in case else [Template(case.get("annotations") or {})]
    return Case(templates, case.get("gates") or {}, annotations_of(case.get("object")))


def rule(case: Mapping[str, Any]) -> str | None:
    """The deliberate differences that a case is touched by."""
    if found := pods.rule(case):
        return found
    return name_of([rule for rule in touching(_facts(case)) if rule.requests or rule.counts])
