"""What ports that API servers call have in common: how the server reads and ends, and which connection a request came by."""

from __future__ import annotations

from aiohttp import web

from core.runtime.serving.connections import IDLE_S

_LINGERING_S = 1.0  # for so long what comes of a refused body is read and thrown away
_READ_BUFFER_BYTES = 64 * 1024


MOST_HEADERS = 128


def make_runner(app: web.Application, *, shutdown_timeout_s: float, most_headers: int = MOST_HEADERS) -> web.AppRunner:
    """Returns the runner that serves an application; at its end requests get `shutdown_timeout_s` seconds. A request is dropped when its
    client has gone; a body that is not read yet takes little memory. A request with more headers than `most_headers` is refused.
    """
    return web.AppRunner(
        app,
        access_log=None,
        shutdown_timeout=shutdown_timeout_s,
        handle_signals=False,
        handler_cancellation=True,
        keepalive_timeout=IDLE_S,
        lingering_time=_LINGERING_S,
        read_bufsize=_READ_BUFFER_BYTES,
        auto_decompress=False,
        max_headers=most_headers,
    )


def find_descriptor(http: web.Request) -> int:
    """Returns the file descriptor of the connection of a request; -1 where it is closed."""
    found = http.transport.get_extra_info("socket") if http.transport is not None else None
    return found.fileno() if found is not None else -1
