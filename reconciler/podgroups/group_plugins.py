"""The plugins that place groups of pods: topogate's own, which decide in this process, and those of other packages,
each in a process of its own.

A plugin that fails is named in the log, in a metric and in the condition of the groups that were placed without it, and
is not asked again for a while. No decision waits for it longer than its limit.
"""

import asyncio
import logging
from collections.abc import Iterable, Set
from dataclasses import dataclass
from typing import Never

from core.metric_names import NONSENSE
from core.model.plugin_choice import ALL_EVENTS, GENERATE, ROOM_EVENTS, SCORE, GroupEvent, GroupPluginRules, Which
from core.plan.steps import pacing
from core.podgroups.builtin import GENERATORS, SCORERS
from core.podgroups.devices.device_placement import DevicePlacement
from core.podgroups.framework import PlacementGenerator, PlacementScorer, Plugins, list_events
from core.podgroups.members import GroupKey
from core.podgroups.outside import Answers, OutsideGenerator, OutsideScorer
from core.podgroups.podgroup_facts import PodGroupFacts
from core.podgroups.questions import Nonsense, Question
from core.podgroups.topology_placement import TopologyPlacement
from core.runtime.clock import Clock
from reconciler.execute.recorder import UNRECORDED, Recorder
from reconciler.podgroups.installed_plugins import list_launches
from reconciler.podgroups.plugin_process import Launch, PluginFailed, PluginProcess

logger = logging.getLogger(__name__)
OFTEN = 10
"""Questions of one decision, beside two for each plugin: there are more only where nodes and pods change under it all
the time."""
_RESTLESS = "nodes and pods change faster than it answers"


@dataclass(slots=True)
class _Trouble:
    """Why a plugin is not asked until a moment."""

    why: str
    pause_s: float
    until_s: float


class GroupPlugins:
    """Those of a configuration; `outside`: where those of other packages come from, if not from what is installed.

    Whatever they are asked is asked in the event loop in which `run` runs.
    """

    def __init__(
        self,
        rules: GroupPluginRules,
        clock: Clock,
        recorder: Recorder = UNRECORDED,
        outside: Iterable[Launch] | None = None,
    ) -> None:
        self._clock, self._recorder, self._feasible_limit = clock, recorder, rules.feasible_limit
        self._generators: list[tuple[Which, PlacementGenerator | None]] = []
        self._scorers: list[tuple[Which, PlacementScorer | None, float]] = []
        for one in rules.generators:
            which = Which(GENERATE, one.name)
            self._generators.append((which, GENERATORS[one.name](one.arguments) if which.is_built_in else None))
        for one in rules.scorers:
            which = Which(SCORE, one.name)
            self._scorers.append((which, SCORERS[one.name](one.arguments) if which.is_built_in else None, one.weight))
        self._processes = {
            launch.which: PluginProcess(launch, rules.limits) for launch in (list_launches(rules) if outside is None else outside)
        }
        self._turns = {which: asyncio.Lock() for which in self._processes}
        self._troubles: dict[Which, _Trouble] = {}
        self._missed: dict[GroupKey, dict[Which, str]] = {}  # by group: the plugins that were missing in the last decision
        for which in self._processes:
            recorder.record_plugin(which.name)

    # --- for one decision -----------------------------------------------------------------------------------------

    def start_answers(self) -> Answers:
        """Returns empty answers for a decision that begins now. Plugins that rest after a failure are recorded in it as skipped, with the
        reason."""
        now = self._clock.monotonic()
        return Answers({which: trouble.why for which, trouble in self._troubles.items() if now < trouble.until_s})

    def list_plugins(self, answers: Answers) -> Plugins:
        """Returns the generators and scorers of a decision, in the order of the configuration; plugins of other packages read their answers
        in `answers`.
        """
        generators = (OutsideGenerator(which, answers) if ours is None else ours for which, ours in self._generators)
        scorers = ((OutsideScorer(which, answers) if ours is None else ours, weight) for which, ours, weight in self._scorers)
        return Plugins(tuple(generators), tuple(scorers), feasible_limit=self._feasible_limit)

    def list_events(self, facts: PodGroupFacts) -> Set[GroupEvent]:
        """Returns the events that can help a group that waits. These are those of room for pods, of aliases where it asks for a level, and
        of devices where it has claims. To these come what the generators that place it name; one of another package that names none counts
        for all."""
        events = ROOM_EVENTS | (DevicePlacement.events if facts.claim_templates else frozenset())
        events |= {GroupEvent.NODE_TOPOLOGY_CHANGED} if facts.levels else set()  # it may name an alias
        for which, ours in self._generators:
            if ours is None:
                events |= self._processes[which].events if which in self._processes else ALL_EVENTS
            elif not isinstance(ours, TopologyPlacement) or facts.levels:
                events |= list_events(ours)
        return events

    async def answer(self, question: Question, answers: Answers) -> None:
        """Asks the plugin that a question names, after other questions to it, and adds its answer to `answers`. Where it fails, rests after
        a failure, or `answers` has had too many questions, it is recorded there as skipped: the decision is made without it. A failure is
        logged and counted, and begins a rest that doubles until the plugin answers."""
        which = question.which
        answers.times += 1
        if answers.times > OFTEN + 2 * len(self._processes):
            answers.skip_plugin(which, _RESTLESS)
            return
        async with self._turns[which]:
            trouble = self._troubles.get(which)
            if trouble is not None and self._clock.monotonic() < trouble.until_s:  # others have found out, while this one waited
                answers.skip_plugin(which, trouble.why)
                return
            try:
                await self._ask(question, answers)
            except PluginFailed as error:
                self._skip_plugin(which, error)
                answers.skip_plugin(which, str(error))

    async def _ask(self, question: Question, answers: Answers) -> None:
        answer = await self._processes[question.which].ask(question)
        try:
            await asyncio.to_thread(answers.add_answer, question, answer)  # of many placements it takes a while
        except Nonsense as error:
            await self._processes[question.which].close()
            raise PluginFailed(NONSENSE, "it gave an answer that makes no sense", str(error)) from error
        self._troubles.pop(question.which, None)
        self._recorder.record_plugin_answer(question.which.name)

    def _skip_plugin(self, which: Which, error: PluginFailed) -> None:
        before = self._troubles.get(which)
        pause_s = min(2 * before.pause_s, pacing.PLUGIN_LONGEST_PAUSE_S) if before is not None else pacing.PLUGIN_PAUSE_S
        self._troubles[which] = _Trouble(str(error), pause_s, self._clock.monotonic() + pause_s)
        self._recorder.record_plugin_failure(which.name, error.kind)
        logger.warning(
            "a plugin is passed over",
            extra={"plugin": which.name, "role": which.role, "why": str(error), "detail": error.detail, "for_s": pause_s},
        )

    # --- the conditions of groups -----------------------------------------------------------------------------------

    def record_missed(self, key: GroupKey, answers: Answers) -> None:
        """Stores the plugins that were missing in a decision on a replica, in place of those of its last decision. Changes nothing where
        the decision used no plugin."""
        if answers.is_used:
            self.drop_missed(key)
            if answers.missed:
                self._missed[key] = dict(answers.missed)

    def drop_missed(self, key: GroupKey) -> None:
        """Removes what is stored of plugins that were missing in the last decision on a replica of a group."""
        self._missed.pop(key, None)

    def is_missed(self, key: GroupKey) -> bool:
        """Whether a plugin was missing in the last decision on a replica, so that it may get another answer though nothing has changed."""
        return key in self._missed

    def describe_missed(self, namespace: str, name: str) -> str:
        """Returns `plugin NAME was skipped: WHY` for each plugin that was missing in the last decisions on a group's replicas; of several
        replicas the last one's reason. They are in the order of the names, with `; ` between. Empty where none was; the conditions of the
        group get it."""
        mine = [missed for key, missed in sorted(self._missed.items()) if (key.namespace, key.name) == (namespace, name)]
        missed = {which.name: why for of_replica in mine for which, why in of_replica.items()}
        return "; ".join(f"plugin {plugin} was skipped: {why}" for plugin, why in sorted(missed.items()))

    # --- processes --------------------------------------------------------------------------------------------------

    async def run(self) -> Never:
        """Waits until it is cancelled, and then ends all processes: none outlives it."""
        try:
            await asyncio.Event().wait()
        finally:
            await self.close()
        raise AssertionError("the event is never set")

    async def close(self) -> None:
        """Ends the processes of all plugins that run. The next question to a plugin starts its process again."""
        await asyncio.gather(*(process.close() for process in self._processes.values()))

    @property
    def pids(self) -> dict[str, int]:
        """Returns the process ids of plugins that run, by the name of the plugin. Of one with both roles it has only the one configured
        last."""
        return {which.name: process.pid for which, process in self._processes.items() if process.pid is not None}
