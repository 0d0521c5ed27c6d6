"""A plugin of another package that raises, hangs, eats memory, ends, or answers nonsense is named, ended and passed over; groups are
placed without it, and nobody else is held up.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from pathlib import Path

import pytest

from core.model.plugin_choice import GENERATE, SCORE, PluginLimits, Which
from core.podgroups.outside import Unanswered
from core.runtime.http.errors import Unreachable
from reconciler.podgroups.group_plugins import OFTEN
from reconciler.podgroups.plugin_process import Launch
from tests.reconciler.harness_plugins import (
    KEY,
    NAME,
    SHORT,
    Counted,
    acme_is_found,
    harness,
    launch,
    place,
    settle,
)

__all__ = ["acme_is_found"]


@pytest.mark.parametrize(
    ("bad", "kind", "says"),
    [
        (launch("Raises"), "raised", "it raised LookupError"),
        (launch("Leaves"), "raised", "it raised SystemExit"),
        (launch("Exits"), "ended", "its process ended with status 7"),
        (launch("Scribbles"), "nonsense", "it answered with something that is no JSON"),
        (launch("Closes"), "ended", "its process ended with status 1"),
        (launch("Closes", sleeps=True), "ended", "its process hung up"),
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
    async with harness(bad, launch("Prefers", name="good"), counted=counted) as opened:
        assert set((await place(opened)).values()) == {"r2-0"}, "the others are heard"
        status, _, message = opened.says
        assert status == "True"
        assert all(part in message for part in ("2 pods", "plugin acme"))
        assert says in message
        assert NAME not in opened.plugins.pids, "its process has ended"
        assert "good" in opened.plugins.pids
    assert counted.counts[NAME, kind] == 1
    assert counted.counts["good", "answered"] == 1
    (line,) = [record for record in caplog.records if record.message == "a plugin is passed over"]
    assert vars(line)["plugin"] == NAME


async def test_one_that_hangs_is_ended_at_its_limit():
    counted = Counted()
    async with harness(launch("Hangs"), limits=SHORT, counted=counted) as opened:
        assert set((await place(opened)).values()) == {"r1-0"}
        assert all(part in opened.says[2] for part in ("2 pods", "plugin acme", "within 0.3 s"))
        assert not opened.plugins.pids
    assert counted.counts[NAME, "timeout"] == 1


async def test_an_answer_to_another_question_is_none():
    """Two processes answer the first: what the second says is not taken for the answer to the next."""
    counted = Counted()
    async with harness(launch("Doubles"), racks={"r1": (60,), "r2": (60,)}, counted=counted) as opened:
        for number in range(3):
            await place(opened, 1, f"g{number}")
    assert counted.counts[NAME, "answered"] + counted.counts[NAME, "nonsense"] >= 2
    assert counted.counts[NAME, "nonsense"] >= 1


async def test_groups_that_wait_for_one_that_hangs_wait_together():
    counted = Counted()
    async with harness(launch("Hangs"), limits=SHORT, counted=counted) as opened:
        for name in "ghij":
            opened.gang(1, name=name)
            opened.add(f"{name}-0", group=name)
        await asyncio.gather(*(settle(opened, name) for name in "ghij"))
        assert len(opened.where()) == 4
    assert counted.counts[NAME, "timeout"] == 1


async def test_plugin_with_a_different_question_each_time_is_skipped():
    async with harness(launch("Prefers")) as opened:
        answers = opened.plugins.start_answers()
        answers.times = OFTEN + 2
        opened.gang(2)
        opened.add("a", "b")
        with pytest.raises(Unanswered) as error:
            await opened.groups._judge(KEY, answers)
        await opened.plugins.answer(error.value.question, answers)
        await opened.groups._judge(KEY, answers)
        await settle(opened)
        assert opened.where()["a"] == "r1-0"
        assert answers.missed == {Which(SCORE, NAME): "nodes and pods change faster than it answers"}
        assert not opened.plugins.pids


async def test_pod_state_after_a_lost_answer_is_read_again_after_a_plugin_answers():
    """A place is given back, the answer to that is lost, and nobody sees it: what the API server says holds also after the wait."""
    async with harness(launch("Answers", GENERATE, code="placements"), racks={"r1": (1, 1, 1)}) as opened:
        opened.gang(2)
        opened.add("a", "b")
        await opened.groups.reconcile(KEY)
        assert opened.held() == {"a": "r1-0", "b": "r1-1"}
        opened.put({**opened.get("Node", "r1-0"), "spec": {"unschedulable": True}})

        def lose(what: str, name: str) -> None:
            opened.late.add("Pod")
            opened.change(name, status={"phase": "Pending"})
            opened.late.clear()
            opened.on_step = lambda what, name: None
            raise Unreachable("lost")

        opened.on_step = lose
        with pytest.raises(Unreachable):
            await opened.groups.reconcile(KEY)
        await settle(opened)
        assert opened.where() == {"a": "r1-2", "b": "r1-1"}
        assert opened.steps.count(("give back", "a")) == 1


async def test_the_event_loop_has_its_turns_while_one_hangs():
    async with harness(launch("Hangs"), limits=SHORT) as opened:
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
    async with harness(launch("Eats"), limits=limits, counted=counted) as opened:
        assert set((await place(opened)).values()) == {"r1-0"}
        assert all(part in opened.says[2] for part in ("plugin acme", "memory than 128Mi"))
        assert not opened.plugins.pids
    assert counted.counts[NAME, "memory"] == 1


async def test_output_that_a_plugin_prints_is_logged_and_does_not_disturb_its_answer(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    async with harness(launch("Prints")) as opened:
        assert set((await place(opened)).values()) == {"r2-0"}
    said = [vars(record)["text"] for record in caplog.records if record.message == "a plugin prints"]
    assert said[0] == '{"answer": [1, 2, 3]}'
    assert len(said) == 20


async def test_plugin_killed_between_two_questions_is_restarted_and_counts_as_no_failure():
    counted = Counted()
    async with harness(launch("Prefers"), counted=counted) as opened:
        await place(opened)
        first = opened.plugins.pids[NAME]
        os.kill(first, signal.SIGKILL)
        assert set((await place(opened, 2, "h")).values()) == {"r2-0"}
        assert "2 pods" in opened.says[2]
        assert "plugin" not in opened.says[2]
        assert opened.plugins.pids[NAME] != first
    assert counted.counts[NAME, "answered"] == 2
    assert counted.counts[NAME, "ended"] == 0


async def test_one_that_is_killed_while_it_thinks_is_asked_again(tmp_path: Path):
    """It answers one question of each process and hangs at the next, which another process then answers."""
    asleep = tmp_path / "asleep"
    async with harness(launch("Hangs", first=1, path=str(asleep))) as opened:
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


async def test_child_processes_of_a_plugin_end_with_the_plugin(tmp_path: Path):
    path = tmp_path / "pid"
    async with harness(launch("Brood", path=str(path))) as opened:
        assert set((await place(opened)).values()) == {"r1-0"}
    assert get_state(path) in ("", "Z"), "if it is still there, somebody else has to bury it"


def get_state(path: Path) -> str:
    """Of the process whose id is in a file."""
    try:
        return Path(f"/proc/{path.read_text()}/stat").read_text().split()[2]
    except FileNotFoundError:
        return ""
