"""A workload is judged by its pods as they will be: what LimitRanges and RuntimeClasses add is counted wherever requests are."""

from __future__ import annotations

import asyncio
from typing import Any

from core.plan.steps import api_resources as r
from core.resource import Obj
from core.runtime.http.client import Client
from reconciler.observe.observed import Observed
from tests.builders import NAMESPACE, build_pod_set_json, build_workload_json
from tests.runtime.fakes import ManualClock

KEY = f"{NAMESPACE}/w"


def made(name: str, version: int, **rest: Any) -> Obj:
    return {"metadata": {"name": name, "namespace": NAMESPACE, "uid": name, "resourceVersion": str(version)}, **rest}


def build_limits(version: int, cpu: str, **more: Any) -> Obj:
    return made("limits", version, spec={"limits": [{"type": "Container", "defaultRequest": {"cpu": cpu}, **more}]})


def observed() -> Observed:
    found = Observed(Client.make_offline(), ManualClock())
    workload = build_workload_json("w", [build_pod_set_json(count=1, cpu="0")])
    workload["spec"]["podSets"][0]["template"]["spec"]["containers"] = [{"name": "c"}]
    found.limit_ranges.put(build_limits(1, "2"))
    found.workloads.put(workload)
    return found


def asked(found: Observed) -> dict[str, int]:
    return dict(found.state.workloads.facts[KEY].pod_sets[0].requests)


async def settle(found: Observed) -> None:
    tasks = [asyncio.create_task(again.run()) for again in found.again]
    for _ in range(20):
        await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_requests_of_a_workload_follow_the_limit_range():
    found = observed()
    assert asked(found) == {"cpu": 2000}
    woken: list[int] = []
    found.state.on_free.append(lambda: woken.append(1))
    found.limit_ranges.put(build_limits(2, "3"))
    await settle(found)
    assert asked(found) == {"cpu": 3000}
    assert woken
    found.limit_ranges.drop_all()
    await settle(found)
    assert asked(found) == {}


async def test_a_refusal_of_pods_lasts_as_long_as_the_limit_that_causes_it():
    found = observed()
    found.limit_ranges.put(build_limits(2, "2", max={"cpu": "1"}, default={"cpu": "2"}))
    await settle(found)
    assert "maximum of 1" in found.state.workloads.facts[KEY].refused
    found.limit_ranges.put(build_limits(3, "2"))
    await settle(found)
    assert found.state.workloads.facts[KEY].refused == ""


def test_both_are_listed_before_workloads_are():
    first, *_, last = found_stages = observed().stages
    assert {informer.resource for informer in first} >= {r.LIMIT_RANGES, r.RUNTIME_CLASSES}
    assert [informer.resource for informer in last] == [r.WORKLOADS]
    assert len(found_stages) == 3


async def test_workload_that_a_limit_range_made_unreadable_is_read_when_that_changes():
    """Former defect: it was counted as set aside until the Workload itself changed."""
    found = observed()
    found.limit_ranges.put(build_limits(2, "-1"))
    await settle(found)
    assert [aside.obj["metadata"]["name"] for aside in found.set_aside.objects] == ["w"]
    assert asked(found) == {"cpu": 2000}, "as it was when it was last read"
    found.limit_ranges.put(build_limits(3, "1"))
    await settle(found)
    assert asked(found) == {"cpu": 1000}
    assert len(found.set_aside) == 0


async def test_workload_with_missing_priority_class_is_refused_until_the_class_exists():
    """It was admitted, and the Job controller could not make its pods."""
    found = Observed(Client.make_offline(), ManualClock())
    found.workloads.put(build_workload_json("w", [build_pod_set_json(count=1, priorityClassName="nopc")]))
    assert all(part in found.state.workloads.facts[KEY].refused for part in ("pod set main", 'PriorityClass "nopc"'))
    found.priority_classes.put({"metadata": {"name": "nopc", "uid": "u", "resourceVersion": "2"}, "value": 1})
    await settle(found)
    assert found.state.workloads.facts[KEY].refused == ""
    found.priority_classes.drop_all()
    await settle(found)
    assert "nopc" in found.state.workloads.facts[KEY].refused
