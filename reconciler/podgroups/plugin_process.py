"""One plugin of another package in a process of its own: started when it is first asked, ended when it breaks a limit.

Its code is never imported here. It has a limit for its memory, which it sets itself before it loads the plugin, and one
for its time, which is enforced here. Answers are read as JSON up to a maximum size, and are not trusted. There is one
process for each plugin, so that a failing one is known by name, and the others need not restart.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from core.metric_names import ENDED, MEMORY, NONSENSE, RAISED, TIMEOUT, UNUSABLE
from core.model.plugin_choice import ALL_EVENTS, GroupEvent, PluginLimits, Which
from core.placement.topology.tree import TopologyTree
from core.podgroups.questions import Question

logger = logging.getLogger(__name__)
MOST_BYTES = 4 << 20
"""Of an answer, which is read on the event loop: three ways to part 100,000 nodes."""
PART = 500
"""Nodes that are sent at once: between two parts the event loop runs other tasks."""
LINES = 20
"""That a plugin prints are logged, for each process."""
END_S = 5.0
HUNG_UP_TURNS = 50
# Libraries reserve address space for each thread of a pool that is not needed here.
_ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class PluginFailed(Exception):
    """A plugin did not answer: `kind` for a metric, a short message for conditions, `detail` for the log. `reply` is
    its answer about arguments that it refuses."""

    def __init__(self, kind: str, why: str, detail: str = "", reply: Mapping[str, Any] | None = None) -> None:
        super().__init__(why)
        self.kind, self.detail, self.reply = kind, detail, reply or {}


@dataclass(frozen=True, slots=True)
class Launch:
    """What is started: the entry point's value, and the plugin's arguments."""

    which: Which
    value: str
    arguments: Mapping[str, Any]

    @property
    def order(self) -> dict[str, Any]:
        """Returns what the process is asked to load, as JSON: role, name, entry point, arguments, and the names of all events."""
        return {
            "role": self.which.role,
            "name": self.which.name,
            "value": self.value,
            "arguments": dict(self.arguments),
            "events": list(GroupEvent),
        }


class _Gone(Exception):
    """The process has ended, or reads nothing more."""


class _Child:
    """A running process, and both ends of its sockets."""

    def __init__(self, which: Which) -> None:
        self._which = which
        self.is_new = True  # it has not answered anything yet
        self._number = 0  # of what it is asked: an answer has that of its question
        self.tree: weakref.ref[TopologyTree] | None = None  # the tree with the nodes that it got
        self._own, theirs = socket.socketpair()
        self._out, printed = socket.socketpair()
        with theirs, printed, self._close_if_not_started():
            self.process = subprocess.Popen(
                [sys.executable, "-m", "reconciler.podgroups.plugin_child"],
                stdin=theirs.fileno(),
                stdout=printed.fileno(),
                stderr=printed.fileno(),
                env={**_ONE_THREAD, **os.environ},
                start_new_session=True,  # what it starts itself ends with it, and a terminal's Ctrl-C is not for it
            )
        self._printing: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def _close_if_not_started(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._own.close()
            self._out.close()
            raise PluginFailed(ENDED, f"its process cannot be started: {error.strerror}") from error

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(sock=self._own, limit=MOST_BYTES)
        self._printing = asyncio.create_task(self._log_what_is_printed(), name=f"what plugin {self._which.name} prints")

    async def send_message(self, message: bytes) -> None:
        self._number += 1
        try:
            self._writer.write(b"%d %s\n" % (self._number, message))
            await self._writer.drain()
        except ConnectionError as error:
            raise _Gone from error

    async def read_message(self) -> Any:
        try:
            line = await self._reader.readline()
        except ConnectionError as error:
            raise _Gone from error
        except ValueError as error:
            raise PluginFailed(NONSENSE, f"it answered with more than {MOST_BYTES >> 20} MiB") from error
        if not line.endswith(b"\n"):
            raise _Gone
        try:
            reply = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise PluginFailed(NONSENSE, "it answered with something that is no JSON") from error
        if not isinstance(reply, dict) or reply.get("number") != self._number or not reply.keys() & {"answer", "failed"}:
            raise PluginFailed(NONSENSE, "it answered something else than what was asked")
        self.is_new = False
        return reply

    async def _log_what_is_printed(self) -> None:
        reader, writer = await asyncio.open_connection(sock=self._out)
        said = 0
        try:
            while data := await reader.read(1 << 16):
                for line in data.decode(errors="replace").splitlines()[: LINES - said]:
                    logger.info("a plugin prints", extra={"plugin": self._which.name, "text": line[:500]})
                    said += 1
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def end(self, *, has_hung_up: bool = False) -> str:
        """Ends the process and all that it has started; returns how it has ended. One that has hung up gets a moment to
        end by itself: then its exit status shows more."""
        for _ in range(HUNG_UP_TURNS):
            if not has_hung_up or self._has_ended():
                break
            await asyncio.sleep(0.01)
        by_itself = self._has_ended()
        self.kill()
        if self._printing is not None:
            self._writer.close()
            await asyncio.wait([self._printing], timeout=0.1)  # its last lines are here already, unless another process holds the pipe open
            self._printing.cancel()
            await asyncio.wait([self._printing])
        else:
            self._own.close()
            self._out.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self.process.wait, END_S)
        return _describe_exit(self.process.returncode) if by_itself else "its process hung up"

    def _has_ended(self) -> bool:
        """Whether the process has ended. It is not reaped by that: until then no other process can get its id."""
        return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def kill(self) -> None:
        """At once, without a turn of the event loop."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)


def _describe_exit(status: int | None) -> str:
    if status is None or status >= 0:
        return f"its process ended with status {status}"
    try:
        return f"its process was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"its process was ended by signal {-status}"


class PluginProcess:
    """Asks one plugin, one question at a time: the owner of this object ensures that."""

    def __init__(self, launch: Launch, limits: PluginLimits) -> None:
        self._launch, self._limits = launch, limits
        self._child: _Child | None = None
        self.events: frozenset[GroupEvent] = ALL_EVENTS  # until it is loaded

    @property
    def pid(self) -> int | None:
        """Returns the id of the process; None while none runs."""
        return None if self._child is None else self._child.process.pid

    async def ask(self, question: Question) -> Any:
        """Returns what the plugin answers to a question, whatever JSON that is. Starts its process where none runs, and once more where one
        that has answered before is gone. Raises PluginFailed where the process cannot be started or ends, or the plugin fails or gives no
        answer in time; its process is ended then."""
        return await self._request(question)

    async def load(self) -> None:
        """Starts the process and loads the plugin, without a question, and sets `events`; does nothing where it runs. Raises PluginFailed,
        and its process is ended."""
        await self._request(None)

    async def close(self) -> None:
        """Ends the plugin's process, if there is one, and all that it has started."""
        child, self._child = self._child, None
        if child is not None:
            await child.end()

    async def _request(self, question: Question | None) -> Any:
        while True:
            is_old = self._child is not None and not self._child.is_new
            try:
                return await self._try_request(question)
            except _Gone:
                how = await self._end(has_hung_up=True)
                if not is_old:
                    raise PluginFailed(ENDED, how) from None
                # Another process may have ended it: only a plugin that ends again and again is treated as failed.
                logger.warning("the process of a plugin is gone", extra={"plugin": self._launch.which.name, "why": how})
            except PluginFailed:
                await self._end()
                raise
            except BaseException:
                if self._child is not None:
                    self._child.kill()  # or an answer that was not read would be taken for that to the next question
                raise

    async def _end(self, *, has_hung_up: bool = False) -> str:
        child, self._child = self._child, None
        return await child.end(has_hung_up=has_hung_up) if child is not None else ""

    async def _try_request(self, question: Question | None) -> Any:
        child = self._child
        if child is None:
            child = self._child = _Child(self._launch.which)
            await child.open()
            self._read_events(await self._wait_within(self._limits.start_s, self._load(child)))
            child.is_new = True
        was_new = child.is_new
        if question is None:
            return None
        if child.tree is None or child.tree() is not question.tree:
            child.tree = None
            await self._wait_within(self._limits.start_s, self._send_nodes(child, question.tree))
            child.tree = weakref.ref(question.tree)
            child.is_new = was_new
        # In a thread, so that the event loop has its turns: of 10,000 nodes it is half a megabyte. It is not the plugin's time.
        message = await asyncio.to_thread(lambda: _encode_line(question.compose()))
        return await self._wait_within(self._limits.call_s, self._ask_child(child, message))

    async def _wait_within(self, limit_s: float, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            async with asyncio.timeout(limit_s):
                reply = await work
        except TimeoutError:
            raise PluginFailed(TIMEOUT, f"it did not answer within {limit_s:g} s") from None
        if "failed" in reply:
            raise _build_failure(reply, self._limits)
        return reply["answer"]

    def _read_events(self, answer: Any) -> None:
        """Raises PluginFailed."""
        try:
            self.events = ALL_EVENTS if answer is None else frozenset(map(GroupEvent, answer))
        except (TypeError, ValueError) as error:
            raise PluginFailed(NONSENSE, "it names events that are not there", str(error)[:300]) from error

    async def _load(self, child: _Child) -> Any:
        limits = self._limits
        order = {"limit_s": limits.call_s, "start_s": limits.start_s, "memory_bytes": limits.memory_bytes}
        await child.send_message(_encode_line({"load": self._launch.order, **order}))
        return await child.read_message()

    async def _ask_child(self, child: _Child, message: bytes) -> Any:
        await child.send_message(message)
        return await child.read_message()

    async def _send_nodes(self, child: _Child, tree: TopologyTree) -> Any:
        """Sends the nodes, once for each tree: with many nodes the labels are the largest part of a question."""
        for first in range(0, max(1, len(tree)), PART):
            names, labels = tree.names[first : first + PART], tree.labels[first : first + PART]
            nodes = [[name, dict(own)] for name, own in zip(names, labels, strict=True)]
            await child.send_message(_encode_line({"nodes": nodes, "first": first == 0, "last": first + PART >= len(tree)}))
            await asyncio.sleep(0)
        return await child.read_message()


def _encode_line(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message).encode()


def _build_failure(reply: Mapping[str, Any], limits: PluginLimits) -> PluginFailed:
    kind, why, trace = str(reply["failed"]), str(reply.get("why", ""))[:300], str(reply.get("trace", ""))[:4000]
    if kind == MEMORY:
        return PluginFailed(MEMORY, f"it asked for more memory than {limits.memory_bytes >> 20}Mi", why)
    if kind == NONSENSE:
        return PluginFailed(NONSENSE, "it gave an answer that makes no sense", why)
    if kind == UNUSABLE:
        return PluginFailed(UNUSABLE, "it cannot be used", why, reply)
    return PluginFailed(RAISED, f"it raised {why.partition(':')[0][:60]}", f"{why}\n{trace}".strip())
