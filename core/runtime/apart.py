"""Work on very many objects in a thread, so that the event loop can run meanwhile."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")
FEW = 2_000
"""Objects that a pass of Python over them takes some 20 ms for at most, as long as a thread is worth."""


async def run_apart(count: int, work: Callable[[], Result]) -> Result:
    """Returns or raises what `work` does, which reads `count` objects; in a thread if these are more than `FEW`.

    `work` may only read objects as they were observed, and facts of them: these are never changed. The caller has to check for what was
    observed meanwhile.
    """
    return work() if count <= FEW else await asyncio.to_thread(work)
