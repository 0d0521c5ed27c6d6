"""A watcher and a store, with the handlers of changes."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Never

from core.resource import Obj, Resource
from core.runtime.clock import Clock, SystemClock
from core.runtime.http.client import Client
from core.runtime.watch.late_handlers import Handler, Latecomers, find_gathering
from core.runtime.watch.set_aside import SetAside
from core.runtime.watch.store import Change, Changes, Store, build_object_key
from core.runtime.watch.watcher import Applied, Deleted, Event, Init, InitApply, InitDone, Watcher, WatchPolicy

logger = logging.getLogger(__name__)
Transform = Callable[[Obj], Obj]

AT_ONCE = 25
"""Objects of a list that are folded in between two turns of the loop: a job may have thousands of pods that become its own then."""


class Informer:
    """Keeps `store` equal to the objects of the API server, and calls handlers with each change after it is in the
    store.

    Handlers are synchronous and do nothing but update state and enqueue. An error that a handler, an index or
    `transform` raises is the fault of one object: the object is set aside (`set_aside`), the other handlers are called
    all the same, and its next change is tried like any other.

    `transform` slims objects before they are stored; it must keep namespace, name, uid and resourceVersion. An object
    for which it raises an error is stored whole. The answer of the server to a write is applied like an event
    (`observe_reply`). `settle` is called after each piece of a first list.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource,
        *,
        namespace: str | None = None,
        field_selector: str | None = None,
        transform: Transform | None = None,
        clock: Clock | None = None,
        policy: WatchPolicy | None = None,
        chance: Callable[[], float] = random.random,
        settle: Callable[[], None] = lambda: None,
        set_aside: SetAside | None = None,
    ) -> None:
        self.resource = resource
        self.set_aside = set_aside if set_aside is not None else SetAside()
        self.store = Store(self._set_aside)
        clock = clock or SystemClock()
        self.watcher = Watcher(
            client,
            resource,
            namespace=namespace,
            field_selector=field_selector,
            clock=clock,
            policy=policy or WatchPolicy(),
            chance=chance,
        )
        self._client, self._namespace, self._field_selector = client, namespace, field_selector
        self._transform, self._clock, self._settle = transform, clock, settle
        self._handlers: list[Handler] = []
        self._latecomers: Latecomers | None = None
        self._synced = asyncio.Event()
        self._runs = 0  # one that was cancelled ends a moment after the next has begun

    @property
    def is_listing(self) -> bool:
        """Whether it runs and has not ended its first list: what is missing in the store may exist."""
        return self._runs > 0 and not self.synced

    @property
    def synced(self) -> bool:
        """Whether a first list is in the store and the handlers have been called with it. It stays so during later lists; `drop_all` makes
        it False again."""
        return self._synced.is_set()

    def add_handler(self, handler: Handler) -> None:
        """Adds a handler; an object for which it raises is set aside. One that is added late is first called with every object, marked
        `initial`: at once, or by `Late.run_calls` where it is added inside `delay_handlers`."""
        handler = self._guard(handler)
        late = find_gathering()
        if late is not None:
            if self._latecomers is None:
                self._latecomers = late.expect(self.store, self._end_lateness)
            self._latecomers.add(handler)
            return
        for obj in self.store.list():
            handler(Change(None, obj, initial=True))
        self._handlers.append(handler)

    def _guard(self, handler: Handler) -> Handler:
        def handle(change: Change) -> None:
            try:
                handler(change)
            except Exception as error:
                if change.new is not None:
                    self._set_aside(change.obj, error)
                else:  # nothing is left of it that could be tried again
                    fields = {"resource": str(self.resource), "object": build_object_key(change.obj)}
                    logger.error("deleted object could not be handled", extra=fields, exc_info=error)

        return handle

    def _set_aside(self, obj: Obj, error: Exception) -> None:
        self.set_aside.add(self.resource, build_object_key(obj), obj, error)

    def _end_lateness(self, handlers: Sequence[Handler]) -> None:
        self._handlers += handlers
        self._latecomers = None

    async def run(self) -> Never:
        """Lists and watches until it is cancelled, and folds in what comes. Never returns."""
        self._runs += 1
        try:
            await self.watcher.run(self._apply_event)
        finally:
            self._runs -= 1

    async def wait_synced(self) -> None:
        """Returns once a first list is in the store and the handlers have been called with it."""
        await self._synced.wait()

    async def list_once(self) -> None:
        """Replaces all objects of the store by one list, as `fill` does, without a watch. For callers that read once and handle a failure
        themselves. Raises a `KubeError`; then nothing has changed."""
        page = await self._client.list(self.resource, self._namespace, field_selector=self._field_selector)
        self.fill(page.items)

    def fill(self, objects: Iterable[Obj]) -> None:
        """Replaces all objects of the store, and calls handlers with the changes, as if the server had listed exactly these."""
        self._notify_handlers(self.store.replace_all(map(self._slim, objects)))
        self._synced.set()

    def put(self, obj: Obj) -> None:
        """Folds in one object, new or changed, and calls handlers, as if the server had sent an event. One that is older than a reply,
        or has the known resourceVersion, changes nothing."""
        self._fold(Applied(obj))

    def observe_reply(self, obj: Obj) -> None:
        """Folds in an object that the server has answered a write with, or a read of it alone, if it is newer: readers need not wait for
        its event.
        """
        self._notify_handlers(self.store.put_reply(self._slim(obj) if self.store.is_newer(obj) else obj))

    def drop_all(self) -> None:
        """Removes all objects and calls handlers with the deletion of each; the informer is not synced then. For a resource that is not
        served any more, once `run` is cancelled.
        """
        self._fold(Init())
        self._fold(InitDone())
        self.store.synced = False
        self._synced.clear()
        self.watcher.version = ""

    async def _apply_event(self, event: Event) -> None:
        """Folds an event in, a list with pauses: of a first list nothing is used before it is whole; of a later one each object changes as
        if its own event had come."""
        if isinstance(event, InitDone):
            for changes in self.store.apply_list(AT_ONCE, event.version):
                self._notify_handlers(changes)
                if not self.synced:
                    self._settle()
                await self._clock.sleep(0)
            self._synced.set()
        else:
            self._fold(event)
            if not self.store.synced and isinstance(event, InitApply) and self.store.gathered % AT_ONCE == 0:
                self._settle()

    def _fold(self, event: Event) -> None:
        match event:
            case InitApply(obj):
                event = InitApply(self._slim(obj))
            case Applied(obj):
                known = self.store.get(build_object_key(obj))
                event = Applied(known if known is not None and _is_same(known, obj) else self._slim(obj))
            case Deleted(obj):
                event = Deleted(self._slim(obj))
            case _:
                pass
        self._notify_handlers(self.store.apply(event))
        if self.store.synced:
            self._synced.set()

    def _slim(self, obj: Obj) -> Obj:
        known = self.store.get(build_object_key(obj))
        if known is None or known["metadata"].get("resourceVersion") != obj["metadata"].get("resourceVersion"):
            self.set_aside.remove(self.resource, build_object_key(obj))
        if self._transform is None:
            return obj
        try:
            return self._transform(obj)
        except Exception as error:
            self._set_aside(obj, error)
            return obj

    def _notify_handlers(self, changes: Changes) -> None:
        for change in changes:
            if change.new is None:
                self.set_aside.remove(self.resource, build_object_key(change.obj))
            for handler in self._handlers:
                handler(change)
            if self._latecomers is not None:
                self._latecomers.queue_change(change)


def _is_same(known: Obj, obj: Obj) -> bool:
    """Whether both are one state of one object."""
    return all(known["metadata"].get(name) == obj["metadata"].get(name) for name in ("uid", "resourceVersion"))
