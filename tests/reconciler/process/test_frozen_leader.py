"""A leader that is frozen at any moment and wakes past its lease writes nothing more: another leads by then."""

from __future__ import annotations

import os
import random
import signal
import time
from functools import partial

import pytest

from e2e.api import wait_for
from e2e.audit import truth
from e2e.audit.recount import recount
from e2e.cluster import Cluster
from e2e.process import Process
from e2e.topogate import READY_MARK, Topogate
from tests.installed import Installed
from tests.reconciler.process.test_leadership import LEASE
from tests.reconciler.scenes import Scene

JOBS_PER_ROUND, ROUNDS = 10, int(os.environ.get("TOPOGATE_FROZEN_ROUNDS", "1"))


@pytest.fixture
def replicas(installed: Installed) -> Topogate:
    return installed.run(leader_election=True, is_fresh=True)


def says(process: Process, mark: str) -> bool:
    return mark in process.log.read_text()


def has_ended(process: Process) -> bool:
    return not process.is_running


def holder(cluster: Cluster) -> str:
    return str(cluster.api.get(LEASE)["spec"].get("holderIdentity") or "")


@pytest.mark.timeout(3000 + 60 * ROUNDS)
def test_a_leader_that_wakes_past_its_lease_admits_nothing(cluster: Cluster, replicas: Topogate) -> None:
    """The moments are random; `TOPOGATE_FROZEN_ROUNDS=20` freezes the leader twenty times, until the other leads, under 200 jobs."""
    scene, chance = Scene(cluster, nodes=10).open(), random.Random(2026)
    for round_ in range(ROUNDS):
        first = replicas.reconciler
        assert first is not None
        replicas.start_reconciler(wait=False)
        second = replicas.reconciler
        assert second is not None
        wait_for("the other to have seen everything", partial(says, second, "state is complete"))
        before = holder(cluster)
        names = [f"job-{round_}-{number}" for number in range(JOBS_PER_ROUND)]
        for name in names[: JOBS_PER_ROUND // 2]:
            scene.submit(name, pods=2, gpus=1, required=scene.rack)
        time.sleep(chance.random())  # the moment is the point: it may be between any two writes
        os.kill(first.pid, signal.SIGSTOP)
        try:
            for name in names[JOBS_PER_ROUND // 2 :]:
                scene.submit(name, pods=2, gpus=1, required=scene.rack)
            wait_for("the other to lead", partial(says, second, READY_MARK))
            leading = holder(cluster)
            assert leading not in ("", before)
        finally:
            os.kill(first.pid, signal.SIGCONT)
        wait_for("the frozen one to give up", partial(has_ended, first))
        for name in names:
            scene.until_bound(name, 2)
        assert holder(cluster) == leading, "the one that woke did not take the lease back"
        assert truth.check_invariants(scene.read()) == []
        assert recount(cluster.api) == []
        for name in names:
            scene.delete_job(name)
    scene.close()
