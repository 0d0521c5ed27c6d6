"""The PodGroup of a job that asks for one by its annotation, and what is written and reported of it."""

from collections.abc import Mapping
from typing import Any

from core.jobs.podgroup_annotation import Grouping, find_asked, find_group
from core.jobs.podgroup_levels import read_levels
from core.names import EVENT_POD_GROUP_REFUSED, OWN_GROUP, OWN_VERSION, QUEUE_NAME_LABEL
from core.plan.steps import api_resources as r
from core.plan.steps import pacing
from core.plan.steps import writes as w
from core.plan.steps.conditions import Condition
from core.plan.steps.steps import Event, Log, Plan, Step, make_plan, report
from core.resource import Obj, Resource
from core.state.facts import build_object_key

Json = Mapping[str, Any]


def build_pod_group(kind: Grouping, job: Json) -> dict[str, Any] | None:
    """Returns the PodGroup (JSON) as it should be, controlled by the job: a gang with a constraint for each level of the job's annotation,
    in its order. Its `minCount` and its replicas are at least 1. None where a job has none: its annotation is missing or has an error, no
    template names a group (label MEMBER_OF_LABEL), or it has a queue."""
    metadata = job["metadata"]
    name, levels = find_group(kind, job), read_levels(find_asked(job) or "")
    if name is None or not levels or QUEUE_NAME_LABEL in (metadata.get("labels") or {}):
        return None
    gang = kind.find_gang(job)
    owner = {"apiVersion": f"{kind.group}/{kind.version}", "kind": kind.kind, "name": metadata["name"], "uid": metadata["uid"]}
    return {
        "apiVersion": f"{OWN_GROUP}/{OWN_VERSION}",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": metadata["namespace"], "ownerReferences": [{**owner, "controller": True}]},
        "spec": {
            # One of no pods is none: a job that makes none now may make some later.
            "schedulingPolicy": {"gang": {"minCount": max(1, gang.min_count)}},
            "schedulingConstraints": {"topologyConstraints": [{"level": level.name, "mode": level.mode} for level in levels]},
            "replicas": max(1, gang.replicas),
        },
    }


def plan_job_group(resource: Resource, job: Obj, wanted: Obj, present: Obj | None, verdict: Condition | None) -> Plan:
    """Returns the plan that writes the PodGroup of a job where it is missing or has another spec than `wanted` (`build_pod_group`), and
    emits a new condition of it, the `verdict`, as an event of the job. `resource`: that of the job; `present`: the group of that name. One
    that is not controlled by that very job, by its uid, is left alone, and reported on the job."""
    name = wanted["metadata"]["name"]
    if present is not None and not _is_of(present, job):
        return plan_refused_group(resource, job, f"there is a PodGroup {name} that is not of this job")
    judged = None
    if present is not None and verdict is not None:
        judged = report(Event(resource, job, verdict.reason, f"PodGroup {name}: {verdict.message}", warning=not verdict.status))
    if present is not None and present.get("spec") == wanted["spec"]:
        return make_plan(judged)
    log = Log("group of a job written", {"job": f"{r.show_kind(resource)}:{build_object_key(job)}", "group": name})
    return make_plan(judged, Step("write group", w.apply_pod_group(wanted, present), log=log))


def plan_refused_group(resource: Resource, job: Obj, why: str) -> Plan:
    """Returns the plan for a job with a PodGroup that cannot be written: a Warning event on the job; it is tried again later."""
    refused = Event(resource, job, EVENT_POD_GROUP_REFUSED, f"{why}; its pods wait", warning=True)
    return make_plan(report(refused), again_s=pacing.JOB_GROUP_REFUSED_S)


def _is_of(group: Json, job: Json) -> bool:
    owners = group["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and owner.get("uid") == job["metadata"]["uid"] for owner in owners)
