"""Kinds with objects that hold the templates of their pods and can be suspended: the code that all of them share.

A kind defines where its templates are and how many pods each makes. The rest - defaults, rules, start, stop, restoring
the templates - is derived from that.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from core.jobs import annotations, templates
from core.jobs.contract import Defaults, ErrorType, FieldError, Finish, Json, PodSetStart, PodSetTemplate, Rules
from core.jobs.execution_time import validate_changed_execution_time, validate_execution_time
from core.jobs.pod_rules import check_pod_spec, check_size
from core.jobs.prebuilt_label import validate_changed_prebuilt, validate_prebuilt
from core.jobs.priority_label import check_changed_priority
from core.jobs.schema_check import Fields
from core.jobs.template_parts import copy_object
from core.names import MULTIKUEUE_CONTROLLER, QUEUE_NAME_LABEL, TOPOLOGY_GATE, TRACEPARENT_ANNOTATION

MAX_POD_SETS = 18  # of a Workload
MOST_ROLES = MAX_POD_SETS + 1
"""The number of templates of an object that are read. An object with more is refused for that, and no Workload can be
made from it: each template costs a copy, and a user chooses how many there are."""
MAX_POD_SET_NAME = 63  # the name is the value of a label of the pods, too
_POD_SET_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")  # a DNS label (RFC 1123)
Path = tuple[str | int, ...]  # keys of maps and places of lists, from the object down


@dataclass(frozen=True, slots=True)
class Role:
    """One pod template of a job, where it is, and how many pods are made of it.

    `shown` is the template's path as users read it, `metadata_shown` what of it leads to its annotations;
    `default_slice_size` what the kind assumes where slices have no size.
    """

    pod_set: str
    count: int
    path: Path
    shown: str
    template: Json
    pod_index_label: str | None = None
    sub_group_index_label: str | None = None
    sub_group_count: int | None = None
    default_slice_size: int | None = None
    metadata_shown: str = "metadata."
    min_count: int | None = None  # the fewest pods the job can do with
    added: tuple[Json, ...] = ()  # containers that the job's own controller adds to the pods
    named: str | None = None  # path of the field from which the name of the pod set is made

    @property
    def annotations(self) -> Mapping[str, str]:
        """Returns the annotations of the template; empty where it has none."""
        return (self.template.get("metadata") or {}).get("annotations") or {}

    @property
    def annotations_shown(self) -> str:
        """Returns the path under which users find the template's annotations, such as `spec.template.metadata.annotations`."""
        return f"{self.shown}.{self.metadata_shown}annotations"


class TemplatedKind(ABC):
    """One kind. `gates_at_creation`: whether templates that ask for a topology carry its gate from the start. The one at
    `always_gated` does whatever it asks for, so that a job that is unsuspended by hand never slips past its queue."""

    kind: ClassVar[str]
    group: ClassVar[str]
    version: ClassVar[str]
    plural: ClassVar[str]
    spec_shape: ClassVar[Fields]
    suspend_path: ClassVar[Path] = ("spec", "suspend")
    gates_at_creation: ClassVar[bool] = True
    always_gated: ClassVar[Path | None] = None
    defaults_updates: ClassVar[bool] = False  # its templates change by topogate's own writes, which defaults would undo
    # The annotation without which nothing is put back that a manifest applied again lacks, but for a false value that the start replaced.
    keeps_start_with: ClassVar[str] = ""

    # --- what a kind defines --------------------------------------------------------------------------

    @abstractmethod
    def list_roles(self, job: Json) -> list[Role]:
        """Returns the pod templates of a job, in order, as they are in it (not copied). The object may not have been validated yet. Of more
        than `MOST_ROLES` the rest may be left out."""

    @abstractmethod
    def find_finish(self, job: Json) -> Finish | None:
        """Returns how the job ended; None while it has not."""

    def count_active_pods(self, job: Json, dropped: int = 0) -> int:
        """Returns a number that is 0 only where the job's status shows nothing that runs or ends: here always 0. A kind may count pods, or
        Jobs, or 1 for all, so that only whether it is 0 means anything. `dropped`: of the pods that end, how many have ended and only wait
        for finalizers; they do not count (`JobKind`). The caller counts observed pods as well."""
        return 0

    def are_pods_ready(self, job: Json) -> bool | None:
        """Returns whether all pods are ready or have succeeded by the job's status; None where the status does not show it, as for
        most kinds."""
        return None

    def default_more(self, job: dict[str, Any]) -> dict[str, Any]:
        """Returns a queued job with the defaults of this kind alone, by default the given object unchanged. `job` is a copy already, so it
        may be changed in place and returned."""
        return job

    def find_index_offset(self, job: Json, role: Role) -> str | None:
        """Returns the value of POD_INDEX_OFFSET that the defaults of this kind write on the template of a role; None where they write
        none, as for most kinds."""
        return None

    def validate_kind(self, job: Json) -> Iterator[FieldError]:
        """Yields the errors of a job by the rules of this kind alone; by default none. Whether it has a queue is not looked at."""
        return iter(())

    def validate_change(self, old: Json, new: Json) -> Iterator[FieldError]:
        """Yields the errors of a change by the rules of this kind alone; by default none. It is asked only of jobs that stay queued."""
        return iter(())

    def build_status_reset(self, job: Json) -> dict[str, Any] | None:
        """Returns the merge patch of a stopped job's status without which its templates could not be restored; None where none is
        needed."""
        return None

    def put_template(self, job: dict[str, Any], role: Role, template: Json) -> None:
        """Writes a role's template into a job, in place. Only labels, annotations, node selector, tolerations and gates of it differ
        from what the job has. So a kind which keeps no whole template can write these in its own way."""
        put(job, role.path, template)

    # --- webhook --------------------------------------------------------------------------------------

    def list_annotation_paths(self, job: Json) -> list[str]:
        """Returns the paths under which users write the annotations of its pods, one per template in the order of `list_roles`."""
        return [role.annotations_shown for role in self.list_roles(job)]

    def default(self, job: Json, defaults: Defaults) -> dict[str, Any]:
        """Returns a copy of the job as it should be stored: in the default queue, if there is one and it names none. One with a queue is
        suspended, and templates that ask for a topology get its gate (only if `gates_at_creation`), the one at `always_gated` in any case
        then. It also gets the defaults of its kind and the traceparent. Defaulting that again changes nothing."""
        changed = copy_object(job)
        metadata = changed.setdefault("metadata", {})
        labels = metadata.get("labels") or {}
        if QUEUE_NAME_LABEL not in labels and defaults.default_queue:
            metadata["labels"] = {**labels, QUEUE_NAME_LABEL: defaults.default_queue}
        if QUEUE_NAME_LABEL not in (metadata.get("labels") or {}):
            return changed  # the job is not to be queued
        put(changed, self.suspend_path, True)
        if self.gates_at_creation:
            for role in self.list_roles(changed):
                if self.always_gated == role.path or templates.has_topology_annotation(role.template):
                    self.put_template(changed, role, templates.with_gate(role.template))
        changed = self.default_more(changed)
        metadata = changed["metadata"]
        if defaults.traceparent:
            metadata["annotations"] = {**(metadata.get("annotations") or {}), TRACEPARENT_ANNOTATION: defaults.traceparent}
        return changed

    def default_change(self, old: Json, new: Json) -> dict[str, Any]:
        """Returns a copy of `new` as it should be stored. A manifest that is applied again lacks what was added to the templates: by the
        start while the job runs, and the gate while it waits. They are put back, if it is queued and neither stopped nor started by the
        change. A template that differs otherwise is left to `validate_update`."""
        changed = copy_object(new)
        labels = (new.get("metadata") or {}).get("labels") or {}
        waits = self.is_suspended(new)
        if QUEUE_NAME_LABEL in labels and waits == self.is_suspended(old):
            has_lost = templates.has_lost_gate if waits else templates.has_lost_start
            before = {role.pod_set: role.template for role in self.list_roles(old)}
            for role in self.list_roles(new):
                if has_lost(role.template, before.get(role.pod_set, {})):
                    self.put_template(changed, role, before[role.pod_set])
        return changed

    def validate_create(self, job: Json) -> Rules:
        """Returns all errors and warnings that a new job shows by itself. They are of annotations, names, number and size of templates, the
        time limit, a named Workload, and its kind. Whether it has a queue is not looked at."""
        roles = self.list_roles(job)
        judged = annotations.validate_pod_sets([self._read_annotations(job, role) for role in roles])
        own = (
            *_validate_names(roles),
            *check_templates(roles),
            *validate_execution_time(job),
            *validate_prebuilt(job),
            *self.validate_kind(job),
        )
        return Rules((*judged.errors, *own), (*judged.warnings, *self._warn_of_manager(job)))

    def _read_annotations(self, job: Json, role: Role) -> annotations.PodSetAnnotations:
        return annotations.PodSetAnnotations(
            role.annotations_shown,
            role.template,
            role.count,
            role.default_slice_size,
            index_offset=self.find_index_offset(job, role),
            min_count=role.min_count,
        )

    def _warn_of_manager(self, job: Json) -> Iterator[str]:
        """A warning of a job that is left to a manager of several clusters: admitted here it would hold quota without any pods."""
        path = (*self.suspend_path[:-1], "managedBy")
        if get(job, path) == MULTIKUEUE_CONTROLLER:
            left = f"topogate runs no jobs in other clusters, and the controller of this {self.kind} makes no pods; leave the field out"
            yield f"{'.'.join(map(str, path))}: {MULTIKUEUE_CONTROLLER}: {left}"

    def validate_update(self, old: Json, new: Json) -> Rules:
        """Returns the errors of a change, and what `validate_create` finds in the changed job and did not find before. While it runs the
        job keeps queue, templates, time limit and named Workload; its priority class may not go. Of a job without a queue before it returns
        all that `validate_create` finds. Of one that leaves its queue it returns only the error that it may not while it runs."""
        errors = []
        before, after = (((obj.get("metadata") or {}).get("labels") or {}).get(QUEUE_NAME_LABEL) for obj in (old, new))
        if before is not None and before != after and not self.is_suspended(old):
            accepted = f"a running job keeps its queue ({before!r}); suspend it first"
            errors.append(FieldError(ErrorType.INVALID, f"metadata.labels[{QUEUE_NAME_LABEL}]", after or "", accepted))
        if after is None:  # a job that leaves its queue leaves topogate, whatever it asks for
            return Rules(tuple(errors))
        judged = self.validate_create(new)
        if before is None:
            return Rules((*errors, *judged.errors), judged.warnings)
        runs = not self.is_suspended(old) and not self.is_suspended(new)
        errors += check_changed_priority(old, new)
        errors += self._validate_running_change(old, new)
        errors += self.validate_change(old, new)
        if runs:
            errors += [*validate_changed_execution_time(old, new), *validate_changed_prebuilt(old, new)]
        return with_changes(errors, judged, self.validate_create(old))

    def _validate_running_change(self, old: Json, new: Json) -> Iterator[FieldError]:
        """Pods of a running job were placed by its templates as they were; pods that are added start at once where no gate holds them."""
        if self.is_suspended(old) or self.is_suspended(new) or not self.is_started(old):
            return
        known = {role.pod_set: role for role in self.list_roles(old)}
        for role in self.list_roles(new):
            if role.pod_set not in known:
                yield FieldError(ErrorType.FORBIDDEN, role.shown, None, "a running job gets no more pod templates; suspend it first")
            elif role.template != known[role.pod_set].template:
                yield FieldError(ErrorType.FORBIDDEN, role.shown, None, "a running job keeps its pod templates; suspend it first")
            elif role.count > known[role.pod_set].count and not templates.has_gate(role.template):
                accepted = f"a running job keeps its {known[role.pod_set].count} pods on a flavor without a topology; suspend it first"
                yield FieldError(ErrorType.FORBIDDEN, role.shown, role.count, accepted)

    # --- reconciler -----------------------------------------------------------------------------------

    def list_pod_sets(self, job: Json) -> list[PodSetTemplate]:
        """Returns the job's pod sets, in the order of its templates. Each has its number of pods, its topology request (None without any),
        and a copy of its template as a Workload keeps it. The copy includes containers that the job's controller adds."""
        return [self._build_pod_set(role) for role in self.list_roles(job)]

    @staticmethod
    def _build_pod_set(role: Role) -> PodSetTemplate:
        template = templates.build_workload_template(role.template)
        if role.added:
            spec = template.setdefault("spec", {})
            spec["containers"] = [*(spec.get("containers") or ()), *map(dict, role.added)]
        request = annotations.build_topology_request(
            template["metadata"].get("annotations") or {},
            pod_index_label=role.pod_index_label,
            sub_group_index_label=role.sub_group_index_label,
            sub_group_count=role.sub_group_count,
            default_slice_size=role.default_slice_size,
        )
        return PodSetTemplate(role.pod_set, role.count, template, request, role.min_count)

    def find_priority_class(self, job: Json) -> str | None:
        """Returns the name of the pods' PriorityClass, of the first template that has one; None where none has."""
        names = ((role.template.get("spec") or {}).get("priorityClassName") for role in self.list_roles(job))
        return next((name for name in names if name), None)

    def is_suspended(self, job: Json) -> bool:
        """Returns whether the job is suspended by the field at `suspend_path`, so that it makes no pods; False where that is absent."""
        return bool(get(job, self.suspend_path))

    def suspend(self, job: Json) -> dict[str, Any]:
        """Returns a copy of the job that is suspended by the field at `suspend_path`; its templates stay as they are."""
        return self._build_suspended(job, True)

    def start(self, job: Json, pod_sets: Sequence[PodSetStart]) -> dict[str, Any]:
        """Returns a copy of the job that is not suspended. Templates of `pod_sets` (by name) get what these add, and the gate or not as
        `gated`; other templates stay as they are. `count` is not used here."""
        by_name = {start.name: start for start in pod_sets}
        changed = self._build_suspended(job, False)
        for role in self.list_roles(job):
            if role.pod_set in by_name:
                self.put_template(changed, role, templates.build_started(role.template, by_name[role.pod_set]))
        return changed

    def restore(self, job: Json, pod_sets: Sequence[Json] | None) -> dict[str, Any]:
        """Returns a copy of a stopped job with the labels, annotations, node selectors, tolerations and gates of the Workload's pod sets
        (JSON). Templates without a pod set of their name stay. Where the Workload is gone (None) only labels and annotations that a start
        alone puts there are removed."""
        originals = None if pod_sets is None else {pod_set["name"]: pod_set["template"] for pod_set in pod_sets}
        changed = copy_object(job)
        for role in self.list_roles(job):
            original = templates.remove_start(role.template) if originals is None else originals.get(role.pod_set)
            if original is not None:
                self.put_template(changed, role, templates.restore_template(role.template, original))
        return changed

    def is_started(self, job: Json) -> bool:
        """Returns whether any of its templates carries the workload annotation that `start` puts there, suspended or not."""
        return any(templates.is_started(role.template) for role in self.list_roles(job))

    def has_gate(self, job: Json) -> bool:
        """Returns whether any of its templates carries the topology gate."""
        return any(templates.has_gate(role.template) for role in self.list_roles(job))

    def ungate(self, job: Json) -> dict[str, Any]:
        """Returns a copy of a job that has left topogate, without the topology gate on its templates; other gates stay."""
        changed = copy_object(job)
        for role in self.list_roles(job):
            self.put_template(changed, role, templates.remove_gate(role.template))
        return changed

    @staticmethod
    def finish_by_condition(job: Json, succeeded: str, failed: str) -> Finish | None:
        """Returns how a job ended, by the first True condition in its status of type `succeeded` or `failed`, with its message or a default
        one. None while neither is."""
        for condition in (job.get("status") or {}).get("conditions") or ():
            if condition.get("type") in (succeeded, failed) and condition.get("status") == "True":
                done = condition["type"] == succeeded
                name = job.get("kind") or "the job"
                return Finish(done, condition.get("message") or f"{name} {'finished successfully' if done else 'failed'}")
        return None

    @staticmethod
    def are_jobs_ready(roles: Sequence[Role], statuses: Sequence[Json]) -> bool | None:
        """Returns whether, for each role, `ready` and `succeeded` of the status of its name are together at least its number of Jobs
        (`sub_group_count`). A role without a status has 0. None where no status has `ready`, or there is no role."""
        counts = {
            status.get("name"): int(status["ready"]) + int(status.get("succeeded") or 0)
            for status in statuses
            if status.get("ready") is not None
        }
        if not roles or not counts:
            return None
        return all(counts.get(role.pod_set, 0) >= (role.sub_group_count or 0) for role in roles)

    @staticmethod
    def count_done_jobs(roles: Sequence[Role], statuses: Sequence[Json]) -> dict[str, int]:
        """Returns, by name of the pod set, the pods of Jobs that have `succeeded` by the status of that name. Jobs beyond the role's number
        (`sub_group_count`) do not count. Pod sets without such a Job are absent."""
        counts = {status.get("name"): int(status.get("succeeded") or 0) for status in statuses}
        done = {role.pod_set: (role, min(counts.get(role.pod_set, 0), role.sub_group_count or 0)) for role in roles}
        return {name: role.count // (role.sub_group_count or 1) * jobs for name, (role, jobs) in done.items() if jobs}

    def _build_suspended(self, job: Json, suspended: bool) -> dict[str, Any]:
        changed = copy_object(job)
        put(changed, self.suspend_path, suspended)
        return changed


def with_changes(errors: Sequence[FieldError], judged: Rules, before: Rules) -> Rules:
    """Returns `errors` of a change, then errors of `judged` (the new object) that `before` (the old one) lacks, except on fields that
    `errors` name. Warnings are those of `judged` that `before` lacks. So an object that was stored under older rules can still be changed
    otherwise."""
    known = {repr(error) for error in before.errors}  # by their text: the value of an error may be any JSON
    fields = {error.field for error in errors}
    more = (error for error in judged.errors if repr(error) not in known and error.field not in fields)
    return Rules((*errors, *more), tuple(warning for warning in judged.warnings if warning not in before.warnings))


def check_templates(roles: Sequence[Role]) -> Iterator[FieldError]:
    """Yields an error where all templates are too large together (`check_size`), then those of what one pod of each template may not ask
    for (`check_pod_spec`)."""
    yield from check_size("spec", (role.template for role in roles))
    for role in roles:
        yield from check_pod_spec(f"{role.shown}.spec", role.template.get("spec") or {})


def find_own_gates(own: Sequence[Role]) -> Iterator[FieldError]:
    """Yields an error for each of these roles with a template that carries the topology gate; the caller passes templates without what a
    start adds. A start that writes beside the templates cannot remove the gate."""
    for role in own:
        if templates.has_gate(role.template):
            accepted = "take it off: topogate adds it to the pods that it places, and pods of another flavor would stay gated"
            yield FieldError(ErrorType.FORBIDDEN, f"{role.shown}.spec.schedulingGates", TOPOLOGY_GATE, accepted)


def check_role_count(roles: Sequence[Role]) -> Iterator[FieldError]:
    """Yields an error where a job has more than `MAX_POD_SETS` pod templates."""
    if len(roles) > MAX_POD_SETS:
        yield FieldError(ErrorType.TOO_MANY, "spec", len(roles), f"at most {MAX_POD_SETS} pod templates are expected")


def _validate_names(roles: Sequence[Role]) -> Iterator[FieldError]:
    """What a Workload can hold of pod sets."""
    yield from check_role_count(roles)
    first: dict[str, Role] = {}
    for role in roles:
        if role.pod_set and (len(role.pod_set) > MAX_POD_SET_NAME or not _POD_SET_NAME.fullmatch(role.pod_set)):
            accepted = f"the name of a pod set has at most {MAX_POD_SET_NAME} characters: a-z, 0-9, and '-' between them"
            yield FieldError(ErrorType.INVALID, role.named or role.shown, role.pod_set, accepted)
        if first.setdefault(role.pod_set, role) is not role:
            accepted = f"each pod template has a name of its own; {first[role.pod_set].shown} has this one"
            yield FieldError(ErrorType.DUPLICATE, role.shown, role.pod_set, accepted)


def get(obj: Any, path: Path) -> Any:
    """Returns what is at a path of a value of JSON, not copied. None where a key or an entry of a list is missing, or a scalar is on the
    way."""
    for key in path:
        if isinstance(obj, Mapping):
            obj = obj.get(key)
        elif isinstance(obj, list) and isinstance(key, int) and key < len(obj):
            obj = obj[key]
        else:
            return None
    return obj


def put(obj: dict[str, Any], path: Path, value: Any) -> None:
    """Sets what is at a path of an object, in place; maps that are missing or null on the way are made, lists are not. Raises IndexError
    where a list has no such entry, and TypeError where a scalar is on the way."""
    *way, last = path
    here: Any = obj
    for key in way:
        if isinstance(here, dict):
            if here.get(key) is None:
                here[key] = {}
            here = here[key]
        else:
            here = here[key]
    here[last] = value


def parse_integer(value: Any, default: int) -> int:
    """Returns a number of the API as an integer, as `int` reads it; `default` where it is absent (None). Raises ValueError for a text that
    is no whole number."""
    return default if value is None else int(value)
