"""What all controllers of the reconciler have in common: a queue of keys, and workers on it."""

from core.plan.steps import pacing
from core.runtime.clock import Clock
from core.runtime.controller import Controller, Reconcile
from core.runtime.workqueue import WorkQueue


def build_controller(name: str, reconcile: Reconcile, clock: Clock, *, workers: int = 1) -> Controller:
    """Returns a controller with an empty queue of its own. It calls `reconcile` for `workers` keys at once; a failed key comes back after
    `pacing.RETRY_MOST_S` seconds at most.
    """
    return Controller(name, reconcile, WorkQueue(clock, max_delay_s=pacing.RETRY_MOST_S), workers, clock=clock)
