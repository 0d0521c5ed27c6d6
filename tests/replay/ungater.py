"""The ungater family: which gated pods are ungated into which domain, through `core.plan.steps.ungate` as the reconciler calls it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from core.jobs.templates import has_topology_annotation
from core.model.admission import decode_admission
from core.names import POD_INDEX_OFFSET, PODSET_LABEL, TOPOLOGY_GATE
from core.plan.steps.ungate import plan_ungating
from core.state.facts import PodFacts, WorkloadFacts

Json = Mapping[str, Any]
Selectors = dict[str, dict[str, str]]  # pod -> node selector


def answer(case: Json) -> dict[str, Any]:
    """`{result}` for `is_tas_pod`, else `{ungated, ungated_counts}`.

    The reconciler plans for admitted workloads only, and not while it waits for its last writes to come back.
    """
    if case["kind"] == "is_tas_pod":
        return {"result": has_topology_annotation(case["pod"])}
    selectors = _ungated(case)
    counts = Counter(json.dumps(selector, sort_keys=True) for selector in (_pinned_before(case) | selectors).values())
    return {
        "ungated": [{"pod": name, "node_selector_after": selector} for name, selector in sorted(selectors.items())],
        "ungated_counts": [{"node_selector": json.loads(text), "count": count} for text, count in sorted(counts.items())],
    }


def _ungated(case: Json) -> Selectors:
    wire = deepcopy(case["workloads"][0])
    _offset_into_template(wire, case["pods_before"])
    workload = WorkloadFacts.read(wire)
    if not workload.admitted or case["pending_expectation_uids"]:
        return {}
    admission = decode_admission(wire["status"]["admission"])
    assert admission is not None
    before = {pod["metadata"]["name"]: pod["spec"].get("nodeSelector") or {} for pod in case["pods_before"]}
    pods = [PodFacts.read(pod) for pod in case["pods_before"]]  # of which the reconciler finds those that name the workload
    plan = plan_ungating(workload, admission, [pod for pod in pods if pod.workload == workload.key])
    names = [action.pod.key.partition("/")[2] for action in plan.actions]
    return {name: {**before[name], **action.node_selector} for name, action in zip(names, plan.actions, strict=True)}


def _offset_into_template(workload: dict[str, Any], pods: list[dict[str, Any]]) -> None:
    """Pods get their annotations from their template; the scenarios write the offset on the pods alone."""
    for pod in pods:
        offset = (pod["metadata"].get("annotations") or {}).get(POD_INDEX_OFFSET)
        name = (pod["metadata"].get("labels") or {}).get(PODSET_LABEL)
        for pod_set in workload["spec"]["podSets"]:
            if offset is not None and pod_set["name"] == name:
                pod_set["template"].setdefault("metadata", {}).setdefault("annotations", {})[POD_INDEX_OFFSET] = offset


def _pinned_before(case: Json) -> Selectors:
    """Live pods of the workload that were ungated before."""
    return {
        pod["metadata"]["name"]: pod["spec"].get("nodeSelector") or {}
        for pod in case["pods_before"]
        if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
        and not any(gate["name"] == TOPOLOGY_GATE for gate in pod["spec"].get("schedulingGates") or ())
    }


def differences(case: Json, got: Json) -> list[str]:
    """As `assert_mode` says: who got which selector, or only how many pods each selector has."""
    if rule(case) is not None:
        return []
    if case["kind"] == "is_tas_pod":
        return [] if got["result"] == case["result"] else [f"{got['result']}, not {case['result']}"]
    if case["assert_mode"] == "exact":
        ours = {entry["pod"]: entry["node_selector_after"] for entry in got["ungated"]}
        theirs = {entry["pod"]: entry["node_selector_after"] for entry in case["ungated"]}
        return [] if ours == theirs else [f"{ours}, not {theirs}"]
    ours, theirs = (_counted(found["ungated_counts"]) for found in (got, case))
    return [] if ours == theirs else [f"{ours}, not {theirs}"]


def _counted(counts: list[Json]) -> dict[str, int]:
    return {json.dumps(entry["node_selector"], sort_keys=True): int(entry["count"]) for entry in counts}


def rule(case: Json) -> str | None:
    """The deliberate difference that applies to a case, if any."""
    if case["kind"] == "is_tas_pod" or case["pending_expectation_uids"]:
        return None
    offsets = [(pod["metadata"].get("annotations") or {}).get(POD_INDEX_OFFSET) for pod in case["pods_before"]]
    if any(offset is not None and not re.fullmatch(r"[+-]?[0-9]+", offset) for offset in offsets):
        return "where an index offset is no number the peer leaves the pods gated for ever; we ungate them without ranks"
    if _goes_around(case):
        return "pods that stay where another assignment had them keep their ranks, and the missing ones go around them"
    return None


def _goes_around(case: Json) -> bool:
    """Whether pods stay where their ranks are not, and it shows which of the others goes where, since one has a selector of its own."""
    workload = case["workloads"][0]
    admission = decode_admission((workload.get("status") or {}).get("admission"))
    label = {pod_set["name"]: (pod_set.get("topologyRequest") or {}).get("podIndexLabel") for pod_set in workload["spec"]["podSets"]}
    stays = _pinned_before(case)
    waiting = [pod for pod in case["pods_before"] if pod["metadata"]["name"] not in stays]
    if case["assert_mode"] != "counts" or not any(pod["spec"].get("nodeSelector") for pod in waiting):
        return False
    for given in admission.pod_sets if admission is not None else ():
        order = [given.assignment.domains[at].values for at in given.assignment.expand()] if given.assignment is not None else []
        for pod in case["pods_before"]:
            labels, at = pod["metadata"].get("labels") or {}, stays.get(pod["metadata"]["name"], {})
            index = labels.get(label.get(given.name) or "", "")
            if labels.get(PODSET_LABEL) == given.name and index.isdigit() and int(index) < len(order):
                where = tuple(at.values())
                if where in order and where != order[int(index)]:
                    return bool(_counts_by_list(case) != answer(case)["ungated_counts"])
    return False


def _counts_by_list(case: Json) -> Any:
    """As it would be without ranks."""
    plain = deepcopy(dict(case))
    for pod_set in plain["workloads"][0]["spec"]["podSets"]:
        (pod_set.get("topologyRequest") or {}).pop("podIndexLabel", None)
    return answer(plain)["ungated_counts"]
