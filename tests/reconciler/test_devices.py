"""Devices are watched where the API server serves them, at once or later."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, Never, cast

import pytest

from core.runtime.client import Client
from core.runtime.errors import KubeError, NotFound, Unreachable
from core.runtime.informer import Informer
from core.runtime.resource import Obj, Resource
from core.runtime.watch_step import Init, InitDone
from reconciler.devices import Devices
from reconciler.observed import Observed
from reconciler.served import DISCOVERY_S
from tests.reconciler.paper_groups import PaperGroups
from tests.runtime.fakes import ManualClock

PLURALS = ("deviceclasses", "resourceclaims", "resourceclaims/status", "resourceclaimtemplates", "resourceslices")


class Discovery:
    """An API server that says what it has."""

    def __init__(self) -> None:
        self.answers: list[list[str] | KubeError] = []

    async def raw(self, method: str, path: str) -> bytes:
        assert (method, path) == ("GET", "/apis/resource.k8s.io/v1")
        answer = self.answers.pop(0)
        if isinstance(answer, KubeError):
            raise answer
        return json.dumps({"resources": [{"name": name} for name in answer]}).encode()


class Unlisted(Informer):
    """Runs, and has an empty list at once."""

    async def run(self) -> Never:
        self._fold(Init())
        self._fold(InitDone())
        await asyncio.Event().wait()
        raise AssertionError


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def devices(answers: list[list[str] | KubeError], clock: ManualClock) -> Devices:
    server = Discovery()
    server.answers = answers
    client = cast("Client", server)

    def make(resource: Resource, transform: Callable[[Obj], Obj]) -> Informer:
        return Unlisted(client, resource, transform=transform, clock=clock)

    return Devices(client, clock, make)


async def started(made: Devices) -> bool:
    """Whether starting them is over before anything else has its turn; ends them once all tasks wait."""
    over: list[bool] = []

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            await made.start(group)
            over.append(made.are_missing)

    task = asyncio.create_task(main())
    for _ in range(30):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (was_missing,) = over
    return was_missing


async def test_what_is_served_is_listed_before_anything_is_decided(clock: ManualClock) -> None:
    made = devices([list(PLURALS)], clock)
    assert not await started(made)
    assert all(informer.synced for informer in made.informers)


@pytest.mark.parametrize("answer", [NotFound(404, "NotFound", "no"), Unreachable("away"), ["resourceclaims"]])
async def test_what_is_not_served_is_not_waited_for_and_watched_once_it_is(answer: Any, clock: ManualClock) -> None:
    made, began = devices([answer, answer, list(PLURALS)], clock), clock.time
    assert await started(made)
    assert clock.time == began + DISCOVERY_S
    assert not made.are_missing
    assert all(informer.synced for informer in made.informers)


def test_a_group_that_asks_for_devices_is_told_that_there_are_none() -> None:
    paper = PaperGroups({"r1": (1,)})
    assert paper.observed.devices is not None
    paper.observed.devices.are_missing = True
    paper.gang(1, schedulingConstraints={"draConstraints": [{"resourceClaimTemplateName": "some"}]})
    paper.add("a")
    paper.settle()
    assert paper.says[1:] == (
        "Invalid",
        "spec.schedulingConstraints.draConstraints: the API server does not serve resource.k8s.io/v1",
    )


def test_without_the_gate_there_is_nothing_to_watch() -> None:
    assert Observed(cast("Client", None), ManualClock()).devices is None
