"""The objects that request nodes from an autoscaler: a ProvisioningRequest, and a PodTemplate for each of its pod sets.

Names are derived from workload, check and attempt, so that a second creation finds the first one. A hash of the content
shows that a request is out of date (another flavor, another configuration).
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.jobs.contract import PodSetStart
from core.jobs.template_parts import copy_object
from core.jobs.templates import build_started
from core.model.admission import Admission, PodSetAdmission
from core.names import (
    ADMISSION_GATE,
    API_VERSION,
    AUTOSCALING_GROUP,
    CONSUMES_PROVISIONING,
    MANAGED,
    PROVISIONING_ANNOTATIONS,
    PROVISIONING_CLASS_NAME,
    PROVISIONING_CONTENT,
    PROVISIONING_RESERVATION,
    QUOTA_RESERVED,
)
from core.plan.workloads.desired_workload import MissingFlavor
from core.state.check_facts import ProvisioningConfig
from core.state.facts import FlavorFacts, find_condition

Json = Mapping[str, Any]
REQUEST_VERSION = f"{AUTOSCALING_GROUP}/v1"
REQUEST_KIND = "ProvisioningRequest"
SAME_TEMPLATE, SAME_REQUIREMENTS = "IdenticalPodTemplates", "IdenticalWorkloadSchedulingRequirements"
_MAX_NAME = 253
_HASH = 5
_REQUIREMENTS = ("nodeSelector", "tolerations", "affinity", "resourceClaims", "resources", "overhead", "priorityClassName")


@dataclass(frozen=True, slots=True)
class DesiredRequest:
    """A ProvisioningRequest and the PodTemplates that it names, which are made before it."""

    request: dict[str, Any]
    templates: tuple[dict[str, Any], ...]


def request_name(workload: str, check: str, attempt: int) -> str:
    """Returns the name of the ProvisioningRequest of attempt number `attempt` (from 1) at a check of a workload: at most 253 characters, a
    longer one is cut and gets a hash."""
    return _cut(f"{workload}-{check}-{attempt}")


def build_template_name(request: str, pod_set: str) -> str:
    """Returns the name of the PodTemplate of a pod set in a request: at most 253 characters, a longer one is cut and gets a hash."""
    return _cut(f"ppt-{request}-{pod_set}")


def _cut(name: str) -> str:
    """Returns a name cut to the longest length, with a hash that distinguishes it from others with the same beginning."""
    if len(name) <= _MAX_NAME:
        return name
    digest = hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()[:_HASH]
    return f"{name[: _MAX_NAME - _HASH - 1].rstrip('-.')}-{digest}"


def list_needed_pod_sets(workload: Json, config: ProvisioningConfig) -> list[Json]:
    """Returns the pod sets (JSON) that nodes are to be asked for, in their order: those with pods. Where the configuration has managed
    resources, they also request one of these, or have a limit for it."""
    pod_sets = [pod_set for pod_set in workload["spec"]["podSets"] if int(pod_set.get("count", 1)) > 0]
    return [pod_set for pod_set in pod_sets if not config.managed_resources or _has_request(pod_set, config.managed_resources)]


def _has_request(pod_set: Json, resources: frozenset[str]) -> bool:
    spec = pod_set["template"].get("spec") or {}
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    asked = {
        name for part in (*containers, spec) for kind in ("requests", "limits") for name in ((part.get("resources") or {}).get(kind) or {})
    }
    return not asked.isdisjoint(resources)


def find_reservation_time(workload: Json) -> str:
    """Returns the time at which a workload got its present reservation of quota, as the API writes it, which identifies the reservation.
    Empty without the condition."""
    return str((find_condition(workload, QUOTA_RESERVED) or {}).get("lastTransitionTime") or "")


def build_wanted(
    workload: Json, admission: Admission, config: ProvisioningConfig, name: str, flavors: Mapping[str, FlavorFacts]
) -> DesiredRequest:
    """Returns the ProvisioningRequest of a name and its PodTemplates, for a workload that has quota and pod sets to ask for. It asks for as
    many pods as were admitted; pod sets that are alike by `config.merge_policy` share one. Raises MissingFlavor where a flavor of the
    admission does not exist, KeyError where the admission lacks a pod set."""
    metadata = workload["metadata"]
    given = {pod_set.name: pod_set for pod_set in admission.pod_sets}
    merged: dict[str, tuple[str, dict[str, Any], int]] = {}
    for pod_set in list_needed_pod_sets(workload, config):
        template = _build_template(pod_set, given[pod_set["name"]], flavors)
        key = _merge_key(pod_set["name"], template, config.merge_policy)
        first, shown, count = merged.get(key, (pod_set["name"], template, 0))
        merged[key] = (first, shown, count + given[pod_set["name"]].count)
    parts = [(build_template_name(name, first), template, count) for first, template, count in merged.values()]
    spec: dict[str, Any] = {
        "provisioningClassName": config.class_name,
        "podSets": [{"podTemplateRef": {"name": part}, "count": count} for part, _, count in parts],
    }
    parameters = dict(config.parameters) | _read_own_parameters(metadata.get("annotations") or {})
    if parameters:
        spec["parameters"] = parameters
    content = _compute_digest([spec, [template for _, template, _ in parts]])
    owner = {
        "apiVersion": API_VERSION,
        "kind": "Workload",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }

    def build_envelope(called: str) -> dict[str, Any]:
        return {
            "name": called,
            "namespace": metadata["namespace"],
            "labels": {MANAGED: "true"},
            "annotations": {PROVISIONING_CONTENT: content, PROVISIONING_RESERVATION: find_reservation_time(workload)},
            "ownerReferences": [dict(owner)],
        }

    return DesiredRequest(
        {"apiVersion": REQUEST_VERSION, "kind": REQUEST_KIND, "metadata": build_envelope(name), "spec": spec},
        tuple({"apiVersion": "v1", "kind": "PodTemplate", "metadata": build_envelope(part), "template": shown} for part, shown, _ in parts),
    )


def _read_own_parameters(annotations: Mapping[str, str]) -> dict[str, str]:
    return {
        key.removeprefix(PROVISIONING_ANNOTATIONS): value for key, value in annotations.items() if key.startswith(PROVISIONING_ANNOTATIONS)
    }


def _build_template(pod_set: Json, given: PodSetAdmission, flavors: Mapping[str, FlavorFacts]) -> dict[str, Any]:
    """The pods as they will start: on nodes of their flavors, and without our gates, which would make them wait in a simulation."""
    names = dict.fromkeys(given.flavors.values())
    missing = next((name for name in names if name not in flavors), None)
    if missing is not None:
        raise MissingFlavor(f"ResourceFlavor {missing} does not exist")
    used = [flavors[name] for name in names]
    selector = {key: value for flavor in used for key, value in flavor.node_labels.items()}
    tolerations = tuple(toleration for flavor in used for toleration in flavor.tolerations)
    template = build_started(pod_set["template"], PodSetStart(given.name, False, selector, tolerations, {}, {}))
    spec = template["spec"]
    gates = [gate for gate in spec.pop("schedulingGates", ()) if gate.get("name") != ADMISSION_GATE]
    if gates:
        spec["schedulingGates"] = gates
    for part in ("containers", "initContainers"):
        if spec.get(part):
            spec[part] = [_with_requests(container) for container in spec[part]]
    return template


def _with_requests(container: Json) -> dict[str, Any]:
    """Limits stand for missing requests, as the API server has it in pods but not in their templates."""
    changed = copy_object(container)
    resources = changed.get("resources") or {}
    if resources.get("limits"):
        resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}
    return changed


def _merge_key(pod_set: str, template: Json, policy: str | None) -> str:
    if policy == SAME_TEMPLATE:
        return _compute_digest(template)
    if policy == SAME_REQUIREMENTS:
        spec = template["spec"]
        containers = [
            [(container.get("resources"), container.get("restartPolicy")) for container in spec.get(part) or ()]
            for part in ("containers", "initContainers")
        ]
        return _compute_digest([{name: spec[name] for name in _REQUIREMENTS if spec.get(name)}, containers])
    return pod_set


def build_pod_set_updates(workload: Json, config: ProvisioningConfig, request: Json) -> list[dict[str, Any]]:
    """Returns the `podSetUpdates` of a check by its request that is met, one per pod set that asks for nodes. Each has annotations with the
    name and class of the request that pods consume. It has a node selector by those details that the configuration selects by and the
    provider reports, if any."""
    details = (request.get("status") or {}).get("provisioningClassDetails") or {}
    # A detail that the provider does not report is not selected by.
    selector = {key: details[detail] for key, detail in config.selectors if detail in details}
    annotations = {
        CONSUMES_PROVISIONING: request["metadata"]["name"],
        PROVISIONING_CLASS_NAME: request["spec"]["provisioningClassName"],
    }
    return [
        {"name": pod_set["name"], "annotations": dict(annotations)} | ({"nodeSelector": dict(selector)} if selector else {})
        for pod_set in list_needed_pod_sets(workload, config)
    ]


def _compute_digest(value: Json | Sequence[Any]) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
