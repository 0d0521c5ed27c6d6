"""Why workloads wait, written on them: at once where the reason is new, later and at a limited rate where only its
message has changed.

The API server's time is for admissions first. Of the time that such a write takes, nine times as much is left between
two of them, and the slower it is the longer.
"""

import asyncio
from collections.abc import Iterator

from core.names import QUOTA_RESERVED
from core.plan.steps import pacing
from core.plan.workloads.verdict_steps import Judged
from core.queueing.cycle.cycle import Cycle
from core.queueing.cycle.run import Verdict
from core.queueing.flavors.outcome import PASSING, Admissible
from core.runtime.clock import Clock
from core.runtime.http.rate_limiter import RateLimiter, yield_to_others
from core.runtime.tasks import start_eternal
from core.runtime.workqueue import WorkQueue
from core.state.facts import find_condition
from reconciler.observe.observed import Observed
from reconciler.schedule.verdicts import Verdicts


class Reasons:
    """The refusals of a cycle, which `verdicts` writes."""

    def __init__(self, observed: Observed, clock: Clock, cycle: Cycle, verdicts: Verdicts) -> None:
        self._observed, self._clock, self._cycle, self._verdicts = observed, clock, cycle, verdicts
        self._later: dict[str, Judged] = {}  # uid -> why it waits now
        self._turns = WorkQueue(clock)
        self._first = RateLimiter(clock, pacing.REASONS_FIRST_PER_S, pacing.REASONS_FIRST_AT_ONCE)
        self._is_stale = asyncio.Event()

    def defer(self, judged: Judged) -> bool:
        """Returns True and queues a verdict to be written later by `run`, if it is a refusal that can wait; False if the caller is to write
        it now. Drops what was to be written of the workload before, in both cases. Refusals of the second pass, with victims, or that break
        a rule cannot wait. One with the same reason as before can; of others about `pacing.REASONS_FIRST_PER_S` a second are for the
        caller."""
        uid = judged.verdict.workload.uid
        self._later.pop(uid, None)
        seconds = self._find_delay(judged.verdict)
        if seconds is None:
            return False
        self._later[uid] = judged
        self._turns.add_after(uid, seconds, "another reason")
        return True

    def note_stale(self) -> None:
        """Records that a new reason was found for the first of workloads with equal requests, which the others do not have yet: `run`
        writes it to them."""
        self._is_stale.set()

    def drain(self) -> Iterator[Judged]:
        """Yields all refusals that are to be written later, and removes them. Then yields refusals of workloads that have the same requests
        as one that was refused for a new reason: they get that reason."""
        for uid in list(self._later):
            yield self._later.pop(uid)
        steps = 2 * sum(1 for _ in self._observed.state.workloads.list_pending()) + 2  # to the end of a walk, and once over all
        while (verdict := self._cycle.update_next_reason(steps=steps)) is not None:
            yield Judged(verdict, self._clock.now(), self._clock.now())

    def run(self, group: asyncio.TaskGroup) -> None:
        """Starts to write deferred and stale reasons, in tasks of the group that never end."""
        start_eternal(group, "other words", self._write_later())
        start_eternal(group, "catching up", self._update_reasons())

    async def _write_later(self) -> None:
        """Writes reasons with new messages one after the other: whatever is freed or used changes the messages of many
        that wait."""
        while True:
            item = await self._turns.get()
            began = self._clock.monotonic()
            judged = self._later.pop(str(item.key), None)
            if judged is not None and self._observed.state.workloads.find_holding(judged.verdict.workload.key) is None:
                with yield_to_others():
                    await self._verdicts.write(judged)
            self._turns.finish(item.key)
            await self._pause(1 / pacing.REASONS_PER_S, began)

    async def _update_reasons(self) -> None:
        """Updates the reasons of workloads with equal requests one after the other, from what was found for the first of them."""
        while True:
            await self._is_stale.wait()
            began = self._clock.monotonic()
            verdict = self._cycle.update_next_reason(self._verdicts.is_being_written)
            if verdict is not None:
                now = self._clock.now()
                self._later.pop(verdict.workload.uid, None)
                with yield_to_others():
                    await self._verdicts.write(Judged(verdict, now, now))
            elif not self._cycle.is_stale:
                self._is_stale.clear()
            await self._pause(pacing.REASONS_CATCH_UP_S, began)

    async def _pause(self, least_s: float, began: float) -> None:
        """Most of the API server's time is others'."""
        await self._clock.sleep(min(pacing.REASONS_LONGEST_REST_S, max(least_s, pacing.REASONS_REST * (self._clock.monotonic() - began))))

    def _find_delay(self, verdict: Verdict) -> float | None:
        """After how many seconds it is written why a workload waits, at the pace of all such writes. None: at once, whatever it is."""
        outcome, workload = verdict.outcome, self._observed.workloads.store.get(verdict.workload.key)
        if (
            verdict.is_second_pass
            or isinstance(outcome, Admissible)
            or (outcome.preempting is not None and outcome.preempting.victims)
            or outcome.breaks_rule
            or workload is None
        ):
            return None
        known = find_condition(workload, QUOTA_RESERVED) or {}
        reasons = {known.get("reason"), outcome.reason}
        if known.get("status") == "False" and (len(reasons) == 1 or reasons <= PASSING):
            return pacing.REASONS_AFTER_S
        return None if self._first.try_turn() else 0.0  # of a crowd that comes at once some are written a bit later
