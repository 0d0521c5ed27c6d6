"""Finds a Workload by the name that a user gives: its own, or that of the job or pod it was made for."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from cli.failures import BadInput, Failure
from cli.kind_names import BESIDE, POD_GROUP, SHORT, WORKLOAD, list_kind_names
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

_NATIVE_GROUPS = tuple(f"{name}.{r.NATIVE_POD_GROUPS.group}" for name in POD_GROUP)
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
    get -o name` prints it, too, and a name alone, with an empty kind. Raises BadInput for anything else; no kind is
    judged."""
    given = list(words)
    if len(given) == 1:
        given = given[0].split("/", 1) if "/" in given[0] else ["", given[0]]
    if len(given) != 2 or not given[1] or (not given[0] and "/" in "".join(words)):
        raise BadInput(f"{' '.join(words)!r} is not accepted; KIND NAME or KIND/NAME is expected, such as workload NAME or job NAME")
    return NamedObject(given[0].lower(), given[1])


def list_named_so(observed: Observed, name: str, namespace: str) -> list[NamedObject]:
    """Returns the objects of a name that `topogate explain` knows, of all kinds but CronJob: those of the namespace and those without one.
    A Workload of the name is returned alone."""
    if observed.workloads.store.get(f"{namespace}/{name}") is not None:
        return [NamedObject(WORKLOAD[0], name)]
    in_namespace = (*observed.owning, observed.between[r.DEPLOYMENTS.kind], observed.local_queues)
    found = [each for each in in_namespace if each.store.get(f"{namespace}/{name}") is not None]
    found += [each for each in (observed.cluster_queues, observed.nodes) if each.store.get(name) is not None]
    named = [NamedObject(each.resource.kind.lower(), name) for each in found]
    of_group = observed.workloads.store.list_by_index("unit", str(Unit(GROUP, namespace, name)))
    is_group = bool(of_group) or observed.find_pod_group(f"{namespace}/{name}") is not None
    return named + ([NamedObject(POD_GROUP[0], name)] if is_group else [])


def describe_missing_name(observed: Observed, name: str, namespace: str) -> str:
    """Returns a sentence that nothing has the name, with the nearest names of jobs, Workloads and queues of the namespace."""
    there = {
        obj["metadata"]["name"]: informer.resource.kind.lower()
        for informer in (observed.workloads, observed.pods, observed.local_queues, *observed.parents.values(), *observed.jobs.values())
        for obj in informer.store.list()
        if obj["metadata"]["namespace"] == namespace
    }
    near = [f"{there[each]} {each}" for each in get_close_matches(name, there, n=_SHOWN)]
    hint = f"did you mean {' or '.join(near)}?" if near else "`explain KIND NAME` names the kind, -n the namespace"
    return f"there is no Workload, job, pod or queue {name} in namespace {namespace}, and no such node; {hint}"


def find_group(observed: Observed, asked: NamedObject, namespace: str) -> Obj | None:
    """Returns the PodGroup that is meant, or that a pod, or the pods of a job, name. None where they name none, for a Workload, and for a
    PodGroup by name that is not one of kube-scheduler's and is missing. Raises Failure where another object or its PodGroup is missing, or
    its pods name several, and BadInput for an unknown kind."""
    if asked.kind in WORKLOAD:
        return None
    if asked.kind in _NATIVE_GROUPS and observed.native is not None:
        return _get(observed, observed.native.pod_groups, asked, namespace)
    if asked.kind.partition(".")[0] in POD_GROUP:
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
    if asked.kind in WORKLOAD:
        return _get(observed, workloads, asked, namespace)
    if asked.kind.partition(".")[0] in POD_GROUP:
        of_group = workloads.store.list_by_index("unit", str(Unit(GROUP, namespace, asked.name)))
        if not of_group:
            raise Failure(f"there is no PodGroup {asked.name} in namespace {namespace}, and no group of queued pods of that name")
        return of_group[0]
    informer = _get_informer(observed, asked.kind)
    owner = _get(observed, informer, asked, namespace)
    found = list_workloads_of(observed, owner, is_pod=informer is observed.pods)
    return _choose(found, owner, asked, namespace, one=informer in observed.jobs.values())


def list_workloads_of(observed: Observed, owner: Obj, *, is_pod: bool) -> list[Obj]:
    """Returns the Workloads that were made for a job, for what owns pods, or for a pod (`is_pod`): of that also the one of its
    group, or of its job, which it names."""
    workloads = observed.workloads
    found = {build_object_key(workload): workload for workload in find_owned(workloads.store, owner)}
    made_before, unit = find_prebuilt_name(owner), find_pod_unit(owner) if is_pod else None
    keys = [f"{owner['metadata']['namespace']}/{made_before}"] if made_before else []
    keys += observed.list_present_of_pod(owner) if is_pod else []
    keys += [build_object_key(workload) for workload in workloads.store.list_by_index("unit", str(unit))] if unit is not None else []
    return list((found | {key: workload for key in keys if (workload := workloads.store.get(key)) is not None}).values())


def get_resource_of_kind(observed: Observed, kind: str) -> Resource:
    """Returns the resource of a job, a pod, a Workload or what owns pods, by its kind as people write it. Raises BadInput for an unknown
    one."""
    if kind in WORKLOAD or kind.partition(".")[0] in POD_GROUP:
        return observed.workloads.resource
    return _get_informer(observed, kind).resource


def _choose(found: Sequence[Obj], owner: Obj, asked: NamedObject, namespace: str, *, one: bool) -> Obj:
    """Of several of one job (`one`) that by which its pods run; each replica of a LeaderWorkerSet has one of its own."""
    open_ones = [workload for workload in found if not is_condition_true(workload, FINISHED)] or list(found)
    if not open_ones:
        raise NoWorkload(describe_missing_workload(owner, asked.kind), owner)
    if len(open_ones) > 1 and not one:
        names = ", ".join(sorted(workload["metadata"]["name"] for workload in open_ones))
        raise Failure(f"{asked.kind} {namespace}/{asked.name} has {len(open_ones)} Workloads: {names}; explain one of these: workload NAME")
    return min(open_ones, key=lambda workload: (not is_condition_true(workload, ADMITTED), workload["metadata"]["name"]))


def _get_informer(observed: Observed, kind: str) -> Informer:
    deployments = observed.between[r.DEPLOYMENTS.kind]
    owning = {informer.resource: informer for informer in (*observed.owning, deployments)}
    called = {name: informer for resource, informer in owning.items() for name in list_kind_names(resource)}
    called |= {short: called[kind] for short, kind in SHORT.items()}
    if kind not in called:
        beside = {resource.kind.lower() for resource in BESIDE.values()}
        near = get_close_matches(kind, (*called, *beside), n=1)
        known = ", ".join(sorted({"workload", GROUP.lower(), *beside, *(resource.kind.lower() for resource in owning)}))
        raise BadInput(f"kind {kind!r} is not accepted; {f'did you mean {near[0]}? ' if near else ''}known are {known}")
    return called[kind]


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


def describe_missing_workload(owner: Obj, kind: str) -> str:
    """Returns a sentence on why a job, a pod or what owns pods, of this kind as people write it, has no Workload, as far as the object
    itself shows that."""
    what = f"{kind} {owner['metadata']['namespace']}/{owner['metadata']['name']}"
    if PODGROUP_TOPOLOGY in (owner["metadata"].get("annotations") or {}):
        return f"{what} asks for a PodGroup by {PODGROUP_TOPOLOGY}, and has no pods yet that name it"
    if QUEUE_NAME_LABEL not in (owner["metadata"].get("labels") or {}):
        return f"{what} has no Workload: it has no label {QUEUE_NAME_LABEL}, so topogate leaves it alone"
    group = (owner["metadata"].get("labels") or {}).get(POD_GROUP_NAME)
    if group:
        return f"{what} has no Workload yet: pod group {group} gets one when all its pods exist; events of its pods report what is missing"
    return f"{what} has no Workload yet: the reconciler makes one within seconds if it runs; else an event of the {kind} reports the reason"
