"""The watcher's step function: each arm of it, and that whatever happens in whatever order, nothing is missed and nobody is hammered."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from core.resource import Obj, Page
from core.runtime.http.errors import BadRequest, Gone, KubeError, ServerError, TooManyRequests, Unreachable
from core.runtime.watch.store import Store
from core.runtime.watch.watch_step import (
    CAUSES,
    Action,
    Applied,
    BackoffState,
    Closed,
    Deleted,
    Empty,
    Event,
    Failed,
    Init,
    InitApply,
    InitDone,
    InitPage,
    Input,
    ListPage,
    Opening,
    OpenWatch,
    Raw,
    Read,
    Silent,
    Sleep,
    State,
    Unproven,
    Waiting,
    Watching,
    WatchPolicy,
    WatchStep,
    Woke,
    begin,
    plan_step,
)
from sim.apiserver.server import Refused
from sim.loop import VirtualLoop
from tests.runtime.config_maps import ConfigMaps
from tests.runtime.fakes import CONFIG_MAP, bookmark, make_obj, name_of, raw, status

POLICY = WatchPolicy(page_limit=2, timeout_s=100)
A, B, C = make_obj("a", 1), make_obj("b", 2), make_obj("c", 3)


def go(state: State, given: Input, now: float = 0.0, chance: float = 0.0) -> WatchStep:
    return plan_step(state, given, now=now, chance=chance, policy=POLICY)


def watching(version: str = "5", *, opened_at: float = 0.0, pace: BackoffState | None = None) -> Watching:
    return Watching(pace or BackoffState(healthy_since=0.0), version, opened_at, 100)


def causes_agree(following: WatchStep) -> bool:
    return following.cause is None or following.cause in CAUSES


def test_it_begins_with_the_first_page():
    assert begin(POLICY) == (Empty(), ListPage("", 2))


def test_list_pages_yield_events_at_once_and_the_last_page_opens_the_watch():
    first = go(Empty(), Page([A, B], "9", "more"))
    assert (list(first.events), first.action) == ([Init(), InitApply(A), InitApply(B)], ListPage("more", 2))
    assert isinstance(first.state, InitPage)
    last = go(first.state, Page([C], "9"), now=7.0)
    assert (list(last.events), last.action) == ([InitApply(C), InitDone("9")], OpenWatch("9", 100))
    assert last.state == Opening(BackoffState(healthy_since=0.0), "9", 7.0, 100)


def test_an_empty_list_is_a_list():
    assert list(go(Empty(), Page([], "3")).events) == [Init(), InitDone("3")]


@pytest.mark.parametrize(
    ("kind", "event"), [("ADDED", Applied(A)), ("MODIFIED", Applied(A)), ("DELETED", Deleted(A))], ids=["added", "modified", "deleted"]
)
def test_watch_event_is_reported_and_advances_the_version(kind: str, event: Event):
    following = go(watching("0"), Raw(raw(kind, A)))
    assert (list(following.events), following.action) == ([event], Read())
    assert isinstance(following.state, Watching)
    assert following.state.resource_version == "1"


def test_watch_bookmark_advances_the_version_without_an_event():
    following = go(watching("5"), Raw(bookmark(8)))
    assert (following.state, list(following.events), following.action) == (watching("8"), [], Read())


@pytest.mark.parametrize("odd", [{"type": "SURPRISE", "object": A}, {"object": A}, {}, {"type": "ADDED"}, {"type": "ADDED", "object": "x"}])
def test_an_unknown_event_is_reported_and_moves_nothing(odd: Obj):
    following = go(watching("5"), Raw(odd))
    assert following.oddity is not None
    assert (following.state, list(following.events), following.action) == (watching("5"), [], Read())


GONE = [Failed(Gone(410, "Expired")), Raw(status(410, "Expired"))]


@pytest.mark.parametrize("given", GONE, ids=["status", "in stream"])
def test_gone_lists_again_after_a_pause(given: Input):
    following = go(watching(), given)
    assert (following.action, following.cause) == (Sleep(0.8), "gone")
    assert isinstance(following.state, Waiting)
    assert go(following.state, Woke()).action == ListPage("", 2)


def test_a_stale_continue_token_lists_again_in_one_piece():
    following = go(InitPage(BackoffState(), "old"), Failed(Gone(410, "Expired")))
    assert (following.action, following.cause) == (Sleep(0.8), "gone")
    again = go(following.state, Woke())
    assert again.action == ListPage("", None)
    assert list(go(again.state, Page([A], "9")).events) == [Init(), InitApply(A), InitDone("9")]


def test_a_page_that_failed_is_asked_for_again():
    following = go(InitPage(BackoffState(), "token"), Failed(Unreachable("reset")))
    assert (following.action, following.cause) == (Sleep(0.8), "unreachable")
    assert go(following.state, Woke()).action == ListPage("token", 2)


def test_silence_gives_the_stream_up_and_resumes_where_it_was():
    following = go(watching("5"), Silent(), now=105)
    assert following.cause == "idle"
    assert go(following.state, Woke()).action == OpenWatch("5", 100)


def test_a_stream_closed_in_its_time_is_reopened_at_once():
    following = go(watching("5"), Closed(), now=100)
    assert (following.action, following.cause) == (OpenWatch("5", 100), "closed")


def test_a_stream_that_was_silent_to_its_end_is_well():
    state = Opening(BackoffState(failures=3), "5", opened_at=0.0, timeout_s=100)
    following = go(state, Closed(), now=100)
    assert following.action == OpenWatch("5", 100)
    assert following.state == Opening(BackoffState(failures=3, healthy_since=0.0), "5", 100.0, 100)


def test_streams_that_last_a_moment_by_agreement_are_not_reopened_more_than_once_a_second():
    short = Watching(BackoffState(), "5", 0.0, 1)
    following = plan_step(short, Closed(), now=0.25, chance=0.0, policy=WatchPolicy(timeout_s=1))
    assert (following.action, following.cause) == (Sleep(0.75), "closed")


def test_early_closes_back_off_up_to_thirty_seconds():
    state: State = watching()
    now, pauses = 0.0, []
    for _ in range(9):
        following = go(state, Closed(), now=now)
        assert following.cause == "early_close"
        assert isinstance(following.action, Sleep)
        pauses.append(following.action.seconds)
        now += following.action.seconds
        state = go(following.state, Woke(), now=now).state
        now += 0.1
    assert pauses == [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0, 30.0]


def test_pauses_are_spread_by_chance():
    following = go(watching(), Closed(), chance=0.5)
    assert isinstance(following.action, Sleep)
    assert following.action.seconds == pytest.approx(0.8 * 1.25)


@pytest.mark.parametrize(("healthy_s", "pause"), [(119.0, 12.8), (120.0, 0.8)])
def test_only_two_minutes_of_health_make_the_pause_short_again(healthy_s: float, pause: float):
    state = watching(opened_at=1000.0, pace=BackoffState(failures=4, healthy_since=1000.0))
    assert go(state, Failed(Unreachable("reset")), now=1000 + healthy_s).action == Sleep(pause)


def test_silence_is_no_health():
    state = watching(pace=BackoffState(failures=4, healthy_since=0.0))
    assert go(state, Silent(), now=500).action == Sleep(12.8)


def test_years_of_failures_do_not_overflow():
    assert go(Empty(pace=BackoffState(failures=10**9)), Failed(Unreachable("down"))).action == Sleep(30.0)


def test_a_version_that_the_server_refuses_is_not_offered_again():
    following = go(watching("999"), Failed(BadRequest(400, "BadRequest", "invalid resource version")))
    assert following.cause == "refused"
    assert go(following.state, Woke()).action == ListPage("", 2)


def test_a_server_that_answers_nothing_but_errors_makes_us_list_again():
    """After a restore from a backup the server may answer 504 to a version from the future for ever."""
    state: State = watching()
    for expected in ("error", "error", "refused"):
        following = go(state, Raw(status(504, "Timeout")))
        assert following.cause == expected
        again = go(following.state, Woke())
        state = again.state
    assert again.action == ListPage("", 2)


def test_unreachable_server_causes_no_new_list():
    state: State = watching("5")
    for _ in range(10):
        state = go(go(state, Failed(Unreachable("refused"))).state, Woke()).state
    assert isinstance(state, Opening)
    assert state.resource_version == "5"


def test_timeouts_are_spread_downwards():
    opened = go(Empty(), Page([], "1"), chance=0.999)
    assert isinstance(opened.action, OpenWatch)
    assert opened.action.timeout_s == 80


STATES: list[State] = [Empty(), InitPage(BackoffState(), "t"), Opening(BackoffState(), "1", 0.0, 10), watching(), Waiting(Empty())]
INPUTS: list[Input] = [Page([A], "1"), Raw(raw("ADDED", A)), Closed(), Unproven(), Silent(), Failed(ServerError(500)), Woke()]


@pytest.mark.parametrize("state", STATES, ids=lambda state: type(state).__name__)
@pytest.mark.parametrize("given", INPUTS, ids=lambda given: type(given).__name__)
def test_every_state_has_an_answer_to_every_input(state: State, given: Input):
    following = go(state, given)
    assert causes_agree(following)
    if following.cause == "unexpected":
        assert isinstance(following.action, Sleep)
        assert isinstance(go(following.state, Woke()).action, ListPage)
        assert not following.events


class WatchMachine(RuleBasedStateMachine):
    """An API server changes, forgets and misbehaves between any two requests; the store fed by the machine ends up equal to it."""

    def __init__(self) -> None:
        super().__init__()
        self.server = ConfigMaps()
        self.loop = VirtualLoop()
        self.store = Store()
        self.now = 0.0
        self.policy = WatchPolicy(page_limit=2, timeout_s=60)
        self.state: State
        self.action: Action
        self.state, self.action = begin(self.policy)
        self.backlog: list[Obj] | None = None
        self.opened: list[float] = []

    # -- the world

    @rule(name=st.sampled_from("abcde"))
    def put(self, name: str) -> None:
        version = self.server.api.version
        self.server.put(name)
        self.tell_stream(version)

    @precondition(lambda self: self.server.objects)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        version = self.server.api.version
        self.server.delete(data.draw(st.sampled_from(sorted(self.server.objects))))
        self.tell_stream(version)

    @rule()
    def compact(self) -> None:
        self.server.api.compact()

    @rule(seconds=st.sampled_from([0.01, 1.0, 30.0, 130.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    def tell_stream(self, version: int) -> None:
        if self.backlog is not None:
            self.backlog += self.server.read_changes(version)

    # -- requests and answers

    def feed(self, given: Input, chance: float) -> None:
        following = plan_step(self.state, given, now=self.now, chance=chance, policy=self.policy)
        assert causes_agree(following)
        if isinstance(given, Failed | Silent) or following.cause not in (None, "closed"):
            assert isinstance(following.action, Sleep), "no error leads straight to the next request"
            assert following.action.seconds >= self.policy.backoff_s
        if following.cause is not None:
            self.backlog = None
        for event in following.events:
            self.store.apply(event)
        self.state, self.action = following.state, following.action
        if isinstance(self.action, OpenWatch):
            self.opened.append(self.now)

    @rule(
        chance=st.floats(0, 1, exclude_max=True),
        fault=st.sampled_from(["", "", "", "unreachable", "throttled", "error", "gone", "close", "close late", "idle", "odd", "bookmark"]),
    )
    def carry_on(self, chance: float, fault: str) -> None:
        match self.action:
            case Sleep(seconds):
                self.now += seconds
                self.feed(Woke(), chance)
            case ListPage(token, limit):
                self.feed(self.answer_list(token, limit, fault), chance)
            case OpenWatch(version, _):
                self.feed(self.answer_watch(version, fault), chance)
            case Read():
                self.feed(self.answer_read(fault), chance)

    def failure(self, fault: str) -> KubeError | None:
        match fault:
            case "unreachable":
                return Unreachable("reset")
            case "throttled":
                return TooManyRequests(429)
            case "error":
                return ServerError(500)
            case _:
                return None

    def answer_list(self, token: str, limit: int | None, fault: str) -> Input:
        if error := self.failure(fault):
            return Failed(error)
        try:
            pages = self.server.client.list_page(CONFIG_MAP, limit=limit, continue_token=token)
            return self.loop.run_until_complete(pages)
        except Gone as error:
            return Failed(error)

    def answer_watch(self, version: str, fault: str) -> Input:
        if error := self.failure(fault):
            return Failed(error)
        try:
            self.backlog = self.server.read_changes(int(version))
        except Refused as refused:
            return Failed(Gone(410, "Expired")) if fault == "" else Raw(status(refused.code, "Expired"))
        return self.answer_read(fault)

    def answer_read(self, fault: str) -> Input:
        assert self.backlog is not None
        match fault:
            case "gone":
                return Raw(status(410, "Expired"))
            case "error":
                return Raw(status(500, "InternalError"))
            case "unreachable":
                return Failed(Unreachable("reset"))
            case "close":
                return Closed()
            case "close late":
                self.now += 60
                return Closed()
            case "idle":
                self.now += 65
                return Silent()
            case "odd":
                return Raw({"type": "SURPRISE", "object": {"metadata": {"resourceVersion": "999999"}}})
        if self.backlog:
            return Raw(self.backlog.pop(0))
        return Raw(bookmark(self.server.version))

    @invariant()
    def streams_are_not_opened_in_a_hot_loop(self) -> None:
        for before, after in zip(self.opened, self.opened[1:], strict=False):
            assert after - before >= 0.8 - 1e-6

    def teardown(self) -> None:
        """Once the server behaves, the store equals it after a few turns."""
        for _ in range(60):
            self.carry_on(chance=0.0, fault="")
        self.loop.close()
        assert {name_of(obj): obj for obj in self.store.list()} == self.server.objects


TestWatch = WatchMachine.TestCase
