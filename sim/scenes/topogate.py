"""topogate in a World: the code of the webhook is asked at each write, and a reconciler runs as a process of the World."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from core.metric_names import OF_RECONCILER
from core.runtime.report.metrics import Metrics
from e2e.api import wait_for
from e2e.cluster import Cluster
from e2e.process import Process, StartFailed
from e2e.topogate import SYSTEM_NAMESPACE, Topogate
from reconciler.behaviour import Behaviour
from reconciler.settings import parse as parse_reconciler
from sim.replica import Replica
from sim.scenes.cluster import SimulatedCluster
from webhook.settings import parse as parse_webhook

_CERTIFICATE = ("--cert-file", "none", "--key-file", "none")  # which nothing reads here


class SimulatedReconciler(Process):
    """A process that has been started."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica

    @property
    def is_running(self) -> bool:
        return not (self.replica.process.is_dead or self.replica.task.done())

    @property
    def is_deciding(self) -> bool:
        """Whether it has read what there is."""
        return self.replica.reconciler is not None and self.replica.reconciler.deciding is not None

    def stop(self, grace_s: float) -> None:
        """It ends at once, however long it may take."""
        self.replica.process.kill()


class SimulatedTopogate(Topogate):
    """Without leader election, a way to its metrics or its logs. The webhook cannot be killed."""

    def __init__(self, cluster: Cluster, *, flags: Sequence[str] = (), **options: Any) -> None:
        """`options` are those of processes on a real machine."""
        assert isinstance(cluster, SimulatedCluster)
        assert not options.get("leader_election")
        self.cluster, self._world, self._proxy = cluster, cluster.world, cluster.proxy
        self._set_options(None, False, flags)
        self.webhook = self.reconciler = None
        self._reconcilers = []
        self._is_plain = True

    def start(self, *, converts_only: bool = False) -> "SimulatedTopogate":
        self.start_webhook()
        self.start_reconciler()
        return self

    def stop(self) -> None:
        self._stop_reconcilers()

    @property
    def is_as_started(self) -> bool:
        return self._is_plain and [each for each in self._reconcilers if each.is_running] == [self.reconciler]

    def restart(self, *, flags: Sequence[str] = (), **options: Any) -> None:
        self._stop_reconcilers()
        self._set_options(None, False, flags)
        self.start()

    def read_metrics(self) -> str:
        """Its gauges alone."""
        assert isinstance(self.reconciler, SimulatedReconciler)
        assert self.reconciler.replica.reconciler is not None
        metrics = Metrics("scenes", OF_RECONCILER)
        metrics.read_by(self.reconciler.replica.reconciler.read_gauges)
        metrics.refresh()
        try:
            return metrics.expose()[0].decode()
        finally:
            metrics.shutdown()

    def start_webhook(self) -> None:
        settings = parse_webhook([*_CERTIFICATE, *self._options], environ={})
        self._world.ask_webhook(gates=settings.gates, most_ready_s=settings.most_ready_s)

    def start_reconciler(
        self, *, wait: bool = True, kubeconfig: Path | None = None, options: Sequence[str] = (), packages: Path | None = None
    ) -> None:
        assert packages is None
        settings = parse_reconciler(["--namespace", SYSTEM_NAMESPACE, *options, *self._options], environ={})
        behaviour = Behaviour.read(settings)
        chosen = {field.name: getattr(behaviour, field.name) for field in dataclasses.fields(behaviour)}
        started = SimulatedReconciler(self._world.start_reconciler(**chosen))
        if kubeconfig is not None:
            self._proxy.watch(started.replica)
        self._reconcilers.append(started)
        self.reconciler, self._is_plain = started, kubeconfig is None and not options
        if wait:
            wait_for("the reconciler to decide", lambda: started.is_deciding or not started.is_running, poll_s=0.02)
            if not started.is_running:
                raise StartFailed("the reconciler did not come up")
