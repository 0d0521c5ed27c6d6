"""Whether a watch has delivered what was written before a moment: an object that is not observed yet may exist."""

from collections.abc import Hashable
from dataclasses import dataclass

from core.runtime.watcher import Watcher

MOST_KEPT = 1_000
STREAMS_KEPT = 50  # an answer is kept while as many are opened, which takes seconds each


@dataclass(frozen=True, slots=True)
class _Question:
    version: str
    opened: int  # number of streams that had been opened by then


class WatchProgress:
    """Of one watch."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._questions: dict[Hashable, _Question] = {}
        self._most = MOST_KEPT
        self._asked_at = -1  # streams that had been opened when the watch was last asked to be up to date

    def has_passed(self, of: Hashable, version: str) -> bool:
        """Whether everything up to a resource version has been observed. Versions of all resources count in one sequence. Where that is not
        known the stream is opened anew, and a call with the same `of` returns True within seconds. True where nothing is watched.

        The version of the first call holds until a call returns True.
        """
        watcher = self._watcher
        question = self._questions.setdefault(of, _Question(version, watcher.opened))
        if not watcher.version or not is_behind(watcher.version, question.version) or watcher.delivered > question.opened:
            del self._questions[of]
            return True
        if watcher.delivered > self._asked_at:  # a stream that is opened anew too often delivers no bookmark
            self._asked_at = watcher.opened
            watcher.refresh()
        if len(self._questions) > self._most:  # some are never asked again
            self._questions = {of: each for of, each in self._questions.items() if watcher.delivered <= each.opened + STREAMS_KEPT}
            self._most = max(MOST_KEPT, 2 * len(self._questions))
        return False


def is_behind(version: str, now: str) -> bool:
    """Whether a resource version is older than another, as far as they can be compared."""
    return not (version.isdecimal() and now.isdecimal()) or int(version) < int(now)
