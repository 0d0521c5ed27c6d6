"""Events on objects that are set aside: users and administrators see them where the object is."""

import asyncio
from typing import Never

from core.names import EVENT_SET_ASIDE
from core.runtime.set_aside import Aside, SetAside
from reconciler.apply import Writer

_MOST_WAITING = 256


class SetAsideEvents:
    """Writes an event on each object that is set aside, one after the other; where too many wait the rest get none."""

    def __init__(self, set_aside: SetAside, writer: Writer) -> None:
        self._writer = writer
        self._queue: asyncio.Queue[Aside] = asyncio.Queue(_MOST_WAITING)
        for aside in set_aside.objects:
            self._add(aside)
        set_aside.on_add.append(self._add)

    def _add(self, aside: Aside) -> None:
        if not self._queue.full():
            self._queue.put_nowait(aside)

    async def run(self) -> Never:
        while True:
            aside = await self._queue.get()
            message = (
                f"topogate cannot handle this {aside.resource.kind} and has set it aside until it changes: {aside.why}. "
                "Correct or delete it"
            )
            await self._writer.event(aside.resource, aside.obj, EVENT_SET_ASIDE, message, warning=True)
