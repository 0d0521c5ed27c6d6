"""The small cluster, measured: its clock goes, its objects have times, and it can be scraped."""

from __future__ import annotations

from typing import Any

from core.metric_names import OF_RECONCILER
from core.runtime.report.metrics import Metrics
from reconciler.execute.recorder import Recorder
from reconciler.measure.gauges import Gauges
from reconciler.measure.latency_metrics import Milestones
from tests.reconciler.harness_queues import QueuesHarness
from tests.scraped import Scraped


class MeasuredHarness(QueuesHarness):
    """See QueuesHarness for what is in it."""

    def __init__(self, *, shares_fairly: bool = False, by_local_queue: bool = False) -> None:
        self.metrics = Metrics("test", OF_RECONCILER)
        self.recorder = Recorder(self.metrics, by_local_queue=by_local_queue)
        super().__init__(self.recorder)
        self.milestones = Milestones(self.observed, self.clock, self.recorder)
        self.gauges = Gauges(self.observed, self.scheduler, self.clock, shares_fairly=shares_fairly, by_local_queue=by_local_queue)
        self.metrics.read_by(self.gauges.read)

    def set_condition(self, name: str, kind: str, *, status: bool = True, reason: str = "", **more: Any) -> None:
        """A condition of a workload as of now; `more` replaces parts of its status."""
        workload = self.get("Workload", name)
        now = workload.get("status") or {}
        new = {"type": kind, "status": str(status), "reason": reason or kind, "message": "", "lastTransitionTime": self.now()}
        others = [condition for condition in now.get("conditions") or () if condition["type"] != kind]
        self.put({**workload, "status": {**now, **more, "conditions": [*others, new]}})

    def scrape(self) -> Scraped:
        self.metrics.refresh()
        return Scraped(self.metrics.expose()[0].decode())
