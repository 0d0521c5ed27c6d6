"""Where pods run, for the audit from objects alone: in the domains that their Workload was assigned, and together where that is required.

Like `e2e.audit.recount` it shares no code but names with the product. What runs on a node that is lost, or is on its way out, is not
judged: its
place may have been given to a replacement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from core.names import JOB_COMPLETION_INDEX_LABEL, PODSET_LABEL, SLICE_NAME, SLICE_REPLACES, WORKLOAD_ANNOTATION

Obj = Mapping[str, Any]
Domain = tuple[str, ...]


def find_misplaced(workloads: Collection[Obj], pods: Collection[Obj], nodes: Collection[Obj]) -> Iterator[str]:
    """Sentences about pods in a wrong domain; none if all is well."""
    here = {node["metadata"]["name"]: node["metadata"].get("labels") or {} for node in nodes if is_well(node)}
    running: dict[tuple[str, str, str], list[Obj]] = {}
    for pod in pods:
        metadata, spec, phase = pod["metadata"], pod.get("spec") or {}, (pod.get("status") or {}).get("phase")
        name, pod_set = get_named_family(pod), (metadata.get("labels") or {}).get(PODSET_LABEL)
        stays = phase not in ("Succeeded", "Failed") and not metadata.get("deletionTimestamp")
        if name and pod_set and stays and spec.get("nodeName") in here:
            running.setdefault((metadata["namespace"], name, pod_set), []).append(pod)
    for workload in list_present(workloads):
        asked = {each["name"]: each.get("topologyRequest") or {} for each in workload["spec"].get("podSets") or ()}
        for given in ((workload.get("status") or {}).get("admission") or {}).get("podSetAssignments") or ():
            key = workload["metadata"]["namespace"], get_family(workload), given["name"]
            assigned = given.get("topologyAssignment")
            if assigned and key in running:
                labels = [here[pod["spec"]["nodeName"]] for pod in running[key]]
                yield from _find_wrong(f"workload {key[0]}/{workload['metadata']['name']}", asked.get(given["name"], {}), assigned, labels)


def find_unordered(workloads: Collection[Obj], pods: Collection[Obj]) -> Iterator[str]:
    """Sentences about pods of one Job with a lower completion index in a later domain of the assignment (KEP-2724, rank ordering), where
    the Workload says by which label pods are in order: one that its user has written may not. A Job with more completions than pods makes
    pods of higher indexes than were assigned a place: these have no rank, and with one of them none of the pod set is judged."""
    running = _group_ranked(pod for pod in pods if (pod.get("spec") or {}).get("nodeSelector"))
    for workload in list_present(workloads):
        asked = {each["name"]: each.get("topologyRequest") or {} for each in workload["spec"].get("podSets") or ()}
        for given in ((workload.get("status") or {}).get("admission") or {}).get("podSetAssignments") or ():
            key = workload["metadata"]["namespace"], get_family(workload), given["name"]
            assigned = given.get("topologyAssignment")
            if not assigned or key not in running or not asked.get(given["name"], {}).get("podIndexLabel"):
                continue
            places = {domain: number for number, (domain, _) in enumerate(read_domains(assigned))}
            count = sum(count for _, count in read_domains(assigned))
            if any(_get_index(pod) >= count for members in running[key].values() for pod in members):
                continue
            for members in running[key].values():
                ranked = sorted(members, key=_get_index)
                found = [places.get(tuple(pod["spec"]["nodeSelector"].get(level, "") for level in assigned["levels"])) for pod in ranked]
                numbers = [number for number in found if number is not None]
                if numbers != sorted(numbers):
                    yield f"workload {key[0]}/{key[1]} has pods of pod set {key[2]} out of the order of their ranks: domains {numbers}"


def find_split(workloads: Collection[Obj], pods: Collection[Obj], nodes: Collection[Obj]) -> Iterator[str]:
    """Sentences about slices of an Indexed Job that run in several domains of their level: indexes 0 to size - 1, and so on,
    the last of them with as many as are left over (KEP-2724). Workloads whose pods were replaced may have them in other orders."""
    here = {node["metadata"]["name"]: node["metadata"].get("labels") or {} for node in nodes if is_well(node)}
    running = _group_ranked(pod for pod in pods if pod["spec"].get("nodeName") in here)
    for workload in list_present(workloads):
        for pod_set in workload["spec"]["podSets"]:
            key = workload["metadata"]["namespace"], get_family(workload), pod_set["name"]
            request, of_owners = pod_set.get("topologyRequest") or {}, [*running.get(key, {}).values()]
            size, level = request.get("podSetSliceSize"), request.get("podSetSliceRequiredTopology")
            if not size or len(of_owners) != 1 or any(_get_index(pod) >= pod_set["count"] for pod in of_owners[0]):
                continue
            [mine] = of_owners
            homes: dict[int, set[str]] = {}
            for pod in mine:
                homes.setdefault(_get_index(pod) // size, set()).add(here[pod["spec"]["nodeName"]].get(level, ""))
            for number, found in sorted(homes.items()):
                if len(found) > 1:
                    yield f"workload {key[0]}/{key[1]} has slice {number} of pod set {key[2]} in {', '.join(sorted(found))}"


def _group_ranked(pods: Iterable[Obj]) -> dict[tuple[str, str, str], dict[str, list[Obj]]]:
    """Pods of Indexed Jobs that have not ended and are not deleted, by namespace, workload and pod set, and then by uid of their owner."""
    found: dict[tuple[str, str, str], dict[str, list[Obj]]] = {}
    for pod in pods:
        metadata, name = pod["metadata"], get_named_family(pod)
        labels = metadata.get("labels") or {}
        owner = next((each["uid"] for each in metadata.get("ownerReferences") or () if each.get("controller")), "")
        stays = (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed") and not metadata.get("deletionTimestamp")
        if name and PODSET_LABEL in labels and JOB_COMPLETION_INDEX_LABEL in labels and stays:
            found.setdefault((metadata["namespace"], name, labels[PODSET_LABEL]), {}).setdefault(owner, []).append(pod)
    return found


def _get_index(pod: Obj) -> int:
    return int(pod["metadata"]["labels"][JOB_COMPLETION_INDEX_LABEL])


def get_family(workload: Obj) -> str:
    """Name of the first Workload of an elastic job, by which its pods are found; of other jobs that of the Workload itself."""
    return str((workload["metadata"].get("annotations") or {}).get(SLICE_NAME) or workload["metadata"]["name"])


def get_named_family(pod: Obj) -> str:
    """The same of the Workload that a pod names; empty if it names none."""
    notes = pod["metadata"].get("annotations") or {}
    return str(notes.get(SLICE_NAME) or notes.get(WORKLOAD_ANNOTATION) or "")


def list_present(workloads: Iterable[Obj], *, waits: bool = False) -> list[Obj]:
    """Workloads with an admission that are not finished; of those of one elastic job the one by which its pods run: the last that is
    admitted. With `waits` the last that has quota, which is promised the places of all."""
    held = [each for each in workloads if (each.get("status") or {}).get("admission") and not _is(each, "Finished")]
    keys = {_get_key(each) for each in held}
    waiting = [each for each in held if not waits and _get_replaced(each) in keys and not _is(each, "Admitted")]
    replaced = {_get_replaced(each) for each in held if each not in waiting}
    return [each for each in held if each not in waiting and _get_key(each) not in replaced]


def _get_key(workload: Obj) -> str:
    return f"{workload['metadata'].get('namespace')}/{workload['metadata']['name']}"


def _get_replaced(workload: Obj) -> str:
    """Key of the Workload of an elastic job that it takes over from, once it is admitted."""
    return str((workload["metadata"].get("annotations") or {}).get(SLICE_REPLACES) or "")


def _is(workload: Obj, kind: str) -> bool:
    return any(c["type"] == kind and c["status"] == "True" for c in workload["status"].get("conditions") or ())


def _find_wrong(name: str, asked: Obj, assigned: Obj, labels: list[Mapping[str, str]]) -> Iterator[str]:
    has = Counter[Domain]()
    for domain, count in read_domains(assigned):
        has[domain] += count
    for domain, count in Counter(tuple(each.get(level, "") for level in assigned["levels"]) for each in labels).items():
        if count > has[domain]:
            yield f"{name} has {has[domain]} pods in domain {'/'.join(domain)}, and {count} run there"
    together = {each.get(asked["required"], "") for each in labels} if asked.get("required") else set()
    if len(together) > 1:
        yield f"{name} is to be in one {asked['required']}, and runs in {', '.join(sorted(together))}"


def read_domains(assigned: Obj) -> Iterator[tuple[Domain, int]]:
    """Domains of a TopologyAssignment (API field topologyAssignment.slices) with their pods, in its order."""
    for part in assigned.get("slices") or ():
        counts = part["podCounts"]
        for number in range(part["domainCount"]):
            count = counts["universal"] if "universal" in counts else counts["individual"][number]
            yield tuple(_read_value(values, number) for values in part["valuesPerLevel"]), count


def _read_value(values: Obj, number: int) -> str:
    if "universal" in values:
        return str(values["universal"])
    individual = values["individual"]
    return f"{individual.get('prefix') or ''}{individual['roots'][number]}{individual.get('suffix') or ''}"


def is_well(node: Obj) -> bool:
    """Whether what runs on a node stays there: it is ready, and no taint ends its pods."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    taints = (node.get("spec") or {}).get("taints") or ()
    return all(c["status"] == "True" for c in conditions if c["type"] == "Ready") and not any(t["effect"] == "NoExecute" for t in taints)
