"""What Workloads were promised of nodes, for the audit from objects alone: pods that run and pods that are to come fit on each node.

Like `e2e.audit.recount` it shares no code but names with the product. kube-scheduler never binds more pods than fit, so that a place which
was
given twice shows as a pod that waits for ever. Here it shows when the second Workload is admitted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from core.names import HOSTNAME_LABEL, JOB_UID_LABEL, PODSET_LABEL, SPARES
from e2e.audit.amounts import Amount, Amounts, count_requests, read_amounts, read_quantity, show_amount
from e2e.audit.recount_places import get_family, get_named_family, is_well, list_present, read_domains

Obj = Mapping[str, Any]
PodSetKey = tuple[str, str, str]  # namespace, family of Workloads, name


def find_overbooked(
    workloads: Collection[Obj], pods: Collection[Obj], nodes: Collection[Obj], doubted: Collection[str] = ()
) -> Iterator[str]:
    """Sentences about nodes that were promised to more pods than they have room for; none if all is well.

    Promises count as long as all pods of the pod set may come: none of them has ended, and the Workload is neither evicted nor finished.
    Nodes that are `doubted`, by name, are not judged, and neither are those that share a hostname with any other.
    """
    hosts = Counter(_get_host(node) for node in nodes)
    known = (node for node in nodes if hosts[_get_host(node)] == 1 and node["metadata"]["name"] not in doubted)
    judged = {_get_host(node): node for node in known if is_well(node)}
    names = {node["metadata"]["name"]: host for host, node in judged.items()}
    used, live, ended = _count_bound(pods, names)
    promised: dict[str, list[str]] = {}
    for workload in filter(_is_promised, list_present(workloads, waits=True)):
        name = workload["metadata"]["namespace"], get_family(workload)
        unhealthy = {each["name"] for each in workload["status"].get("unhealthyNodes") or ()}
        for given in workload["status"]["admission"].get("podSetAssignments") or ():
            key, assigned = (*name, given["name"]), given.get("topologyAssignment")
            if not assigned or assigned["levels"][-1] != HOSTNAME_LABEL or key in ended:
                continue
            of_each = count_of_each(given)
            for values, count in read_domains(assigned):
                missing = count - live.get(key, Counter())[values[-1]]
                if missing > 0 and _is_in(judged.get(values[-1]), assigned["levels"], values) and values[-1] not in unhealthy:
                    _add(used[values[-1]], of_each, missing)
                    promised.setdefault(values[-1], []).append(f"{missing} of {'/'.join(key)}")
    offered = {name for node in nodes for name in (node.get("status") or {}).get("allocatable") or ()}  # others only quota counts
    for host, amounts in used.items():
        has = read_amounts((judged[host].get("status") or {}).get("allocatable"))
        for resource, amount in amounts.items():
            if amount > has.get(resource, 0) and host in promised and resource in offered:
                shown, there = show_amount(amount), show_amount(has.get(resource, 0))
                yield f"host {host} has {there} {resource}, and {shown} are used or promised: {', '.join(sorted(promised[host]))} to come"


def _count_bound(
    pods: Collection[Obj], hosts: Mapping[str, str]
) -> tuple[dict[str, Amounts], dict[PodSetKey, Counter[str]], set[PodSetKey]]:
    """What runs on some hosts, given by the names of their nodes: amounts by host, pods by pod set and host, and the pod sets of which a
    pod has ended."""
    used: dict[str, Amounts] = {host: {} for host in hosts.values()}
    live: dict[PodSetKey, Counter[str]] = {}
    ended: set[PodSetKey] = set()
    for pod in pods:
        metadata, spec = pod["metadata"], pod.get("spec") or {}
        key = metadata["namespace"], get_named_family(pod), (metadata.get("labels") or {}).get(PODSET_LABEL, "")
        if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            ended.add(key)
            continue
        host = hosts.get(spec.get("nodeName") or "")
        if host is not None:
            _add(used[host], {**count_requests(spec), "pods": 1}, 1)
            live.setdefault(key, Counter())[host] += 1
    return used, live, ended


def count_of_each(given: Obj) -> Amounts:
    """What each pod of an admitted pod set takes of its node."""
    amounts = (given.get("resourceUsage") or {}).items()
    return {**{resource: Fraction(read_quantity(str(amount))) / given["count"] for resource, amount in amounts}, "pods": 1}


def count_free(workloads: Collection[Obj], pods: Collection[Obj], nodes: Collection[Obj]) -> dict[str, Amounts]:
    """What is free beyond doubt on each host: neither used, nor promised by any place that a Workload has, be its pods over."""
    names = {node["metadata"]["name"]: _get_host(node) for node in nodes}
    used, live, _ = _count_bound(pods, names)
    for workload in workloads:
        for given in ((workload.get("status") or {}).get("admission") or {}).get("podSetAssignments") or ():
            key = workload["metadata"]["namespace"], get_family(workload), given["name"]
            for values, count in read_domains(given.get("topologyAssignment") or {}):
                missing = count - live.get(key, Counter())[values[-1]]
                if values[-1] in used and missing > 0:
                    _add(used[values[-1]], count_of_each(given), missing)
    has = {_get_host(node): read_amounts((node.get("status") or {}).get("allocatable")) for node in nodes}
    return {host: {name: amount - used[host].get(name, 0) for name, amount in amounts.items()} for host, amounts in has.items()}


def find_misshapen(workloads: Collection[Obj], nodes: Collection[Obj]) -> Iterator[str]:
    """Sentences about places that are not as a pod set asks (API field topologyRequest): too many or too few, broken slices, or a pod set
    or a group of pod sets in several domains though one is required; none if all is well. Hosts that are not among the nodes are left out,
    and slices of which a host is."""
    here = {_get_host(node): node["metadata"].get("labels") or {} for node in nodes}
    for workload in filter(_is_promised, workloads):
        name = f"workload {workload['metadata']['namespace']}/{workload['metadata']['name']}"
        asked = {each["name"]: each.get("topologyRequest") or {} for each in workload["spec"].get("podSets") or ()}
        together: dict[tuple[str, str], set[str]] = {}
        for given in workload["status"]["admission"].get("podSetAssignments") or ():
            request, assigned = asked.get(given["name"], {}), given.get("topologyAssignment")
            if not assigned or assigned["levels"][-1] != HOSTNAME_LABEL:
                continue
            domains = [(here.get(values[-1]), count) for values, count in read_domains(assigned)]
            known = [labels for labels, _ in domains if labels is not None]
            if sum(count for _, count in domains) != given["count"]:
                yield f"{name} has {given['count']} pods as {given['name']}, and places for {sum(count for _, count in domains)}"
            if request.get("required"):
                key = request.get("podSetGroupName") or given["name"], request["required"]
                together.setdefault(key, set()).update(labels.get(request["required"], "") for labels in known)
            size, slices = request.get("podSetSliceSize"), Counter[str]()
            homes = [(labels or {}).get(request.get("podSetSliceRequiredTopology") or "", "") for labels, _ in domains]
            for home, (_, count) in zip(homes, domains, strict=True):
                slices[home] += count
            if size and len(known) == len(domains) and not _has_whole_slices(homes, slices, size, given["count"] % size):
                yield f"{name} has slices of {size} pods as {given['name']}, and of them in each domain {dict(slices)}"
        for (what, level), found in together.items():
            if len(found) > 1:
                yield f"{name} requires one {level} for {what}, and has places in {', '.join(sorted(found))}"


def _has_whole_slices(homes: Sequence[str], slices: Mapping[str, int], size: int, rest: int) -> bool:
    """Whether slices are whole but for one with the `rest`, whose domains come last (`homes`: the slice domain of each domain)."""
    broken = {home: count % size for home, count in slices.items() if count % size}
    if len(broken) != (rest > 0) or set(broken.values()) - {rest}:
        return False
    ends = [home in broken for home in homes]
    return ends == sorted(ends)


def find_misplaced_spares(workloads: Collection[Obj], nodes: Collection[Obj]) -> Iterator[str]:
    """Sentences about spares that are in use or outside of the domain that a pod set requires; none if all is well. To be asked at rest:
    spares are named before the admission by which they are held."""
    by_name = {node["metadata"]["name"]: node["metadata"].get("labels") or {} for node in nodes}
    by_host = {labels.get(HOSTNAME_LABEL, ""): labels for labels in by_name.values()}
    for workload in filter(_is_promised, workloads):
        spares = json.loads((workload["metadata"].get("annotations") or {}).get(SPARES) or "{}")
        asked = {each["name"]: each.get("topologyRequest") or {} for each in workload["spec"].get("podSets") or ()}
        for given in workload["status"]["admission"].get("podSetAssignments") or ():
            level, assigned = asked.get(given["name"], {}).get("required"), given.get("topologyAssignment")
            held = [by_name[name] for name in spares.get(given["name"]) or () if name in by_name]
            if not level or not assigned or assigned["levels"][-1] != HOSTNAME_LABEL:
                continue
            used = [by_host[values[-1]] for values, _ in read_domains(assigned) if values[-1] in by_host]
            domains = {labels.get(level, "") for labels in (*used, *held)}
            name = f"{workload['metadata']['namespace']}/{workload['metadata']['name']}"
            if any(labels in used for labels in held):
                yield f"workload {name} has pods on nodes that are kept free for it: {', '.join(spares[given['name']])}"
            if held and len(domains) > 1:
                yield f"workload {name} has pods and spares in {', '.join(sorted(domains))}, and requires one {level}"


def find_unnoticed(workloads: Collection[Obj], pods: Collection[Obj], gone: Collection[str]) -> Iterator[str]:
    """Sentences about Workloads that are assigned to hosts which are gone and do not say so (API field unhealthyNodes); none if
    all is well. Where pods have ended a host is perhaps not needed any more. A Workload of one Pod is left out: no pod comes after it.
    So is one that waits for its admission checks: its hosts are judged once it is admitted (docs/nodes.md)."""
    ended = {(pod["metadata"]["namespace"], get_named_family(pod)) for pod in pods if (pod.get("status") or {}).get("phase") == "Succeeded"}
    for workload in filter(_is_promised, workloads):
        if any(owner["kind"] == "Pod" and owner.get("controller") for owner in workload["metadata"].get("ownerReferences") or ()):
            continue
        if not any((each["type"], each["status"]) == ("Admitted", "True") for each in workload["status"].get("conditions") or ()):
            continue
        key = workload["metadata"]["namespace"], get_family(workload)
        told = {each["name"] for each in workload["status"].get("unhealthyNodes") or ()}
        assigned = [
            values[-1]
            for given in workload["status"]["admission"].get("podSetAssignments") or ()
            if (given.get("topologyAssignment") or {"levels": [""]})["levels"][-1] == HOSTNAME_LABEL
            for values, _ in read_domains(given["topologyAssignment"])
        ]
        silent = sorted(({*assigned} & {*gone}) - told)
        if silent and key not in ended:
            yield f"workload {key[0]}/{workload['metadata']['name']} does not say that {', '.join(silent)} are gone"


def _get_host(node: Obj) -> str:
    return str((node["metadata"].get("labels") or {}).get(HOSTNAME_LABEL) or node["metadata"]["name"])


def _is_in(node: Obj | None, levels: Sequence[str], values: Sequence[str]) -> bool:
    """Whether a node is that of a domain: not, for one, a twin of it in another rack."""
    labels = node["metadata"].get("labels") or {} if node is not None else {}
    return node is not None and all(labels.get(level) == value for level, value in zip(levels[:-1], values, strict=False))


def _is_promised(workload: Obj) -> bool:
    """Whether all pods of a Workload may still come: it is admitted, active, has its job, and nothing of it has been given back."""
    metadata, status = workload["metadata"], workload.get("status") or {}
    states = {condition["type"]: condition["status"] for condition in status.get("conditions") or ()}
    is_orphaned = JOB_UID_LABEL in (metadata.get("labels") or {}) and not metadata.get("ownerReferences")
    is_over = states.get("Finished") == "True" or states.get("Evicted") == "True" or metadata.get("deletionTimestamp")
    is_active = workload["spec"].get("active", True) is not False
    return bool(status.get("admission")) and is_active and not (is_over or is_orphaned or status.get("reclaimablePods"))


def _add(total: dict[str, Amount], amounts: Mapping[str, Amount], times: int) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount * times
