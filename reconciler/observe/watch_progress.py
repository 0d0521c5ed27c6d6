"""Whether a watch has delivered what was written before a moment: an object that is not observed yet may exist."""

from collections.abc import Hashable
from typing import NamedTuple

from core.runtime.watch.watcher import Watcher

MOST_KEPT = 1_000
STREAMS_KEPT = 50  # an answer is kept while as many are opened, which takes seconds each


class _Question(NamedTuple):
    version: str
    opened: int  # number of streams that had been opened by then


class WatchProgress:
    """Of one watch."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._questions: dict[Hashable, _Question] = {}
        self._most = MOST_KEPT
        self._asked: _Question | None = None  # for which the watch was last asked to be up to date

    def has_passed(self, of: Hashable, version: str) -> bool:
        """Returns whether everything up to a resource version has been observed. Where that is unknown the stream is opened again, and a
        call with the same `of` (any key of the caller) returns True within seconds. True where nothing has been listed, or nothing is
        watched. The version of the first call with a key holds until one returns True."""
        watcher = self._watcher
        question = self._questions.setdefault(of, _Question(version, watcher.opened))
        if not watcher.version or watcher.has_reached(*question):
            del self._questions[of]
            return True
        if self._asked is None or watcher.has_reached(*self._asked):  # a stream that is opened again too often delivers no bookmark
            self._asked = _Question(question.version, watcher.opened)
            watcher.refresh(question.version)
        if len(self._questions) > self._most:  # some are never asked again
            self._questions = {of: each for of, each in self._questions.items() if watcher.opened <= each.opened + STREAMS_KEPT}
            self._most = max(MOST_KEPT, 2 * len(self._questions))
        return False
