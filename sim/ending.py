"""How a scenario may end: what is read off the objects when time has passed in peace.

Each job of a user is over and its workload says so, or it waits with a reason, or all of its pods run. What a controller wants is read off
the objects that make pods: Jobs, ReplicaSets, StatefulSets, and the kinds whose operators make them.
"""

from collections.abc import Iterator
from typing import Any

from core.jobs.prebuilt_label import find_prebuilt_name
from core.names import (
    HOSTNAME_LABEL,
    JOB_UID_LABEL,
    MANAGED,
    POD_GROUP_NAME,
    POD_GROUP_TOTAL_COUNT,
    PODSET_LABEL,
    PRIORITY_CLASS_LABEL,
    QUEUE_NAME_LABEL,
    REASON_SLICE_REPLACED,
    RESOURCE_IN_USE_FINALIZER,
    SLICE_REPLACES,
    SUSPENDING_PARENT,
    WORKLOAD_ANNOTATION,
)
from e2e.audit.recount_places import get_family, get_named_family, list_present, read_domains
from e2e.standins.pods import has_condition
from sim.models.apps import REPLICA_SET, STATEFUL_SET
from sim.models.base import JOB, POD, get_controller, get_phase, is_over
from sim.models.jobs import TRACKED, JobController
from sim.models.operators import Operator
from sim.world import WORKLOADS, World

Json = dict[str, Any]
_ENDS = ("Complete", "Completed", "Succeeded", "Failed")
_STATES = (("phase",), ("jobDeploymentStatus",), ("applicationState", "state"))
_SUSPENDED = (("spec", "suspend"), ("spec", "runPolicy", "suspend"), ("spec", "rayClusterConfig", "suspend"))
_OF_USERS = ("", "apps", "batch")


def list_roots(world: World) -> list[Json]:
    """Objects with a queue that no other controls: what users have submitted, by kind and name."""
    operators = {model.resource for model in world.models if isinstance(model, Operator)}
    groups = [resource for resource in world.server.objects if resource[0] in _OF_USERS or resource in operators]
    found = (obj for resource in groups for obj in world.objects(*resource))
    alone = (obj for obj in found if QUEUE_NAME_LABEL in (obj["metadata"].get("labels") or {}) and get_controller(obj) is None)
    return [obj for obj in alone if SUSPENDING_PARENT not in (obj["metadata"].get("annotations") or {})]  # pods that a parent has let go


def list_holding(world: World) -> list[Json]:
    """Roots with a workload that holds quota."""
    holding = [each for each in world.objects("kueue.x-k8s.io", "workloads") if has_condition(each, "QuotaReserved")]
    return [root for root in list_roots(world) if any(_is_owner(root, each) for each in holding)]


def find_unsettled(world: World) -> Iterator[str]:
    """Sentences about what is left over."""
    workloads = world.objects("kueue.x-k8s.io", "workloads")
    for root in list_roots(world):
        owned = [each for each in workloads if _is_owner(root, each)]
        if owned or not _is_in_part(world, root):
            yield from _judge_root(root, owned)
    uids = {stored.obj["metadata"]["uid"] for objects in world.server.objects.values() for stored in objects.values()}
    for each in workloads:
        named = each["metadata"].get("ownerReferences") or ()
        if named and not any(owner["uid"] in uids for owner in named):
            yield f"workload {each['metadata']['name']} has no job"
        elif has_condition(each, "Finished") and RESOURCE_IN_USE_FINALIZER in (each["metadata"].get("finalizers") or ()):
            yield f"workload {each['metadata']['name']} is finished and keeps its finalizer"
        elif not has_condition(each, "Finished") and not has_condition(each, "Admitted") and not _find_reason(each):
            yield f"workload {each['metadata']['name']} waits without a reason"
        elif not has_condition(each, "Evicted") or not has_condition(each, "QuotaReserved") or has_condition(each, "Finished"):
            continue
        elif named or _is_orphaned(each):  # of one without an owner its tool takes the quota back (docs/pods.md)
            yield f"workload {each['metadata']['name']} is evicted and has its quota still"
    yield from _judge_makers(world)
    by_key = {(each["metadata"]["namespace"], get_family(each)): dict(each) for each in (*workloads, *list_present(workloads))}
    for pod in world.objects(*POD):
        yield from _judge_pod(world, pod, by_key)


def _is_owner(root: Json, workload: Json) -> bool:
    metadata, of_root = workload["metadata"], root["metadata"]
    is_group = metadata["name"] == _group_of(root) and metadata["namespace"] == of_root["namespace"]
    return is_group or any(owner["uid"] == of_root["uid"] for owner in metadata.get("ownerReferences") or ())


def _group_of(obj: Json) -> str:
    """The group that a pod belongs to, empty where it is in none."""
    return str((obj["metadata"].get("labels") or {}).get(POD_GROUP_NAME) or "")


def _is_in_part(world: World, root: Json) -> bool:
    """Whether it is a pod of a group of which not all are there: these wait for the others (docs/pods.md)."""
    group, wanted = _group_of(root), (root["metadata"].get("annotations") or {}).get(POD_GROUP_TOTAL_COUNT)
    namespace = root["metadata"].get("namespace")
    mates = [pod for pod in world.objects(*POD) if _group_of(pod) == group and pod["metadata"]["namespace"] == namespace]
    return bool(group and wanted) and len(mates) < int(wanted or 0)


def _is_kept(pod: Json) -> bool:
    """Whether a pod has ended and is kept until its group has another in its place (docs/pods.md)."""
    return bool(_group_of(pod)) and is_over(pod) and MANAGED in (pod["metadata"].get("finalizers") or ())


def _is_kept_for_replacement(world: World, pod: Json) -> bool:
    """Whether the Job controller keeps a pod that has failed until it makes another of its index, which it does not while the Job is
    suspended (backoffLimitPerIndex)."""
    owner = get_controller(pod)
    job = next((job for job in world.objects(*JOB) if owner is not None and job["metadata"]["uid"] == owner["uid"]), None)
    is_kept = job is not None and job["spec"].get("suspend") and "backoffLimitPerIndex" in job["spec"]
    return bool(is_kept) and is_over(pod) and pod["metadata"].get("finalizers") == [TRACKED]


def _is_orphaned(workload: Json) -> bool:
    """Whether the job of a workload was deleted without it: pods of it that have gates never start, and hold what it was given."""
    return JOB_UID_LABEL in (workload["metadata"].get("labels") or {}) and not workload["metadata"].get("ownerReferences")


def _judge_root(root: Json, workloads: list[Json]) -> Iterator[str]:
    shown = f"{root['kind']} {root['metadata']['name']}"
    is_admitted = any(has_condition(each, "Admitted") and not _is_replaced(each) for each in workloads)
    if root["kind"] == "Pod" and _is_kept(root):
        return
    if root["metadata"].get("deletionTimestamp"):
        yield f"{shown} is ending"
    elif has_ended(root):
        if not all(has_condition(each, "Finished") for each in workloads):
            yield f"{shown} is over, and its workload does not say so"
    elif not workloads and root["kind"] not in ("Deployment", "ReplicaSet") and (root.get("spec") or {}).get("replicas") != 0:
        yield f"{shown} has no workload"
    elif is_admitted and is_suspended(root):
        yield f"{shown} is admitted and suspended"
    elif class_name := _find_unfollowed_class(root, workloads):
        yield f"{shown} has the priority class {class_name}, and its workload that waits does not"
    elif workloads and not is_admitted and is_suspended(root) is False:
        yield f"{shown} waits and is not suspended"


def _is_replaced(workload: Json) -> bool:
    """Whether another workload of an elastic job has taken over."""
    conditions = (workload.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Finished" and c.get("reason") == REASON_SLICE_REPLACED for c in conditions)


def _find_unfollowed_class(root: Json, workloads: list[Json]) -> str:
    """The priority class of a job where a workload of it that waits has another one.

    A pod cannot have another one later, and that of a prebuilt Workload is its own (docs/lives.md).
    """
    if root["kind"] == "Pod" or find_prebuilt_name(root) is not None:
        return ""
    wanted = str((root["metadata"].get("labels") or {}).get(PRIORITY_CLASS_LABEL) or "")
    waiting = [each for each in workloads if not has_condition(each, "QuotaReserved") and not has_condition(each, "Finished")]
    names = {(each["spec"].get("priorityClassRef") or {}).get("name") for each in waiting if each["spec"].get("active") is not False}
    return wanted if wanted and names - {wanted} else ""


def has_ended(root: Json) -> bool:
    """Whether the status of a job says that it is over."""
    if root["kind"] == "Pod":
        return is_over(root)
    states = {str(_get(root.get("status"), path)).upper() for path in _STATES}
    return any(has_condition(root, kind) for kind in _ENDS) or bool(states & {"SUCCEEDED", "COMPLETE", "COMPLETED", "FAILED"})


def is_suspended(root: Json) -> bool | None:
    """Whether a job is suspended; None of a kind that cannot be."""
    if root["apiVersion"] == "v1" or root["apiVersion"].startswith("apps/") or root["kind"] == "LeaderWorkerSet":
        return None
    return any(bool(_get(root, path)) for path in _SUSPENDED)


def strip_suspension(part: Json) -> Json:
    """A part of a job without the field that suspends it, and without what is empty."""
    return {name: value for name, value in part.items() if name != "suspend" and value not in (None, {}, [])}


def _get(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        value = (value or {}).get(name)
    return value


def _find_reason(workload: Json) -> str:
    """Why a workload waits, as it says; one that was deactivated before any decision says only that."""
    wanted = ("QuotaReserved", "Requeued") if workload["spec"].get("active") is False else ("QuotaReserved",)
    found = (c["message"] for c in (workload.get("status") or {}).get("conditions") or () if c["type"] in wanted)
    return next(found, "")


def _judge_makers(world: World) -> Iterator[str]:
    """What makes pods has as many as it wants."""
    for resource in (JOB, REPLICA_SET, STATEFUL_SET):
        for maker in world.objects(*resource):
            uid, name = maker["metadata"]["uid"], maker["metadata"]["name"]
            live = sum((get_controller(pod) or {}).get("uid") == uid and not is_over(pod) for pod in world.objects(*POD))
            wanted = _count_wanted(maker)
            if live != wanted and not (live < wanted and resource == JOB and is_backing_off(world, maker)):
                yield f"{maker['kind']} {name} has {live} pods, and wants {wanted}"
    for model in world.models:
        if isinstance(model, Operator):
            for maker in world.objects(*model.resource):
                missing = model.list_missing(maker)
                if missing:
                    yield f"{maker['kind']} {maker['metadata']['name']} has no {', '.join(missing)}"


def is_backing_off(world: World, job: Json) -> bool:
    """Whether pods of a Job have failed and others are made later: after six failures in more than five minutes."""
    key = job["metadata"]["namespace"], job["metadata"]["name"]
    return any(isinstance(model, JobController) and model.is_backing_off(key) for model in world.models)


def _count_wanted(maker: Json) -> int:
    spec, status = maker["spec"], maker.get("status") or {}
    if maker["kind"] != "Job":
        return int(spec["replicas"])
    if has_ended(maker) or spec.get("suspend"):
        return 0
    left = spec["completions"] - status.get("succeeded", 0) if "completions" in spec else spec["parallelism"]
    return int(min(spec["parallelism"], left))


def _has_released(world: World, pod: Json) -> bool:
    """Whether a pod that names the same workload, and has lost its owner, runs: then another one stays gated."""
    named = (pod["metadata"].get("annotations") or {}).get(WORKLOAD_ANNOTATION)
    return any(
        each["metadata"]["uid"] in world.released
        and each["metadata"]["namespace"] == pod["metadata"]["namespace"]
        and (each["metadata"].get("annotations") or {}).get(WORKLOAD_ANNOTATION) == named
        and not is_over(each)
        for each in world.objects(*POD)
    )


def _is_to_grow(world: World, workload: Json) -> bool:
    """Whether another workload waits to replace one, all of whose pods run: then those beyond it stay gated (docs/lives.md)."""
    namespace, name = workload["metadata"]["namespace"], workload["metadata"]["name"]
    others = (each for each in world.objects(*WORKLOADS) if each["metadata"]["namespace"] == namespace)
    replaced = {(each["metadata"].get("annotations") or {}).get(SLICE_REPLACES) for each in others if not has_condition(each, "Admitted")}
    mates = [
        pod for pod in world.objects(*POD) if get_named_family(pod) == get_family(workload) and pod["metadata"]["namespace"] == namespace
    ]
    running = sum(bool(pod["spec"].get("nodeName")) and not is_over(pod) for pod in mates)
    admitted = sum(given["count"] for given in workload["status"]["admission"]["podSetAssignments"])
    return f"{namespace}/{name}" in replaced and running == admitted


def _may_stay_gated(world: World, pod: Json, workload: Json) -> bool:
    """Whether a pod of a workload that is admitted may stay gated."""
    is_odd = _is_orphaned(workload) or _has_released(world, pod) or _has_namesakes(workload)
    return is_odd or _is_to_grow(world, workload) or _is_left_out(world, pod, workload)


def _is_left_out(world: World, pod: Json, workload: Json) -> bool:
    """Whether its pod set was admitted with fewer pods than it asked for, as `minCount` allows, and these have no gates."""
    name = (pod["metadata"].get("labels") or {}).get(PODSET_LABEL)
    asked = {each["name"]: each["count"] for each in workload["spec"]["podSets"]}
    given = {each["name"]: each["count"] for each in workload["status"]["admission"]["podSetAssignments"]}
    mates = [each for each in world.objects(*POD) if get_named_family(each) == get_family(workload) and not is_over(each)]
    mates = [each for each in mates if (each["metadata"].get("labels") or {}).get(PODSET_LABEL) == name]
    begun = sum(not each["spec"].get("schedulingGates") for each in mates if each["metadata"]["namespace"] == pod["metadata"]["namespace"])
    return name in given and given[name] < asked[name] and begun == given[name]


def _has_namesakes(workload: Json) -> bool:
    """Whether a workload has several nodes with one hostname: there may be no names for another place beside them."""
    given = [each["topologyAssignment"] for each in workload["status"]["admission"]["podSetAssignments"] if each.get("topologyAssignment")]
    domains = {domain for assigned in given if assigned["levels"][-1] == HOSTNAME_LABEL for domain, _ in read_domains(assigned)}
    return len({domain[-1] for domain in domains if len(domain) > 1}) < sum(len(domain) > 1 for domain in domains)


def _judge_pod(world: World, pod: Json, workloads: dict[tuple[str, str], Json]) -> Iterator[str]:
    """A pod of a queue is over, or bound and its workload is admitted, or it has gates and its workload waits."""
    metadata, name = pod["metadata"], pod["metadata"]["name"]
    if metadata.get("deletionTimestamp") and not _is_kept(pod) and not _is_kept_for_replacement(world, pod):
        yield f"pod {name} is ending"
    elif is_over(pod):
        named = (metadata.get("annotations") or {}).get(WORKLOAD_ANNOTATION) or _group_of(pod)
        is_finished = has_condition(workloads.get((metadata["namespace"], named), {}), "Finished")
        if MANAGED in (metadata.get("finalizers") or ()) and (is_finished or not _is_kept(pod)):
            yield f"pod {name} is over and keeps its finalizer"
    else:
        named = get_named_family(pod)
        workload = workloads.get((metadata["namespace"], named), {})
        is_admitted = has_condition(workload, "Admitted")
        gates = [gate["name"] for gate in pod["spec"].get("schedulingGates") or ()]
        if pod["spec"].get("nodeName"):
            if not is_admitted:
                yield f"pod {name} runs, and its workload {named} is not admitted"
        elif (is_admitted and not _may_stay_gated(world, pod, workload)) or not gates:
            yield f"pod {name} is {get_phase(pod)} with gates {gates}, and its workload {named} is {'' if is_admitted else 'not '}admitted"
