"""The PodGroup of a job that asks for one by its annotation."""

from collections.abc import Mapping
from typing import Any

from core.jobs.podgroup_annotation import Grouping, find_asked, find_group
from core.jobs.podgroup_levels import read_levels
from core.names import OWN_GROUP, OWN_VERSION, QUEUE_NAME_LABEL

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


def is_of(group: Json, job: Json) -> bool:
    """Returns whether a group is controlled by that very job, by its uid."""
    owners = group["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and owner.get("uid") == job["metadata"]["uid"] for owner in owners)


def is_in_step(group: Json, wanted: Json) -> bool:
    """Returns whether the spec of a group equals that of `wanted`, the group as its job asks for it (`build_pod_group`)."""
    return bool(group.get("spec") == wanted["spec"])
