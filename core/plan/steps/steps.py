"""The parts of plans: writes, each with what is reported once it has succeeded, one after the other.

A plan is computed from facts alone. Its executor (`reconciler.execute.executor`) stops at the first write that fails,
unless the step allows that failure.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from typing import Any, Generic, TypeVar

from core import trace_names as t
from core.plan.steps.writes import Write
from core.queueing.flavors.outcome import Admissible, NotAdmissible
from core.resource import Obj, Resource

T = TypeVar("T")
Attributes = Mapping[str, str | int]
MOST_SPAN_EVENTS = 64  # of one kind on a span
# How OpenTelemetry calls the name of a kind that it knows.
_NAME_OF_KIND = {"Job": t.JOB_NAME, "StatefulSet": t.STATEFUL_SET_NAME, "Pod": t.POD_NAME}


@dataclass(frozen=True, slots=True)
class Event:
    """An event on an object; with `on_job` on the object for which the Workload `obj` was made: users look at their
    job, and need not know that there is a Workload. `is_minor`: another event has the same content, and this one is
    left out where there are many."""

    resource: Resource
    obj: Obj
    reason: str
    message: str
    warning: bool = False
    on_job: bool = False
    is_minor: bool = False


@dataclass(frozen=True, slots=True)
class Log:
    """A line of the log."""

    message: str
    fields: Mapping[str, object] = field(default_factory=dict)
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Span:
    """A span of the trace that `obj` names, around a write.

    `follows_decision`: it is linked to the latest decision on `obj`; `decided_on`: to that on another object. `causes`:
    objects that came by requests of their own; it is linked to their traces. `start` and `end`: when it began and
    ended, where that was before. `events`: what has happened in it, with attributes and the time of the API.
    `explains`: the outcome of a decision, which the span describes in full.
    """

    name: str
    obj: Obj
    attributes: Attributes = field(default_factory=dict)
    follows_decision: bool = False
    decided_on: Obj | None = None
    causes: tuple[Obj, ...] = ()
    start: str | datetime | None = None
    end: datetime | None = None
    events: tuple[tuple[str, Attributes, str | None], ...] = ()
    explains: Admissible | NotAdmissible | None = None


class Overtaken(Enum):
    """What others have done meanwhile, to an object that is to be written or to all."""

    GONE = "it is deleted"
    CHANGED = "it is another one by now, or in another state"
    PAUSED = "an administrator has paused what it would begin, and the end of the pause leads to another plan"


PASSED_OVER = frozenset({Overtaken.GONE, Overtaken.CHANGED})  # where each existing pod is reconciled again


@dataclass(frozen=True, slots=True)
class Then:
    """A write that is built from the object as the previous write has left it."""

    resource: Resource
    seen: Obj
    build: Callable[[Obj], Write]


class Hold(Enum):
    """Which failure of a step holds up the steps after it. Any other is raised after them."""

    ALWAYS = "any"
    UNLESS_REFUSED = "any but that the API server refuses the write, by a policy or as invalid"
    NEVER = "none"


@dataclass(frozen=True, slots=True)
class ParallelSteps:
    """Independent steps, such as writes to the pods of a job; those of a sequence in it are done one after the other.

    All are attempted. The error of them all is the first that is no refusal, or else the first.
    """

    steps: Sequence["Step | Sequence[Step]"]


@dataclass(frozen=True, slots=True)
class MadeSteps(Sequence["Step"], Generic[T]):
    """Steps of `items`, each made when its turn comes: to make 50,000 at once would keep the event loop from all else."""

    items: Sequence[T]
    make: Callable[[T], "Step"]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, at: Any) -> Any:
        return self.make(self.items[at])

    def __iter__(self) -> Iterator["Step"]:
        """Returns an iterator that goes on behind an item of which no step can be made, whatever `make` raises. That of a Sequence ends
        there, and for an IndexError without any error."""
        return map(self.make, self.items)


@dataclass(frozen=True, slots=True)
class Step:
    """One write, if any, with its span; then a line of the log and events.

    `name` is a short name of what the step does. `passes`: what is no failure, since the change of that object leads to
    another plan; then nothing is reported of the write. `if_refused`: the event where the API server refuses the write
    as invalid, by the message. A write of an object that a step before has written is guarded by the version that this
    left.
    """

    name: str
    write: Write | Then | ParallelSteps | None = None
    events: tuple[Event, ...] = ()
    log: Log | None = None
    span: Span | None = None
    passes: frozenset[Overtaken] = frozenset()
    holds_up: Hold = Hold.ALWAYS
    if_refused: Callable[[str], Event] | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done with one object now. It is reconciled again after `again_s` seconds, if nothing has changed
    until then (None: not at all).

    `problem`: why nothing can be done for it; this is to be tried again. Empty where there is none. `rest`: the plan
    that follows, by the keys of objects of parallel steps that could not be written, and were not refused either, and
    the time by then.
    """

    steps: tuple[Step, ...] = ()
    again_s: float | None = None
    problem: str = ""
    rest: Callable[[Collection[str], datetime], "Plan"] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Returns the names of the plan's own steps, in order; those of `ParallelSteps` within a step are not among them."""
        return tuple(step.name for step in self.steps)

    def extend(self, *steps: Step | None) -> "Plan":
        """Returns a copy of the plan with more steps after its own; those that are None are left out. `again_s` and `problem` stay."""
        return replace(self, steps=(*self.steps, *(step for step in steps if step is not None)))

    def begin_with(self, *steps: Step | None) -> "Plan":
        """Returns a copy of the plan with other steps before its own; those that are None are left out. `again_s` and `problem` stay."""
        return replace(self, steps=(*(step for step in steps if step is not None), *self.steps))


NOTHING = Plan()


def make_plan(*steps: Step | None, again_s: float | None = None) -> Plan:
    """Returns a plan of steps, without a `problem`; those that are None are left out. `again_s`: the object is looked at again after these
    seconds; None: not."""
    return Plan(tuple(step for step in steps if step is not None), again_s)


def wait(seconds: float) -> Plan:
    """Returns a plan without steps: the object is reconciled again after these seconds."""
    return Plan(again_s=seconds)


def report(event: Event) -> Step:
    """Returns a step that writes nothing and emits one event."""
    return Step("report", events=(event,))


def describe_owner(kind: str, name: str) -> dict[str, str]:
    """Returns the attributes of a span that identify the object for which a Workload was made: kind, name and, for a Job, a StatefulSet or
    a Pod, OpenTelemetry's own attribute for its name."""
    known = _NAME_OF_KIND.get(kind)
    return {t.OBJECT_KIND: kind, t.OBJECT_NAME: name} | ({known: name} if known is not None else {})
