"""So many at once, and so many a second from then on."""


class Allowance:
    """A bucket of tokens that fills as time goes by; time is given, in seconds of a monotonic clock."""

    def __init__(self, per_second: float, at_once: int) -> None:
        self._per_second, self._most = per_second, float(at_once)
        self._left, self._at = float(at_once), 0.0

    def take(self, now: float, leaves: float = 0) -> bool:
        """Takes one if there is one, and that `leaves` so many of a full bucket, from 0 to 1."""
        self._left = min(self._most, self._left + max(0.0, now - self._at) * self._per_second)
        self._at = max(self._at, now)
        if self._left < max(1.0, leaves * self._most):
            return False
        self._left -= 1
        return True
