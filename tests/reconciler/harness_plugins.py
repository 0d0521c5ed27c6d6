"""Groups on harness that are placed with plugins of another package, each in a real process; `acme_plugins.py` has the plugins."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from core.metric_names import PLUGIN_ANSWERS
from core.model.plugin_choice import GENERATE, SCORE, GroupPluginRules, PluginChoice, PluginLimits, Which
from core.podgroups.members import GroupKey
from core.runtime.clock import Clock
from core.runtime.controller import Done, RequeueAfter
from core.runtime.report.metrics import Instrument
from reconciler.execute.recorder import Recorder
from reconciler.podgroups.group_plugins import GroupPlugins
from reconciler.podgroups.plugin_process import Launch
from sim.harness import NAMESPACE
from tests.reconciler.harness_groups import GroupsHarness

KEY = GroupKey(NAMESPACE, "g")
PATIENT = PluginLimits(call_s=60.0, start_s=60.0)
SHORT = PluginLimits(call_s=0.3, start_s=60.0)
NAME = "acme"
RACKS = {"r1": (4,), "r2": (4,), "r3": (4,)}


@pytest.fixture(autouse=True)
def acme_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))


class Counted:
    """A sink that only counts."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, ...], float] = {}

    def add(self, instrument: Instrument, *values: str, by: float = 1) -> None:
        assert instrument is PLUGIN_ANSWERS
        self.counts[values] = self.counts.get(values, 0) + by

    def record(self, instrument: Instrument, value: float, *values: str, traceparent: str | None = None) -> None:
        raise AssertionError(instrument)


def launch(target: str, role: str = SCORE, name: str = NAME, **arguments: Any) -> Launch:
    return Launch(Which(role, name), f"acme_plugins:{target}", arguments)


def with_plugins(*launches: Launch, limits: PluginLimits = PATIENT, counted: Counted | None = None) -> Callable[[Clock], GroupPlugins]:
    """Those beside the usual ones."""
    usual = GroupPluginRules()
    chosen = {role: tuple(PluginChoice(one.which.name) for one in launches if one.which.role == role) for role in (GENERATE, SCORE)}
    rules = GroupPluginRules(usual.generators + chosen[GENERATE], usual.scorers + chosen[SCORE], limits)
    recorder = Recorder(counted if counted is not None else Counted())
    return lambda clock: GroupPlugins(rules, clock, recorder, launches)


@asynccontextmanager
async def harness(*launches: Launch, racks: Mapping[str, tuple[int, ...]] = RACKS, **options: Any) -> AsyncIterator[GroupsHarness]:
    """Groups that are placed with these plugins; none of their processes is left."""
    opened = GroupsHarness(racks, with_plugins(*launches, **options))
    try:
        yield opened
    finally:
        pids = opened.plugins.pids
        await opened.plugins.close()
        assert not [pid for pid in pids.values() if is_there(pid)]


async def place(opened: GroupsHarness, count: int = 2, group: str = "g") -> dict[str, str]:
    """A gang of so many pods, as far as it gets; nodes of those that were let go."""
    opened.gang(count, name=group)
    names = [f"{group}-{number}" for number in range(count)]
    opened.add(*names, group=group)
    await settle(opened, group)
    return {name: node for name, node in opened.where().items() if name in names}


async def settle(opened: GroupsHarness, group: str = "g") -> Done | RequeueAfter:
    for _ in range(10):
        before = len(opened.steps)
        result = await opened.groups.reconcile(GroupKey(NAMESPACE, group))
        if len(opened.steps) == before:
            return result
    raise AssertionError("it does not come to rest")


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
