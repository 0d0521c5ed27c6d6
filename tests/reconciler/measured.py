"""The small cluster on paper, measured: its clock goes, its objects have times, and it can be scraped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.metric_names import OF_RECONCILER
from core.runtime.metrics import Metrics
from core.runtime.resource import Obj
from reconciler.gauges import Gauges
from reconciler.metrics import Recorder
from reconciler.milestones import Milestones
from tests.reconciler.paper_queues import QueuesPaper
from tests.scraped import Scraped


class MeasuredPaper(QueuesPaper):
    """See QueuesPaper for what is in it."""

    def __init__(self, *, shares_fairly: bool = False, by_local_queue: bool = False) -> None:
        self.metrics = Metrics("test", OF_RECONCILER)
        self.recorder = Recorder(self.metrics, by_local_queue=by_local_queue)
        super().__init__(self.recorder)
        self.milestones = Milestones(self.observed, self.clock, self.recorder)
        self.gauges = Gauges(self.observed, self.scheduler, self.clock, shares_fairly=shares_fairly, by_local_queue=by_local_queue)
        self.metrics.read_by(self.gauges.read)

    def now(self) -> str:
        return self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")

    def put(self, obj: Mapping[str, Any]) -> Obj:
        return super().put({**obj, "metadata": {"creationTimestamp": self.now(), **obj["metadata"]}})

    def pass_time(self, seconds: float) -> None:
        self.clock.time += seconds

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
