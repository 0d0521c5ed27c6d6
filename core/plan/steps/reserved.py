"""The fields of a workload that are fixed while quota is reserved for it, by the rules of its CRD: to change them, its
quota is requested again."""

from collections.abc import Mapping
from typing import Any

from core.names import EVICTED, QUOTA_RESERVED
from core.state.facts import is_condition_true

Json = Mapping[str, Any]
CHANGED_WHILE_RESERVED = "the job's pods, queue or priority class have changed while it waited for its admission checks or its place"


def must_ask_anew(workload: Json, changes: Json) -> bool:
    """Returns whether quota has to be requested again for `changes` of a workload's spec (fields with new values). So it is while it has
    quota and is not evicted, for fields that are fixed then. They are pod sets, queue, kind of priority class, and which PriorityClass of
    pods."""
    if not is_condition_true(workload, QUOTA_RESERVED) or is_condition_true(workload, EVICTED):
        return False
    return "podSets" in changes or "queueName" in changes or _is_another_kind_of_class(workload["spec"], changes)


def _is_another_kind_of_class(spec: Json, changes: Json) -> bool:
    """Whether a priority class is set or removed, or its kind changes. A pod's own class cannot change at all."""
    old, new = spec.get("priorityClassRef") or {}, {**spec, **changes}.get("priorityClassRef") or {}
    kind_of_old, kind_of_new = ((found.get("group"), found.get("kind")) for found in (old, new))
    return kind_of_old != kind_of_new or (old.get("group") == "scheduling.k8s.io" and old != new)
