"""Finds a Workload by the name that a user gives: its own, or that of the job or pod it was made for."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from cli.failures import BadInput, Failure
from core.jobs.prebuilt_label import find_prebuilt_name
from core.names import ADMITTED, FINISHED, POD_GROUP_NAME, PODGROUP_TOPOLOGY, QUEUE_NAME_LABEL
from core.plan.pods.pod_units import GROUP, Unit, find_pod_unit
from core.plan.steps import api_resources as r
from core.podgroups.members import group_of
from core.resource import Obj, Resource
from core.runtime.watch.informer import Informer
from core.runtime.watch.store import build_object_key
from core.state.facts import is_condition_true
from reconciler.observe.indexes import find_owned, show_as_owner
from reconciler.observe.observed import Observed

_WORKLOAD = ("workload", "workloads", "wl", "workload.kueue.x-k8s.io", "workloads.kueue.x-k8s.io")
_SHORT = {"po": "pod", "sts": "statefulset", "lws": "leaderworkerset", "deploy": "deployment"}
_GROUPS = ("podgroup", "podgroups")
_NATIVE_GROUPS = tuple(f"{name}.{r.NATIVE_POD_GROUPS.group}" for name in _GROUPS)
_SHOWN = 3


class NoWorkload(Failure):
    """An object exists and has no Workload; its events may report the reason."""

    def __init__(self, line: str, owner: Obj) -> None:
        super().__init__(line)
        self.owner = owner


@dataclass(frozen=True, slots=True)
class NamedObject:
    """A kind as people write it, and a name."""

    kind: str
    name: str


def read_asked(words: Iterable[str]) -> NamedObject:
    """Returns the kind, in lower case, and the name that a user gives. Accepted are `workload NAME`, `job NAME`, `KIND/NAME`, as `kubectl
    get -o name` prints it, too, and a workload's name alone. Raises BadInput for anything else; whether there is such a kind is not judged.
    """
    given = list(words)
    if len(given) == 1:
        given = given[0].split("/", 1) if "/" in given[0] else ["workload", given[0]]
    if len(given) != 2 or not all(given):
        raise BadInput(f"{' '.join(words)!r} is not accepted; KIND NAME or KIND/NAME is expected, such as workload NAME or job NAME")
    return NamedObject(given[0].lower(), given[1])


def find_group(observed: Observed, asked: NamedObject, namespace: str) -> Obj | None:
    """Returns the PodGroup that is meant, or that a pod, or the pods of a job, name. None where they name none, for a Workload, and for a
    PodGroup by name that is not one of kube-scheduler's and is missing. Raises Failure where another object or its PodGroup is missing, or
    its pods name several, and BadInput for an unknown kind."""
    if asked.kind in _WORKLOAD:
        return None
    if asked.kind in _NATIVE_GROUPS and observed.native is not None:
        return _get(observed, observed.native.pod_groups, asked, namespace)
    if asked.kind.partition(".")[0] in _GROUPS:
        return observed.find_pod_group(f"{namespace}/{asked.name}")
    informer = _get_informer(observed, asked.kind)
    owner = _get(observed, informer, asked, namespace)
    below = observed.owners.list_descendants(show_as_owner(owner))
    pods = [owner] if informer is observed.pods else [pod for key in below for pod in observed.pods.store.list_by_index("owner", key)]
    names = sorted({key.name for pod in pods if (key := group_of(pod)) is not None})
    if not names:
        return None
    if len(names) > 1:
        shown = f"{', '.join(names[:_SHOWN])}{' and others' if len(names) > _SHOWN else ''}"
        raise Failure(f"the pods of {asked.kind} {namespace}/{asked.name} are of {len(names)} PodGroups: {shown}; explain one of these")
    found = observed.find_pod_group(f"{namespace}/{names[0]}")
    if found is None:
        raise Failure(f"{asked.kind} {namespace}/{asked.name} waits for PodGroup {names[0]}, which is not there")
    return found


def find_workload(observed: Observed, asked: NamedObject, namespace: str) -> Obj:
    """Returns the Workload that is meant; of several of one job one that is admitted, else the first by name. Finished ones count only
    where all are. For a PodGroup it is that of the group of queued pods with its name. Raises BadInput for an unknown kind. Raises Failure
    where there is no such object, where it has several Workloads and is no job, or none (NoWorkload)."""
    workloads = observed.workloads
    if asked.kind in _WORKLOAD:
        return _get(observed, workloads, asked, namespace)
    if asked.kind.partition(".")[0] in _GROUPS:
        of_group = workloads.store.list_by_index("unit", str(Unit(GROUP, namespace, asked.name)))
        if not of_group:
            raise Failure(f"there is no PodGroup {asked.name} in namespace {namespace}, and no group of queued pods of that name")
        return of_group[0]
    informer = _get_informer(observed, asked.kind)
    owner = _get(observed, informer, asked, namespace)
    if informer is observed.between[r.DEPLOYMENTS.kind]:
        return _choose(_list_workloads_of_pods(observed, owner), owner, asked, namespace, one=False)
    found = {build_object_key(workload): workload for workload in find_owned(workloads.store, owner)}
    made_before, unit = find_prebuilt_name(owner), find_pod_unit(owner) if informer is observed.pods else None
    keys = [f"{namespace}/{made_before}"] if made_before else []
    keys += observed.list_present_of_pod(owner) if informer is observed.pods else []
    keys += [build_object_key(workload) for workload in workloads.store.list_by_index("unit", str(unit))] if unit is not None else []
    found |= {key: workload for key in keys if (workload := workloads.store.get(key)) is not None}
    return _choose(list(found.values()), owner, asked, namespace, one=informer in observed.jobs.values())


def _list_workloads_of_pods(observed: Observed, owner: Obj) -> list[Obj]:
    """Workloads of the pods of what makes them by way of something else."""
    pods = (
        pod for key in observed.owners.list_descendants(show_as_owner(owner)) for pod in observed.pods.store.list_by_index("owner", key)
    )
    keys = {key for pod in pods for key in observed.list_present_of_pod(pod)}
    return [workload for key in sorted(keys) if (workload := observed.workloads.store.get(key)) is not None]


def _choose(found: Sequence[Obj], owner: Obj, asked: NamedObject, namespace: str, *, one: bool) -> Obj:
    """Of several of one job (`one`) that by which its pods run; each replica of a LeaderWorkerSet has one of its own."""
    open_ones = [workload for workload in found if not is_condition_true(workload, FINISHED)] or list(found)
    if not open_ones:
        raise NoWorkload(_describe_missing_workload(owner, asked, namespace), owner)
    if len(open_ones) > 1 and not one:
        names = ", ".join(sorted(workload["metadata"]["name"] for workload in open_ones))
        raise Failure(f"{asked.kind} {namespace}/{asked.name} has {len(open_ones)} Workloads: {names}; explain one of these: workload NAME")
    return min(open_ones, key=lambda workload: (not is_condition_true(workload, ADMITTED), workload["metadata"]["name"]))


def _get_informer(observed: Observed, kind: str) -> Informer:
    deployments = observed.between[r.DEPLOYMENTS.kind]
    owning = {informer.resource: informer for informer in (*observed.owning, deployments)}
    called = {name: informer for resource, informer in owning.items() for name in _list_names(resource)}
    called |= {short: called[kind] for short, kind in _SHORT.items()}
    if kind not in called:
        near = get_close_matches(kind, called, n=1)
        known = ", ".join(sorted({"workload", GROUP.lower(), *(resource.kind.lower() for resource in owning)}))
        raise BadInput(f"kind {kind!r} is not accepted; {f'did you mean {near[0]}? ' if near else ''}known are {known}")
    return called[kind]


def _list_names(resource: Resource) -> Sequence[str]:
    """`job`, `jobs`, and both with their group, as kubectl takes and prints them."""
    names = (resource.kind.lower(), resource.plural)
    return (*names, *(f"{name}.{resource.group}" for name in names)) if resource.group else names


def _get(observed: Observed, informer: Informer, asked: NamedObject, namespace: str) -> Obj:
    found = informer.store.get(f"{namespace}/{asked.name}")
    if found is not None:
        return found
    named_so = [each.resource.kind for each in observed.owning if each.store.get(f"{namespace}/{asked.name}") is not None]
    if named_so:
        others = " and ".join(f"{kind} {asked.name} (explain {kind.lower()} {asked.name})" for kind in sorted(named_so))
        raise Failure(f"{informer.resource.kind} {asked.name} is not in namespace {namespace}; there is {others}")
    there = [obj["metadata"]["name"] for obj in informer.store.list() if obj["metadata"]["namespace"] == namespace]
    near = get_close_matches(asked.name, there, n=_SHOWN) or there[:_SHOWN]
    hint = f"there are {', '.join(near)}{' and others' if len(there) > len(near) else ''}" if near else "there is none in that namespace"
    elsewhere = sorted(o["metadata"]["namespace"] for o in informer.store.list() if o["metadata"]["name"] == asked.name)
    hint = f"there is one in namespace {', '.join(elsewhere[:_SHOWN])} (-n)" if elsewhere else hint
    raise Failure(f"{informer.resource.kind} {asked.name} is not in namespace {namespace}; {hint}")


def _describe_missing_workload(owner: Obj, asked: NamedObject, namespace: str) -> str:
    what = f"{asked.kind} {namespace}/{asked.name}"
    if PODGROUP_TOPOLOGY in (owner["metadata"].get("annotations") or {}):
        return f"{what} asks for a PodGroup by {PODGROUP_TOPOLOGY}, and has no pods yet that name it"
    spec = owner.get("spec") or {}
    if spec.get("isQueued"):  # of a Deployment, which has no labels here (`slim_between`)
        if spec.get("replicas") == 0:
            return f"{what} has no Workload: each of its pods gets one, and its spec.replicas is 0"
        return f"{what} has no Workload yet: each of its pods gets one, and it has no pods; events of its ReplicaSets report the reason"
    if QUEUE_NAME_LABEL not in (owner["metadata"].get("labels") or {}):
        return f"{what} has no Workload: it has no label {QUEUE_NAME_LABEL}, so topogate leaves it alone"
    group = (owner["metadata"].get("labels") or {}).get(POD_GROUP_NAME)
    if group:
        return f"{what} has no Workload yet: pod group {group} gets one when all its pods exist; events of its pods report what is missing"
    return (
        f"{what} has no Workload yet: the reconciler makes one within seconds if it runs;"
        f" else an event of the {asked.kind} reports the reason"
    )
