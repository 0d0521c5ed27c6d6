"""User stories 1 to 9 of KEP-2724."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest

from e2e import manifests
from e2e.api import Api, wait_for
from e2e.audit import truth
from e2e.cluster import Cluster
from e2e.scenarios import stories
from e2e.scenarios.stories import HERE, NAMESPACE, STORIES, Placed, Story
from e2e.standins.jobset import JobSetStandIn
from e2e.standins.leaderworkerset import LeaderWorkerSetStandIn
from e2e.standins.mpijob import MPIJobStandIn
from tests.installed import Installed
from tests.long import mark_long

pytestmark = pytest.mark.in_memory
STAND_INS = (JobSetStandIn, LeaderWorkerSetStandIn, MPIJobStandIn)
OBJECTS = "/apis/kueue.x-k8s.io/v1beta2"


@pytest.fixture(scope="module")
def data_center(cluster: Cluster, installed: Installed) -> Iterator[Cluster]:
    """topogate, the stand-ins, and the nodes of all stories."""
    with ExitStack() as stack:
        installed.run()
        running = [stack.enter_context(stand_in(cluster.api)) for stand_in in STAND_INS]
        nodes = stories.nodes()
        cluster.add_nodes(nodes)
        cluster.create_namespace(NAMESPACE)
        yield cluster
        cluster.delete_namespace(NAMESPACE)
        cluster.delete_nodes([node["metadata"]["name"] for node in nodes])
        for stand_in in running:
            stand_in.uninstall()


def test_every_story_has_a_scenario_and_every_file_is_one() -> None:
    assert {story.file for story in STORIES} == {path.name for path in HERE.glob("*.yaml")}
    assert {story.name.split("-")[1].rstrip("ab") for story in STORIES} == set("123456789")


_PLAYED = [number for number, story in enumerate(STORIES) if story.name.split("-")[1] in ("1a", "3", "6", "9")]


def is_gone(api: Api, path: str) -> bool:
    return api.find(path) is None


@pytest.mark.parametrize("story", mark_long(STORIES, but=_PLAYED), ids=[story.name for story in STORIES])
def test_a_story_comes_true(story: Story, data_center: Cluster) -> None:
    api, obj = data_center.api, story.load()
    queues, path = stories.build_queues(story.levels), manifests.get_path(obj)
    try:
        for queue in queues:
            api.create(manifests.get_path(queue), queue)
        api.create(path, obj)
        name = obj["metadata"]["name"]

        def bound() -> Placed | None:
            now = truth.read(api, [NAMESPACE])
            pods = [pod for pod in now.pods if pod["metadata"]["namespace"] == NAMESPACE and not truth.is_terminal(pod)]
            return Placed(now, pods) if len(pods) == story.pods and all(pod["spec"].get("nodeName") for pod in pods) else None

        placed = wait_for(f"{story.pods} pods of {name} to be bound", bound)
        assert story.check(placed) == []
        assert truth.check_invariants(placed.now) == []
    finally:
        api.request("DELETE", f"{path}/{obj['metadata']['name']}?propagationPolicy=Background")
        api.request("DELETE", f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs?propagationPolicy=Background")
        api.request("DELETE", f"{OBJECTS}/namespaces/{NAMESPACE}/workloads")

        def empty() -> bool:
            api.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods?gracePeriodSeconds=0")
            pods = api.list(f"/api/v1/namespaces/{NAMESPACE}/pods")
            return not pods and not api.list(f"{OBJECTS}/namespaces/{NAMESPACE}/workloads")

        wait_for("everything to be gone", empty)
        for queue in reversed(queues):
            own = f"{manifests.get_path(queue)}/{queue['metadata']['name']}"
            api.delete(own)
            wait_for(f"{own} to be gone", partial(is_gone, api, own))
