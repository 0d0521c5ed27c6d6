"""Writes whose effect we wait to see before we judge their key again, so that a stale copy is never acted upon."""

from __future__ import annotations

from collections.abc import Hashable, Iterable


class Expectations:
    """Per key the uids whose change is still to be observed.

    Raised before the write; lowered by the event, by a write that failed or changed nothing (no event will come), and by deletion. Each is
    given up after `timeout_s`, counted in `timeouts`: a lost event may delay a key but must not stop it for ever. Five minutes is what the
    controllers of Kubernetes itself allow.
    """

    def __init__(self, timeout_s: float = 300.0) -> None:
        self._timeout_s = timeout_s
        self._deadlines: dict[Hashable, dict[str, float]] = {}
        self.timeouts = 0

    def __len__(self) -> int:
        return len(self._deadlines)

    def expect(self, key: Hashable, uids: Iterable[str], now: float) -> None:
        """Add to what is expected of `key`; a uid expected before gets a new deadline, the others keep theirs."""
        deadline = now + self._timeout_s
        fresh = dict.fromkeys(uids, deadline)
        if fresh:
            self._deadlines.setdefault(key, {}).update(fresh)

    def is_awaiting(self, key: Hashable, uid: str) -> bool:
        """Whether a change is still waited for."""
        return uid in self._deadlines.get(key, ())

    def observe(self, key: Hashable, uid: str) -> None:
        """The change was seen, or will never come. Unknown keys and uids are fine: most events were not waited for."""
        uids = self._deadlines.get(key)
        if uids is None:
            return
        if uid in uids:
            self.discard(key, uid)
        if not uids:
            del self._deadlines[key]

    def discard(self, key: Hashable, uid: str) -> None:
        """Removes one that is expected of `key`. A subclass that keeps something of each overrides it."""
        del self._deadlines[key][uid]

    def satisfied(self, key: Hashable, now: float) -> bool:
        """Whether nothing is (any longer) waited for."""
        uids = self._deadlines.get(key)
        if uids is None:
            return True
        for uid in [uid for uid, deadline in uids.items() if now >= deadline]:
            self.discard(key, uid)
            self.timeouts += 1
        if uids:
            return False
        del self._deadlines[key]
        return True

    def retry_in(self, key: Hashable, now: float) -> float | None:
        """Seconds until the last of what `key` waits for is given up; None when it waits for nothing. To requeue the key by, should no
        event come."""
        uids = self._deadlines.get(key)
        return max(0.0, max(uids.values()) - now) if uids else None

    def pending(self, key: Hashable) -> frozenset[str]:
        return frozenset(self._deadlines.get(key, ()))

    def forget(self, key: Hashable) -> None:
        """The key itself is gone."""
        for uid in tuple(self._deadlines.get(key, ())):
            self.discard(key, uid)
        self._deadlines.pop(key, None)
