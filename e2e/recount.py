"""An audit from the API server's objects alone: do running pods exceed a node, a quota, or what their Workload was promised?

It shares no code with `core.state` and trusts no status but `admission`. Pods are counted, not reservations, so that pods that run past
topogate are found, whichever entry point they came by. Usable wherever objects are at hand: tests on a control plane, a simulation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from core.model.quantity import canonical
from core.model.resources import PODS, parse_resources, pod_requests
from core.names import MANAGED_NAMESPACE_LABEL, PODSET_LABEL, SLICE_NAME, WORKLOAD_ANNOTATION
from e2e.api import Api, ApiError

Obj = Mapping[str, Any]
Use = tuple[str, str, str]  # ClusterQueue or cohort, flavor, resource
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"


@dataclass(frozen=True)
class Objects:
    """What is counted, as the API server has it."""

    nodes: Iterable[Obj] = ()
    pods: Iterable[Obj] = ()
    workloads: Iterable[Obj] = ()
    cluster_queues: Iterable[Obj] = ()
    cohorts: Iterable[Obj] = ()
    local_queues: Iterable[Obj] = ()
    namespaces: Iterable[Obj] = field(default=())


def recount(api: Api) -> list[str]:
    """Sentences about what is broken now; none if all is well. All lists are of one moment; of kinds that are not installed there are
    no objects. Raises ApiError where the API server has lists of one moment not even at the third attempt."""
    for _ in range(2):
        with suppress(ApiError):  # 410: the moment is gone by now
            return list(find_broken(_read(api)))
    return list(find_broken(_read(api)))


def _read(api: Api) -> Objects:
    pods = api.get("/api/v1/pods")
    then = f"?resourceVersion={pods['metadata']['resourceVersion']}&resourceVersionMatch=Exact"
    lists = ("/api/v1/nodes", "workloads", "clusterqueues", "cohorts", "localqueues", "/api/v1/namespaces")
    paths = [(path if path.startswith("/") else f"{KUEUE}/{path}") + then for path in lists]
    nodes, *others = ((api.find(path) or {"items": []})["items"] for path in paths)
    return Objects(nodes, pods["items"], *others)


def find_broken(objects: Objects) -> Iterator[str]:
    """The same for objects at hand."""
    live = [pod for pod in objects.pods if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")]
    bound = [pod for pod in live if (pod.get("spec") or {}).get("nodeName")]
    admitted = {_key(workload): workload for workload in objects.workloads if _is_admitted(workload)}
    yield from _nodes(objects.nodes, bound)
    yield from _promises(admitted, live)
    yield from _quotas(objects, admitted, bound)
    yield from _uncounted(objects, admitted, bound)


def _key(obj: Obj) -> str:
    return f"{obj['metadata'].get('namespace')}/{(obj['metadata'].get('annotations') or {}).get(SLICE_NAME) or obj['metadata']['name']}"


def _named(pod: Obj) -> str | None:
    """Key of the Workload that a pod names."""
    notes = pod["metadata"].get("annotations") or {}
    name = notes.get(SLICE_NAME) or notes.get(WORKLOAD_ANNOTATION)
    return f"{pod['metadata'].get('namespace')}/{name}" if name else None


def _is_admitted(workload: Obj) -> bool:
    status = workload.get("status") or {}
    finished = any(c["type"] == "Finished" and c["status"] == "True" for c in status.get("conditions") or ())
    return bool(status.get("admission")) and not finished


def _nodes(nodes: Iterable[Obj], bound: Iterable[Obj]) -> Iterator[str]:
    has = {node["metadata"]["name"]: parse_resources((node.get("status") or {}).get("allocatable")) for node in nodes}
    used: dict[str, Counter[str]] = {name: Counter() for name in has}
    for pod in bound:
        if pod["spec"]["nodeName"] in used:
            used[pod["spec"]["nodeName"]].update({**pod_requests(pod["spec"]), PODS: 1})
    for name, amounts in used.items():
        for resource, amount in amounts.items():
            if amount > has[name].get(resource, 0):
                yield f"node {name} has {has[name].get(resource, 0)} {resource}, and its pods use {amount}"


def _promises(admitted: Mapping[str, Obj], live: Iterable[Obj]) -> Iterator[str]:
    """No more pods than were admitted are past the gates, those aside that are on their way out."""
    counts: Counter[tuple[str, str]] = Counter()
    for pod in live:
        key, pod_set = _named(pod), (pod["metadata"].get("labels") or {}).get(PODSET_LABEL)
        gates = (pod.get("spec") or {}).get("schedulingGates")
        if key is not None and key in admitted and pod_set and not gates and not pod["metadata"].get("deletionTimestamp"):
            counts[key, pod_set] += 1
    for key, workload in admitted.items():
        for given in workload["status"]["admission"].get("podSetAssignments") or ():
            if counts[key, given["name"]] > int(given.get("count") or 0):
                yield f"workload {key} was admitted {given.get('count')} pods as {given['name']}, and {counts[key, given['name']]} run"


def _limits(objects: Objects) -> tuple[dict[str, str], dict[Use, int | None]]:
    """The root of each ClusterQueue's cohort (or itself), and what each queue and each root may use; None: no limit of its own."""
    parents = {cohort["metadata"]["name"]: (cohort.get("spec") or {}).get("parentName") or "" for cohort in objects.cohorts}
    roots: dict[str, str] = {}
    limits: dict[Use, int | None] = {}

    def root_of(name: str) -> str:
        seen = set[str]()
        while parents.get(name) and name not in seen:
            seen.add(name)
            name = parents[name]
        return f"cohort {name}"

    owners = [(queue, False) for queue in objects.cluster_queues] + [(cohort, True) for cohort in objects.cohorts]
    for owner, is_cohort in owners:
        spec, name = owner.get("spec") or {}, owner["metadata"]["name"]
        cohort = name if is_cohort else spec.get("cohortName")
        root = root_of(cohort) if cohort else name
        if not is_cohort:
            roots[name] = root
        for group in spec.get("resourceGroups") or ():
            for flavor in group["flavors"]:
                for entry in flavor["resources"]:
                    resource, own = entry["name"], canonical(entry["name"], entry["nominalQuota"])
                    limits[root, flavor["name"], resource] = (limits.get((root, flavor["name"], resource)) or 0) + own
                    if not is_cohort and cohort:
                        borrows = entry.get("borrowingLimit")
                        limits[name, flavor["name"], resource] = None if borrows is None else own + canonical(resource, borrows)
    return roots, limits


def _quotas(objects: Objects, admitted: Mapping[str, Obj], bound: Iterable[Obj]) -> Iterator[str]:
    """What bound pods of admitted Workloads use is within the quota of their queue and its cohort. Lending limits are not judged."""
    roots, limits = _limits(objects)
    covered = {
        queue["metadata"]["name"]: {
            name for group in (queue.get("spec") or {}).get("resourceGroups") or () for name in group["coveredResources"]
        }
        for queue in objects.cluster_queues
    }
    used: Counter[Use] = Counter()
    for pod in bound:
        workload = admitted.get(_named(pod) or "")
        if workload is None:
            continue
        admission, pod_set = workload["status"]["admission"], (pod["metadata"].get("labels") or {}).get(PODSET_LABEL)
        flavors = next((given.get("flavors") or {} for given in admission["podSetAssignments"] if given["name"] == pod_set), {})
        for resource, amount in {**pod_requests(pod["spec"]), PODS: 1}.items():
            queue = admission["clusterQueue"]
            if resource not in flavors and amount and resource in covered.get(queue, ()):
                yield f"pod {pod['metadata']['namespace']}/{pod['metadata']['name']} uses {amount} {resource}, and was admitted without"
            elif resource in flavors:
                for owner in {queue, roots.get(queue, queue)}:
                    used[owner, flavors[resource], resource] += amount
    for (owner, flavor, resource), amount in used.items():
        limit = limits.get((owner, flavor, resource))
        if limit is not None and amount > limit:
            yield f"{owner} may use {limit} {resource} of flavor {flavor}, and pods use {amount}"


def _uncounted(objects: Objects, admitted: Mapping[str, Obj], bound: Iterable[Obj]) -> Iterator[str]:
    """In a managed namespace with a default queue no pod runs that no admitted Workload has; DaemonSets and mirror pods aside."""
    managed = {
        n["metadata"]["name"] for n in objects.namespaces if (n["metadata"].get("labels") or {}).get(MANAGED_NAMESPACE_LABEL) == "true"
    }
    queued = {queue["metadata"]["namespace"] for queue in objects.local_queues if queue["metadata"]["name"] == "default"}
    for pod in bound:
        metadata = pod["metadata"]
        owner: Obj = next((owner for owner in metadata.get("ownerReferences") or () if owner.get("controller")), {})
        is_system = owner.get("kind") == "DaemonSet" or "kubernetes.io/config.mirror" in (metadata.get("annotations") or {})
        if metadata.get("namespace") not in managed & queued or is_system:
            continue
        if _named(pod) is not None and metadata.get("deletionTimestamp"):
            continue  # of a Workload that has ended before its last pod
        if _named(pod) not in admitted:
            yield f"pod {metadata['namespace']}/{metadata['name']} runs in a managed namespace, and no admitted Workload has it"
