"""The scenes of the kinds and the stories of the KEP, played with the real operators: one each of three of them in every run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.cluster import Cluster
from e2e.operators.catalogue import OPERATORS
from e2e.operators.running import RunningOperator, start_operators
from e2e.operators.scenes import Act, list_acts
from tests.installed import Installed

pytestmark = pytest.mark.cluster
OPERATOR_OF = {kind: operator.name for operator in OPERATORS for kind in operator.kinds}
ALWAYS = [(kind, "preempted and back") for kind in ("JobSet", "LeaderWorkerSet", "MPIJob")]  # `make test` builds their operators
ACTS = [
    pytest.param(act, marks=() if (kind, act.what) in ALWAYS else pytest.mark.long, id=f"{kind}-{act.what}")
    for kind in OPERATOR_OF
    for act in list_acts([kind])
]


class Running:
    """The operators that have been asked for so far."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._started: dict[str, RunningOperator] = {}

    def start(self, name: str) -> None:
        """Starts an operator and those that it needs, if they do not run yet."""
        for running in start_operators(self._cluster, [name], but=self._started):
            self._started[running.operator.name] = running

    def stop(self) -> None:
        """Ends all, and removes what they have installed."""
        for running in reversed(self._started.values()):
            running.stop()
            running.uninstall()


@pytest.fixture(scope="module")
def operators(cluster: Cluster) -> Iterator[Running]:
    running = Running(cluster)
    yield running
    running.stop()


@pytest.mark.parametrize("act", ACTS)
def test_scene_with_the_real_operator_ends_well(act: Act, cluster: Cluster, installed: Installed, operators: Running) -> None:
    operators.start(OPERATOR_OF[act.kind])
    act.play(cluster, installed.run())
