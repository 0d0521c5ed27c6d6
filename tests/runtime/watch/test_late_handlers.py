"""Handlers that come late hear, piece by piece, what they would have heard at once; nothing is lost, doubled or told backwards."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from core.resource import Obj
from core.runtime.http.client import Client
from core.runtime.watch.informer import Informer
from core.runtime.watch.late_handlers import AT_ONCE, Late, delay_handlers
from core.runtime.watch.store import Change, build_object_key
from tests.runtime.fakes import CONFIG_MAP, ManualClock, make_obj

NAMES = "abcdef"
HAPPENS = st.tuples(st.sampled_from(["put", "anew", "delete", "relist"]), st.sampled_from(NAMES), st.integers(0, 1))


class Meanwhile(ManualClock):
    """At each turn of the loop something else happens."""

    def __init__(self, *happens: Callable[[], object]) -> None:
        super().__init__()
        self.left = list(happens)
        self.turns = 0

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        self.turns += 1
        if self.left:
            self.left.pop(0)()


class World:
    """Two informers, and those who hear of what is in them: at once, or late."""

    def __init__(self) -> None:
        self.informers = [Informer(Client.make_offline(), CONFIG_MAP) for _ in range(2)]
        self._numbers = itertools.count(1)

    def do(self, what: str, name: str, which: int) -> None:
        informer = self.informers[which]
        known = informer.store.get(f"ns/{name}")
        number = next(self._numbers)
        made = make_obj(name, number, uid=known["metadata"]["uid"] if known is not None and what == "put" else f"uid-{number}")
        match what:
            case "put" | "anew":
                informer.put(made)
            case "delete":
                informer.fill([obj for obj in informer.store.list() if obj is not known])
            case _:
                informer.fill([obj for obj in informer.store.list() if build_object_key(obj) < f"ns/{name}"] + [made])

    def hear(self) -> list[tuple[int, Change]]:
        """What a handler of both is told from now on, by informer."""
        heard: list[tuple[int, Change]] = []

        def hear(which: int, change: Change) -> None:
            heard.append((which, change))

        for which, informer in enumerate(self.informers):
            informer.add_handler(partial(hear, which))
        return heard

    def hear_late(self) -> tuple[Late, list[tuple[int, Change]]]:
        with delay_handlers() as late:
            return late, self.hear()


@given(before=st.lists(HAPPENS, max_size=12), meanwhile=st.lists(HAPPENS, max_size=16), after=st.lists(HAPPENS, max_size=4))
async def test_late_handler_receives_the_same_changes_in_the_same_order_as_an_immediate_one(
    before: list[tuple[str, str, int]], meanwhile: list[tuple[str, str, int]], after: list[tuple[str, str, int]]
):
    world = World()
    for happens in before:
        world.do(*happens)
    at_once = world.hear()
    late, heard = world.hear_late()
    assert heard == []
    await late.run_calls(Meanwhile(*(partial(world.do, *happens) for happens in meanwhile)), at_once=1)
    for happens in after:
        world.do(*happens)
    assert heard == at_once


@given(before=st.lists(HAPPENS, max_size=12), meanwhile=st.lists(HAPPENS, max_size=16))
async def test_late_handler_ends_with_the_same_state_as_a_handler_from_the_start(
    before: list[tuple[str, str, int]], meanwhile: list[tuple[str, str, int]]
):
    world = World()
    from_the_start = world.hear()
    for happens in before:
        world.do(*happens)
    late, heard = world.hear_late()
    await late.run_calls(Meanwhile(*(partial(world.do, *happens) for happens in meanwhile)), at_once=1)
    pictures: list[dict[tuple[int, str], Obj]] = []
    for told in (from_the_start, heard):
        picture: dict[tuple[int, str], Obj] = {}
        for which, change in told:
            key = which, build_object_key(change.obj)
            assert picture.get(key) == change.old, "each change begins where the last one ended"
            picture.pop(key, None)
            if change.new is not None:
                picture[key] = change.new
        pictures.append(picture)
    assert pictures[0] == pictures[1]


async def test_between_two_turns_of_the_loop_few_handlers_are_called():
    informer = Informer(Client.make_offline(), CONFIG_MAP)
    informer.fill(make_obj(f"{number:05}", 1) for number in range(1000))
    calls, most = 0, 0

    def hear(_change: Change) -> None:
        nonlocal calls
        calls += 1

    def turn() -> None:
        nonlocal calls, most
        most, calls = max(most, calls), 0

    with delay_handlers() as late:
        for _ in range(7):
            informer.add_handler(hear)
    clock = Meanwhile(*[turn] * 1000)
    await late.run_calls(clock)
    turn()
    assert most == AT_ONCE
    assert clock.turns == 7 * 1000 / AT_ONCE


async def test_handler_added_after_late_handlers_receives_changes_at_once():
    informer = Informer(Client.make_offline(), CONFIG_MAP)
    informer.fill([make_obj("a", 1)])
    with delay_handlers() as late:
        pass
    heard: list[Change] = []
    informer.add_handler(heard.append)
    await late.run_calls(ManualClock())
    assert heard == [Change(None, make_obj("a", 1), initial=True)]
