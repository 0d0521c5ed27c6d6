"""Connections of a port that API servers call: at most so many, and none that waits for its first request, or between two, for ever.

They are counted from the beginning of the handshake, since one that is never finished costs as much memory as a connection.
"""

import logging
import socket
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Never

from core.runtime.clock import Clock
from core.runtime.serving.shared_limits import give_memory_back

logger = logging.getLogger(__name__)
# An API server has one for each review that is on its way, up to 200 or so, and keeps 25 for the next ones.
MOST = 512
# API servers close idle ones after 90 s, never used ones as well. One that is closed here takes a review that is on its way along.
IDLE_S = 180.0
_LOOK_S = 1.0
_MANY = 16
_ARRIVES_S = 0.25  # a body of an API server has arrived by then
_STAYS = 4


@dataclass(slots=True)
class _Connection:
    socket: socket.socket
    peer: str  # address of the client
    since: float  # when it was accepted, its request began, or its last request was answered
    has_reviewed: bool = False
    is_busy: bool = False
    is_read: bool = False  # the whole body of the request has arrived

    def rank(self, now: float) -> int:
        """Order in which connections go for new ones; a request that is judged on one that has brought a review stays."""
        if not self.has_reviewed:
            return 1 if self.is_busy else 0
        if self.is_busy:
            return _STAYS if self.is_read or now - self.since < _ARRIVES_S else 2
        return 3


class Connections:
    """By file descriptor. `listen` gives the socket of these connections."""

    def __init__(self, clock: Clock, most: int = MOST) -> None:
        self._clock = clock
        self._most = most
        self._open: dict[int, _Connection] = {}
        self._cut_lately = 0
        self._without_room = 0  # lately cut or not kept since there were as many as may be

    def __len__(self) -> int:
        return len(self._open)

    def listen(self, host: str, port: int) -> socket.socket:
        """Returns a bound socket of an address that does not listen yet; IPv6 addresses take no IPv4. Connections that it accepts are to be
        given to `add`, and no longer counted once they are closed. Raises OSError: one that names the address where that cannot be bound,
        and the resolver's own for an unknown host."""
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        found = _Listening(family, kind, proto)
        found.connections = self
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            found.bind(address)
        except OSError as error:
            found.close()
            raise OSError(error.errno, f"{host}:{port} cannot be listened on: {str(error.strerror).lower()}") from error
        return found

    def add(self, accepted: socket.socket, peer: str = "") -> bool:
        """Returns whether a new connection of a client (`peer`: its address) is kept. Where there are as many as may be, another one goes
        for it: first those that have brought no review yet, idle before busy, then those with a body that stands still, then idle ones. Of
        these it is the oldest one of the client that has most of them. A connection with a review that is judged goes only where its client
        has more than half of all, which no API server has, and for another client.
        """
        now = self._clock.monotonic()
        if len(self._open) >= self._most:
            ranks = {fd: each.rank(now) for fd, each in self._open.items()}
            lowest = min(ranks.values())
            candidates = {fd: self._open[fd] for fd, rank in ranks.items() if rank == lowest}
            peers = Counter(each.peer for each in candidates.values())
            if lowest == _STAYS:
                (most, count), *_ = peers.most_common(1)
                if most == peer or count <= self._most // 2:
                    self._without_room += 1
                    return False
            self._cut(min(candidates, key=lambda fd: (-peers[candidates[fd].peer], candidates[fd].since)), "too many connections")
            self._without_room += 1
        self._open[accepted.fileno()] = _Connection(accepted, peer, now)
        return True

    def remove(self, fd: int) -> None:
        """Removes the record of the connection with a file descriptor, which is closed; does nothing where there is none."""
        self._open.pop(fd, None)

    def begin(self, fd: int) -> None:
        """Records that a request came by the connection with a file descriptor; does nothing where that is not open any more."""
        if fd in self._open:
            found = self._open[fd]
            found.is_busy, found.is_read, found.since = True, False, self._clock.monotonic()

    def has_arrived(self, fd: int) -> None:
        """Records that the body of the request on a connection (`fd`) is read; does nothing where that is not open any more."""
        if fd in self._open:
            self._open[fd].is_read = True

    def end(self, fd: int, *, reviewed: bool) -> None:
        """Records that the request on a connection (`fd`) is answered; `reviewed`: it was a review. Does nothing where that is not open any
        more."""
        if fd in self._open:
            found = self._open[fd]
            found.is_busy, found.has_reviewed, found.since = False, found.has_reviewed or reviewed, self._clock.monotonic()

    def close_overdue(self) -> None:
        """Shuts down and removes connections that have been without a request for more than `IDLE_S` seconds. One with a request that is
        not answered yet stays."""
        now = self._clock.monotonic()
        for fd, found in list(self._open.items()):
            if not found.is_busy and now - found.since > IDLE_S:
                self._cut(fd, "idle")

    async def watch(self) -> Never:
        """Calls `close_overdue` once a second, and logs how many connections `add` cut or did not keep since there were too many. Memory of
        many cut connections goes back to the system. Never returns."""
        while True:
            await self._clock.sleep(_LOOK_S)
            self.close_overdue()
            if self._cut_lately > _MANY:
                give_memory_back()
            if self._without_room:
                logger.warning("connections cut, there were too many", extra={"count": self._without_room, "most": self._most})
            self._cut_lately = self._without_room = 0

    def _cut(self, fd: int, why: str) -> None:
        """The transport reads its end, and closes it."""
        found = self._open.pop(fd)
        self._cut_lately += 1
        logger.debug("connection cut", extra={"reason": why, "reviewed": found.has_reviewed})
        with suppress(OSError):  # where the client was faster
            found.socket.shutdown(socket.SHUT_RDWR)


class _Listening(socket.socket):
    connections: Connections

    def accept(self) -> tuple[socket.socket, Any]:
        accepted, address = super().accept()
        counted = _Accepted(accepted.family, accepted.type, accepted.proto, fileno=accepted.detach())
        counted.connections = self.connections
        return counted, address


class _Accepted(socket.socket):
    connections: Connections

    def close(self) -> None:
        fd = self.fileno()
        if fd >= 0:
            self.connections.remove(fd)
        super().close()
