"""At most so many requests a second: for administrators who want their API server spared, whatever it says itself."""

from core.runtime.clock import Clock


class Pace:
    """Each `turn` takes its place in a line that moves on `per_second`; up to `burst` need not wait after a quiet time."""

    def __init__(self, clock: Clock, per_second: float, burst: int) -> None:
        self._clock = clock
        self._apart_s = 1 / per_second
        self._ahead_s = (burst - 1) / per_second
        self._next = float("-inf")

    async def turn(self) -> None:
        """Returns when it is this request's turn."""
        now = self._clock.monotonic()
        mine = max(self._next, now - self._ahead_s)
        self._next = mine + self._apart_s
        if mine > now:
            await self._clock.sleep(mine - now)
