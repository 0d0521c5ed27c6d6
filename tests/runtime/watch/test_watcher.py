"""The watcher's skin, and informers on top of it, in virtual time, on the API server in memory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from core.resource import Obj, Page
from core.runtime.http.errors import Forbidden, Gone, ServerError, Unreachable
from core.runtime.watch.informer import AT_ONCE, Informer
from core.runtime.watch.store import Change
from core.runtime.watch.watch_step import Init, InitApply, InitDone
from core.runtime.watch.watcher import AT_ONCE as EVENTS_AT_ONCE
from core.runtime.watch.watcher import WatchPolicy, _ReadLimit
from sim import transport
from sim.apiserver.server import Request
from tests.runtime.config_maps import NAMESPACE, ConfigMaps, Fault
from tests.runtime.fakes import CONFIG_MAP, make_obj, name_of

pytestmark = pytest.mark.looptime

POLICY = WatchPolicy(page_limit=2, timeout_s=100)


@pytest.fixture(autouse=True)
def answer_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that times are whole, and no time has to pass for an answer to come."""
    monkeypatch.setattr(transport, "LATENCY_S", 0.0)


def make_informer(server: ConfigMaps, **options: Any) -> Informer:
    return Informer(server.client, CONFIG_MAP, policy=POLICY, chance=lambda: 0.0, **options)


@asynccontextmanager
async def running(informer: Informer) -> AsyncIterator[None]:
    task = asyncio.create_task(informer.run())
    try:
        await asyncio.wait({task, waiting := asyncio.create_task(informer.wait_synced())}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if task.done():
            task.result()
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def names(informer: Informer) -> list[str]:
    return [name_of(obj) for obj in informer.store.list()]


async def test_it_lists_in_pages_then_follows(looptime):
    server = ConfigMaps("abcde")
    informer = make_informer(server)
    async with running(informer):
        assert names(informer) == list("abcde")
        server.put("f")
        server.delete("a")
        await asyncio.sleep(1)
        assert names(informer) == list("bcdef")
    assert [verb for _, verb in server.requests] == ["list", "list", "list", "watch"]
    assert looptime == 1


async def test_a_quiet_watch_is_reopened_once_per_timeout_and_never_lists_again():
    server = ConfigMaps()
    informer = make_informer(server)
    async with running(informer):
        await asyncio.sleep(1000.5)
    assert [time for time, verb in server.requests if verb == "watch"] == [100 * n for n in range(11)]
    assert informer.watcher.restarts["closed"] == 10
    assert sum(verb == "list" for _, verb in server.requests) == 1


async def test_stream_that_ends_in_its_time_is_a_sign_of_life_without_a_bookmark(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(transport, "BOOKMARK_S", float("inf"))
    monkeypatch.setattr(transport, "REFRESH_S", 0.0)
    informer = make_informer(ConfigMaps())
    async with running(informer):
        await asyncio.sleep(950)
        assert informer.watcher.compute_event_age() == pytest.approx(50)


async def test_half_open_silence_is_given_up_five_seconds_after_the_timeout():
    server = ConfigMaps(faults=[None, "hang"])
    informer = make_informer(server)
    async with running(informer):
        server.put("unheard")
        await asyncio.sleep(104.9)
        assert names(informer) == []
        age = informer.watcher.compute_event_age()
        assert age is not None
        assert age == pytest.approx(104.9)
        await asyncio.sleep(1)
        assert names(informer) == ["unheard"]
    assert informer.watcher.restarts["idle"] == 1
    assert server.requests[-1][0] == pytest.approx(105.8)


async def test_a_server_that_closes_at_once_is_not_hammered():
    server = ConfigMaps(faults=[None, *["close"] * 1000])
    informer = make_informer(server)
    async with running(informer):
        await asyncio.sleep(600)
    assert len(server.requests) < 30
    assert informer.watcher.restarts["early_close"] == len(server.requests) - 1


@pytest.mark.parametrize("fault", ["gone", Gone(410, "Expired")], ids=["in stream", "status"])
async def test_server_that_always_answers_gone_is_not_requested_too_often(fault: Any):
    server = ConfigMaps(faults=[None, fault] * 1000)
    informer = make_informer(server)
    async with running(informer):
        await asyncio.sleep(600)
    assert len(server.requests) < 60
    assert informer.watcher.restarts["gone"] > 5


async def test_changes_during_a_compacted_watch_gap_are_reported():
    server = ConfigMaps(["stays", "goes"])
    informer = make_informer(server)
    told: list[Change] = []
    informer.add_handler(told.append)
    async with running(informer):
        told.clear()
        server.faults = ["close", Unreachable("down")]
        await asyncio.sleep(100.1)  # the stream ends in its time, and then twice badly
        server.delete("goes")
        server.put("comes")
        server.api.compact()
        await asyncio.sleep(30)
        assert names(informer) == ["comes", "stays"]
    assert [(name_of(change.obj), change.new is None, change.initial) for change in told] == [
        ("goes", True, False),
        ("comes", False, False),
    ]
    assert informer.watcher.restarts["gone"] == 1


async def test_odd_events_are_reported_and_passed_over(caplog: pytest.LogCaptureFixture):
    server = ConfigMaps(faults=[None, {"type": "SURPRISE", "object": {}}])
    informer = make_informer(server)
    with caplog.at_level(logging.WARNING):
        async with running(informer):
            await asyncio.sleep(1)
            server.put("a")
            await asyncio.sleep(1)
            assert names(informer) == ["a"]
    assert "unknown type" in caplog.text


async def test_the_first_list_is_tried_until_it_succeeds(looptime):
    server = ConfigMaps(faults=[Unreachable("down"), ServerError(500), Unreachable("down")])
    informer = make_informer(server)
    assert informer.watcher.compute_event_age() is None
    async with running(informer):
        assert informer.synced
        assert looptime == pytest.approx(0.8 + 1.6 + 3.2)
    assert informer.watcher.restarts == {**dict.fromkeys(informer.watcher.restarts, 0), "unreachable": 2, "error": 1}


async def test_handler_added_after_sync_receives_existing_objects_as_initial():
    server = ConfigMaps("ba")
    informer = make_informer(server)
    early: list[Change] = []
    late: list[Change] = []
    informer.add_handler(early.append)
    async with running(informer):
        informer.add_handler(late.append)
        assert late == early
        assert [name_of(change.obj) for change in late] == ["a", "b"]
        assert all(change.initial for change in late)
        server.put("c")
        await asyncio.sleep(1)
        assert late == early
        assert not late[-1].initial


async def test_a_long_list_is_folded_in_with_turns_for_others():
    """Issue 8: others are late while many objects are folded in one go."""
    server = ConfigMaps(f"{number:04}" for number in range(1000))
    informer = Informer(server.client, CONFIG_MAP)
    heard = 0
    in_a_row: list[int] = []

    def hear(_change: Change) -> None:
        nonlocal heard
        heard += 1

    informer.add_handler(hear)
    task = asyncio.create_task(informer.run())
    while not informer.synced:
        before = heard
        await asyncio.sleep(0)
        in_a_row.append(heard - before)
    task.cancel()
    assert heard == len(informer.store) == 1000
    assert max(in_a_row) <= AT_ONCE


async def test_later_list_of_many_changed_objects_is_folded_in_pieces():
    informer, changes = make_informer(ConfigMaps()), list[Change]()
    informer.fill(make_obj(f"{number:04}", 1) for number in range(1000))
    informer.add_handler(changes.append)
    changes.clear()
    await informer._apply_event(Init())
    for number in range(1, 1000):
        await informer._apply_event(InitApply(make_obj(f"{number:04}", 2)))
    assert changes == []
    folding, at_once = asyncio.create_task(informer._apply_event(InitDone())), list[int]()
    while not folding.done():
        before = len(changes)
        await asyncio.sleep(0)
        at_once.append(len(changes) - before)
    assert len(changes) == 1000
    assert max(at_once) <= AT_ONCE
    assert len(informer.store) == 999


async def test_a_burst_of_events_leaves_turns_for_others():
    server = ConfigMaps()
    informer = Informer(server.client, CONFIG_MAP)
    async with running(informer):
        await asyncio.sleep(1)
        for number in range(1000):
            server.put(f"{number:04}")
        seen = []
        while len(informer.store) < 1000:
            before = len(informer.store)
            await asyncio.sleep(0)
            seen.append(len(informer.store) - before)
        assert max(seen) <= EVENTS_AT_ONCE


async def test_settle_callback_runs_during_the_first_list_only():
    server = ConfigMaps(f"{number:04}" for number in range(2 * AT_ONCE))
    settled: list[int] = []

    def settle() -> None:
        settled.append(len(informer.store))

    informer: Informer = make_informer(server, settle=settle)
    async with running(informer):
        assert settled == [0, 0, AT_ONCE, 2 * AT_ONCE]
        server.api.compact()
        server.faults = ["gone"]
        await asyncio.sleep(300)
        assert informer.watcher.restarts["gone"] == 1
        assert len(settled) == 4


async def test_objects_are_slimmed_before_they_are_stored():
    def slim(obj: Obj) -> Obj:
        kept = ("namespace", "name", "uid", "resourceVersion")
        return {"metadata": {key: obj["metadata"][key] for key in kept}}

    server = ConfigMaps("a")
    informer = make_informer(server, transform=slim)
    async with running(informer):
        server.put("b")
        await asyncio.sleep(1)
        assert [set(obj) for obj in informer.store.list()] == [{"metadata"}, {"metadata"}]
        server.delete("a")
        await asyncio.sleep(1)
        assert names(informer) == ["b"]


async def test_an_object_for_which_a_handler_raises_is_set_aside_and_tried_again():
    """Former defect: it ended the run, and with it the process."""
    heard: list[str] = []
    broken = {"a"}

    def handle(change: Change) -> None:
        if change.obj["metadata"]["name"] in broken:
            raise RuntimeError("odd")

    server = ConfigMaps("ab")
    informer = make_informer(server)
    informer.add_handler(handle)
    informer.add_handler(lambda change: heard.append(change.obj["metadata"]["name"]))
    async with running(informer):
        assert heard == ["a", "b"]
        assert [aside.obj["metadata"]["name"] for aside in informer.set_aside.objects] == ["a"]
        assert [aside.why for aside in informer.set_aside.objects] == ["RuntimeError: odd"]
        broken.clear()
        server.put("a")
        await asyncio.sleep(1)
        assert len(informer.set_aside) == 0


async def test_an_object_that_cannot_be_slimmed_or_indexed_is_set_aside_and_stored():
    def refuse(obj: Obj) -> Obj:
        raise ValueError("odd")

    server = ConfigMaps("a")
    informer = make_informer(server, transform=refuse)
    informer.store.add_index("odd", lambda obj: refuse(obj))
    async with running(informer):
        assert names(informer) == ["a"]
        assert len(informer.set_aside) == 1
        server.delete("a")
        await asyncio.sleep(1)
        assert names(informer) == []
        assert len(informer.set_aside) == 0


async def test_repeated_watch_failure_is_logged_once(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    server = ConfigMaps(faults=[*(Forbidden(403, "Forbidden", "no") for _ in range(3)), ServerError(500, "", "broken")])
    informer = make_informer(server)
    async with running(informer):
        assert informer.watcher.trouble is None
    assert [vars(record)["error"] for record in caplog.records] == ["403 Forbidden: no", "500 : broken"]
    assert informer.watcher.restarts["error"] == 4


async def test_watcher_keeps_its_last_error_until_it_is_synced():
    server = ConfigMaps(faults=[Forbidden(403, "Forbidden", "no")])
    informer = make_informer(server)
    task = asyncio.create_task(informer.run())
    await asyncio.sleep(0.1)
    assert isinstance(informer.watcher.trouble, Forbidden)
    await informer.wait_synced()
    assert informer.watcher.trouble is None
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@asynccontextmanager
async def refreshed(*faults: Fault) -> AsyncIterator[tuple[ConfigMaps, Informer, int]]:
    """An informer whose stream hangs, and that is to be up to date with a change since; how many lists and streams it had begun then.
    `faults` are those of its next requests."""
    server = ConfigMaps("a", faults=[None, "hang", *faults])
    informer = make_informer(server)
    async with running(informer):
        await asyncio.sleep(1)
        server.put("b")
        await asyncio.sleep(10)
        assert names(informer) == ["a"], "the stream says nothing"
        opened = informer.watcher.opened
        informer.watcher.refresh(server.version)
        yield server, informer, opened


async def test_a_watch_that_hangs_is_up_to_date_seconds_after_it_is_refreshed():
    """Former defect: a new leader decided at once on what a hanging watch had delivered two minutes before."""
    async with refreshed() as (server, informer, opened):
        await asyncio.sleep(4)
        assert informer.watcher.has_reached(server.version, opened)
        assert names(informer) == ["a", "b"]
        assert informer.watcher.version == server.version


@pytest.mark.parametrize("fault", ["mute", "lag"])
async def test_stream_that_ends_behind_the_version_is_no_answer_to_a_refresh(fault: str):
    """A new leader decided on what a lagging watch had delivered: its streams ended, empty or with the bookmark of a cache that lagged
    behind, when their time was over."""
    async with refreshed(fault) as (server, informer, opened):
        await asyncio.sleep(2)
        assert not informer.watcher.has_reached(server.version, opened)
        assert names(informer) == ["a"]
        await asyncio.sleep(2)
        assert names(informer) == ["a", "b"]
        assert informer.watcher.has_reached(server.version, opened)
        assert [verb for _, verb in server.requests] == ["list", "watch", "watch", "list", "watch"]


async def test_refreshed_stream_that_fails_is_opened_for_a_short_time_again():
    """The next one was a usual one of two minutes: a new leader stood still for so long."""
    async with refreshed(Unreachable("reset"), "lag") as (server, informer, opened):
        await asyncio.sleep(10)
        assert names(informer) == ["a", "b"]
        assert informer.watcher.has_reached(server.version, opened)


async def test_a_list_that_was_begun_before_is_no_answer_to_a_refresh():
    """It says what there was when its first page was read."""
    server = ConfigMaps()
    informer = make_informer(server)
    read, opened = server.client.list_page, list[int]()
    to_come = str(server.api.version + 10)

    async def ask_meanwhile(*arguments: Any, **options: Any) -> Page:
        page = await read(*arguments, **options)
        server.put("a")
        opened.append(informer.watcher.opened)
        informer.watcher.refresh(to_come)
        return page

    server.client.list_page = ask_meanwhile  # type: ignore[method-assign]
    async with running(informer):
        assert not informer.watcher.has_reached(to_come, opened[0])
        await asyncio.sleep(4)
        assert names(informer) == ["a"]
        assert informer.watcher.has_reached(to_come, opened[0]), "by another list"


async def test_an_idle_watch_that_is_refreshed_says_that_nothing_has_happened():
    server = ConfigMaps("a")
    informer = make_informer(server)
    async with running(informer):
        await asyncio.sleep(1)
        opened = informer.watcher.opened
        server.api.create(Request("create", server.api.kinds["", "v1", "secrets"], NAMESPACE, body={"metadata": {"name": "other"}}))
        assert not informer.watcher.has_reached(server.version, opened)
        informer.watcher.refresh(server.version)
        await asyncio.sleep(4)
        assert informer.watcher.has_reached(server.version, opened)
        await asyncio.sleep(100)
        assert {cause for cause, count in informer.watcher.restarts.items() if count} <= {"closed"}
    assert [verb for _, verb in server.requests].count("list") == 1, "a bookmark says so"


# -- how long an event is waited for


async def test_watch_event_in_time_keeps_the_timer_for_the_next_one(looptime):
    limit, loop = _ReadLimit(), asyncio.get_running_loop()
    with limit.begin(10):
        await asyncio.sleep(4)
    timer = limit._timer
    with limit.begin(10):
        assert limit._timer is timer
        await asyncio.sleep(9)
    with pytest.raises(TimeoutError), limit.begin(10):
        await loop.create_future()
    assert looptime == 23
    with limit.begin(5):  # sooner than the timer
        await asyncio.sleep(4)
    with pytest.raises(TimeoutError), limit.begin(1):
        await loop.create_future()
    assert looptime == 28
    limit.stop()


async def test_wait_for_a_watch_event_that_is_cancelled_from_outside_is_cancelled(looptime):
    limit = _ReadLimit()

    async def wait() -> None:
        with limit.begin(10):
            await asyncio.sleep(100)

    task = asyncio.create_task(wait())
    await asyncio.sleep(1)
    task.cancel()
    await asyncio.wait({task})
    limit.stop()
    assert task.cancelled()
    assert looptime == 1


async def test_wait_for_a_watch_event_that_is_ended_by_hand_is_over_at_once(looptime):
    limit = _ReadLimit()
    asyncio.get_running_loop().call_later(3, limit.end_now)
    with pytest.raises(TimeoutError), limit.begin(10):
        await asyncio.sleep(100)
    limit.end_now()  # nothing waits
    with limit.begin(10):
        await asyncio.sleep(5)
    limit.stop()
    assert looptime == 8
