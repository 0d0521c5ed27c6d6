"""The condition of each group: one for all its replicas together."""

import logging
from collections.abc import Callable

from core.names import POD_GROUP_SCHEDULED, POD_GROUP_VERIFIED
from core.plan.steps import api_resources as r
from core.plan.steps import writes as w
from core.plan.steps.conditions import Condition, has_condition, set_conditions
from core.podgroups.acting import GroupStep
from core.podgroups.members import GroupKey
from core.resource import Obj
from core.runtime.http.errors import NotFound
from reconciler.execute.executor import Executor
from reconciler.podgroups.group_steps import is_native
from reconciler.podgroups.group_tracing import GroupTraces

logger = logging.getLogger(__name__)
_SHOWN = 3  # replicas that a condition names
_Named = tuple[str, str]  # namespace and name of a group


class GroupConditions:
    """Writes the conditions of groups. `note`: an addition to the message of a group, by namespace and name.

    No condition is written while a replica with pods has not been decided on: after a start all of them are to be, and
    many come at once.
    """

    def __init__(self, executor: Executor, traces: GroupTraces, note: Callable[[str, str], str]) -> None:
        self._executor, self._traces, self._note = executor, traces, note
        self._there: dict[_Named, set[GroupKey]] = {}  # replicas with pods
        self._judged: dict[_Named, dict[GroupKey, GroupStep]] = {}

    def add_replica(self, key: GroupKey) -> None:
        """Records that a replica of a group has a pod."""
        self._there.setdefault(_find_named(key), set()).add(key)

    def remove_replica(self, key: GroupKey) -> None:
        """Removes the record that a replica of a group has pods; does nothing for an unknown one. Its step stays until `report` or
        `remove_group`."""
        there = self._there.get(_find_named(key), set())
        there.discard(key)
        if not there:
            self._there.pop(_find_named(key), None)

    def list_replicas(self, namespace: str, name: str) -> set[GroupKey]:
        """Returns the keys of the replicas of a group that have pods; empty where none has. It is the set that is kept up to date, not a
        copy."""
        return self._there.get((namespace, name), set())

    def remove_group(self, namespace: str, name: str) -> None:
        """Removes the recorded steps of the replicas of a group that is gone. Which of them have pods stays recorded."""
        self._judged.pop((namespace, name), None)

    async def report(self, group: Obj, key: GroupKey, step: GroupStep, *, has_pods: bool) -> None:
        """Records the step of a replica, and writes the condition of its group where all replicas with pods have one and it has changed. A
        replica without pods (`has_pods`) counts only where the group has no condition and no replica with pods; else its step is removed. A
        change is logged and emitted as an event, too, but not where only the group's generation is another. Raises KubeError, but not where
        the group is gone."""
        before = (group.get("status") or {}).get("conditions") or []
        judged, there = self._judged.setdefault(_find_named(key), {}), self.list_replicas(key.namespace, key.name)
        if has_pods or not (before or there):
            judged[key] = GroupStep(step.is_scheduled, step.reason, step.message)  # no explanation: that is large, and replicas are many
        elif judged.pop(key, None) is None or not judged:
            return  # those that it had are gone: what became of them stands, unless there are other replicas that have some
        if not there <= judged.keys():
            return
        condition, note = self._build_condition(group, judged), self._note(key.namespace, key.name)
        if note:
            condition = Condition(condition.type, condition.status, condition.reason, f"{condition.message}; {note}")
        generation = int(group["metadata"].get("generation") or 0)
        if has_condition(before, condition) and any(
            one.get("type") == condition.type and one.get("observedGeneration") == generation for one in before
        ):
            return
        wire = set_conditions(before, [condition], now=self._executor.format_now(), generation=generation)
        resource = r.NATIVE_POD_GROUPS if is_native(group) else r.POD_GROUPS
        try:
            await self._executor.write(
                w.patch_status(resource, group, {"conditions": [one for one in wire if one["type"] == condition.type]})
            )
        except NotFound:
            return
        if has_condition(before, condition):
            return  # of another generation of the group: nothing is new
        if not step.is_scheduled and step.explanation is not None:
            self._traces.trace_refusal(group, key, step, condition.message)
        logger.info("group judged", extra={"group": str(key), "scheduled": condition.status, "why": condition.message})
        self._executor.reporter.record_event(resource, group, condition.reason, condition.message, warning=not condition.status)

    def _build_condition(self, group: Obj, judged: dict[GroupKey, GroupStep]) -> Condition:
        kind = POD_GROUP_VERIFIED if is_native(group) else POD_GROUP_SCHEDULED
        first = next(iter(judged.values()))
        if len(judged) == 1 and (is_native(group) or int(group["spec"].get("replicas") or 1) == 1):
            return Condition(kind, first.is_scheduled, first.reason, first.message)
        lacking = [(key, step) for key, step in sorted(judged.items(), key=lambda one: one[0]) if not step.is_scheduled]
        if not lacking:
            return Condition(kind, True, first.reason, f"{len(judged)} replicas have their places")
        texts = [f"replica {key.replica}: {step.message}" for key, step in lacking[:_SHOWN]]
        more = f"; and {len(lacking) - _SHOWN} more" if len(lacking) > _SHOWN else ""
        return Condition(kind, False, lacking[0][1].reason, f"{'; '.join(texts)}{more}")


def _find_named(key: GroupKey) -> _Named:
    return key.namespace, key.name
