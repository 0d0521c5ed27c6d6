"""What all controllers of the reconciler have in common: a queue of keys, and workers on it."""

from core.runtime.clock import Clock
from core.runtime.controller import Controller, Reconcile
from core.runtime.workqueue import WorkQueue

MAX_RETRY_S = 30.0  # an outage that is over must not be waited out for long


def build_controller(name: str, reconcile: Reconcile, clock: Clock, *, workers: int = 1) -> Controller:
    """A controller over a queue of its own."""
    return Controller(name, reconcile, WorkQueue(clock, max_delay_s=MAX_RETRY_S), workers, clock=clock)
