"""An audit from the API server's objects alone: do running pods exceed a node, a quota, or what their Workload was promised?

It shares no code but names with the product (`e2e.audit.amounts`, `e2e.audit.recount_quota`) and trusts no status but `admission`. Pods
are counted,
not reservations, so that pods that run past topogate are found, whichever entry point they came by. Usable wherever objects are at hand:
tests on a control plane, a simulation.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from core.names import (
    CLUSTER_QUEUE_LABEL,
    LOCAL_QUEUE_LABEL,
    MANAGED_NAMESPACE_LABEL,
    PODSET_LABEL,
    QUEUE_NAME_LABEL,
)
from e2e.api import Api, ApiError
from e2e.audit.amounts import Amount, Amounts, count_requests, read_amounts, show_amount
from e2e.audit.recount_places import get_family, get_named_family, list_present
from e2e.audit.recount_quota import Obj, Quotas, Use

KUEUE = "/apis/kueue.x-k8s.io/v1beta2"


@dataclass(frozen=True)
class Objects:
    """What is counted, as the API server has it."""

    nodes: Collection[Obj] = ()
    pods: Collection[Obj] = ()
    workloads: Collection[Obj] = ()
    cluster_queues: Collection[Obj] = ()
    cohorts: Collection[Obj] = ()
    local_queues: Collection[Obj] = ()
    namespaces: Collection[Obj] = ()
    resource_flavors: Collection[Obj] = ()


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
    lists = ("/api/v1/nodes", "workloads", "clusterqueues", "cohorts", "localqueues", "/api/v1/namespaces", "resourceflavors")
    paths = [(path if path.startswith("/") else f"{KUEUE}/{path}") + then for path in lists]
    nodes, *others = ((api.find(path) or {"items": []})["items"] for path in paths)
    return Objects(nodes, pods["items"], *others)


def find_broken(objects: Objects) -> Iterator[str]:
    """The same for objects at hand."""
    live = [pod for pod in objects.pods if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")]
    bound = [pod for pod in live if (pod.get("spec") or {}).get("nodeName")]
    admitted = {_get_key(workload): workload for workload in list_present(objects.workloads)}
    yield from _check_nodes(objects.nodes, bound)
    yield from _check_promises(admitted, live)
    yield from _check_quotas(objects, admitted, bound)
    yield from _find_uncounted_pods(objects, admitted, bound)


def _get_key(workload: Obj) -> str:
    return f"{workload['metadata'].get('namespace')}/{get_family(workload)}"


def _find_workload_key(pod: Obj) -> str | None:
    """Key of the Workload that a pod names."""
    name = get_named_family(pod)
    return f"{pod['metadata'].get('namespace')}/{name}" if name else None


def _check_nodes(nodes: Iterable[Obj], bound: Iterable[Obj]) -> Iterator[str]:
    has = {node["metadata"]["name"]: read_amounts((node.get("status") or {}).get("allocatable")) for node in nodes}
    used: dict[str, dict[str, Amount]] = {name: {} for name in has}
    for pod in bound:
        there = used.get(pod["spec"]["nodeName"], {})
        for resource, amount in _count_pod(pod).items():
            there[resource] = there.get(resource, 0) + amount
    for name, amounts in used.items():
        for resource, amount in amounts.items():
            if amount > has[name].get(resource, 0):
                has_now = show_amount(has[name].get(resource, 0))
                yield f"node {name} has {has_now} {resource}, and its pods use {show_amount(amount)}"


def _check_promises(admitted: Mapping[str, Obj], live: Iterable[Obj]) -> Iterator[str]:
    """No more pods than were admitted are past the gates, those aside that are on their way out."""
    counts: Counter[tuple[str, str]] = Counter()
    for pod in live:
        key, pod_set = _find_workload_key(pod), (pod["metadata"].get("labels") or {}).get(PODSET_LABEL)
        gates = (pod.get("spec") or {}).get("schedulingGates")
        if key is not None and key in admitted and pod_set and not gates and not pod["metadata"].get("deletionTimestamp"):
            counts[key, pod_set] += 1
    for key, workload in admitted.items():
        for given in workload["status"]["admission"].get("podSetAssignments") or ():
            if counts[key, given["name"]] > int(given.get("count") or 0):
                yield f"workload {key} was admitted {given.get('count')} pods as {given['name']}, and {counts[key, given['name']]} run"


def _check_quotas(objects: Objects, admitted: Mapping[str, Obj], bound: Iterable[Obj]) -> Iterator[str]:
    """What bound pods that name a Workload use is within the quota of its queue and cohorts, also where the Workload is not admitted
    (any more): finished, evicted or deleted."""
    quotas = Quotas(objects.cluster_queues, objects.cohorts)
    workloads = {_get_key(workload): workload for workload in objects.workloads}
    ended = {key: workload for key, workload in workloads.items() if (workload.get("status") or {}).get("admission")}
    given = {**ended, **admitted}
    nodes = {node["metadata"]["name"]: node for node in objects.nodes}
    used: defaultdict[Use, Amount] = defaultdict(int)
    others: list[tuple[str, Obj]] = []
    for pod in bound:
        key, name = _find_workload_key(pod), f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        is_lost = pod["metadata"].get("deletionTimestamp") and not _is_ready(nodes.get(pod["spec"]["nodeName"]))
        if key is None or is_lost:  # another may run in its place, and what was promised is counted elsewhere (e2e.audit.recount_promises)
            continue
        if key not in given:
            queue = _find_queue(objects, pod, workloads.get(key, {}))
            if queue in quotas.groups:
                others.append((queue, pod))
            else:
                yield f"pod {name} runs, workload {key} is not admitted, and its queue is not known"
            continue
        admission, pod_set = given[key]["status"]["admission"], (pod["metadata"].get("labels") or {}).get(PODSET_LABEL)
        flavors = next((entry.get("flavors") or {} for entry in admission["podSetAssignments"] if entry["name"] == pod_set), {})
        covered = {resource for group in quotas.groups.get(admission["clusterQueue"], ()) for resource in group["coveredResources"]}
        for resource, amount in _count_pod(pod).items():
            if resource in flavors:
                used[admission["clusterQueue"], flavors[resource], resource] += amount
            elif resource in covered:
                yield f"pod {name} uses {show_amount(amount)} {resource}, and was admitted without"
    _add_others(objects, quotas, others, used)
    yield from quotas.find_excess(used)


def _add_others(objects: Objects, quotas: Quotas, others: Iterable[tuple[str, Obj]], used: defaultdict[Use, Amount]) -> None:
    """Adds what pods use of which the queue alone is known: of a flavor of their node, the first that has room for it, or the last."""
    matching = _find_flavors(objects)
    for queue, pod in others:
        for resource, amount in _count_pod(pod).items():
            groups = [group for group in quotas.groups[queue] if resource in group["coveredResources"]]
            names = [flavor["name"] for group in groups for flavor in group["flavors"]]
            here = [name for name in names if name in matching.get(pod["spec"]["nodeName"], ())] or names
            fits = (flavor for flavor in here[:-1] if _fits(quotas, used, (queue, flavor, resource), amount))
            if here:  # the last one is not asked: with one flavor, as usual, all of many pods are added at once
                used[queue, next(fits, here[-1]), resource] += amount


def _count_pod(pod: Obj) -> Amounts:
    return {**count_requests(pod["spec"]), "pods": 1}


def _is_ready(node: Obj | None) -> bool:
    """Whether pods on a node can end: the product does not wait for pods on a node that is gone or not ready."""
    conditions = ((node or {}).get("status") or {}).get("conditions") or ()
    return node is not None and all(c["status"] == "True" for c in conditions if c["type"] == "Ready")


def _find_queue(objects: Objects, pod: Obj, workload: Obj) -> str:
    """The ClusterQueue of a pod of a Workload without an admission: that of its start, else that of its LocalQueue; empty if neither is
    known."""
    labels = pod["metadata"].get("labels") or {}
    local = (workload.get("spec") or {}).get("queueName") or labels.get(LOCAL_QUEUE_LABEL) or labels.get(QUEUE_NAME_LABEL)
    of_local = (
        (queue.get("spec") or {}).get("clusterQueue")
        for queue in objects.local_queues
        if (queue["metadata"].get("namespace"), queue["metadata"]["name"]) == (pod["metadata"].get("namespace"), local)
    )
    return labels.get(CLUSTER_QUEUE_LABEL) or next(of_local, None) or ""


def _find_flavors(objects: Objects) -> dict[str, list[str]]:
    """Names of the ResourceFlavors by the nodes that have their labels."""
    flavors = [(flavor["metadata"]["name"], (flavor.get("spec") or {}).get("nodeLabels") or {}) for flavor in objects.resource_flavors]
    return {
        node["metadata"]["name"]: [name for name, labels in flavors if labels.items() <= (node["metadata"].get("labels") or {}).items()]
        for node in objects.nodes
    }


def _fits(quotas: Quotas, used: Mapping[Use, Amount], use: Use, amount: Amount) -> bool:
    same = {other: value for other, value in used.items() if other[1:] == use[1:]}
    return not list(quotas.find_excess({**same, use: same.get(use, 0) + amount}))


def _find_uncounted_pods(objects: Objects, admitted: Mapping[str, Obj], bound: Iterable[Obj]) -> Iterator[str]:
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
        if _find_workload_key(pod) is not None and metadata.get("deletionTimestamp"):
            continue  # of a Workload that has ended before its last pod
        if _find_workload_key(pod) not in admitted:
            yield f"pod {metadata['namespace']}/{metadata['name']} runs in a managed namespace, and no admitted Workload has it"
