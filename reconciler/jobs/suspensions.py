"""How often each job was suspended within the last minutes, and when its turn comes again."""

from typing import NamedTuple

from core.plan.jobs.jobs import FREE_SUSPENSIONS
from core.plan.steps import pacing
from core.runtime.clock import Clock

MOST_KEPT = 10_000


class _Seen(NamedTuple):
    times: int
    at: float


class Suspensions:
    """By uid of jobs. Another program may resume a job again and again: the time between two suspensions grows then."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, _Seen] = {}

    def count(self, uid: str) -> int:
        """Returns how often the job with a uid was suspended in a row; 0 once `pacing.SUSPENSION_REMEMBERED_S` seconds have passed since
        the last time.
        """
        seen = self._seen.get(uid)
        return seen.times if seen is not None and self._clock.monotonic() - seen.at <= pacing.SUSPENSION_REMEMBERED_S else 0

    def find_wait(self, uid: str) -> float:
        """Returns the seconds until the job with a uid may be suspended again; 0 or less where it may be now. `FREE_SUSPENSIONS` in a row
        need no wait; then it doubles from 1 s up to `pacing.SUSPENSION_LONGEST_S`."""
        count = self.count(uid)
        if count < FREE_SUSPENSIONS:
            return 0.0
        return self._seen[uid].at + min(pacing.SUSPENSION_LONGEST_S, 2.0 ** min(count - FREE_SUSPENSIONS, 10)) - self._clock.monotonic()

    def note(self, uid: str) -> None:
        """Counts a suspension now of the job with a uid. The count begins anew with 1 where the last one is longer ago than
        `pacing.SUSPENSION_REMEMBERED_S` seconds."""
        now = self._clock.monotonic()
        if len(self._seen) > MOST_KEPT:
            self._seen = {uid: seen for uid, seen in self._seen.items() if now - seen.at <= pacing.SUSPENSION_REMEMBERED_S}
        self._seen[uid] = _Seen(self.count(uid) + 1, now)
