"""Kueue and topogate as processes beside a control plane, started and ended alike, and what they take while something is measured."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from e2e.api import APPLY_PATCH
from e2e.cluster import Cluster
from e2e.crds import install_crds, register_conversion
from e2e.manifests import get_path as path_of
from e2e.operators.build import Built, ensure_operator
from e2e.operators.catalogue import Place
from e2e.operators.kueue import KUEUE as KUEUE_MANAGER
from e2e.operators.running import RunningOperator
from e2e.topogate import Topogate
from tests.bench.admission import count_calls
from tests.bench.compared.runs import FLOOR, KUEUE, MANAGER_CPU, TOPOGATE
from tests.bench.parts.meter import Meter, Used


class Manager(ABC):
    """What decides on one cluster. A context manager: it runs inside. The API server converts nothing by webhook, whoever runs."""

    @property
    @abstractmethod
    def pids(self) -> Mapping[str, int]:
        """Its processes that run, by name."""

    @abstractmethod
    def stop(self, grace_s: float = 0) -> None:
        """Ends what decides, at once or within `grace_s`, so that it can give back its lease; objects can be made meanwhile."""

    @abstractmethod
    def start_again(self) -> None:
        """Starts what `stop` has ended, and returns when it is said to be ready."""

    @abstractmethod
    def start_another(self) -> None:
        """Starts a second one, which follows the first; from then on `stop` ends the first and leaves this one."""

    @abstractmethod
    def __enter__(self) -> Self: ...

    @abstractmethod
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...


class NoManager(Manager):
    """Of the floor: only the kinds are installed."""

    def __init__(self, cluster: Cluster, *, elects: bool = False) -> None:
        self._cluster = cluster

    @property
    def pids(self) -> Mapping[str, int]:
        return {}

    def stop(self, grace_s: float = 0) -> None: ...

    def start_again(self) -> None: ...

    def start_another(self) -> None: ...

    def __enter__(self) -> Self:
        install_crds(self._cluster.api)
        register_conversion(self._cluster.api, {"strategy": "None"})
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...


class KueueManager(Manager):
    """Kueue's manager with its webhooks, as published. While none runs its webhooks are not registered.

    They are registered behind a Service, as in a cluster, since API servers speak HTTP/1.1 with those, and HTTP/2 with webhooks at an
    address of loopback (k8s.io/apiserver, pkg/util/webhook/client.go).
    """

    def __init__(self, cluster: Cluster, *, elects: bool = False) -> None:
        built = ensure_operator(KUEUE_MANAGER)
        self._cluster, self._built = cluster, _let_elect(built) if elects else built
        self._running = [RunningOperator(cluster, self._built)]

    @property
    def pids(self) -> Mapping[str, int]:
        return {f"manager-{i}": each.process.pid for i, each in enumerate(self._running) if each.process is not None}

    def stop(self, grace_s: float = 0) -> None:
        first = self._running[0]
        assert first.process is not None
        first.process.stop(grace_s)
        first.stop()
        if len(self._running) > 1:
            self._running = self._running[1:]
            return
        for obj in first.installed:
            if obj["kind"].endswith("WebhookConfiguration"):
                self._cluster.api.delete(f"{path_of(obj)}/{obj['metadata']['name']}")

    def start_again(self) -> None:
        self._running = [self._start(RunningOperator(self._cluster, self._built))]

    def start_another(self) -> None:
        self._running.append(self._start(RunningOperator(self._cluster, self._built)))

    def _start(self, running: RunningOperator) -> RunningOperator:
        running.start()
        place = {"name": "webhooks", "namespace": self._built.operator.namespace}
        local = {"apiVersion": "v1", "kind": "Service", "metadata": place, "spec": {"type": "ExternalName", "externalName": "localhost"}}
        hooks = [obj for obj in running.installed if obj["kind"].endswith("WebhookConfiguration")]
        for obj in (local, *({**obj, "webhooks": [_lead_by_service(hook, place) for hook in obj["webhooks"]]} for obj in hooks)):
            path = f"{path_of(obj)}/{obj['metadata']['name']}?fieldManager=e2e-operators&force=true"
            self._cluster.api.patch(path, obj, APPLY_PATCH)
        return running

    def __enter__(self) -> Self:
        self._start(self._running[0])
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for each in self._running:
            each.stop()


def _lead_by_service(hook: Mapping[str, Any], service: Mapping[str, str]) -> dict[str, Any]:
    client = hook["clientConfig"]
    url = urlsplit(client["url"])
    return {**hook, "clientConfig": {"caBundle": client["caBundle"], "service": {**service, "port": url.port, "path": url.path}}}


def _let_elect(built: Built) -> Built:
    """With leader election as published, in the namespace of its manifests, which a process outside of the cluster has to be told."""
    build = built.operator.configuration
    assert build is not None

    def configure(place: Place) -> dict[str, Any]:
        election = {"leaderElect": True, "resourceName": "c1f6bfd2.kueue.x-k8s.io", "resourceNamespace": built.operator.namespace}
        return {**build(place), "leaderElection": election}

    return replace(built, operator=replace(built.operator, configuration=configure))


class TopogateManager(Manager):
    """topogate's webhook and reconciler with its policies, as installed."""

    def __init__(self, cluster: Cluster, *, elects: bool = False) -> None:
        self._cluster, self._topogate = cluster, Topogate(cluster, leader_election=elects)
        self._first = self._topogate.reconciler

    @property
    def pids(self) -> Mapping[str, int]:
        running = {"webhook": self._topogate.webhook, "first": self._first, "reconciler": self._topogate.reconciler}
        return {name: process.pid for name, process in running.items() if process is not None and process.is_running}

    def stop(self, grace_s: float = 0) -> None:
        ended = self._first or self._topogate.reconciler
        assert ended is not None
        ended.stop(grace_s)
        if self._first is None:
            self._topogate.reconciler = None
        self._first = None

    def start_again(self) -> None:
        self._topogate.start_reconciler()

    def start_another(self) -> None:
        self._first = self._topogate.reconciler
        self._topogate.start_reconciler(wait=False)

    def __enter__(self) -> Self:
        self._topogate.start()
        register_conversion(self._cluster.api, {"strategy": "None"})
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._topogate.stop()


def make_manager(subject: str, cluster: Cluster, *, elects: bool = False) -> Manager:
    """Returns the manager of a subject, which does not run yet. `elects`: with leader election."""
    kinds: dict[str, Callable[..., Manager]] = {FLOOR: NoManager, KUEUE: KueueManager, TOPOGATE: TopogateManager}
    return kinds[subject](cluster, elects=elects)


@dataclass(frozen=True)
class Measured:
    """What a run of a case came to; see `Run`."""

    done: int
    figures: Mapping[str, float]
    calls: Mapping[str, float]


class Window:
    """What is taken from when it is made until `close`: processor time by all parts, requests. Processes of the manager that start
    meanwhile count from their start, and those that have ended not at all."""

    def __init__(self, cluster: Cluster, manager: Manager) -> None:
        self._cluster, self._manager = cluster, manager
        self._parts = {"API server": cluster.pids["kube-apiserver"], "etcd": cluster.pids["etcd"], "load generator": os.getpid()}
        self._before, meter = count_calls(cluster), Meter.of(self._parts | dict(manager.pids))
        self._began = {meter.pids[name]: cpu_s for name, cpu_s in meter.began.items()}

    def close(self, done: int, figures: Mapping[str, float]) -> Measured:
        """Returns what was done, with `figures` before those of the processes."""
        managed, calls = self._read(self._manager.pids), count_calls(self._cluster)
        taken = dict[str, float]()
        if managed:
            taken[MANAGER_CPU] = round(sum(each.cpu_s for each in managed.values()), 1)
            taken["peak memory of the manager, MB"] = sum(each.peak_mb for each in managed.values())
        taken |= {f"CPU of the {name}, s": used.cpu_s for name, used in self._read(self._parts).items()}
        more = {name: count - self._before.get(name, 0) for name, count in calls.items()}
        per = {name: round(count / max(1, done), 2) for name, count in more.items()}
        return Measured(done, {**figures, **taken}, {name: each for name, each in per.items() if each})

    def _read(self, pids: Mapping[str, int]) -> dict[str, Used]:
        return Meter(dict(pids), {name: self._began.get(pid, 0.0) for name, pid in pids.items()}).read()
