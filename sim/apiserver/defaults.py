"""What the API server fills in of the types that Kubernetes itself serves, as far as topogate reads it."""

from collections.abc import Mapping
from typing import Any

from sim.apiserver.kinds import Kind

Json = dict[str, Any]
Resource = tuple[str, str]


def fill_in(kind: Kind, obj: Json, old: Json) -> Json:
    """An object with its defaults; parts that are empty are left out, as they are sent. A spec as in `old` has its defaults."""
    obj = {name: value for name, value in obj.items() if not (value in ({}, [], None) and name not in ("spec", "status", "metadata"))}
    if kind.resource == ("", "pods"):
        is_filled = "spec" in old and obj.get("spec") == old["spec"]
        spec = old["spec"] if is_filled else {"enableServiceLinks": True, **_fill_requests(_fill_pod_spec(obj.get("spec") or {}))}
        filled = {**obj, "spec": spec}
        status = obj.get("status") or {}
        if status.get("conditions"):
            conditions = [{"lastProbeTime": None, "lastTransitionTime": None, **condition} for condition in status["conditions"]]
            filled["status"] = {**status, "conditions": conditions}
        return filled
    if kind.resource in _OF_TEMPLATES:
        spec = {**_OF_TEMPLATES[kind.resource], **{name: value for name, value in (obj.get("spec") or {}).items() if value is not None}}
        if kind.resource == ("batch", "jobs") and not {"parallelism", "completions"} & (obj.get("spec") or {}).keys():
            spec["completions"] = 1
        if kind.resource == ("batch", "jobs"):
            spec = _fill_job_spec(spec, obj.get("spec") or {})
        template = spec.get("template") or {}
        return {**obj, "spec": {**spec, "template": {**template, "spec": _fill_pod_spec(template.get("spec") or {})}}}
    return obj


_OF_TEMPLATES: Mapping[Resource, Json] = {  # what has pod templates, and the defaults beside them
    ("apps", "replicasets"): {"replicas": 1},
    ("apps", "deployments"): {
        "replicas": 1,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
    },
    ("apps", "statefulsets"): {
        "replicas": 1,
        "podManagementPolicy": "OrderedReady",
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
        "revisionHistoryLimit": 10,
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
    },
    ("batch", "jobs"): {
        "parallelism": 1,
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "manualSelector": False,
        "podReplacementPolicy": "TerminatingOrFailed",
        "suspend": False,
    },
}


def admit(kind: Kind, obj: Json, now: str, *, is_new: bool) -> Json:
    """What the admission plugins of the API server make of an object, and what it sets before it stores it."""
    if kind.resource == ("", "namespaces"):
        metadata = obj["metadata"]
        labels = {"kubernetes.io/metadata.name": metadata["name"], **(metadata.get("labels") or {})}
        return {**obj, "metadata": {**metadata, "labels": labels}, "spec": {"finalizers": ["kubernetes"], **(obj.get("spec") or {})}}
    if kind.resource == ("batch", "jobs") and is_new:
        return _mark_job(obj)
    if kind.resource != ("", "pods") or not is_new:
        return obj
    spec = {"serviceAccountName": "default", "priority": 0, "preemptionPolicy": "PreemptLowerPriority", **obj["spec"]}
    spec = {"serviceAccount": spec["serviceAccountName"], **spec, "tolerations": _add_lost_node_tolerations(spec.get("tolerations") or [])}
    status: Json = {"phase": "Pending", "qosClass": _judge_quality(spec)}
    if spec.get("schedulingGates"):
        message = "Scheduling is blocked due to non-empty scheduling gates"
        gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": message}
        status["conditions"] = [{**gated, "lastProbeTime": None, "lastTransitionTime": now}]
    return {**obj, "spec": spec, "status": status}


def _fill_job_spec(spec: Json, given: Json) -> Json:
    """Defaults of a Job that depend on how its failures are judged."""
    if spec.get("backoffLimitPerIndex") is not None and given.get("backoffLimit") is None:
        spec["backoffLimit"] = 2**31 - 1
    if spec.get("podFailurePolicy"):
        spec["podReplacementPolicy"] = given.get("podReplacementPolicy") or "Failed"
        spec["podFailurePolicy"] = {"rules": [_fill_rule(rule) for rule in spec["podFailurePolicy"].get("rules") or ()]}
    return spec


def _fill_rule(rule: Json) -> Json:
    if not rule.get("onPodConditions"):
        return rule
    return {**rule, "onPodConditions": [{"status": "True", **pattern} for pattern in rule["onPodConditions"]]}


def _mark_job(obj: Json) -> Json:
    """A new Job with the labels by which it knows its pods; one without labels has those of its template, too."""
    metadata, spec = obj["metadata"], obj["spec"]
    uid, name, template = metadata["uid"], metadata["name"], spec["template"]
    own = {"batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": name, "controller-uid": uid, "job-name": name}
    given = (template.get("metadata") or {}).get("labels") or {}
    marked = {**template, "metadata": {**(template.get("metadata") or {}), "labels": {**given, **own}}}
    selector = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    metadata = {**metadata, "labels": metadata.get("labels") or {**given, **own}}
    return {**obj, "metadata": metadata, "spec": {"selector": selector, **spec, "template": marked}}


def _fill_pod_spec(spec: Json) -> Json:
    defaults: Mapping[str, Any] = {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
    }
    filled = {**defaults, **{name: value for name, value in spec.items() if value not in ([], None)}}
    for name in ("containers", "initContainers"):
        if spec.get(name):
            filled[name] = [_fill_container(container) for container in spec[name]]
    return filled


def _fill_requests(spec: Json) -> Json:
    """What a container of a pod has a limit of and no request it requests, too."""
    return spec | {
        name: [_request_limits(container) for container in spec[name]] for name in ("containers", "initContainers") if name in spec
    }


def _request_limits(container: Json) -> Json:
    resources = container["resources"] or {}
    if not resources.get("limits"):
        return container
    return {**container, "resources": {**resources, "requests": {**resources["limits"], **(resources.get("requests") or {})}}}


def _fill_container(container: Json) -> Json:
    image = str(container.get("image") or "")
    is_latest = image.endswith(":latest") or ":" not in image.rpartition("/")[2]
    return {
        "resources": {},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "Always" if is_latest else "IfNotPresent",
        **container,
    }


def _add_lost_node_tolerations(tolerations: list[Json]) -> list[Json]:
    """What the admission plugin DefaultTolerationSeconds adds."""
    added = []
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(each.get("key") in (key, None) and each.get("effect") in ("NoExecute", None, "") for each in tolerations):
            added.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
    return [*tolerations, *added]


def _judge_quality(spec: Json) -> str:
    """The class of a pod by what its containers request (KEP: quality of service)."""
    containers = [*spec.get("containers", ()), *spec.get("initContainers", ())]
    whole = [container.get("resources") or {} for container in containers]
    asked = [amounts for resources in whole for part in ("requests", "limits") if (amounts := resources.get(part))]
    if not any(name in ("cpu", "memory") for amounts in asked for name in amounts):
        return "BestEffort"
    limits = [resources.get("limits") or {} for resources in whole]
    requests = [resources.get("requests") or {} for resources in whole]
    is_guaranteed = all(
        {"cpu", "memory"} <= limit.keys() and all(request.get(name, limit[name]) == limit[name] for name in ("cpu", "memory"))
        for limit, request in zip(limits, requests, strict=True)
    )
    return "Guaranteed" if is_guaranteed else "Burstable"
