"""The condition of each group: one for all its replicas together."""

from collections.abc import Callable

from core.plan.pods.group_plans import plan_group_condition
from core.podgroups.acting import GroupStep
from core.podgroups.members import GroupKey
from core.resource import Obj
from core.runtime.clock import Clock
from core.runtime.http.errors import NotFound
from reconciler.execute.executor import Executor

_Named = tuple[str, str]  # namespace and name of a group


class GroupConditions:
    """Writes the conditions of groups. `note`: an addition to the message of a group, by namespace and name.

    No condition is written while a replica with pods has not been decided on: after a start all of them are to be, and
    many come at once.
    """

    def __init__(self, executor: Executor, clock: Clock, note: Callable[[str, str], str]) -> None:
        self._executor, self._clock, self._note = executor, clock, note
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
        replica without pods (`has_pods`) counts only where the group has no condition and no replica with pods; else its step is removed.
        Raises KubeError, but not where the group is gone."""
        before = (group.get("status") or {}).get("conditions")
        judged, there = self._judged.setdefault(_find_named(key), {}), self.list_replicas(key.namespace, key.name)
        if has_pods or not (before or there):
            judged[key] = GroupStep(step.is_scheduled, step.reason, step.message)  # no explanation: that is large, and replicas are many
        elif judged.pop(key, None) is None or not judged:
            return  # those that it had are gone: what became of them stands, unless there are other replicas that have some
        if not there <= judged.keys():
            return
        try:
            note = self._note(key.namespace, key.name)
            await self._executor.execute(plan_group_condition(group, key, step, judged, note, self._clock.now()))
        except NotFound:
            return


def _find_named(key: GroupKey) -> _Named:
    return key.namespace, key.name
