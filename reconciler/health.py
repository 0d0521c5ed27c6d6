"""The conditions of the reconciler's probes: state is complete, watches receive data, work queues make progress.

A process that only waits for its lease is ready once all objects are listed and the holder of the lease is known;
otherwise no rollout would ever end. It decides nothing and has no work queues, so its liveness depends on the watches
alone.
"""

from core.runtime.clock import Clock
from core.runtime.controller import Controller
from core.runtime.lease import LeaderElection
from core.runtime.watch.informer import Informer
from reconciler.app import Reconciler

# A watch that is cut off or silent is begun anew within two and a half minutes (core.runtime.watch.watch_step), and
# every half minute while the API server is unavailable. A process that still receives nothing after this time may be
# stuck in a way that a new one is not. Where the API server is the reason, a restart now and then does no harm.
WATCH_SILENT_S = 15 * 60.0
# A key is worked on within seconds. Long queues are no fault as long as keys come off them: both must have stood still for so long.
QUEUE_STUCK_S = 10 * 60.0


class Health:
    """The health of the process; `election` where there is one, `stopping` once it is asked to stop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.election: LeaderElection | None = None
        self.reconciler: Reconciler | None = None
        self.stopping = False

    def find_unready_reason(self) -> str:
        """Returns why the process is not ready, as text; empty where it is. It is ready once all has been listed once and, with an
        election, the holder of the lease is known, until it is asked to stop. What cannot be listed later is not looked at."""
        if self.stopping:
            return "stopping"
        if self.reconciler is None:
            return "starting"
        if not self.reconciler.is_complete:
            missing = sorted(str(informer.resource) for informer in self.reconciler.observed.awaited if not informer.synced)
            why = self.reconciler.troubles.describe_errors()
            return f"not listed yet: {', '.join(missing)}" + (f"; {why}" if why else "")
        return "" if self.election is None or self.election.holder else "the holder of the lease is not known"

    def find_dead_reason(self) -> str:
        """Returns what has stood still for too long, as text with seconds; empty if nothing has, before there is a reconciler, and once it
        is asked to stop. It looks at watches of listed kinds that have received nothing for `WATCH_SILENT_S`. While this process decides,
        it looks for two more things, each for `QUEUE_STUCK_S`. These are controllers with a due key that finish none, and a scheduler with
        changes on which it does not decide."""
        if self.reconciler is None or self.stopping:
            return ""
        silent = (self._describe_silence(informer) for informer in self.reconciler.observed.informers)
        deciding = self.reconciler.deciding
        if deciding is None:
            return "; ".join(filter(None, silent))
        stuck = (self._describe_standstill(controller) for controller in deciding.controllers)
        behind_s = deciding.scheduler.behind_s
        late = f"nothing has been decided for {behind_s:.0f} s" if behind_s > QUEUE_STUCK_S else ""
        return "; ".join(why for why in (*silent, *stuck, late) if why)

    def _describe_silence(self, informer: Informer) -> str:
        # One that is not synced has its first list before it, or its kind has gone.
        age = informer.watcher.compute_event_age(self._clock) if informer.synced else None
        return f"the watch of {informer.resource} has received nothing for {age:.0f} s" if age is not None and age > WATCH_SILENT_S else ""

    def _describe_standstill(self, controller: Controller) -> str:
        since = min(controller.queue.oldest_age, self._clock.monotonic() - controller.finished_at)
        return f"controller {controller.name} has finished nothing for {since:.0f} s" if since > QUEUE_STUCK_S else ""
