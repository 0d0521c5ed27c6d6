"""Cases' frameworks and the kinds of job that answer for them."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from core.jobs.contract import JobKind, Referring
from core.jobs.kinds.pod import Pod, group_name
from core.jobs.kinds.pod_kinds import list_pod_kinds
from core.jobs.kinds.pod_parents import PodParent
from core.jobs.kinds.registry import INTEGRATIONS, with_integrations
from core.jobs.templated import TemplatedKind
from core.names import QUEUE_NAME_LABEL
from core.runtime.plugins import load
from tests.replay.rules import Template

# Frameworks that are called otherwise than their kind in lower case.
_NAMES = {"batch/job": "Job"} | {f"kubeflow/{kind.lower()}": kind for kind in ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob")}
_KINDS = with_integrations(load(INTEGRATIONS))
_BY_NAME: dict[str, JobKind | Pod | PodParent] = {kind.kind.lower(): kind for kind in (*_KINDS, *list_pod_kinds(_KINDS))}


def kind_of(case: Mapping[str, Any]) -> JobKind | Pod | PodParent:
    framework = case["framework"]
    return _BY_NAME[_NAMES.get(framework, framework).lower()]


def job_of(case: Mapping[str, Any], obj: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A case's object as webhook and reconciler have it: queued, and with what it refers to."""
    kind, job = kind_of(case), deepcopy(dict(case["object"] if obj is None else obj))
    metadata = job.setdefault("metadata", {})
    metadata["labels"] = {QUEUE_NAME_LABEL: "queue", **(metadata.get("labels") or {})}
    if isinstance(kind, Referring):
        reference = kind.find_reference(job)
        for found in case.get("related_objects") or case.get("objects", ())[1:]:
            if reference is not None and (found["kind"], found["metadata"]["name"]) == (reference.related.kind, reference.name):
                return kind.expand(job, found)
    return job


def templates_of(case: Mapping[str, Any]) -> list[Template]:
    """Pod templates of a case's object, as its kind reads them."""
    kind = kind_of(case)
    if isinstance(kind, Pod):
        pod = job_of(case)
        return [Template(pod["metadata"].get("annotations") or {}, 1 if group_name(pod) is None else None)]
    if isinstance(kind, PodParent):
        return [Template(role.annotations, role.count) for role in kind.list_roles(job_of(case))]
    if not isinstance(kind, TemplatedKind):
        return []
    return [Template(role.annotations, role.count, role.default_slice_size) for role in kind.list_roles(job_of(case))]
