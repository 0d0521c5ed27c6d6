"""List, then watch, for ever: the pure part of the watcher. Five states and one total function between them.

::

    Empty ──page──> InitPage ──last page──> Opening ──stream speaks──> Watching
      ^                │                       ^  │                        │
      │                └───────error───────────┼──┴──error, close, idle────┤
      └──gone (410)──────── Waiting <──────────┘<──────────────────────────┘

Between `Init` and `InitDone` every object there is arrives as `InitApply`; what is not among them no longer exists. After `InitDone`
nothing is missed: a stream goes on from the last resource version seen, and where that is impossible everything is listed again.

No way out of an error leads straight to the next request: each goes through `Waiting`. Known clients loop hundreds of times a second when a
server answers 410 or closes at once; here the pause doubles from 0.8 s to 30 s and shrinks again only after two minutes of health.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from core.resource import PAGE_LIMIT, Obj, Page
from core.runtime.http.errors import BadRequest, Gone, KubeError, Unreachable, build_error

# -- events: what the watcher emits


@dataclass(frozen=True, slots=True)
class Init:
    """A list begins; the objects of an earlier list that was broken off are void."""


@dataclass(frozen=True, slots=True)
class InitApply:
    obj: Obj


@dataclass(frozen=True, slots=True)
class InitDone:
    """The list is whole. `version` is the resource version of the moment that it shows; empty where that is not known."""

    version: str = ""


@dataclass(frozen=True, slots=True)
class Applied:
    obj: Obj


@dataclass(frozen=True, slots=True)
class Deleted:
    """`obj` is the last state that the server sent."""

    obj: Obj


Event = Init | InitApply | InitDone | Applied | Deleted

# -- inputs: what happens to it


@dataclass(frozen=True, slots=True)
class Raw:
    """One event of the stream as the server sent it."""

    event: Obj


@dataclass(frozen=True, slots=True)
class Closed:
    """The server ended the stream in good order."""


@dataclass(frozen=True, slots=True)
class Silent:
    """Nothing was received for longer than the server may keep a stream open."""


@dataclass(frozen=True, slots=True)
class Failed:
    error: KubeError


@dataclass(frozen=True, slots=True)
class Woke:
    """The pause is over."""


@dataclass(frozen=True, slots=True)
class ReopenRequested:
    """The stream is to be opened again, so that its events arrive within seconds."""


@dataclass(frozen=True, slots=True)
class Unproven:
    """The stream that was opened again has ended in good order before it reached the requested version: it may have
    lagged behind, and only a list is certain.

    An API server sends no bookmarks for a resource of which nothing has changed since it started, and others with the
    version of its cache.
    """


Input = Page | Raw | Closed | Silent | Failed | Woke | ReopenRequested | Unproven

# -- actions: what it wants done next


@dataclass(frozen=True, slots=True)
class ListPage:
    """`limit` None asks for everything at once."""

    continue_token: str
    limit: int | None


@dataclass(frozen=True, slots=True)
class OpenWatch:
    """Open a stream and read its first event."""

    resource_version: str
    timeout_s: int


@dataclass(frozen=True, slots=True)
class Read:
    """Read the next event of the open stream."""


@dataclass(frozen=True, slots=True)
class Sleep:
    seconds: float


Action = ListPage | OpenWatch | Read | Sleep

# -- states


@dataclass(frozen=True, slots=True)
class BackoffState:
    """What backoff stores: failures in a row, the time since when requests succeed, and how often a reachable server
    answered with errors only."""

    failures: int = 0
    healthy_since: float | None = None
    barren: int = 0


@dataclass(frozen=True, slots=True)
class Empty:
    """Nothing is known. `whole` once a continue token has expired: a list that takes longer than its token lives must come in one piece."""

    pace: BackoffState = BackoffState()
    whole: bool = False


@dataclass(frozen=True, slots=True)
class InitPage:
    """Some pages are read, more are due."""

    pace: BackoffState
    continue_token: str


@dataclass(frozen=True, slots=True)
class Opening:
    """A stream was asked for and has not spoken yet."""

    pace: BackoffState
    resource_version: str
    opened_at: float = 0.0
    timeout_s: int = 0


@dataclass(frozen=True, slots=True)
class Watching:
    """The stream delivers events."""

    pace: BackoffState
    resource_version: str
    opened_at: float
    timeout_s: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pause before `then`."""

    then: Empty | InitPage | Opening


State = Empty | InitPage | Opening | Watching | Waiting

CAUSES = ("closed", "early_close", "error", "gone", "idle", "refused", "unexpected", "unreachable")
"""Why a request had to be made again: the bounded label of the restart metric."""


class WatchStep(NamedTuple):
    """`cause` names the restart that this step begins (one of CAUSES), `oddity` what was skipped because it is unknown."""

    state: State
    events: Sequence[Event]
    action: Action
    cause: str | None = None
    oddity: str | None = None


@dataclass(frozen=True, slots=True)
class WatchPolicy:
    """How patient a watcher is."""

    page_limit: int = PAGE_LIMIT
    timeout_s: int = 120
    """Asked of the server for each stream, less up to a fifth at random so that streams do not all end together. A stream that hangs is
    noticed this much later at most; reopening from the last bookmark costs the server next to nothing."""
    refresh_s: int = 3
    """Asked of the server for a stream that is opened to be up to date: it sends a bookmark two seconds before the end."""
    silence_s: float = 5.0
    """How long past its timeout a stream may stay silent before it is given up: a server that lives has closed it by then."""
    backoff_s: float = 0.8
    backoff_max_s: float = 30.0
    backoff_jitter: float = 0.5
    """A pause is longer by up to this share. The three figures are those that Go clients use, so a server sees a known kind of client."""
    healthy_s: float = 120.0
    """Only health this long makes the next pause short again: a server that fails every minute must not be asked at once every minute."""
    reconnect_s: float = 1.0
    """At most one stream in this time, also when each was closed in good order."""
    barren_limit: int = 3
    """After so many errors in a row that a reachable server answers to a watch, everything is listed again: the server
    may not know the version any more (a restored backup) without a 410."""


def begin(policy: WatchPolicy) -> tuple[State, Action]:
    """Returns the state in which every watcher starts, and its first action: the first page of a list."""
    return Empty(), ListPage("", policy.page_limit)


def plan_step(state: State, given: Input, *, now: float, chance: float, policy: WatchPolicy) -> WatchStep:
    """Returns the state that follows an input, with the events to emit and the next action. Total: an input that makes no sense in a state
    ends in a new list after a pause, never in an exception or a gap.

    `now` is monotonic, in seconds; `chance` in [0, 1) is all the randomness there is.
    """
    match state, given:
        case ((Empty() | InitPage()), Page()):
            return _handle_page(state, given, now, chance, policy)
        case ((Empty() | InitPage()), Failed(error)):
            return _list_failed(state, error, now, chance, policy)
        case ((Opening() | Watching()), Raw(event)):
            return _handle_event(state, event, now, chance, policy)
        case ((Opening() | Watching()), Closed()):
            return _handle_close(state, now, chance, policy)
        case ((Opening() | Watching()), Silent()):
            # The silence is no health, so it does not make the pause short again.
            return _pause(Opening(state.pace, state.resource_version), state.pace, "idle", now, chance, policy, healthy=False)
        case ((Opening() | Watching()), Failed(error)):
            return _watch_failed(state, error, now, chance, policy)
        case ((Opening() | Watching()), ReopenRequested()):
            again = Opening(state.pace, state.resource_version, now, policy.refresh_s)
            return WatchStep(again, [], OpenWatch(again.resource_version, again.timeout_s))
        case ((Opening() | Watching()), Unproven()):
            return WatchStep(Empty(state.pace), [], ListPage("", policy.page_limit), "closed")
        case Waiting(then), Woke():
            return _resume(then, now, chance, policy)
        case _:
            pace = state.then.pace if isinstance(state, Waiting) else state.pace
            return _pause(Empty(), pace, "unexpected", now, chance, policy)


def _handle_page(state: Empty | InitPage, page: Page, now: float, chance: float, policy: WatchPolicy) -> WatchStep:
    events: list[Event] = [Init()] if isinstance(state, Empty) else []
    events += [InitApply(obj) for obj in page.items]
    pace = _reset_backoff(state.pace, now)
    if page.continue_token:
        return WatchStep(InitPage(pace, page.continue_token), events, ListPage(page.continue_token, policy.page_limit))
    events.append(InitDone(page.resource_version))
    return _open(Opening(pace, page.resource_version), now, chance, policy)._replace(events=events)


def _list_failed(state: Empty | InitPage, error: KubeError, now: float, chance: float, policy: WatchPolicy) -> WatchStep:
    if isinstance(error, Gone):
        return _pause(Empty(whole=True), state.pace, "gone", now, chance, policy)
    return _pause(state, state.pace, "unreachable" if isinstance(error, Unreachable) else "error", now, chance, policy)


def _handle_event(state: Opening | Watching, event: Obj, now: float, chance: float, policy: WatchPolicy) -> WatchStep:
    kind, obj = event.get("type"), event.get("object")
    if not isinstance(obj, dict):
        obj = {}
    if kind == "ERROR":
        code = obj.get("code")
        return _watch_failed(state, build_error(code if isinstance(code, int) else 500, obj), now, chance, policy)
    metadata = obj.get("metadata")
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    pace = _reset_backoff(state.pace, now)
    pace = replace(pace, barren=0) if pace.barren else pace
    following = Watching(pace, str(version) if version else state.resource_version, state.opened_at, state.timeout_s)
    match kind:
        case "ADDED" | "MODIFIED" if version:
            return WatchStep(following, [Applied(obj)], Read())
        case "DELETED" if version:
            return WatchStep(following, [Deleted(obj)], Read())
        case "BOOKMARK":
            return WatchStep(following, [], Read())
        case _:
            return WatchStep(replace(following, resource_version=state.resource_version), [], Read(), oddity=str(kind)[:64])


def _handle_close(state: Opening | Watching, now: float, chance: float, policy: WatchPolicy) -> WatchStep:
    again = Opening(state.pace, state.resource_version)
    lasted = now - state.opened_at
    if lasted < state.timeout_s - 1:
        return _pause(again, state.pace, "early_close", now, chance, policy)
    # Open to the end, even without an event: that counts as healthy, too.
    again = replace(again, pace=replace(_reset_backoff(state.pace, state.opened_at), barren=0))
    if lasted < policy.reconnect_s:
        return WatchStep(Waiting(again), [], Sleep(policy.reconnect_s - lasted), "closed")
    return _open(again, now, chance, policy)._replace(cause="closed")


def _watch_failed(state: Opening | Watching, error: KubeError, now: float, chance: float, policy: WatchPolicy) -> WatchStep:
    if isinstance(error, Gone | BadRequest):
        # 400: the version is not one that this server could have given out.
        return _pause(Empty(), state.pace, "gone" if isinstance(error, Gone) else "refused", now, chance, policy)
    if isinstance(error, Unreachable):
        return _pause(Opening(state.pace, state.resource_version), state.pace, "unreachable", now, chance, policy)
    barren = state.pace.barren + 1
    if barren >= policy.barren_limit:
        return _pause(Empty(), replace(state.pace, barren=0), "refused", now, chance, policy)
    return _pause(Opening(state.pace, state.resource_version), replace(state.pace, barren=barren), "error", now, chance, policy)


def _reset_backoff(pace: BackoffState, since: float) -> BackoffState:
    return pace if pace.healthy_since is not None else replace(pace, healthy_since=since)


def _pause(
    then: Empty | InitPage | Opening,
    pace: BackoffState,
    cause: str,
    now: float,
    chance: float,
    policy: WatchPolicy,
    *,
    healthy: bool = True,
) -> WatchStep:
    """Wait before `then`, longer with every failure that comes without health in between."""
    rested = healthy and pace.healthy_since is not None and now - pace.healthy_since >= policy.healthy_s
    failures = 0 if rested else pace.failures
    # The exponent is bounded because of years of failures: floats overflow at 2**1024.
    seconds = min(policy.backoff_max_s, policy.backoff_s * 2.0 ** min(failures, 64)) * (1 + policy.backoff_jitter * chance)
    again = replace(then, pace=replace(pace, failures=failures + 1, healthy_since=None))
    return WatchStep(Waiting(again), [], Sleep(seconds), cause)


def _resume(then: Empty | InitPage | Opening, now: float, chance: float, policy: WatchPolicy) -> WatchStep:
    match then:
        case Empty():
            return WatchStep(then, [], ListPage("", None if then.whole else policy.page_limit))
        case InitPage():
            return WatchStep(then, [], ListPage(then.continue_token, policy.page_limit))
        case Opening():
            return _open(then, now, chance, policy)


def _open(state: Opening, now: float, chance: float, policy: WatchPolicy) -> WatchStep:
    timeout_s = max(1, round(policy.timeout_s * (1 - 0.2 * chance)))
    return WatchStep(replace(state, opened_at=now, timeout_s=timeout_s), [], OpenWatch(state.resource_version, timeout_s))
