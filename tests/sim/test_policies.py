"""Policies of the chart that the simulation plays."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from core.names import PRIORITY_CLASS_LABEL, QUEUE_NAME_LABEL
from e2e import manifests
from e2e.nodes import NodePool
from sim.apiserver.server import Refused
from sim.catalogue import make_job
from sim.ending import is_suspended, list_roots
from sim.world import World
from tests.sim.one_queue import make_world

Json = dict[str, Any]
PLAIN: Json = {"suspend": False}
UNSUSPENDED = {
    "jobset": PLAIN,
    "trainjob": PLAIN,
    "appwrapper": PLAIN,
    "pytorchjob": {"runPolicy": PLAIN},
    "rayservice": {"rayClusterConfig": PLAIN},
}


@pytest.fixture
def world() -> Iterator[World]:
    """No process of topogate runs, so that all jobs wait and nothing suspends them again."""
    world = make_world(NodePool(blocks=1, racks=1, nodes=1), gpus=8)
    world.run_for(1)
    yield world
    world.close()


def submit(world: World, example: str) -> Json:
    """A job like an example of the catalogue."""
    for obj in make_job("j", "ns", random.Random(1), 2, example):
        obj["metadata"].get("labels", {}).pop(PRIORITY_CLASS_LABEL, None)
        world.apply(obj)
    [root] = list_roots(world)
    assert is_suspended(root)
    return root


@pytest.mark.parametrize("example", UNSUSPENDED)
def test_queued_job_of_another_kind_is_unsuspended_by_administrators_alone(world: World, example: str) -> None:
    """Seeds 4357 and 5106: a user did so while no process of topogate ran. Its pods have no gate, and came to a node that was promised."""
    job, spec = submit(world, example), {"spec": UNSUSPENDED[example]}
    resource = world.resource_of(job)
    with pytest.raises(Refused, match="is started by topogate once it is admitted"):
        world.patch(*resource, job, spec)
    world.patch(*resource, job, spec, user="admin")
    [root] = list_roots(world)
    assert not is_suspended(root)


def test_job_with_a_gate_in_its_template_is_unsuspended_by_its_user(world: World) -> None:
    world.apply(manifests.build_job("j", "ns", pods=2))
    [job] = list_roots(world)
    assert is_suspended(job)
    world.patch(*world.resource_of(job), job, {"spec": {"suspend": False}})
    [root] = list_roots(world)
    assert not is_suspended(root)


def test_job_that_has_left_its_queue_is_unsuspended_by_its_user(world: World) -> None:
    job = submit(world, "jobset")
    world.patch(*world.resource_of(job), job, {"metadata": {"labels": {QUEUE_NAME_LABEL: None}}})
    world.patch(*world.resource_of(job), job, {"spec": {"suspend": False}})
    [stored] = world.objects(*world.resource_of(job))
    assert not is_suspended(stored)
