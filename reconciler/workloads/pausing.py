"""The effect of an administrator's pause on the process: it is logged, and the keys that it held back are reconciled
when it ends."""

import logging
from collections.abc import Callable, Iterable

from core.model.pause_state import NOTHING_PAUSED, PAUSABLE, Pause
from core.runtime.controller import Controller
from core.runtime.watch.store import Change
from reconciler.observe.observed import Observed

logger = logging.getLogger(__name__)


class Pausing:
    """Follows the ConfigMap. What decides and writes asks the state itself, which knows of it first. `controllers` are those that
    run now."""

    def __init__(self, observed: Observed, controllers: Callable[[], Iterable[Controller]]) -> None:
        self._observed = observed
        self._controllers = controllers
        self._before = NOTHING_PAUSED
        observed.pauses.add_handler(self._on_change)

    @property
    def state(self) -> Pause:
        """Returns which decisions an administrator has paused now, and why."""
        return self._observed.state.pause

    def _on_change(self, change: Change) -> None:
        before, self._before = self._before, self.state
        for what in PAUSABLE:
            stop = self.state.find_stop(what)
            if stop == before.find_stop(what):
                continue
            if stop is None:
                logger.warning("resumed", extra={"what": what})
            elif stop.problem:
                logger.error("paused by a key that cannot be read", extra={"what": what, "why": stop.sentence})
            else:
                logger.warning("paused", extra={"what": what, "why": stop.sentence})
        unknown = sorted(((change.new or {}).get("data") or {}).keys() - set(PAUSABLE))
        if unknown:
            logger.warning("keys that pause nothing", extra={"keys": unknown, "known": PAUSABLE})
        for controller in self._controllers():
            controller.resume()
