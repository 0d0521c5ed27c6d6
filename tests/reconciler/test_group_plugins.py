"""Plugins of other packages in real processes of their own: what they answer counts, and one that fails is named, ended and passed over.

No control plane; `PaperGroups` stands for it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from core.metric_names import PLUGIN_ANSWERS
from core.model.group_plugins import GENERATE, SCORE, GroupPluginRules, PluginChoice, PluginLimits, Which
from core.podgroups.members import GroupKey
from core.runtime.clock import Clock
from core.runtime.controller import Done, RequeueAfter
from core.runtime.metrics import Instrument
from reconciler.group_plugins import LONGEST_PAUSE_S, PAUSE_S, GroupPlugins
from reconciler.metrics import Recorder
from reconciler.plugin_process import Launch
from tests.builders import RACK
from tests.reconciler.paper_groups import NAMESPACE, PaperGroups

KEY = GroupKey(NAMESPACE, "g")
PATIENT = PluginLimits(call_s=60.0, start_s=60.0)
SHORT = PluginLimits(call_s=0.3, start_s=60.0)
NAME = "acme"
RACKS = {"r1": (4,), "r2": (4,), "r3": (4,)}


@pytest.fixture(autouse=True)
def _found(monkeypatch: pytest.MonkeyPatch) -> None:
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
async def paper(*launches: Launch, racks: Mapping[str, tuple[int, ...]] = RACKS, **options: Any) -> AsyncIterator[PaperGroups]:
    """Groups that are placed with these plugins; none of their processes is left."""
    opened = PaperGroups(racks, with_plugins(*launches, **options))
    try:
        yield opened
    finally:
        pids = opened.plugins.pids
        await opened.plugins.close()
        assert not [pid for pid in pids.values() if is_there(pid)]


async def place(opened: PaperGroups, count: int = 2, group: str = "g") -> dict[str, str]:
    """A gang of so many pods, as far as it gets; nodes of those that were let go."""
    opened.gang(count, name=group)
    names = [f"{group}-{number}" for number in range(count)]
    opened.add(*names, group=group)
    await settle(opened, group)
    return {name: node for name, node in opened.where().items() if name in names}


async def settle(opened: PaperGroups, group: str = "g") -> Done | RequeueAfter:
    for _ in range(10):
        before = len(opened.writes)
        result = await opened.groups.look(GroupKey(NAMESPACE, group))
        if len(opened.writes) == before:
            return result
    raise AssertionError("it does not come to rest")


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# --- what they say counts -------------------------------------------------------------------------------------------


async def test_a_scorer_changes_the_choice():
    async with paper(launch("Prefers", name="prefers")) as opened:
        assert set((await place(opened)).values()) == {"r2-0"}
        assert opened.says == ("True", "Scheduled", "2 pods have their places")
    plain = PaperGroups(RACKS)
    assert set((await place(plain)).values()) == {"r1-0"}


async def test_a_scorer_gets_its_arguments_and_counts_by_its_weight():
    counted = Counted()
    rules = GroupPluginRules(scorers=(PluginChoice("one", 1.0), PluginChoice("other", 1.5)), limits=PATIENT)
    outside = [launch("Prefers", name="one", prefers="r3"), launch("Prefers", name="other")]
    opened = PaperGroups(RACKS, lambda clock: GroupPlugins(rules, clock, Recorder(counted), outside))
    try:
        assert set((await place(opened)).values()) == {"r2-0"}, "150 points for r2 are more than 100 for r3"
        assert counted.counts["one", "answered"] == counted.counts["other", "answered"] == 1
        assert counted.counts["one", "raised"] == 0, "counters begin at zero"
    finally:
        await opened.plugins.close()


async def test_a_generator_parts_what_there_is():
    """Of the rack of four nodes one half is taken, which the usual scorers would not have told apart."""
    async with paper(launch("Halves", GENERATE), racks={"r1": (1, 1, 1, 1)}) as opened:
        assert set((await place(opened)).values()) == {"r1-0", "r1-2"}
        assert await place(opened, 3, "h") == {}
        assert "none of 2 placement(s) takes 3 pod(s), the best takes 2" in opened.says[2]
        assert "r1-1 2 of 3" in opened.says[2]


async def test_a_generator_comes_first_where_the_list_has_it_first():
    rules = GroupPluginRules((PluginChoice(NAME), PluginChoice("TopologyPlacement")), limits=PATIENT)
    halves = [launch("Halves", GENERATE)]
    opened = PaperGroups({"r1": (1, 1), "r2": (1, 1, 1)}, lambda clock: GroupPlugins(rules, clock, outside=halves))
    try:
        # Every other node of all five: -0 has r1-0, r2-0 and r2-2, and the racks part that.
        assert set((await place(opened)).values()) == {"r2-0", "r2-2"}
    finally:
        await opened.plugins.close()


async def test_what_a_plugin_is_handed_is_as_documented(tmp_path: Path):
    seen = tmp_path / "seen"
    arguments = {"path": str(seen)}
    launches = [launch("Records", GENERATE, **arguments), launch("Records", SCORE, **arguments)]
    async with paper(*launches, racks={"r1": (4, 2), "r2": (3,)}) as opened:
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


async def test_nodes_are_told_once_and_anew_when_there_are_others(tmp_path: Path):
    seen = tmp_path / "seen"
    async with paper(launch("Records", path=str(seen))) as opened:
        await place(opened, 1)
        opened.node("r9-0", "r9", 8)
        await place(opened, 1, "h")
        await place(opened, 1, "i")
    nodes = [sorted(json.loads(line)["nodes"]) for line in seen.read_text().splitlines()]
    assert nodes == [["r1-0", "r2-0", "r3-0"], ["r1-0", "r2-0", "r3-0", "r9-0"], ["r1-0", "r2-0", "r3-0", "r9-0"]]


async def test_a_place_that_is_taken_while_a_plugin_thinks_is_not_given_twice():
    """Both groups ask at once; the decision is made on what there is when the answer comes."""
    async with paper(launch("Prefers"), racks={"r1": (2,), "r2": (2,)}) as opened:
        for name in ("g", "h"):
            opened.gang(2, name=name)
            opened.add(f"{name}-0", f"{name}-1", group=name)
        await asyncio.gather(settle(opened, "g"), settle(opened, "h"))
        assert opened.where() == {"g-0": "r2-0", "g-1": "r2-0", "h-0": "r1-0", "h-1": "r1-0"}


async def test_nobody_is_asked_where_there_is_nothing_to_choose(tmp_path: Path):
    seen = tmp_path / "seen"
    async with paper(launch("Records", path=str(seen)), racks={"r1": (4,), "r2": (1,)}) as opened:
        await place(opened, 2)
        assert not opened.plugins.pids
    assert not seen.exists()


# --- and one that fails is passed over ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "kind", "says"),
    [
        (launch("Raises"), "raised", "it raised LookupError"),
        (launch("Leaves"), "raised", "it raised SystemExit"),
        (launch("Exits"), "ended", "its process ended with status 7"),
        (launch("Answers", code="[1, 2, 3]"), "nonsense", "it gave an answer that makes no sense"),
        (launch("Answers", code="{}"), "nonsense", "no sense"),
        (launch("Answers", code="dict.fromkeys(names, float('nan'))"), "nonsense", "no sense"),
        (launch("Answers", code="dict.fromkeys(names, float('-inf'))"), "nonsense", "no sense"),
        (launch("Answers", code="dict.fromkeys(names, 10 ** 400)"), "nonsense", "no sense"),
        (launch("Answers", code="dict.fromkeys(names, 'much')"), "nonsense", "no sense"),
        (launch("Answers", code="dict.fromkeys([*names, 'r9'], 1)"), "nonsense", "no sense"),
        (launch("Answers", code="None"), "nonsense", "no sense"),
        (launch("Answers", GENERATE, code="None"), "nonsense", "no sense"),
        (launch("Answers", GENERATE, code="[{'name': 'x', 'nodes': ['nowhere']}]"), "nonsense", "no sense"),
        (launch("Answers", GENERATE, code="[{'name': 'x', 'nodes': []}]"), "nonsense", "no sense"),
        (launch("Answers", GENERATE, code="[{'name': 'x', 'nodes': 3}]"), "nonsense", "no sense"),
        (launch("Answers", GENERATE, code="[{'name': 'x', 'nodes': nodes}]"), "nonsense", "no sense"),
        (launch("Answers", GENERATE, code="[{'nodes': nodes[:1]}]"), "nonsense", "no sense"),
        (launch("Answers", GENERATE, code="[{'name': 'x', 'nodes': nodes[:1]}] * 2"), "nonsense", "no sense"),
        (launch("Answers", GENERATE, code="[{'name': 'x', 'nodes': nodes[:1], 'rank': -1}]"), "nonsense", "no sense"),
        (launch("Answers", GENERATE, code="[{'name': 'x', 'nodes': nodes[:1], 'rank': '1'}]"), "nonsense", "no sense"),
        (
            launch("Answers", GENERATE, code="[{'name': 'x' * (5 << 20), 'nodes': nodes[:1]}]"),
            "nonsense",
            "it answered with more than 4 MiB",
        ),
        (launch("Nowhere"), "raised", "it raised AttributeError"),
        (launch("Picky"), "refused", "it cannot be used"),
    ],
    ids=lambda value: str(value.arguments.get("code", value.value)) if isinstance(value, Launch) else None,
)
async def test_one_that_fails_is_named_and_the_group_placed_without_it(bad: Launch, kind: str, says: str, caplog: pytest.LogCaptureFixture):
    counted = Counted()
    async with paper(bad, launch("Prefers", name="good"), counted=counted) as opened:
        assert set((await place(opened)).values()) == {"r2-0"}, "the others are heard"
        status, _, message = opened.says
        assert (status, message.startswith("2 pods have their places; plugin acme was skipped: ")) == ("True", True)
        assert says in message
        assert NAME not in opened.plugins.pids, "its process has ended"
        assert "good" in opened.plugins.pids
    assert counted.counts[NAME, kind] == 1
    assert counted.counts["good", "answered"] == 1
    (line,) = [record for record in caplog.records if record.message == "a plugin is passed over"]
    assert vars(line)["plugin"] == NAME


async def test_one_that_hangs_is_ended_at_its_limit():
    counted = Counted()
    async with paper(launch("Hangs"), limits=SHORT, counted=counted) as opened:
        assert set((await place(opened)).values()) == {"r1-0"}
        assert opened.says[2] == "2 pods have their places; plugin acme was skipped: it did not answer within 0.3 s"
        assert not opened.plugins.pids
    assert counted.counts[NAME, "timeout"] == 1


async def test_the_event_loop_has_its_turns_while_one_hangs():
    async with paper(launch("Hangs"), limits=SHORT) as opened:
        opened.gang(2)
        opened.add("a", "b")
        turns = 0
        looking = asyncio.create_task(settle(opened))
        while not looking.done():
            turns += 1
            await asyncio.sleep(0.001)
        assert turns > 30
        assert opened.where() == {"a": "r1-0", "b": "r1-0"}


async def test_one_that_eats_memory_is_ended_at_its_limit():
    counted = Counted()
    limits = PluginLimits(call_s=60.0, start_s=60.0, memory_bytes=128 << 20)
    async with paper(launch("Eats"), limits=limits, counted=counted) as opened:
        assert set((await place(opened)).values()) == {"r1-0"}
        assert opened.says[2].endswith("plugin acme was skipped: it asked for more memory than 128Mi")
        assert not opened.plugins.pids
    assert counted.counts[NAME, "memory"] == 1


async def test_what_is_printed_is_logged_and_disturbs_no_answer(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    async with paper(launch("Prints")) as opened:
        assert set((await place(opened)).values()) == {"r2-0"}
    said = [vars(record)["text"] for record in caplog.records if record.message == "a plugin prints"]
    assert said[0] == '{"answer": [1, 2, 3]}'
    assert len(said) == 20


async def test_one_that_was_killed_between_two_questions_is_begun_anew_and_nobody_is_to_blame():
    counted = Counted()
    async with paper(launch("Prefers"), counted=counted) as opened:
        await place(opened)
        first = opened.plugins.pids[NAME]
        os.kill(first, signal.SIGKILL)
        assert set((await place(opened, 2, "h")).values()) == {"r2-0"}
        assert opened.says[2] == "2 pods have their places"
        assert opened.plugins.pids[NAME] != first
    assert counted.counts[NAME, "answered"] == 2
    assert counted.counts[NAME, "ended"] == 0


async def test_one_that_is_killed_while_it_thinks_is_asked_again(tmp_path: Path):
    """It answers one question of each process and hangs at the next, which another process then answers."""
    asleep = tmp_path / "asleep"
    async with paper(launch("Hangs", first=1, path=str(asleep))) as opened:
        await place(opened)
        first = opened.plugins.pids[NAME]
        opened.gang(2, name="h")
        opened.add("h-0", "h-1", group="h")
        looking = asyncio.create_task(settle(opened, "h"))
        while not await asyncio.to_thread(asleep.exists):  # noqa: ASYNC110, it has no other way to tell
            await asyncio.sleep(0.01)
        os.kill(first, signal.SIGKILL)
        await looking
        assert opened.where()["h-0"] == "r2-0"


async def test_what_it_has_started_ends_with_it(tmp_path: Path):
    path = tmp_path / "pid"
    async with paper(launch("Brood", path=str(path))) as opened:
        assert set((await place(opened)).values()) == {"r1-0"}
    assert state_of(path) in ("", "Z"), "if it is still there, somebody else has to bury it"


def state_of(path: Path) -> str:
    """Of the process whose id is in a file."""
    try:
        return Path(f"/proc/{path.read_text()}/stat").read_text().split()[2]
    except FileNotFoundError:
        return ""


# --- how long ---------------------------------------------------------------------------------------------------------


async def test_one_that_has_failed_is_left_alone_for_a_while_that_grows():
    counted = Counted()
    async with paper(launch("Raises"), racks={"r1": (60,), "r2": (60,)}, counted=counted) as opened:

        async def asked(number: int) -> bool:
            before = counted.counts[NAME, "raised"]
            await place(opened, 1, f"g{number}")
            assert opened.says[2] == "1 pod has its place; plugin acme was skipped: it raised LookupError"
            return counted.counts[NAME, "raised"] > before

        assert await asked(0)
        number, pause = 1, PAUSE_S
        while pause < LONGEST_PAUSE_S:
            opened.clock.time += pause - 0.1
            assert not await asked(number)
            opened.clock.time += 0.1
            assert await asked(number + 1)
            number, pause = number + 2, min(2 * pause, LONGEST_PAUSE_S)
        opened.clock.time += LONGEST_PAUSE_S
        assert await asked(number)


async def test_once_it_answers_the_pause_is_short_again_and_nothing_is_said_of_it():
    counted, limits = Counted(), PluginLimits(call_s=1.0, start_s=60.0)
    async with paper(launch("Hangs", first=1), limits=limits, counted=counted) as opened:
        results = []
        for number in range(4):  # answers, hangs, and so on: each process answers once
            await place(opened, 1, f"g{number}")
            results.append("skipped" in opened.says[2])
            opened.clock.time += PAUSE_S
        assert results == [False, True, False, True]
    assert (counted.counts[NAME, "answered"], counted.counts[NAME, "timeout"]) == (2, 2)


async def test_a_group_that_waits_is_judged_again_when_a_plugin_that_was_missed_may_answer():
    """Without the generator nothing fits, for a reason of its own; nothing in the cluster changes."""
    async with paper(launch("Answers", GENERATE, code="1/0"), racks={"r1": (1,)}) as opened:
        assert await place(opened, 2) == {}
        assert "plugin acme was skipped: it raised ZeroDivisionError" in opened.says[2]
        opened.clock.time += PAUSE_S
        told = len(opened.told)
        await opened.groups.look(KEY)
        assert opened.plugins.answers().is_without(Which(GENERATE, NAME)), "it was asked again, and has failed again"
        assert len(opened.told) == told, "the condition says it already"


async def test_what_is_told_of_a_group_is_forgotten_with_it():
    async with paper(launch("Raises")) as opened:
        await place(opened)
        assert opened.plugins.is_missed(KEY)
        opened.drop("g-0")
        opened.drop("g-1")
        assert not opened.plugins.is_missed(KEY)


# --- the end --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["Prefers", "Hangs"])
async def test_no_process_outlives_its_owner(target: str):
    """At rest, or while it is asked."""
    opened = PaperGroups(RACKS, with_plugins(launch(target)))
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
