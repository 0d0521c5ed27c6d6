"""Kinds that are queued through their pods: StatefulSet, Deployment, LeaderWorkerSet.

They cannot be suspended. So they pass their queue on to the templates of their pods, which wait behind gates of their
own, and the workloads are made from what the object defines for its pods.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

from core.jobs import annotations
from core.jobs.contract import Defaults, ErrorType, FieldError, Gang, Json, PodSetTemplate, Rules
from core.jobs.execution_time import validate_execution_time
from core.jobs.prebuilt_label import list_pod_warnings
from core.jobs.priority_label import check_changed_priority
from core.jobs.schema_check import INTEGER, POD_TEMPLATE, Fields
from core.jobs.template_parts import copy_object
from core.jobs.templated import Path, Role, check_templates, get, parse_integer, put, with_changes
from core.jobs.templates import build_workload_template
from core.names import (
    LWS_GROUP_INDEX_LABEL,
    LWS_NAME_LABEL,
    LWS_WORKER_INDEX_LABEL,
    MAIN_POD_SET,
    MAX_EXEC_TIME_LABEL,
    POD_GROUP_SERVING,
    POD_INDEX_OFFSET,
    PODSET_GROUP_NAME,
    PRIORITY_CLASS_LABEL,
    QUEUE_NAME_LABEL,
    STATEFULSET_INDEX_LABEL,
    SUSPENDING_PARENT,
    TRACEPARENT_ANNOTATION,
)

_HANDED_ON = (QUEUE_NAME_LABEL, PRIORITY_CLASS_LABEL, MAX_EXEC_TIME_LABEL)  # labels of the object that its pods get
MAX_WORKLOADS = 10_000  # of one parent; each costs a look whenever the parent changes


def judge_number(replicas: int) -> Iterator[FieldError]:
    """Yields an error at `spec.replicas` for more replicas than `MAX_WORKLOADS`; each replica is a Workload."""
    if replicas > MAX_WORKLOADS:
        yield FieldError(ErrorType.INVALID, "spec.replicas", replicas, f"at most {MAX_WORKLOADS} are expected, each is a Workload")


class PodParent(ABC):
    """One kind. `name_on_pods` is the name by which its pods name their parent; `is_serving`: its pods are a group that
    never ends; `pods_alone`: each of its pods is a workload by itself, which is made from the pod alone."""

    kind: ClassVar[str]
    group: ClassVar[str]
    version: ClassVar[str]
    plural: ClassVar[str]
    spec_shape: ClassVar[Fields]
    name_on_pods: ClassVar[str]
    is_serving: ClassVar[bool] = True
    pods_alone: ClassVar[bool] = False
    several: ClassVar[bool] = False  # whether its pods are several workloads, distinguished by an index
    defaults_updates: ClassVar[bool] = True  # what replaces the whole object would take the marks off its templates

    @abstractmethod
    def list_roles(self, job: Json) -> list[Role]:
        """Returns the pod templates of one workload, in order, with the pods that one workload has of each. The object may not have been
        validated yet."""

    def index_offset(self, job: Json, role: Role) -> int:
        """Returns the pod index at which the pods of a role of the object begin, by default 0."""
        return 0

    def validate_change(self, old: Json, new: Json) -> Iterator[FieldError]:
        """Yields the errors of a change by the rules of this kind alone; by default none. It is asked only of objects that stay queued."""
        return iter(())

    def list_annotation_paths(self, job: Json) -> list[str]:
        """Returns the paths under which users write the annotations of its pods, one per template in the order of `list_roles`."""
        return [role.annotations_shown for role in self.list_roles(job)]

    def default(self, job: Json, defaults: Defaults) -> dict[str, Any]:
        """Returns a copy of the object, unchanged without a queue. A queued one, also by the default queue, gets the traceparent and hands
        its labels for queue, priority and time limit on to its templates. The templates also get annotations that name its kind, that its
        pods serve (`is_serving`) and the index of their first pod if that is not 0."""
        changed = copy_object(job)
        metadata = changed.setdefault("metadata", {})
        labels = metadata.get("labels") or {}
        if QUEUE_NAME_LABEL not in labels:
            if not defaults.default_queue:
                return changed
            metadata["labels"] = {**labels, QUEUE_NAME_LABEL: defaults.default_queue}
        if defaults.traceparent:
            metadata["annotations"] = {**(metadata.get("annotations") or {}), TRACEPARENT_ANNOTATION: defaults.traceparent}
        for role in self.list_roles(changed):
            for part, added in self._list_handed_on(changed, role).items():
                put(changed, (*role.path, "metadata", part), {**(get(changed, (*role.path, "metadata", part)) or {}), **added})
        return changed

    def restore_templates(self, job: Json, before: Json) -> dict[str, Any]:
        """Returns a copy of the object without what `default` added to its templates by `before`, the object while it had a queue. Values
        that differ from those stay. Pods that still name a queue which their parent has left would be gated and never started."""
        changed = copy_object(job)
        if QUEUE_NAME_LABEL not in ((before.get("metadata") or {}).get("labels") or {}):
            return changed
        handed = {role.path: self._list_handed_on(before, role) for role in self.list_roles(before)}
        for role in self.list_roles(job):
            for part, marks in handed.get(role.path, {}).items():
                own = get(changed, (*role.path, "metadata", part)) or {}
                if any(own.get(name) == value for name, value in marks.items()):
                    put(changed, (*role.path, "metadata", part), {name: own[name] for name in own if own[name] != marks.get(name)})
        return changed

    def _list_handed_on(self, job: Json, role: Role) -> dict[str, dict[str, str]]:
        """Labels and annotations that a queued object gives one of its templates."""
        labels = job["metadata"]["labels"]
        notes = {SUSPENDING_PARENT: self.name_on_pods} | ({POD_GROUP_SERVING: "true"} if self.is_serving else {})
        offset = self.index_offset(job, role)
        return {
            "labels": {name: labels[name] for name in _HANDED_ON if name in labels},
            "annotations": notes | ({POD_INDEX_OFFSET: str(offset)} if offset else {}),
        }

    def validate_create(self, job: Json) -> Rules:
        """Returns the errors and warnings of what the templates ask for, of the time limit and, where the kind has `several` workloads, of
        their number. A named Workload gives a warning. Whether it has a queue is not looked at."""
        roles = self.list_roles(job)
        judged = annotations.validate_pod_sets(
            [
                annotations.PodSetAnnotations(
                    role.annotations_shown,
                    role.template,
                    role.count,
                    is_job=self.pods_alone,
                    index_offset=str(self.index_offset(job, role)),
                )
                for role in roles
            ]
        )
        own = (*self._judge_number(job), *validate_execution_time(job), *check_templates(roles))
        return Rules((*own, *judged.errors), (*judged.warnings, *list_pod_warnings(job)))

    def _judge_number(self, job: Json) -> Iterator[FieldError]:
        if self.several:
            yield from judge_number(_count_replicas(job))

    def validate_update(self, old: Json, new: Json) -> Rules:
        """Returns the errors and warnings of a change. While a pod of it is ready it keeps its queue, as in Kueue; while it has pods it
        stays queued. Of one that leaves its queue nothing else is judged. Else it returns what `validate_create` finds and did not find
        before, all of it for an object that had no queue."""
        errors = []
        before, after = (((obj.get("metadata") or {}).get("labels") or {}).get(QUEUE_NAME_LABEL) for obj in (old, new))
        pods, field = ("pods", "replicas") if after is None else ("ready pods", "readyReplicas")
        if before is not None and before != after and parse_integer((old.get("status") or {}).get(field), 0) > 0:
            accepted = f"keeps its queue ({before!r}) while it has {pods}; scale it to 0 first"
            errors.append(FieldError(ErrorType.INVALID, f"metadata.labels[{QUEUE_NAME_LABEL}]", after or "", accepted))
        if before is not None and after is not None:
            errors += check_changed_priority(old, new)
            errors += self.validate_change(old, new)
        if after is None:
            return Rules(tuple(errors))
        judged = self.validate_create(new)
        return with_changes(errors, judged, self.validate_create(old) if before is not None else Rules())

    def list_pod_sets(self, job: Json) -> list[PodSetTemplate]:
        """Returns the pod sets of one of its workloads, which are all alike, in the order of the templates. Each has its number of pods,
        a copy of its template as a Workload keeps it, and its topology request (None without any)."""
        made = []
        for role in self.list_roles(job):
            request = annotations.build_topology_request(role.annotations, pod_index_label=role.pod_index_label)
            made.append(PodSetTemplate(role.pod_set, role.count, build_workload_template(role.template), request))
        return made

    def count_workloads(self, job: Json) -> int:
        """Returns the number of workloads that are made from the object, by default 1, also without replicas."""
        return 1

    def find_role(self, job: Json, pod: Json) -> str:
        """Returns the name of the pod set that one of the object's pods belongs to, by default `main`."""
        return MAIN_POD_SET


class StatefulSet(PodParent):
    """One workload of all replicas; ranks are ordinals."""

    kind, group, version, plural = "StatefulSet", "apps", "v1", "statefulsets"
    name_on_pods = "statefulset"
    spec_shape = Fields({"replicas": INTEGER, "ordinals": Fields({"start": INTEGER}), "template": POD_TEMPLATE}, ("template",))

    def list_roles(self, job: Json) -> list[Role]:
        """Returns the role `main` of all replicas, ranked by ordinal."""
        spec = job.get("spec") or {}
        template = spec.get("template") or {}
        count = parse_integer(spec.get("replicas"), 1)
        return [Role(MAIN_POD_SET, count, ("spec", "template"), "spec.template", template, pod_index_label=STATEFULSET_INDEX_LABEL)]

    def index_offset(self, job: Json, role: Role) -> int:
        """Returns the first ordinal (`ordinals.start`, by default 0), from which ranks count."""
        return parse_integer(get(job, ("spec", "ordinals", "start")), 0)

    def count_workloads(self, job: Json) -> int:
        """Returns 1, or 0 without replicas."""
        return 1 if _count_replicas(job) > 0 else 0


class Deployment(PodParent):
    """Each of its pods is a workload of its own, so none has a rank."""

    kind, group, version, plural = "Deployment", "apps", "v1", "deployments"
    name_on_pods = "deployment"
    is_serving = False
    pods_alone = True
    spec_shape = Fields({"replicas": INTEGER, "template": POD_TEMPLATE}, ("template",))

    def list_roles(self, job: Json) -> list[Role]:
        """Returns the role `main` of one pod, without ranks."""
        template = (job.get("spec") or {}).get("template") or {}
        return [Role(MAIN_POD_SET, 1, ("spec", "template"), "spec.template", template)]


class LeaderWorkerSet(PodParent):
    """A workload per replica: leader and workers, or where they share a template all of them as one pod set."""

    kind, group, version, plural = "LeaderWorkerSet", "leaderworkerset.x-k8s.io", "v1", "leaderworkersets"
    name_on_pods = "leaderworkerset.x-k8s.io/leaderworkerset"
    several = True
    spec_shape = Fields(
        {
            "replicas": INTEGER,
            "leaderWorkerTemplate": Fields({"size": INTEGER, "leaderTemplate": POD_TEMPLATE, "workerTemplate": POD_TEMPLATE}),
        }
    )
    LEADER, WORKER = "leader", "worker"
    _ROOT: ClassVar[Path] = ("spec", "leaderWorkerTemplate")

    def list_roles(self, job: Json) -> list[Role]:
        """Returns the roles of one replica: `leader` of 1 pod and `worker` of `size` - 1. Without a leader template it is `main` of `size`
        pods. `size` is 1 by default."""
        template = get(job, self._ROOT) or {}
        size, leader, worker = parse_integer(template.get("size"), 1), template.get("leaderTemplate"), template.get("workerTemplate") or {}
        leads = leader is not None
        workers = Role(
            self.WORKER if leads else MAIN_POD_SET,
            size - leads,
            (*self._ROOT, "workerTemplate"),
            "spec.leaderWorkerTemplate.workerTemplate",
            worker,
            pod_index_label=LWS_WORKER_INDEX_LABEL,
        )
        if leader is None:
            return [workers]
        shown = "spec.leaderWorkerTemplate.leaderTemplate"
        return [Role(self.LEADER, 1, (*self._ROOT, "leaderTemplate"), shown, leader), workers]

    def index_offset(self, job: Json, role: Role) -> int:
        """Returns 1 for workers where the leader has a template of its own, else 0. In a group with the leader, which is rank 0 there,
        it is 0."""
        leads = get(job, (*self._ROOT, "leaderTemplate")) is not None
        return 1 if leads and role.pod_set == self.WORKER and PODSET_GROUP_NAME not in role.annotations else 0

    def validate_change(self, old: Json, new: Json) -> Iterator[FieldError]:
        """Yields an error where the size of a group changes."""
        sizes = [parse_integer(get(obj, (*self._ROOT, "size")), 1) for obj in (old, new)]
        if sizes[0] != sizes[1]:
            accepted = f"a group keeps its size of {sizes[0]}; make another LeaderWorkerSet"
            yield FieldError(ErrorType.INVALID, "spec.leaderWorkerTemplate.size", sizes[1], accepted)

    def find_gang(self, job: Json) -> Gang:
        """Returns a gang of `size` pods per replica; of 1, the leader, where workers are made once that is ready (LeaderReady). The
        replicas include those that a rollout may add (`maxSurge`)."""
        size = parse_integer(get(job, (*self._ROOT, "size")), 1)
        return Gang(1 if get(job, ("spec", "startupPolicy")) == "LeaderReady" else size, _count_most_replicas(job))

    def count_workloads(self, job: Json) -> int:
        """Returns the number of its workloads: one for each replica, and for each that a rollout has created beyond
        (`maxSurge`): `status.replicas` counts these.

        An object that was written past the webhook has at most `MAX_WORKLOADS`.
        """
        replicas, made = _count_replicas(job), parse_integer((job.get("status") or {}).get("replicas"), 0)
        return min(max(replicas, min(made, _count_most_replicas(job))), MAX_WORKLOADS)

    def find_role(self, job: Json, pod: Json) -> str:
        """Returns `main` where there is no leader template. Else it returns `leader` for a pod with worker index 0, and `worker` for any
        other, even without the label."""
        if len(self.list_roles(job)) == 1:
            return MAIN_POD_SET
        return self.LEADER if (pod["metadata"].get("labels") or {}).get(LWS_WORKER_INDEX_LABEL) == "0" else self.WORKER


def _compute_part(count: int, part: Any) -> int:
    """A number, or as many percent of another, rounded up, as Kubernetes reads them; 0 where it is neither."""
    if isinstance(part, str) and re.fullmatch(r"[0-9]{1,9}%", part):
        return -(-count * int(part[:-1]) // 100)
    return part if isinstance(part, int) and not isinstance(part, bool) and part > 0 else 0


def _count_replicas(job: Json) -> int:
    return parse_integer((job.get("spec") or {}).get("replicas"), 1)


def _count_most_replicas(job: Json) -> int:
    """Replicas that a LeaderWorkerSet may have while it is rolled out; one scaled to 0 is not rolled out."""
    replicas = _count_replicas(job)
    surge = get(job, ("spec", "rolloutStrategy", "rollingUpdateConfiguration", "maxSurge"))
    return replicas + _compute_part(replicas, surge) if replicas else 0


def find_lws_group(pod: Json) -> tuple[str, int] | None:
    """Returns the name of the LeaderWorkerSet and the index (from 0) of the replica that a pod belongs to, by its labels. None where the
    name, the index in digits or the label of the worker index is missing."""
    labels = pod["metadata"].get("labels") or {}
    name, index = labels.get(LWS_NAME_LABEL), labels.get(LWS_GROUP_INDEX_LABEL, "")
    if not name or LWS_WORKER_INDEX_LABEL not in labels or not (index.isascii() and index.isdigit()):
        return None
    return str(name), int(index)
