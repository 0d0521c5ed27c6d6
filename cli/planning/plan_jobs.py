"""What would happen to jobs that are not there yet: judged and defaulted as by the webhook, then decided on as by the reconciler."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cli.failures import BadInput
from cli.planning.documents import Document
from cli.planning.reviewing import Queued, Reviewing
from core.jobs.contract import JobKind
from core.jobs.kinds.pod import Pod
from core.jobs.kinds.pod_kinds import list_pod_kinds
from core.jobs.kinds.pod_parents import Deployment, PodParent
from core.jobs.prebuilt_label import find_prebuilt_name
from core.jobs.templated import parse_integer
from core.plan.jobs.workload_priority import MissingClass, find_priority
from core.plan.pods.pod_units import ALONE, GROUP, Unit, find_pod_role, find_pod_unit
from core.plan.pods.pod_workloads import (
    DesiredWorkload,
    build_group_workload,
    build_parent_workload,
    build_pod_workload,
    build_workload_of_pods,
    describe_missing_pods,
    read_group,
)
from core.plan.steps import api_resources as r
from core.plan.workloads.desired_workload import build_workload
from core.queueing.cycle.run import Verdict
from core.queueing.flavors.outcome import Admissible, NotAdmissible
from core.resource import Obj
from core.runtime.watch.store import build_object_key
from reconciler.jobs.read_jobs import read_classes
from reconciler.measure.outlook import Outlook

Build = Callable[[int, Mapping[str, Any] | None], Obj]  # of priority and its class


@dataclass(frozen=True, slots=True)
class Planned:
    """One workload, and what would become of it; `workload` is None where there would be none yet, for the reason given."""

    document: Document
    kind: str
    namespace: str
    name: str
    warnings: tuple[str, ...] = ()
    workload: Obj | None = None
    outcome: Admissible | NotAdmissible | None = None
    problem: str = ""
    part: int | None = None  # which of several workloads of one object

    @property
    def is_admitted(self) -> bool:
        """Whether its pods would start, as far as topogate decides that: it gets quota, and waits for no admission check."""
        return isinstance(self.outcome, Admissible) and not self.outcome.checks


class Planner:
    """Plans jobs into a cluster that is only thought of; what one is given the next does not find free."""

    def __init__(self, outlook: Outlook, kinds: Sequence[JobKind]) -> None:
        self._outlook, self._observed = outlook, outlook.observed
        self._pod = Pod(kinds)
        self._kinds = index_kinds_by_api(kinds)
        self._reviewing = Reviewing(outlook, kinds)
        self._there = {informer.resource: informer.store for informer in self._observed.owning}

    async def plan(self, documents: Iterable[Document], namespace: str, wrong: Sequence[str] = ()) -> list[Planned]:
        """Returns what would happen to jobs that are created in this order, at once: one entry for each workload, those of pod groups last.
        Their Workloads are added to the cluster that is only thought of. `namespace` is of jobs that name none. Raises BadInput, which
        names every mistake in all of them behind those that were found before (`wrong`)."""
        planned, wrong, groups = list[Planned](), list(wrong), dict[Unit, list[tuple[Document, Obj]]]()
        for document in documents:
            try:
                planned += await self._create(document, namespace, groups)
            except BadInput as error:
                wrong += error.lines
        for unit, members in groups.items():
            try:
                planned.append(await self._plan_pod_group(unit, members))
            except BadInput as error:
                wrong += error.lines
        if wrong:
            raise BadInput(wrong)
        verdicts = self._outlook.decide([build_object_key(each.workload) for each in planned if each.workload is not None])
        return [_with_verdict(each, verdicts) for each in planned]

    async def _create(self, document: Document, namespace: str, groups: dict[Unit, list[tuple[Document, Obj]]]) -> list[Planned]:
        kind = self._kinds[document.api]
        if isinstance(kind, Deployment):
            return await self._plan_deployment(document, kind, namespace)
        admitted = await self._reviewing.review_job(document, kind, namespace)
        planned = self._warn_if_present(_build_planned(document, kind.kind, admitted.obj, admitted.warnings), kind)
        if isinstance(kind, PodParent):
            return await self._plan_parent(planned, kind, admitted.obj)
        if not isinstance(kind, Pod):
            return [await self._plan_job(planned, kind, admitted.obj)]
        unit = find_pod_unit(admitted.obj)
        if unit is not None and unit.source == GROUP:
            groups.setdefault(unit, []).append((document, admitted.obj))
            return []
        if unit is None or unit.source != ALONE:
            raise BadInput(f"{document.where}: it is a pod of something else that is queued; plan that")
        return [await self._plan_pods(planned, build_pod_workload(admitted.obj, self._pod))]

    def _warn_if_present(self, planned: Planned, kind: Queued) -> Planned:
        """With a warning, where there is one by this name that may hold already what is asked for here."""
        store = self._there.get(r.get_resource(kind))
        if store is None or f"{planned.namespace}/{planned.name}" not in store:
            return planned
        hint = f"`topogate explain {kind.kind.lower()} {planned.name}` describes it"
        return replace(planned, warnings=(*planned.warnings, f"it exists already: {hint}; this is what one more like it would get"))

    async def _plan_job(self, planned: Planned, kind: JobKind, job: Obj) -> Planned:
        if find_prebuilt_name(job) is not None:
            where = planned.document.where
            raise BadInput(f"{where}: it takes a Workload that was made beforehand: `topogate explain workload` describes it")
        job, missing = self._observed.related.expand(kind, job)
        if missing is not None:
            return replace(planned, problem=f"it would not be queued yet: {missing}")

        def build(priority: int, priority_class: Mapping[str, Any] | None) -> Obj:
            copied = self._observed.copied_labels
            return build_workload(kind, job, priority=priority, priority_class=priority_class, copied_labels=copied)

        return await self._queue_workload(planned, job["metadata"]["labels"], kind.find_priority_class(job), build)

    async def _plan_parent(self, planned: Planned, kind: PodParent, obj: Obj) -> list[Planned]:
        units = [
            Unit(kind.kind, planned.namespace, planned.name, index if kind.several else None) for index in range(kind.count_workloads(obj))
        ]
        wanted = [(replace(planned, part=unit.index), build_parent_workload(kind, obj, unit)) for unit in units]
        return [await self._plan_pods(each, asked) for each, asked in wanted if asked is not None]

    async def _plan_deployment(self, document: Document, kind: Deployment, namespace: str) -> list[Planned]:
        """Plans each pod of a Deployment as a workload by itself, made from its template."""
        admitted = await self._reviewing.review_job(document, kind, namespace)
        deployment = _build_planned(document, kind.kind, admitted.obj, admitted.warnings)
        spec = admitted.obj["spec"]
        planned = []
        for index in range(parse_integer(spec.get("replicas"), 1)):
            metadata = {**(spec["template"].get("metadata") or {}), "name": f"{deployment.name}-{index}", "namespace": deployment.namespace}
            pod = {"apiVersion": Pod.version, "kind": Pod.kind, "metadata": metadata, "spec": spec["template"].get("spec") or {}}
            made = await self._reviewing.review_job(replace(document, obj=pod), self._pod, deployment.namespace)
            of_pod = replace(deployment, part=index, warnings=deployment.warnings if index == 0 else ())
            planned.append(await self._plan_pods(of_pod, build_pod_workload(made.obj, self._pod)))
        return planned

    async def _plan_pod_group(self, unit: Unit, members: Sequence[tuple[Document, Obj]]) -> Planned:
        document, pods = members[0][0], [pod for _, pod in members]
        planned = Planned(document, GROUP, unit.namespace, unit.name)
        group = read_group(unit, pods, self._observed.copied_labels)
        if group.problem is not None:
            raise BadInput(f"{document.where}: {group.problem}")
        if group.missing:
            return replace(planned, problem=describe_missing_pods(unit, group))
        examples = {find_pod_role(pod): pod for pod in pods if pod["metadata"]["name"] in group.examples.values()}
        return await self._plan_pods(planned, build_group_workload(unit, group, pods, examples))

    async def _plan_pods(self, planned: Planned, wanted: DesiredWorkload) -> Planned:
        def build(priority: int, priority_class: Mapping[str, Any] | None) -> Obj:
            return build_workload_of_pods(
                wanted,
                planned.namespace,
                priority=priority,
                priority_class=dict(priority_class or {}) or None,
                copied_labels=self._observed.copied_labels,
            )

        return await self._queue_workload(planned, wanted.labels, wanted.priority_class, build)

    async def _queue_workload(self, planned: Planned, labels: Mapping[str, str], class_of_pods: str | None, build: Build) -> Planned:
        """With its Workload, which waits from now on."""
        try:
            priority, priority_class = find_priority(read_classes(self._observed), labels, lambda: class_of_pods)
        except MissingClass as error:
            return replace(planned, problem=str(error))
        admitted = await self._reviewing.review_workload(planned.document, build(priority, priority_class))
        self._observed.workloads.put(admitted.obj)
        return replace(planned, workload=admitted.obj, warnings=(*planned.warnings, *admitted.warnings))


def index_kinds_by_api(kinds: Sequence[JobKind]) -> dict[tuple[str, str], Queued]:
    """Returns all kinds that can be planned, by (apiVersion, kind): `kinds`, then those that are queued as or through pods."""
    return {(r.get_resource(kind).api_version, kind.kind): kind for kind in (*kinds, *list_pod_kinds(kinds))}


def _build_planned(document: Document, kind: str, obj: Obj, warnings: tuple[str, ...]) -> Planned:
    return Planned(document, kind, obj["metadata"]["namespace"], obj["metadata"]["name"], warnings)


def _with_verdict(planned: Planned, verdicts: Mapping[str, Verdict]) -> Planned:
    if planned.workload is None:
        return planned
    return replace(planned, outcome=verdicts[build_object_key(planned.workload)].outcome)
