"""`topogate pause` and `topogate resume`: an administrator's stop button (docs/pausing.md). `register(app)` adds both.

What is written is one key of a ConfigMap, on the object as it was read: of two administrators who press at once the second hears of the
first. Then the ClusterQueues are looked at until they say that it is in force, since a stop button that nobody heard is worse than none.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer

from core.model.pause import ADMISSIONS, PAUSABLE, Pause, Stop
from core.names import ACTIVE, EVICTIONS_PAUSED, PAUSE_CONFIG_MAP, REASON_ADMISSIONS_PAUSED, SYSTEM_NAMESPACE
from core.runtime.client import Client
from core.runtime.clock import Clock, SystemClock
from core.runtime.errors import Conflict, Forbidden, KubeError, NotFound
from core.runtime.kubeconfig import UnusableKubeconfig
from core.runtime.resource import Obj, PatchKind, Resource
from core.state.facts import find_condition
from reconciler import resources as r

ERROR, BAD_INPUT = 1, 2
FIELD_MANAGER = "topogate-pause"
WAIT_S, POLL_S = 10.0, 0.25  # the button is to be in force within 2 s; who waits for more should look why
_ATTEMPTS = 10
_REVIEWS = Resource("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False)


class What(StrEnum):
    """What can be paused."""

    ADMISSIONS = "admissions"
    EVICTIONS = "evictions"
    ALL = "all"

    @property
    def parts(self) -> tuple[str, ...]:
        """Keys of the ConfigMap."""
        return PAUSABLE if self is What.ALL else (self.value,)


class Asked(StrEnum):
    """What can be paused, or whether anything is."""

    ADMISSIONS = "admissions"
    EVICTIONS = "evictions"
    ALL = "all"
    STATUS = "status"


class Unable(Exception):
    """It cannot be done: one line that says why."""


@dataclass(frozen=True, slots=True)
class Where:
    """Which API server, None: as kubectl has it; and the namespace in which the reconciler is."""

    kubeconfig: str | None
    context: str | None
    namespace: str


Kubeconfig = Annotated[str | None, typer.Option("--kubeconfig", metavar="FILE", help="Default: $KUBECONFIG, then ~/.kube/config.")]
Context = Annotated[str | None, typer.Option("--context", metavar="NAME", help="Of the kubeconfig; default: its current one.")]
Namespace = Annotated[str, typer.Option("--namespace", "-n", help="Where the reconciler is.")]
Waits = Annotated[bool, typer.Option("--wait/--no-wait", help=f"Until all ClusterQueues say that it is in force, {WAIT_S:g} s at most.")]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("pause")(pause)
    app.command("resume")(resume)


def pause(
    what: Annotated[Asked, typer.Argument(help="What to pause; or status, which only says what is paused.")],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why: everybody who waits is told.")] = "",
    namespace: Namespace = SYSTEM_NAMESPACE,
    wait: Waits = True,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Pause admissions (nothing is admitted), evictions (nothing is evicted), or all. What runs runs on.

    Holds until `topogate resume`, whatever is restarted. Exit code 0: it is in force; 1: it is not, or not known to be; 2: bad input.
    """
    where = Where(kubeconfig, context, namespace)
    if what is Asked.STATUS:
        if reason:
            _end(BAD_INPUT, "--reason is for pausing; leave it out to see the status")
        return _run(where, lambda client: tell_status(client, namespace))
    return _run(where, lambda client: press(client, SystemClock(), namespace, What(what.value), reason, wait=wait))


def resume(
    what: Annotated[What, typer.Argument(help="What is to go on.")],
    namespace: Namespace = SYSTEM_NAMESPACE,
    wait: Waits = True,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Let admissions, evictions, or all go on. What has waited is decided on at once."""
    where = Where(kubeconfig, context, namespace)
    return _run(where, lambda client: release(client, SystemClock(), namespace, what, wait=wait))


# --- what they do -----------------------------------------------------------------------------------------


async def press(client: Client, clock: Clock, namespace: str, what: What, reason: str, *, wait: bool) -> list[str]:
    """Pauses; says so line by line. Raises Unable, and KubeError."""
    since = clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    by = await who_am_i(client)
    before = await set_stops(client, namespace, {part: Stop(part, since, by, reason) for part in what.parts})
    lines = []
    for part in what.parts:
        stop = before.of(part)
        lines.append(f"{part} are paused" if stop is None else f"{part} were paused before, {stop.story}; that stands")
    return lines + (await wait_for_queues(client, clock, namespace, what.parts, paused=True) if wait else [])


async def release(client: Client, clock: Clock, namespace: str, what: What, *, wait: bool) -> list[str]:
    """Lets go on; says so line by line. Raises Unable, and KubeError."""
    before = await set_stops(client, namespace, dict.fromkeys(what.parts))
    lines = []
    for part in what.parts:
        stop = before.of(part)
        lines.append(f"{part} were not paused" if stop is None else f"{part} go on; they were paused {stop.story}")
    return lines + (await wait_for_queues(client, clock, namespace, what.parts, paused=False) if wait else [])


async def tell_status(client: Client, namespace: str) -> list[str]:
    """What is paused, line by line."""
    now = Pause.read(await _find(client, namespace) or {})
    return [stop.sentence if (stop := now.of(part)) is not None else f"{part} are not paused" for part in PAUSABLE]


async def set_stops(client: Client, namespace: str, stops: Mapping[str, Stop | None]) -> Pause:
    """Sets keys that are missing, or takes away those that are there; what was paused before. A stop that stands is not overwritten."""
    for _ in range(_ATTEMPTS):
        seen = await _find(client, namespace)
        before = Pause.read(seen or {})
        changed = {part: stop for part, stop in stops.items() if (stop is None) != (before.of(part) is None)}
        if not changed:
            return before
        data = {part: stop.to_text() if stop is not None else None for part, stop in changed.items()}
        try:
            await _write(client, namespace, seen, data)
        except Conflict:
            continue  # somebody else was faster
        except NotFound as error:
            if seen is not None:
                continue  # it was deleted meanwhile
            raise Unable(f"there is no namespace {namespace}; --namespace names the one in which the reconciler is") from error
        return before
    raise Unable(f"ConfigMap {namespace}/{PAUSE_CONFIG_MAP} was changed by others {_ATTEMPTS} times while it was to be written; try again")


async def _write(client: Client, namespace: str, seen: Obj | None, data: Mapping[str, str | None]) -> None:
    if seen is None:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": PAUSE_CONFIG_MAP, "namespace": namespace}, "data": dict(data)}
        await client.create(r.CONFIG_MAPS, body, field_manager=FIELD_MANAGER)
        return
    metadata = {name: seen["metadata"][name] for name in ("uid", "resourceVersion")}
    changed: Obj = {"metadata": metadata, "data": dict(data)}
    gone = {part: None for part, text in data.items() if text is None and part in (seen.get("binaryData") or {})}
    if gone:
        changed["binaryData"] = gone
    await client.patch(r.CONFIG_MAPS, PAUSE_CONFIG_MAP, namespace, changed, kind=PatchKind.MERGE, field_manager=FIELD_MANAGER)


async def _find(client: Client, namespace: str) -> Obj | None:
    try:
        return await client.get(r.CONFIG_MAPS, PAUSE_CONFIG_MAP, namespace)
    except NotFound:
        return None


async def who_am_i(client: Client) -> str:
    """By whom it is paused: as the API server knows the user, else as this machine does."""
    body = {"apiVersion": _REVIEWS.api_version, "kind": _REVIEWS.kind, "metadata": {}}
    try:
        status = (await client.create(_REVIEWS, body)).get("status") or {}
    except KubeError:  # it may not be asked, or is too old to know
        status = {}
    return str((status.get("userInfo") or {}).get("username") or os.environ.get("USER") or "")


# --- whether it is in force -------------------------------------------------------------------------------


async def wait_for_queues(client: Client, clock: Clock, namespace: str, parts: Sequence[str], *, paused: bool) -> list[str]:
    """Until every ClusterQueue says that it is so. Raises Unable where they do not in time."""
    began, deadline = clock.monotonic(), clock.monotonic() + WAIT_S
    while True:
        try:
            queues = (await client.list(r.CLUSTER_QUEUES)).items
        except Forbidden:
            return ["whether it is in force is not known: that would be read from ClusterQueues, which you may not list"]
        if not queues:
            return ["whether it is in force is not known: that would be read from ClusterQueues, and there is none"]
        behind = sorted(queue["metadata"]["name"] for queue in queues if any(_is_behind(queue, part, paused=paused) for part in parts))
        if not behind:
            return [f"in force: all {len(queues)} ClusterQueue(s) say so, after {clock.monotonic() - began:.1f} s"]
        if clock.monotonic() >= deadline:
            word = "paused" if paused else "not paused"
            raise Unable(
                f"it is written, but after {WAIT_S:g} s {len(behind)} of {len(queues)} ClusterQueue(s), {behind[0]} for one, "
                f"do not say that {' and '.join(parts)} are {word}; is a reconciler running, and with --namespace={namespace}?"
            )
        await clock.sleep(POLL_S)


def _is_behind(queue: Obj, part: str, *, paused: bool) -> bool:
    """Whether a ClusterQueue does not say yet that something is paused, or is not; one that is inactive for another reason says that."""
    if part != ADMISSIONS:
        return ((find_condition(queue, EVICTIONS_PAUSED) or {}).get("status") == "True") != paused
    active = find_condition(queue, ACTIVE) or {}
    return active.get("status") != "False" if paused else active.get("reason") == REASON_ADMISSIONS_PAUSED


# --- the command line -------------------------------------------------------------------------------------


def _run(where: Where, work: Callable[[Client], Coroutine[Any, Any, Iterable[str]]]) -> None:
    async def connected() -> list[str]:
        async with await Client.connect(where.kubeconfig, context=where.context, user_agent="topogate-cli") as client:
            return list(await work(client))

    try:
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            lines = runner.run(connected())
    except UnusableKubeconfig as error:
        _end(BAD_INPUT, str(error))
    except Unable as error:
        _end(ERROR, str(error))
    except KubeError as error:
        _end(
            ERROR,
            f"cannot read and write ConfigMap {where.namespace}/{PAUSE_CONFIG_MAP}: {' '.join((error.message or str(error)).split())}",
        )
    else:
        for line in lines:
            typer.echo(line)


def _end(code: int, line: str) -> None:
    typer.echo(f"topogate: {line}", err=True)
    raise typer.Exit(code)
