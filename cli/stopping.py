"""What `topogate pause` and `topogate resume` do, through the API server.

They write one key of a ConfigMap, on the object as it was read: if two administrators write at once, the second
gets a conflict and reads the change of the first. Then they read the ClusterQueues until these show that the change is
in force: a stop button without effect is worse than none.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any

from cli.connection import Target, connect
from cli.failures import Failure, report_in_a_line
from core.model.pause_state import ADMISSIONS, PAUSABLE, Pause, Stop
from core.model.quantity import show_count
from core.names import ACTIVE, EVICTIONS_PAUSED, PAUSE_CONFIG_MAP, REASON_ADMISSIONS_PAUSED
from core.plan.steps import api_resources as r
from core.resource import Obj, PatchKind, Resource
from core.runtime.clock import Clock
from core.runtime.http.client import Client
from core.runtime.http.errors import Conflict, Forbidden, KubeError, NotFound
from core.state.facts import find_condition

FIELD_MANAGER = "topogate-pause"
WAIT_S, POLL_S = 10.0, 0.25  # a pause is in force within 2 s; after a longer wait the cause must be found
_ATTEMPTS = 10
_REVIEWS = Resource("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False)


def run(kubeconfig: str | None, context: str | None, work: Callable[[Client], Coroutine[Any, Any, Iterable[str]]]) -> list[str]:
    """Runs work with a client, on a loop of its own. Returns the lines to print. Raises Failure for any KubeError, BadInput for an unusable
    kubeconfig, and what else `work` raises."""

    async def run_work() -> list[str]:
        async with connect(Target(kubeconfig, context)) as client:
            with report_in_a_line(f"read and write ConfigMap {PAUSE_CONFIG_MAP}"):
                return list(await work(client))

    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return runner.run(run_work())


async def set_pause(client: Client, clock: Clock, namespace: str, parts: Sequence[str], reason: str, *, wait: bool) -> list[str]:
    """Pauses `parts` (admissions, evictions); returns lines that report it, one for each and with `wait` one more. A pause that is there
    already stands, with its reason. Raises Failure where it cannot be written or, with `wait`, ClusterQueues do not show it within `WAIT_S`
    seconds, though it is written; and KubeError."""
    since = clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    by = await find_own_name(client)
    before = await set_stops(client, namespace, {part: Stop(part, since, by, reason) for part in parts})
    lines = []
    for part in parts:
        stop = before.find_stop(part)
        lines.append(f"{part} are paused" if stop is None else f"{part} were paused before, {stop.description}; that stands")
    return lines + (await wait_for_queues(client, clock, namespace, parts, paused=True) if wait else [])


async def release(client: Client, clock: Clock, namespace: str, parts: Sequence[str], *, wait: bool) -> list[str]:
    """Ends a pause of `parts`; returns lines that report it, one for each and with `wait` one more. A part that is not paused is no error.
    Raises Failure where it cannot be written or, with `wait`, ClusterQueues do not show it within `WAIT_S` seconds, though it is written;
    and KubeError."""
    before = await set_stops(client, namespace, dict.fromkeys(parts))
    lines = []
    for part in parts:
        stop = before.find_stop(part)
        lines.append(f"{part} were not paused" if stop is None else f"{part} go on; they were paused {stop.description}")
    return lines + (await wait_for_queues(client, clock, namespace, parts, paused=False) if wait else [])


async def list_status_lines(client: Client, namespace: str) -> list[str]:
    """Returns a line for each thing that can be paused, in the order of `PAUSABLE`: whether it is, and why. Raises Failure where the
    namespace does not exist, and KubeError."""
    found = await _find(client, namespace)
    if found is None:
        await _check_namespace(client, namespace)
    now = Pause.read(found or {})
    return [stop.sentence if (stop := now.find_stop(part)) is not None else f"{part} are not paused" for part in PAUSABLE]


async def set_stops(client: Client, namespace: str, stops: Mapping[str, Stop | None]) -> Pause:
    """Sets keys that are missing, or removes those that exist (None). Returns what was paused before. An existing stop is not overwritten,
    and nothing is written where no key changes. Raises Failure where the namespace does not exist or others write all the time, and
    KubeError."""
    for _ in range(_ATTEMPTS):
        seen = await _find(client, namespace)
        before = Pause.read(seen or {})
        changed = {part: stop for part, stop in stops.items() if (stop is None) != (before.find_stop(part) is None)}
        if not changed:
            return before
        data = {part: stop.to_text() if stop is not None else None for part, stop in changed.items()}
        try:
            await _write(client, namespace, seen, data)
        except Conflict:
            continue  # another client was faster
        except NotFound as error:
            if seen is not None:
                continue  # it was deleted meanwhile
            raise _build_missing_namespace_error(namespace) from error
        return before
    raise Failure(f"ConfigMap {namespace}/{PAUSE_CONFIG_MAP} was changed by others {_ATTEMPTS} times while it was to be written; try again")


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


async def _check_namespace(client: Client, namespace: str) -> None:
    try:
        await client.get(r.NAMESPACES, namespace)
    except NotFound as error:
        raise _build_missing_namespace_error(namespace) from error
    except Forbidden:
        return  # without the right to read namespaces there is no more to report


def _build_missing_namespace_error(namespace: str) -> Failure:
    return Failure(f"there is no namespace {namespace}; --namespace names the one in which the reconciler is")


async def find_own_name(client: Client) -> str:
    """Returns the name of the user that pauses: as the API server knows the user, else as this machine does ($USER), else empty."""
    body = {"apiVersion": _REVIEWS.api_version, "kind": _REVIEWS.kind, "metadata": {}}
    try:
        status = (await client.create(_REVIEWS, body)).get("status") or {}
    except KubeError:  # it may not be asked, or is too old to know
        status = {}
    return str((status.get("userInfo") or {}).get("username") or os.environ.get("USER") or "")


# --- whether it is in force -------------------------------------------------------------------------------


async def wait_for_queues(client: Client, clock: Clock, namespace: str, parts: Sequence[str], *, paused: bool) -> list[str]:
    """Waits until every ClusterQueue shows the new state of all `parts`. Returns one line: that it is in force, or why that is not known
    (queues may not be listed, or there is none). Raises Failure where queues do not show it within `WAIT_S` seconds, or cannot be listed
    then."""
    began, deadline = clock.monotonic(), clock.monotonic() + WAIT_S
    while True:
        try:
            queues = (await client.list(r.CLUSTER_QUEUES)).items
        except Forbidden:
            return ["whether it is in force is not known: that would be read from ClusterQueues, which you may not list"]
        except KubeError as error:
            if clock.monotonic() >= deadline:
                why = " ".join((error.message or str(error)).split())
                raise Failure(f"it is written, but whether it is in force is not known: ClusterQueues cannot be listed: {why}") from error
            await clock.sleep(POLL_S)
            continue
        if not queues:
            return ["whether it is in force is not known: that would be read from ClusterQueues, and there is none"]
        behind = sorted(queue["metadata"]["name"] for queue in queues if any(_is_behind(queue, part, paused=paused) for part in parts))
        if not behind:
            return [f"in force: reported by {show_count(len(queues), 'ClusterQueue')} after {clock.monotonic() - began:.1f} s"]
        if clock.monotonic() >= deadline:
            word = "paused" if paused else "not paused"
            raise Failure(
                f"it is written, but after {WAIT_S:g} s {len(behind)} of {show_count(len(queues), 'ClusterQueue')}, {behind[0]} for one, "
                f"do not say that {' and '.join(parts)} are {word}; is a reconciler running, and with --namespace={namespace}?"
            )
        await clock.sleep(POLL_S)


def _is_behind(queue: Obj, part: str, *, paused: bool) -> bool:
    """Whether the status of a ClusterQueue does not show yet that something is paused, or is not. A queue that is
    inactive for another reason shows that reason."""
    if part != ADMISSIONS:
        return ((find_condition(queue, EVICTIONS_PAUSED) or {}).get("status") == "True") != paused
    active = find_condition(queue, ACTIVE) or {}
    return active.get("status") != "False" if paused else active.get("reason") == REASON_ADMISSIONS_PAUSED
