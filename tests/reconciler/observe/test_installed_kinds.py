"""Kinds that come and go while the reconciler starts: it neither waits for what is gone nor ends."""

from __future__ import annotations

import asyncio
from typing import Any, Never, cast

import pytest

from core.plan.steps import pacing
from core.plan.steps.api_resources import CUSTOM_RESOURCE_DEFINITIONS
from core.resource import Resource
from core.runtime.http.client import Client
from core.runtime.http.errors import Forbidden
from core.runtime.watch.informer import Informer
from core.runtime.watch.watch_step import Applied, Deleted, Init, InitDone
from reconciler.observe.installed_kinds import InstalledKinds

KINDS = ("first", "second")


class Unlisted(Informer):
    """Runs, but has nothing to list from; a test folds in what is listed."""

    async def run(self) -> Never:
        await asyncio.Event().wait()
        raise AssertionError


def build_definition(kind: str) -> dict[str, Any]:
    return {
        "metadata": {"name": f"{kind}s.example.com", "uid": kind, "resourceVersion": "1"},
        "spec": {"group": "example.com", "versions": [{"name": "v1", "served": True}]},
        "status": {"conditions": [{"type": "Established", "status": "True"}]},
    }


def listed(informer: Informer) -> None:
    informer._fold(Init())
    informer._fold(InitDone())


def serve(*kinds: str) -> tuple[Informer, dict[str, Informer]]:
    """The informer of definitions of some kinds, and those of the kinds, by name."""
    nothing = cast("Client", None)
    definitions = Unlisted(nothing, CUSTOM_RESOURCE_DEFINITIONS)
    for kind in kinds:
        definitions._fold(Applied(build_definition(kind)))
    return definitions, {kind: Unlisted(nothing, Resource("example.com", "v1", f"{kind}s", kind)) for kind in kinds}


async def settle() -> None:
    """Lets all tasks run until each waits."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.parametrize("gone", KINDS)
async def test_a_kind_that_is_deleted_while_it_is_first_listed_is_not_waited_for(gone: str) -> None:
    """Whichever of them is waited for: the other must not be forgotten over it."""
    definitions, informers = serve(*KINDS)
    (left,) = set(KINDS) - {gone}
    async with asyncio.TaskGroup() as group:
        starting = group.create_task(InstalledKinds(definitions, informers, group).start())
        await settle()
        definitions._fold(Deleted(build_definition(gone)))
        await settle()
        assert not starting.done()
        listed(informers[left])
        await settle()
        assert starting.done()
        definitions._fold(Deleted(build_definition(left)))


@pytest.mark.looptime
async def test_custom_kind_that_cannot_be_listed_does_not_keep_the_others_from_starting() -> None:
    """Lists of JobSets were answered 403 or 500: no process of topogate led any more once it was started anew."""
    definitions, informers = serve(*KINDS)
    async with asyncio.TaskGroup() as group:
        starting = group.create_task(InstalledKinds(definitions, informers, group).start())
        await settle()
        listed(informers["first"])
        await asyncio.sleep(10 * pacing.INSTALLED_FAILING_S)
        assert not starting.done(), "a list that takes long is waited for"
        informers["second"].watcher.trouble = Forbidden(403, "Forbidden", "no")
        await asyncio.wait_for(starting, 60)
        assert not informers["second"].synced
        for kind in KINDS:
            definitions._fold(Deleted(build_definition(kind)))


@pytest.mark.looptime
async def test_custom_kind_in_use_that_cannot_be_listed_is_waited_for() -> None:
    """Its jobs would be taken for gone, and what belongs to them for something that nothing owns."""
    definitions, informers = serve("first")
    informer = informers["first"]
    async with asyncio.TaskGroup() as group:
        starting = group.create_task(InstalledKinds(definitions, informers, group, lambda _: True).start())
        informer.watcher.trouble = Forbidden(403, "Forbidden", "no")
        await asyncio.sleep(10 * pacing.INSTALLED_FAILING_S)
        assert not starting.done()
        listed(informer)
        await asyncio.wait_for(starting, 60)
        definitions._fold(Deleted(build_definition("first")))
