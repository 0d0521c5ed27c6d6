"""What would happen to groups of pods that are not there yet: PodGroups, and the pods and jobs of a file that name them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cli.failures import BadInput
from cli.planning.documents import Document, complete
from cli.planning.reviewing import Queued
from cli.reporting.podgroup_report import report_step
from cli.reporting.report import Report
from core.jobs.kinds.pod import Pod
from core.jobs.kinds.pod_parents import PodParent
from core.jobs.podgroup_annotation import Grouping, find_asked, group_name, validate_new, with_membership
from core.jobs.schema_check import find_misshapen
from core.names import JOB_COMPLETION_INDEX_LABEL, MEMBER_OF_LABEL, PODGROUP_GATE, QUEUE_NAME_LABEL, REPLICA_LABEL
from core.plan.jobs.job_podgroup import build_pod_group
from core.plan.steps import api_resources as r
from core.podgroups.members import GroupKey, group_of
from core.resource import Obj
from core.runtime.watch.store import build_object_key
from core.state.facts import find_controller
from reconciler.measure.outlook import Outlook
from reconciler.observe.observed import Observed
from reconciler.podgroups.group_steps import hold_place, list_members, list_replicas

POD_GROUP_API = r.POD_GROUPS.api_version, r.POD_GROUPS.kind
MOST_PODS = 100_000  # of one document
_SHOWN = 3  # pods that are warned of


@dataclass(frozen=True, slots=True)
class Grouped:
    """The groups in documents: pods that are members, and the groups of jobs that ask for one. `others`: all other documents."""

    pods: list[Obj]
    groups: list[Obj]
    others: list[Document]


def sort_out_groups(documents: Iterable[Document], known: Mapping[tuple[str, str], Queued], namespace: str, wrong: list[str]) -> Grouped:
    """Returns the groups of jobs that ask for one, the pods that name a group, and all other documents, PodGroups among them. The pods of a
    job are those that its controller would make. Mistakes are added to `wrong`; a document with any is in none of the three."""
    found = Grouped([], [], [])
    for document in documents:
        kind = known.get(document.api)
        try:
            if kind is None or not _add_pods(document, kind, namespace, found):
                found.others.append(document)
        except BadInput as error:
            wrong += error.lines
    return found


def _add_pods(document: Document, kind: Queued, namespace: str, found: Grouped) -> bool:
    """Adds the pods that a document describes, if they name a group or it asks for one. Returns whether there are any.
    Raises BadInput."""
    obj = complete(document.obj, r.get_resource(kind), namespace)
    asks = isinstance(kind, Grouping) and find_asked(obj) is not None
    if not asks and (QUEUE_NAME_LABEL in (obj["metadata"].get("labels") or {}) or not _has_key(obj, MEMBER_OF_LABEL)):
        return False
    errors = [*find_misshapen(kind.spec_shape, obj)]
    if isinstance(kind, Grouping) and asks and not errors:
        errors += validate_new(kind, obj).errors
    if errors:
        raise BadInput([f"{document.where}: {error}" for error in errors])
    if isinstance(kind, Grouping) and asks:
        obj = with_membership(kind, obj, group_name(kind, obj, "plan"))
        group = build_pod_group(kind, obj)
        if group is not None:  # one that makes no pods has none
            found.groups.append(complete(group, r.POD_GROUPS, namespace))
    pods = [obj] if isinstance(kind, Pod) else _build_pods(obj, kind)
    members = [pod for pod in pods if group_of(pod) is not None]
    found.pods.extend(members)
    return bool(members) or asks


def _has_key(value: object, key: str) -> bool:
    """Whether there is such a key anywhere: a document is only read as a group's where it may name one."""
    if isinstance(value, Mapping):
        return key in value or any(_has_key(inner, key) for inner in value.values())
    return isinstance(value, list) and any(_has_key(inner, key) for inner in value)


def _build_pods(obj: Obj, kind: Queued) -> list[Obj]:
    """One pod for each that its controller would make, by the templates as they are."""
    templates = _list_templates(obj, kind)
    if sum(count for _, count, _ in templates) > MOST_PODS:
        raise BadInput(f"{build_object_key(obj)}: it has more than {MOST_PODS} pods, which are planned at most")
    found = []
    for name, count, template in templates:
        given = template.get("metadata") or {}
        for index in range(count):
            labels = {JOB_COMPLETION_INDEX_LABEL: str(index), **(given.get("labels") or {})}
            metadata = {**given, "name": f"{obj['metadata']['name']}-{name}-{index}", "labels": labels}
            pod = {"apiVersion": Pod.version, "kind": Pod.kind, "metadata": metadata, "spec": template.get("spec") or {}}
            found.append(complete(pod, r.PODS, obj["metadata"]["namespace"]))
    return found


def _list_templates(obj: Obj, kind: Queued) -> list[tuple[str, int, Mapping[str, Any]]]:
    if not isinstance(kind, PodParent):
        return [(pod_set.name, pod_set.count, pod_set.template) for pod_set in kind.list_pod_sets(obj)]
    if not kind.several:
        return [(role.pod_set, role.count, role.template) for role in kind.list_roles(obj)]
    return [
        (f"{index}-{role.pod_set}", role.count, _build_replica_template(role.template, index))
        for index in range(kind.count_workloads(obj))
        for role in kind.list_roles(obj)
    ]


def _build_replica_template(template: Mapping[str, Any], index: int) -> Mapping[str, Any]:
    metadata = template.get("metadata") or {}
    return {**template, "metadata": {**metadata, "labels": {**(metadata.get("labels") or {}), REPLICA_LABEL: str(index)}}}


def plan_groups(outlook: Outlook, groups: Iterable[Obj], pods: Sequence[Obj]) -> list[Report]:
    """Returns one report for each replica of `groups` and of those that `pods` name, those of higher priority first, then by key. A group
    without pods has one report. What one replica is given the next does not find free. Adds the pods, and the places that are kept for
    them, to the cluster that is only thought of."""
    observed = outlook.observed
    for pod in pods:
        observed.pods.put(_build_waiting_pod(observed, pod))
    keys = {key for key in map(group_of, pods) if key is not None}
    for group in groups:
        metadata = group["metadata"]
        keys |= set(list_replicas(observed, build_object_key(group))) or {GroupKey(metadata["namespace"], metadata["name"])}
    return [_plan_one(outlook, key) for key in sorted(keys, key=lambda key: (-_find_priority(observed, key), key))]


def _build_waiting_pod(observed: Observed, pod: Obj) -> Obj:
    """Returns the pod as the API server would have it before any controller has changed it."""
    named = observed.priority_classes.store.get(pod["spec"].get("priorityClassName") or "")
    spec = pod["spec"] if named is None else {**pod["spec"], "priority": named["value"]}
    return {**pod, "spec": spec, "status": {"phase": "Pending"}}


def _find_priority(observed: Observed, key: GroupKey) -> int:
    return max((member.priority for member in list_members(observed, key).values()), default=0)


def _plan_one(outlook: Outlook, key: GroupKey) -> Report:
    members, step = outlook.plan_group(key)
    for member, node in step.keep:
        hold_place(outlook.observed, replace(member, kept=node), node)
    answer: Report = {"apiVersion": r.POD_GROUPS.api_version, "kind": r.POD_GROUPS.kind, "namespace": key.namespace, "name": key.name}
    answer |= {"replica": key.replica} if key.replica else {}
    group = outlook.observed.pod_groups.store.get(f"{key.namespace}/{key.name}")
    made_for = find_controller(group) if group is not None else None
    if made_for is not None:  # the job is more useful than a name that is not final yet
        answer["job"] = {"kind": made_for["kind"], "name": made_for["name"]}
    adrift = [member.key for member in members if member.is_live and not member.gated and not member.place]
    warnings = [f"pod {pod} has no scheduling gate {PODGROUP_GATE}: kube-scheduler places it wherever it fits" for pod in adrift[:_SHOWN]]
    return answer | report_step(step) | ({"warnings": warnings} if warnings else {})
