"""What topogate must know of a kind of job, on plain JSON objects; one small file per kind describes it.

Webhook and reconciler use the same description. Nothing here changes an object in place: every
function returns what should be, or a patch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from core.model.gates import ChosenGates

if TYPE_CHECKING:
    from core.jobs.schema_check import Fields

Json = Mapping[str, Any]


class ErrorType(Enum):
    """What is wrong with a field, as the Kubernetes API names it."""

    INVALID = "FieldValueInvalid"
    FORBIDDEN = "FieldValueForbidden"
    REQUIRED = "FieldValueRequired"
    DUPLICATE = "FieldValueDuplicate"
    TOO_MANY = "FieldValueTooMany"
    TOO_LONG = "FieldValueTooLong"
    TYPE_INVALID = "FieldValueTypeInvalid"
    NOT_SUPPORTED = "FieldValueNotSupported"


@dataclass(frozen=True, slots=True)
class FieldError:
    """One mistake: the path that kubectl users can find, the value they wrote, what would be accepted.

    `gate` is the feature gate that makes it none; empty: no gate does.
    """

    type: ErrorType
    field: str
    value: Any
    accepted: str
    gate: str = ""

    def __str__(self) -> str:
        shown = "" if self.value is None else f" {self.value!r}:"
        return f"{self.field}:{shown} {self.accepted}"


@dataclass(frozen=True, slots=True)
class Rules:
    """Outcome of judging an object: errors refuse it, warnings are shown to the user."""

    errors: tuple[FieldError, ...] = ()
    warnings: tuple[str, ...] = ()

    def filter_by_gates(self, gates: ChosenGates) -> "Rules":
        """Returns the rules without errors that a gate makes none which is on."""
        if not any(error.gate for error in self.errors):
            return self
        return Rules(tuple(error for error in self.errors if not (error.gate and gates.is_on(error.gate))), self.warnings)


@dataclass(frozen=True, slots=True)
class PodSetTemplate:
    """A pod set of a job: JSON of a Workload's `spec.podSets[i]`."""

    name: str
    count: int
    template: Json
    topology_request: Json | None
    min_count: int | None = None  # the fewest pods with which the job can run

    def to_wire(self) -> dict[str, Any]:
        """Returns the pod set as JSON; `minCount` and `topologyRequest` are absent where they are None. The template is not copied."""
        wire: dict[str, Any] = {"name": self.name, "count": self.count, "template": self.template}
        wire |= {"minCount": self.min_count} if self.min_count is not None else {}
        return wire | ({"topologyRequest": dict(self.topology_request)} if self.topology_request is not None else {})


@dataclass(frozen=True, slots=True)
class PodSetStart:
    """What a pod set's template gets when its job starts.

    `gated`: whether the topology gate belongs on it; it is kept for a topology-aware flavor and removed otherwise.
    `count` is the number of admitted pods of a pod set that can run with fewer, None for all others.
    """

    name: str
    gated: bool
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Json] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    count: int | None = None


@dataclass(frozen=True, slots=True)
class Gang:
    """How pods of a job that is not queued are placed together: so many at once, and how many such groups there are.

    `min_count` counts pods that are made without waiting for others to run: a gang that waits for more waits for ever.
    """

    min_count: int
    replicas: int = 1


@dataclass(frozen=True, slots=True)
class Finish:
    """How a job ended."""

    succeeded: bool
    message: str


@dataclass(frozen=True, slots=True)
class Defaults:
    """What only the caller can look up for defaulting.

    `default_queue` is the name of the namespace's default LocalQueue if there is one;
    `traceparent` the context of the admission request, kept on the job for the spans that follow.
    """

    default_queue: str | None = None
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class RelatedKind:
    """A kind of object that jobs refer to."""

    kind: str
    group: str
    version: str
    plural: str
    namespaced: bool


@dataclass(frozen=True, slots=True)
class Reference:
    """An object that a job refers to; in the job's own namespace if it is in any."""

    related: RelatedKind
    name: str

    def __str__(self) -> str:
        return f"{self.related.kind} {self.name}"


@runtime_checkable
class Referring(Protocol):
    """A kind of job that refers to an object with its pod templates, instead of holding them.

    Reconciler and webhook look that object up and pass it to `expand`. All other functions take the job that
    `expand` returns, and do not change what it has added.
    """

    related: ClassVar[tuple[RelatedKind, ...]]

    def find_reference(self, job: Json) -> Reference | None:
        """Returns kind and name of the object that a job refers to. None where it has no name, or one of a kind that is not in
        `related`."""
        ...

    def expand(self, job: Json, found: Json) -> dict[str, Any]:
        """Returns a copy of the job, which may share what it holds, that also holds `found`, the object that it refers to (JSON). The other
        functions read that, and it is never written."""
        ...

    def count_own_pods(self, job: Json) -> Mapping[str, int]:
        """Returns the number of pods by name, for the pod sets of which the job itself sets it; empty where it sets none. The job is one
        that `expand` returned.

        Numbers of the object to which it refers are left out, as that object may be edited for later jobs. A running job keeps the numbers
        of its admission.
        """
        ...


@runtime_checkable
class Reclaiming(Protocol):
    """A kind with a status that counts pods which have finished and are not replaced while other pods of the job run."""

    def count_reclaimable_pods(self, job: Json) -> Mapping[str, int]:
        """Returns, by name of the pod set, the number of pods that have finished and are not replaced, by the job's status. Pod sets that
        have none may be left out."""
        ...


@runtime_checkable
class Resizable(Protocol):
    """A kind of job that may be resized while it runs, if the job allows it."""

    def is_resizable(self, job: Json) -> bool:
        """Returns whether a job may be resized while it runs, by what the job itself asks for."""
        ...


@runtime_checkable
class ResizedByPart(Resizable, Protocol):
    """A kind of job that may be resized through an object that its controller made, as a RayJob through its RayCluster."""

    part: ClassVar[RelatedKind]

    def find_part(self, job: Json) -> str | None:
        """Returns the name of the object of kind `part`, in the job's namespace, by which it is resized. None where the job is resized by
        its own spec or has no such object."""
        ...

    def with_counts_of(self, job: Json, part: Json) -> dict[str, Any]:
        """Returns a copy of the job with the pod counts of `part`, the object (JSON) by which it is resized."""
        ...


class Reviewed(Protocol):
    """What the webhook must know of a kind. `plural`, `group` and `version` make its API path; `spec_shape` describes the fields of its
    spec that are read; `defaults_updates`: its defaults are applied with every change."""

    kind: ClassVar[str]
    group: ClassVar[str]
    version: ClassVar[str]
    plural: ClassVar[str]
    spec_shape: ClassVar["Fields"]
    defaults_updates: ClassVar[bool]

    def default(self, job: Json, defaults: Defaults) -> dict[str, Any]:
        """Returns a copy of the object as it should be stored, changed only where it must be; defaulting that again changes nothing."""
        ...

    def validate_create(self, job: Json) -> Rules:
        """Returns all errors and warnings that a new object shows by itself, without a look at its queue, topology or other objects."""
        ...

    def validate_update(self, old: Json, new: Json) -> Rules:
        """Returns all errors and warnings of a change from `old` to `new`, which may also change or remove the name of its queue. What
        `old` shows already may be left out."""
        ...


class JobKind(Reviewed, Protocol):
    """One kind of job.

    A function that changes a job returns the changed job; the caller writes a patch of the difference.
    """

    suspend_path: ClassVar[tuple[str | int, ...]]
    always_gated: ClassVar[tuple[str | int, ...] | None]

    def list_pod_sets(self, job: Json) -> list[PodSetTemplate]:
        """Returns the job's pod sets, in the order of its pod templates. Each has its number of pods, a copy of its template and its
        topology request."""
        ...

    def find_priority_class(self, job: Json) -> str | None:
        """Returns the name of the PriorityClass of its pods, of the first template that names one; None where none does. A
        WorkloadPriorityClass is not looked at."""
        ...

    def is_suspended(self, job: Json) -> bool:
        """Returns whether the job is suspended, so that it makes no pods."""
        ...

    def start(self, job: Json, pod_sets: Sequence[PodSetStart]) -> dict[str, Any]:
        """Returns a copy of the job that is not suspended; the caller writes it at once. Templates that `pod_sets` name get their labels,
        annotations, node selector and tolerations, which replace own values of the same key, and the topology gate only if `gated`; others
        stay. A kind that can do with fewer pods makes `count` at once."""
        ...

    def has_gate(self, job: Json) -> bool:
        """Returns whether any of its templates carries the topology gate."""
        ...

    def ungate(self, job: Json) -> dict[str, Any]:
        """Returns a copy of a job that has left topogate, without the topology gate on its templates; other gates and additions of a start
        stay."""
        ...

    def suspend(self, job: Json) -> dict[str, Any]:
        """Returns a copy of the job that is suspended."""
        ...

    def is_started(self, job: Json) -> bool:
        """Returns whether any of its templates carries the workload annotation that `start` puts there, suspended or not."""
        ...

    def count_active_pods(self, job: Json, dropped: int = 0) -> int:
        """Returns a number that is 0 only where its status shows no pods that run or end: pods, or Jobs where it counts only these, or
        1.

        `dropped`: how many of the pods that end have ended and only wait for their finalizers; they do not count.
        """
        ...

    def are_pods_ready(self, job: Json) -> bool | None:
        """Returns whether all pods that it runs at once are ready or have succeeded, by its status. None where the status does not
        show it, so that its pods are counted."""
        ...

    def restore(self, job: Json, pod_sets: Sequence[Json] | None) -> dict[str, Any]:
        """Returns a copy of a stopped job with its own templates: those of the Workload's pod sets (JSON). Without a Workload (None) only
        labels and annotations that a start alone puts there are removed."""
        ...

    def build_status_reset(self, job: Json) -> dict[str, Any] | None:
        """Returns the merge patch of a stopped job's status without which its templates could not be restored; None where none is
        needed."""
        ...

    def find_finish(self, job: Json) -> Finish | None:
        """Returns how the job ended; None while it has not."""
        ...
