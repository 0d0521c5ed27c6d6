"""The priority of a workload: by the class that its job names (KEP-83)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from core.names import PRIORITY_CLASS_LABEL
from core.plan.steps import api_resources as r

Json = Mapping[str, Any]
MAX_NAMED_CLASSES = 5  # a message is read, not searched


class MissingClass(LookupError):
    """A job names a class that does not exist."""


@dataclass(frozen=True, slots=True)
class Classes:
    """WorkloadPriorityClasses and PriorityClasses, by name."""

    of_workloads: Mapping[str, Json]
    of_pods: Mapping[str, Json]


def find_priority(
    classes: Classes, labels: Mapping[str, str], class_of_pods: Callable[[], str | None]
) -> tuple[int, dict[str, str] | None]:
    """Returns the priority and the JSON of `spec.priorityClassRef`; 0 and None without any class. The class of the job's label comes first,
    then the pods' class, then the cluster's default, of several the first by name. A pods' class that does not exist counts as none,
    without a look at the default. `labels` are those of the job; `class_of_pods` returns the name of the pods' PriorityClass. Raises
    MissingClass where there is no WorkloadPriorityClass of the name in the label."""
    name = labels.get(PRIORITY_CLASS_LABEL)
    if name:
        found = classes.of_workloads.get(name)
        if found is None:
            raise MissingClass(_explain_missing(classes, name))
        reference = {"group": r.WORKLOAD_PRIORITY_CLASSES.group, "kind": r.WORKLOAD_PRIORITY_CLASSES.kind, "name": name}
        return int(found.get("value") or 0), reference
    name = class_of_pods()
    found = classes.of_pods.get(name) if name else _find_default(classes)
    if found is None:
        return 0, None
    reference = {"group": r.PRIORITY_CLASSES.group, "kind": r.PRIORITY_CLASSES.kind, "name": found["metadata"]["name"]}
    return int(found.get("value") or 0), reference


def find_changed_priority(
    classes: Classes, workload: Json, labels: Mapping[str, str], class_of_pods: Callable[[], str | None]
) -> dict[str, Any]:
    """Returns `priority` and `priorityClassRef` (None: no class) for a waiting workload's spec, where its job names another class than the
    workload has. Else, and where both values are the same by the other class, the map is empty. Raises MissingClass where the label names
    another class, which does not exist. The value of a class is read when a workload gets that class. A class that has another value later,
    is deleted, or becomes the cluster's default does not change workloads that exist (KEP-83)."""
    if _get_named_class(labels, class_of_pods) == _get_class_of(workload):
        return {}
    priority, reference = find_priority(classes, labels, class_of_pods)
    spec = workload["spec"]
    if int(spec.get("priority") or 0) == priority and spec.get("priorityClassRef") == reference:
        return {}
    return {"priority": priority, "priorityClassRef": reference}


def _find_default(classes: Classes) -> Json | None:
    defaults = sorted(name for name, one in classes.of_pods.items() if one.get("globalDefault"))
    return classes.of_pods[defaults[0]] if defaults else None


def _get_named_class(labels: Mapping[str, str], class_of_pods: Callable[[], str | None]) -> tuple[str, str] | None:
    """Kind and name of the class that a job names; None where the cluster's default counts."""
    if name := labels.get(PRIORITY_CLASS_LABEL):
        return r.WORKLOAD_PRIORITY_CLASSES.kind, name
    name = class_of_pods()
    return (r.PRIORITY_CLASSES.kind, name) if name else None


def _get_class_of(workload: Json) -> tuple[str, str] | None:
    """Kind and name of the class that a workload's job named when the workload got its priority; None where the default counted.

    A workload refers to the cluster's default, too, and does not refer to a class of its pods that did not exist: so the class of its
    pods is read from its pod sets.
    """
    reference = workload["spec"].get("priorityClassRef") or {}
    if reference.get("kind") == r.WORKLOAD_PRIORITY_CLASSES.kind:
        return r.WORKLOAD_PRIORITY_CLASSES.kind, str(reference["name"])
    names = ((pod_set["template"].get("spec") or {}).get("priorityClassName") for pod_set in workload["spec"]["podSets"])
    name = next((name for name in names if name), None)
    return (r.PRIORITY_CLASSES.kind, name) if name else None


def _explain_missing(classes: Classes, name: str) -> str:
    """What was most likely meant comes first."""
    nearest = get_close_matches(name, sorted(classes.of_workloads), n=MAX_NAMED_CLASSES, cutoff=0.0)
    more = len(classes.of_workloads) - len(nearest)
    known = f"there are {', '.join(nearest)}{f' and {more} more' if more else ''}" if nearest else "there is none at all"
    return f'WorkloadPriorityClass "{name}" does not exist; {known}. The job waits until it does, or names another'
