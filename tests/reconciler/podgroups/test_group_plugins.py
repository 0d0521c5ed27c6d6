"""Plugins of other packages in real processes of their own: what they answer counts, and one that fails is named, ended and passed over.

No control plane; `GroupsHarness` stands for it.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from core.metric_names import PLUGIN_ANSWERS
from core.model.plugin_choice import GENERATE, ROOM_EVENTS, SCORE, GroupEvent, GroupPluginRules, PluginChoice, PluginLimits, Which
from core.plan.steps import pacing
from core.podgroups.podgroup_facts import read_pod_group
from core.runtime.clock import Clock
from reconciler.execute.recorder import Recorder
from reconciler.podgroups import plugin_child
from reconciler.podgroups.group_plugins import GroupPlugins
from sim.harness import NAMESPACE
from tests.builders import RACK
from tests.reconciler.harness_groups import GroupsHarness
from tests.reconciler.harness_plugins import (
    KEY,
    NAME,
    PATIENT,
    RACKS,
    Counted,
    acme_is_found,
    harness,
    is_there,
    launch,
    place,
    settle,
    with_plugins,
)

__all__ = ["acme_is_found"]


# --- what they say counts -------------------------------------------------------------------------------------------


async def test_a_scorer_changes_the_choice():
    async with harness(launch("Prefers", name="prefers")) as opened:
        assert set((await place(opened)).values()) == {"r2-0"}
        assert opened.says[:2] == ("True", "Scheduled")
        assert "2 pods" in opened.says[2]
    plain = GroupsHarness(RACKS)
    assert set((await place(plain)).values()) == {"r1-0"}


async def test_a_scorer_gets_its_arguments_and_counts_by_its_weight():
    counted = Counted()
    rules = GroupPluginRules(scorers=(PluginChoice("one", 1.0), PluginChoice("other", 1.5)), limits=PATIENT)
    outside = [launch("Prefers", name="one", prefers="r3"), launch("Prefers", name="other")]
    opened = GroupsHarness(RACKS, lambda clock: GroupPlugins(rules, clock, Recorder(counted), outside))
    try:
        assert set((await place(opened)).values()) == {"r2-0"}, "150 points for r2 are more than 100 for r3"
        assert counted.counts["one", "answered"] == counted.counts["other", "answered"] == 1
        assert counted.counts["one", "raised"] == 0, "counters begin at zero"
    finally:
        await opened.plugins.close()


async def test_built_in_plugins_are_weighed_and_switched_off():
    """By default the rack is taken that is fuller then; without a scorer the first by name; by distance the one with fewer nodes."""
    for scorers, chosen in (
        (GroupPluginRules().scorers, "r3"),
        ((), "r1"),
        ((PluginChoice("BinPacking", 0.0), PluginChoice("PodCount")), "r1"),
        ((PluginChoice("BinPacking"), PluginChoice("RankDistance", 100.0)), "r2"),
    ):
        rules = GroupPluginRules(scorers=scorers)
        opened = GroupsHarness({"r1": (2, 2, 8), "r2": (6,), "r3": (2, 3)}, _rules(rules))
        assert {node.partition("-")[0] for node in (await place(opened, 4)).values()} == {chosen}


def _rules(rules: GroupPluginRules) -> Callable[[Clock], GroupPlugins]:
    return lambda clock: GroupPlugins(rules, clock)


async def test_generator_plugin_divides_a_rack_and_groups_are_placed_in_its_parts():
    """Of the rack of four nodes one half is taken, which the usual scorers would not have told apart."""
    async with harness(launch("Halves", GENERATE), racks={"r1": (1, 1, 1, 1)}) as opened:
        assert set((await place(opened)).values()) == {"r1-0", "r1-2"}
        assert await place(opened, 3, "h") == {}
        assert all(part in opened.says[2] for part in ("2 placements", "3 pods", "takes 2"))
        assert "r1-1 2 of 3" in opened.says[2]


async def test_a_generator_comes_first_where_the_list_has_it_first():
    rules = GroupPluginRules((PluginChoice(NAME), PluginChoice("TopologyPlacement")), limits=PATIENT)
    halves = [launch("Halves", GENERATE)]
    opened = GroupsHarness({"r1": (1, 1), "r2": (1, 1, 1)}, lambda clock: GroupPlugins(rules, clock, outside=halves))
    try:
        # Every other node of all five: -0 has r1-0, r2-0 and r2-2, and the racks part that.
        assert set((await place(opened)).values()) == {"r2-0", "r2-2"}
    finally:
        await opened.plugins.close()


async def test_plugin_input_is_as_documented(tmp_path: Path):
    seen = tmp_path / "seen"
    arguments = {"path": str(seen)}
    launches = [launch("Records", GENERATE, **arguments), launch("Records", SCORE, **arguments)]
    async with harness(*launches, racks={"r1": (4, 2), "r2": (3,)}) as opened:
        await place(opened, 2)
    generate, score = map(json.loads, seen.read_text().splitlines())
    assert generate["placements"] == [
        {"name": "r1", "rank": 0, "nodes": ["r1-0", "r1-1"]},
        {"name": "r2", "rank": 0, "nodes": ["r2-0"]},
    ]
    node = score["nodes"]["r1-1"]
    assert node["labels"][RACK] == "r1"
    assert (node["allocatable"], node["free"], node["usable"]) == ({"cpu": 2000, "pods": 110}, {"cpu": 2000, "pods": 110}, True)
    assert score["group"]["constraints"] == [{"level": RACK, "mode": "Required"}]
    assert {key: score["group"][key] for key in ("namespace", "name", "replica", "minCount", "desiredCount", "missing", "running")} == {
        "namespace": NAMESPACE,
        "name": "g",
        "replica": 0,
        "minCount": 2,
        "desiredCount": None,
        "missing": 2,
        "running": {},
    }
    (pods,) = score["group"]["podSets"]
    assert (pods["count"], pods["requests"]) == (2, {"cpu": 1000})
    assert score["candidates"] == [
        {"name": "r1", "rank": 0, "nodes": ["r1-0", "r1-1"], "pods": 2, "room": 2, "assignment": [{"r1-1": 2}]},
        {"name": "r2", "rank": 0, "nodes": ["r2-0"], "pods": 2, "room": 2, "assignment": [{"r2-0": 2}]},
    ]


async def test_plugin_receives_nodes_once_and_again_after_a_change(tmp_path: Path):
    seen = tmp_path / "seen"
    async with harness(launch("Records", path=str(seen))) as opened:
        await place(opened, 1)
        opened.node("r9-0", "r9", 8)
        await place(opened, 1, "h")
        await place(opened, 1, "i")
    nodes = [sorted(json.loads(line)["nodes"]) for line in seen.read_text().splitlines()]
    assert nodes == [["r1-0", "r2-0", "r3-0"], ["r1-0", "r2-0", "r3-0", "r9-0"], ["r1-0", "r2-0", "r3-0", "r9-0"]]


async def test_a_place_that_is_taken_while_a_plugin_thinks_is_not_given_twice():
    """Both groups ask at once; the decision is made on what there is when the answer comes."""
    async with harness(launch("Prefers"), racks={"r1": (2,), "r2": (2,)}) as opened:
        for name in ("g", "h"):
            opened.gang(2, name=name)
            opened.add(f"{name}-0", f"{name}-1", group=name)
        await asyncio.gather(settle(opened, "g"), settle(opened, "h"))
        assert opened.where() == {"g-0": "r2-0", "g-1": "r2-0", "h-0": "r1-0", "h-1": "r1-0"}


async def test_plugin_is_not_asked_when_only_one_placement_fits(tmp_path: Path):
    seen = tmp_path / "seen"
    async with harness(launch("Records", path=str(seen)), racks={"r1": (4,), "r2": (1,)}) as opened:
        await place(opened, 2)
        assert not opened.plugins.pids
    assert not seen.exists()


# --- how long ---------------------------------------------------------------------------------------------------------


async def test_one_that_has_failed_is_left_alone_for_a_while_that_grows():
    counted = Counted()
    async with harness(launch("Raises"), racks={"r1": (60,), "r2": (60,)}, counted=counted) as opened:

        async def asked(number: int) -> bool:
            before = counted.counts[NAME, "raised"]
            await place(opened, 1, f"g{number}")
            assert all(part in opened.says[2] for part in ("1 pod ", "plugin acme", "LookupError"))
            return counted.counts[NAME, "raised"] > before

        assert await asked(0)
        number, pause = 1, pacing.PLUGIN_PAUSE_S
        while pause < pacing.PLUGIN_LONGEST_PAUSE_S:
            opened.clock.time += pause - 0.1
            assert not await asked(number)
            opened.clock.time += 0.1
            assert await asked(number + 1)
            number, pause = number + 2, min(2 * pause, pacing.PLUGIN_LONGEST_PAUSE_S)
        opened.clock.time += pacing.PLUGIN_LONGEST_PAUSE_S
        assert await asked(number)


async def test_once_it_answers_the_pause_is_short_again_and_nothing_is_said_of_it():
    counted, limits = Counted(), PluginLimits(call_s=1.0, start_s=60.0)
    async with harness(launch("Hangs", first=1), limits=limits, counted=counted) as opened:
        results = []
        for number in range(5):  # answers, hangs, and so on: each process answers once
            await place(opened, 1, f"g{number}")
            results.append("skipped" in opened.says[2])
            opened.clock.time += pacing.PLUGIN_PAUSE_S
        assert results == [False, True, False, True, False]
    assert (counted.counts[NAME, "answered"], counted.counts[NAME, "timeout"]) == (3, 2)


async def test_a_group_that_waits_is_judged_again_when_a_plugin_that_was_missed_may_answer():
    """Without the generator nothing fits, for a reason of its own; nothing in the cluster changes."""
    async with harness(launch("Answers", GENERATE, code="1/0"), racks={"r1": (1,)}) as opened:
        assert await place(opened, 2) == {}
        assert all(part in opened.says[2] for part in ("plugin acme", "ZeroDivisionError"))
        opened.clock.time += pacing.PLUGIN_PAUSE_S
        told = len(opened.told)
        await opened.groups.reconcile(KEY)
        assert opened.plugins.start_answers().is_without(Which(GENERATE, NAME)), "it was asked again, and has failed again"
        assert len(opened.told) == told, "the condition says it already"


async def test_plugin_failures_of_a_deleted_group_are_dropped():
    async with harness(launch("Raises")) as opened:
        await place(opened)
        assert opened.plugins.is_missed(KEY)
        opened.drop("Pod", "g-0")
        opened.drop("Pod", "g-1")
        assert not opened.plugins.is_missed(KEY)


# --- the end --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["Prefers", "Hangs"])
async def test_no_process_outlives_its_owner(target: str):
    """At rest, or while it is asked."""
    opened = GroupsHarness(RACKS, with_plugins(launch(target)))
    owner = asyncio.create_task(opened.plugins.run())
    opened.gang(2)
    opened.add("a", "b")
    asking = asyncio.create_task(settle(opened))
    while not opened.plugins.pids or (target == "Prefers" and not asking.done()):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    (pid,) = opened.plugins.pids.values()
    for task in (asking, owner):
        task.cancel()
    await asyncio.gather(asking, owner, return_exceptions=True)
    assert not is_there(pid)
    assert not opened.plugins.pids


@pytest.mark.parametrize(("events", "woken"), [(None, True), (["NodeTopologyChanged"], False), (["DevicesChanged"], True), ([], False)])
async def test_a_waiting_group_is_woken_by_the_events_that_its_generator_names(events: list[str] | None, woken: bool):
    """KEP-5732's EnqueueExtensions. A generator that names none is woken by all."""
    async with harness(launch("Waits", GENERATE, events=events)) as opened:
        assert await place(opened) == {}
        facts = read_pod_group(opened.observed.pod_groups.store.list()[0])
        assert (GroupEvent.DEVICES_CHANGED in opened.plugins.list_events(facts)) is woken
        assert opened.plugins.list_events(facts) >= ROOM_EVENTS


async def test_a_generator_that_names_an_unknown_event_is_passed_over():
    async with harness(launch("Waits", GENERATE, events=["Full moon"])) as opened:
        assert len(await place(opened)) == 2
        assert "plugin acme" in opened.says[2]


def test_the_reconciler_and_the_process_of_a_plugin_speak_of_the_same():
    """The process imports nothing of topogate's, so that it has words of its own."""
    assert (plugin_child.GENERATE, plugin_child.SCORE) == (GENERATE, SCORE)
    failures = {plugin_child.RAISED, plugin_child.MEMORY, plugin_child.NONSENSE, plugin_child.REFUSED}
    assert failures < (PLUGIN_ANSWERS.labels[1].values or set())
    imported = {line.split()[1] for line in Path(plugin_child.__file__).read_text().splitlines() if line.startswith(("import ", "from "))}
    assert {module.partition(".")[0] for module in imported} <= sys.stdlib_module_names


@contextmanager
def alone(target: str, limit_s: float) -> Iterator[tuple[subprocess.Popen[bytes], socket.socket]]:
    """The process of a plugin, and the line to it, with nobody who ends it."""
    own, theirs = socket.socketpair()
    with own, theirs, subprocess.Popen([sys.executable, "-m", "reconciler.podgroups.plugin_child"], stdin=theirs.fileno()) as process:
        theirs.close()
        order = {"role": SCORE, "name": NAME, "value": f"acme_plugins:{target}", "arguments": {}, "events": []}
        load = {"load": order, "limit_s": limit_s, "start_s": 60.0, "memory_bytes": 512 << 20}
        own.sendall(b"1 %s\n" % json.dumps(load).encode())
        assert json.loads(own.makefile().readline()) == {"number": 1, "answer": None}
        yield process, own


def test_plugin_process_ends_when_its_connection_is_closed():
    with alone("Prefers", 60.0) as (process, line):
        line.shutdown(socket.SHUT_RDWR)
        assert process.wait(timeout=120) == 0


def test_plugin_process_that_hangs_after_its_connection_is_closed_ends_by_an_alarm():
    with alone("Hangs", 0.2 - plugin_child.ALARM_S) as (process, line):
        question = {"ask": SCORE, "group": {}, "amounts": {}, "usable": [], "candidates": []}
        line.sendall(b"2 %s\n" % json.dumps(question).encode())
        line.shutdown(socket.SHUT_RDWR)
        assert process.wait(timeout=120) == -signal.SIGALRM
