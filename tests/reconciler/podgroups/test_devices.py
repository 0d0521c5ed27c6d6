"""Devices are watched where the API server serves them, at once or later."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, Never, cast

import pytest

from core.plan.steps import pacing
from core.podgroups.devices.claims import PodClaim
from core.podgroups.devices.device_expressions import is_selected
from core.podgroups.devices.inventory import PlacedClaims
from core.resource import Obj, Resource
from core.runtime.http.client import Client
from core.runtime.http.errors import KubeError, NotFound, Unreachable
from core.runtime.watch.informer import Informer
from core.runtime.watch.watch_step import Init, InitDone
from reconciler.observe.device_informers import Devices
from reconciler.observe.observed import Observed
from sim.harness import NAMESPACE
from tests.podgroups.devices import TEMPLATE, build_claim_spec, build_device_class, build_resource_slice, build_template
from tests.reconciler.harness_groups import GroupsHarness
from tests.runtime.fakes import ManualClock

PLURALS = ("deviceclasses", "resourceclaims", "resourceclaims/status", "resourceclaimtemplates", "resourceslices")


class Discovery:
    """An API server that says what it has."""

    def __init__(self) -> None:
        self.answers: list[list[str] | KubeError] = []

    async def request_raw(self, method: str, path: str) -> bytes:
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


async def test_device_kinds_that_are_served_are_listed_before_the_first_decision(clock: ManualClock) -> None:
    made = devices([list(PLURALS)], clock)
    assert not await started(made)
    assert all(informer.synced for informer in made.informers)


@pytest.mark.parametrize(
    ("answer", "is_missing", "after_s"),
    [
        (NotFound(404, "NotFound", "no"), True, pacing.DISCOVERY_S),
        (Unreachable("away"), False, pacing.AWAY_S),
        (["resourceclaims"], True, pacing.DISCOVERY_S),
    ],
)
async def test_device_kinds_that_are_not_served_do_not_delay_the_start_and_are_watched_later(
    answer: Any, is_missing: bool, after_s: float, clock: ManualClock
) -> None:
    made, began = devices([answer, answer, list(PLURALS)], clock), clock.time
    assert made.lack.endswith("listed yet")
    assert await started(made) == is_missing
    assert clock.time == began + after_s
    assert made.lack == ""


async def test_device_kinds_that_cannot_be_listed_do_not_delay_the_start(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.plan.steps.pacing.LISTED_S", 0.0)

    async def never(informer: Informer) -> Never:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(Unlisted, "run", never)
    made = devices([list(PLURALS)], clock)
    assert not await started(made)
    assert made.lack.endswith("listed yet")


def test_group_with_device_constraints_on_a_server_without_devices_is_invalid() -> None:
    harness = GroupsHarness({"r1": (1,)})
    assert harness.observed.devices is not None
    harness.observed.devices.are_missing = True
    harness.gang(1, schedulingConstraints={"draConstraints": [{"resourceClaimTemplateName": "some"}]})
    harness.add("a")
    harness.settle()
    assert harness.says[1] == "Invalid"
    named = ("draConstraints: ", "deviceclasses, resourceclaimtemplates, resourceslices, resourceclaims", "resource.k8s.io/v1")
    assert all(part in harness.says[2] for part in named)


def test_while_devices_have_not_been_listed_places_stay_kept() -> None:
    harness = GroupsHarness({"r1": (2,)})
    harness.gang(2)
    harness.add("a", "b")
    harness.look()
    assert len(harness.held()) == 2
    assert harness.observed.devices is not None
    for informer in harness.observed.devices.informers:
        informer._synced.clear()
    harness.gang(2, schedulingConstraints={"draConstraints": [{"resourceClaimTemplateName": "some"}]})
    harness.settle()
    assert "listed yet" in harness.says[2]
    assert len(harness.held()) == 2
    assert harness.where() == {}


def test_without_the_gate_there_is_nothing_to_watch() -> None:
    assert Observed(cast("Client", None), ManualClock()).devices is None


async def test_many_devices_are_judged_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.plan.steps.pacing.DEVICES_TURN_S", -1.0)
    harness = GroupsHarness({"r1": (2,)})
    harness.devices(build_device_class(), build_template(), *(build_resource_slice(f"p{number}", 2) for number in range(5)))
    assert harness.observed.devices is not None
    turns: list[float] = []

    async def sleep(seconds: float) -> None:
        turns.append(seconds)

    monkeypatch.setattr(harness.clock, "sleep", sleep)
    await harness.observed.devices.judge(NAMESPACE, (TEMPLATE, "none"))
    assert turns == [0] * 15, "after each device, and after each slice"
    assert all(one.answers for pool in harness.observed.devices.inventory.pools.values() for one in pool.slices)


def test_an_expression_that_takes_long_is_refused_and_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.plan.steps.pacing.DEVICES_CPU_S", -1.0)
    evaluated: list[str] = []
    monkeypatch.setattr("core.podgroups.devices.claims.is_selected", lambda one, fields: evaluated.append(one) or is_selected(one, fields))  # type: ignore[func-returns-value]
    harness = GroupsHarness({"r1": (2,)})
    harness.devices(build_device_class(), build_template(), build_resource_slice("p", 8))
    harness.gang(1, schedulingConstraints={"draConstraints": [{"resourceClaimTemplateName": TEMPLATE}]})
    harness.add("a", resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": TEMPLATE}])
    for _ in range(3):
        harness.look()
    assert harness.says[1] == "Invalid"
    assert all(part in harness.says[2] for part in ("8 devices", "pool gpu.example.com/p"))
    assert len(evaluated) == 1, "of the first device"


def test_expression_that_took_long_for_one_slice_is_not_tried_for_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.plan.steps.pacing.DEVICES_CPU_S", -1.0)
    evaluated: list[str] = []
    monkeypatch.setattr("core.podgroups.devices.claims.is_selected", lambda one, fields: evaluated.append(one) or is_selected(one, fields))  # type: ignore[func-returns-value]
    harness = GroupsHarness({"r1": (2,)})
    harness.devices(build_device_class(), build_template(), *(build_resource_slice(f"p{number}", 8) for number in range(20)))
    assert harness.observed.devices is not None
    harness.wait_for(harness.observed.devices.judge(NAMESPACE, (TEMPLATE,)))
    harness.wait_for(harness.observed.devices.judge(NAMESPACE, (TEMPLATE,)))
    assert len(evaluated) == 1


def test_decision_evaluates_no_expression_however_many_unlike_devices_others_were_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = GroupsHarness({"r1": (2,)})
    harness.devices(build_device_class(), build_template(), build_resource_slice("p", 8))
    assert harness.observed.devices is not None
    inventory = harness.observed.devices.inventory
    for number in range(60):
        requests = [
            build_claim_spec(1, f"{number} * {5 + kind} >= 0")["devices"]["requests"][0] | {"name": f"r{kind}"} for kind in range(5)
        ]
        harness.devices(build_template(f"t{number}", {"devices": {"requests": requests}}, namespace="others"))
        inventory.record_claims(f"pod-{number}", PlacedClaims("others", "r1-0", (PodClaim(f"t{number}", ""),)))
    harness.wait_for(harness.observed.devices.judge(NAMESPACE, (TEMPLATE,)))
    evaluated: list[str] = []
    monkeypatch.setattr("core.podgroups.devices.claims.is_selected", lambda one, fields: evaluated.append(one) or is_selected(one, fields))  # type: ignore[func-returns-value]
    harness.gang(1, schedulingConstraints={"draConstraints": [{"resourceClaimTemplateName": TEMPLATE}]})
    harness.add("a", resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": TEMPLATE}])
    harness.look()
    assert evaluated == []


def test_template_of_more_unlike_devices_than_are_served_is_never_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated: list[str] = []
    monkeypatch.setattr("core.podgroups.devices.claims.is_selected", lambda one, fields: evaluated.append(one) or is_selected(one, fields))  # type: ignore[func-returns-value]
    requests = [build_claim_spec(1, f"{kind} >= 0")["devices"]["requests"][0] | {"name": f"r{kind}"} for kind in range(32)]
    harness = GroupsHarness({"r1": (2,)})
    harness.devices(
        build_device_class(), build_template(spec={"devices": {"requests": requests}}, namespace=NAMESPACE), build_resource_slice("p", 8)
    )
    harness.gang(1, schedulingConstraints={"draConstraints": [{"resourceClaimTemplateName": TEMPLATE}]})
    harness.add("a", resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": TEMPLATE}])
    harness.look()
    assert all(part in harness.says[2] for part in ("ResourceClaimTemplate one-gpu: spec.spec", "32 unlike devices", "at most 5"))
    assert evaluated == []


def test_group_with_templates_that_together_ask_for_more_unlike_devices_than_are_served_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found defect: each template was within the limit, and all their expressions were evaluated for all devices."""
    evaluated: list[str] = []
    monkeypatch.setattr("core.podgroups.devices.claims.is_selected", lambda one, fields: evaluated.append(one) or is_selected(one, fields))  # type: ignore[func-returns-value]
    harness = GroupsHarness({"r1": (2,)})
    names = ("t0", "t1")
    for number, name in enumerate(names):
        requests = [build_claim_spec(1, f"{number * 3 + kind} >= 0")["devices"]["requests"][0] | {"name": f"r{kind}"} for kind in range(3)]
        harness.devices(build_template(name, {"devices": {"requests": requests}}, namespace=NAMESPACE))
    harness.devices(build_device_class(), build_resource_slice("p", 8))
    harness.gang(1, schedulingConstraints={"draConstraints": [{"resourceClaimTemplateName": name} for name in names]})
    harness.add("a", resourceClaims=[{"name": name, "resourceClaimTemplateName": name} for name in names])
    harness.look()
    assert harness.says[1] == "Invalid"
    named = ("spec.schedulingConstraints.draConstraints: ", "ResourceClaimTemplates t0, t1", "6 unlike devices", "at most 5")
    assert all(part in harness.says[2] for part in named)
    assert evaluated == []


def test_expression_that_takes_long_for_all_slices_together_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found defect: 5,000 slices that each took a little less than their limit took 20 minutes of a processor."""
    times = iter(range(10**6))
    monkeypatch.setattr("core.plan.steps.pacing.DEVICES_CPU_S", 10.0)
    monkeypatch.setattr("reconciler.observe.device_informers.time.thread_time", lambda: float(next(times)))  # a second for each device
    evaluated: list[str] = []
    monkeypatch.setattr("core.podgroups.devices.claims.is_selected", lambda one, fields: evaluated.append(one) or is_selected(one, fields))  # type: ignore[func-returns-value]
    harness = GroupsHarness({"r1": (2,)})
    harness.devices(build_device_class(), build_template(), *(build_resource_slice(f"p{number}", 4) for number in range(100)))
    harness.gang(1, schedulingConstraints={"draConstraints": [{"resourceClaimTemplateName": TEMPLATE}]})
    harness.add("a", resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": TEMPLATE}])
    harness.look()
    assert harness.says[1] == "Invalid"
    named = ("spec.schedulingConstraints.draConstraints: ", "'device.driver == \"gpu.example.com\"'", "all 100 slices", "at most 30 s")
    assert all(part in harness.says[2] for part in named)
    assert len(evaluated) == 31
    harness.devices(build_resource_slice("later", 4))
    harness.look()
    assert len(evaluated) == 31, "its time is used up for slices that change, too"


def test_expression_that_used_up_its_time_is_evaluated_for_changed_slices_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.plan.steps.pacing.DEVICES_CPU_OF_ALL_S", -1.0)
    harness = GroupsHarness({"r1": (2,)})
    harness.devices(build_device_class(), build_template(), build_resource_slice("p", 8))
    judged = harness.observed.devices
    assert judged is not None
    harness.wait_for(judged.judge(NAMESPACE, (TEMPLATE,)))
    monkeypatch.setattr("core.plan.steps.pacing.DEVICES_CPU_OF_ALL_S", 30.0)
    for after_s, is_refused in ((pacing.DEVICES_BUDGET_S - 1.0, True), (1.0, False)):
        harness.clock.time += after_s
        harness.devices(build_resource_slice("p", 8))
        harness.wait_for(judged.judge(NAMESPACE, (TEMPLATE,)))
        (pool,) = judged.inventory.pools.values()
        assert [isinstance(answer, str) for one in pool.slices for answer in one.answers.values()] == [is_refused]
