"""Cases of the podsets family that are pods and their workloads: answered by the reconciler of pods, on an API server in memory."""

from collections.abc import Mapping
from typing import Any

from core.names import IS_GROUP_WORKLOAD, QUEUE_NAME_LABEL
from tests.reconciler.harness_pods import PodsHarness

FRAMEWORKS = ("pod", "leaderworkerset", "statefulset")
GOING = "pods that are all on their way out are no reason for a new workload, where the peer makes one for those that will follow"


def leave_out(case: Mapping[str, Any]) -> str | None:
    """Why a case is not replayed, if it is not."""
    if case["kind"] != "reconcile" or case.get("framework") not in FRAMEWORKS:
        return None
    gates = case.get("gates") or {}
    if gates.get("PodIntegrationValidateGroupOwner") is False:
        return "a group never takes over a Workload that was not made for it; the gate that lets the peer do so is not offered"
    copied = any("toCopyKey" in key for obj in case["objects"] for key in obj["metadata"].get("labels") or {})
    if copied or gates.get("CustomMetricLabels"):
        return "the peer's process was told which labels and annotations to copy; the record does not have its settings"
    return None


def rule(case: Mapping[str, Any]) -> str | None:
    """The deliberate difference that touches a case, if one does."""
    if case["kind"] != "reconcile" or case.get("framework") not in FRAMEWORKS:
        return None
    pods = [obj for obj in case["objects"] if obj["kind"] == "Pod"]
    return GOING if pods and all(pod["metadata"].get("deletionTimestamp") for pod in pods) and case["framework"] == "pod" else None


def reconciled(case: Mapping[str, Any]) -> dict[str, Any]:
    """Workloads after all units have been reconciled, and what users were told."""
    harness = PodsHarness()
    first = case["objects"][0]
    unqueued = QUEUE_NAME_LABEL not in (first["metadata"].get("labels") or {})
    of_pod = {"apiVersion": "v1", "kind": "Pod", "name": first["metadata"]["name"], "uid": first["metadata"].get("uid"), "controller": True}
    for workload in case.get("workloads_before") or ():
        if IS_GROUP_WORKLOAD not in (workload["metadata"].get("annotations") or {}):  # records show no owners
            workload = {**workload, "metadata": {**workload["metadata"], "ownerReferences": [of_pod]}}
        harness.put(
            {"kind": "Workload", **workload, "spec": {**workload["spec"], "podSets": [_whole(p) for p in workload["spec"]["podSets"]]}}
        )
    for i, obj in enumerate(case["objects"]):
        labels = obj["metadata"].get("labels") or {}
        queued = {**labels, QUEUE_NAME_LABEL: "queue"} if unqueued and not i else labels
        harness.put({**obj, "metadata": {**obj["metadata"], "labels": queued}})
    harness.run()
    events = {(event.key, event.reason, event.type) for event in harness.events}
    return {
        "workloads_after": [_shown(workload, unqueued) for workload in harness.all("Workload")],
        "events": sorted(({"object": key, "reason": reason, "type": kind} for key, reason, kind in events), key=str),
    }


def expected(case: Mapping[str, Any]) -> dict[str, Any]:
    """The peer's, less the metadata of templates, which it shows of some kinds only."""
    return {
        "workloads_after": [_shown(workload, unqueued=False) for workload in case["workloads_after"]],
        "events": sorted(case["events"], key=str),
    }


def _whole(pod_set: Mapping[str, Any]) -> dict[str, Any]:
    return {"template": {"spec": {"containers": []}}, **pod_set}


def _shown(workload: Mapping[str, Any], unqueued: bool) -> dict[str, Any]:
    metadata = {key: workload["metadata"][key] for key in ("annotations", "labels", "name", "namespace") if workload["metadata"].get(key)}
    names = ("name", "count", "topologyRequest")
    spec: dict[str, Any] = {
        "podSets": [{key: pod_set[key] for key in names if key in pod_set} for pod_set in workload["spec"]["podSets"]],
    }
    if workload["spec"].get("queueName") and not unqueued:
        spec["queueName"] = workload["spec"]["queueName"]
    return {"metadata": metadata, "spec": spec}
