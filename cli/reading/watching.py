"""`--watch`: reads and shows again and again."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from cli.failures import Failure
from cli.reporting.table import print_remark
from core.runtime.clock import Clock

Found = TypeVar("Found")
WATCH_S = 2.0  # between two reads
_SHARE = 9  # a read that takes longer is followed by a pause that is so many times as long


async def watch(read: Callable[[], Awaitable[Found]], show: Callable[[Found], None], clock: Clock) -> None:
    """Reads and shows again and again, until it is cancelled. Between two reads it waits for `WATCH_S` seconds, and nine times as long as a
    read took where that is more: so it uses a tenth of the time of the API server at most. Raises Failure of the first read; a later one is
    printed on stderr, once while it stays the same, and the next read may succeed."""
    is_first, failed = True, tuple[str, ...]()
    while True:
        began = clock.monotonic()
        try:
            show(await read())
            failed = ()
        except Failure as error:
            if is_first:
                raise
            for line in error.lines if error.lines != failed else ():
                print_remark(line)
            failed = error.lines
        is_first = False
        await clock.sleep(max(WATCH_S, _SHARE * (clock.monotonic() - began)))
