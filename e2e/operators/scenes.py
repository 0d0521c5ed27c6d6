"""What is played: for each kind the very functions that tests play with its stand-in, and the stories that need it.

A scene that fails here and passes there tells of a stand-in that lies.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from e2e.api import ApiError, wait_for
from e2e.audit import truth
from e2e.cluster import Cluster
from e2e.kind.nodes import POOL_LABEL, SHAPE
from e2e.manifests import build_cluster_queue, get_path
from e2e.nodes import NodePool
from e2e.operators.objects import RealStory, build_account_objects, build_real_object
from e2e.proxies.writes_proxy import Cut, WritesProxy
from e2e.scenarios.stories import HOST, NAMESPACE, STORIES, Story
from e2e.topogate import Topogate
from tests.e2e.audit.test_stories import test_a_story_comes_true as a_story_comes_true
from tests.reconciler.kinds import test_leaderworkerset as leaderworkersets
from tests.reconciler.kinds.lives import LIVES, LOSING_NODES, lives_of
from tests.reconciler.kinds.own_lives import (
    jobset_restarted_after_a_pod_has_failed,
    jobset_with_a_second_job_that_depends_on_the_first,
    launcher_that_is_no_worker_beside_its_workers_in_the_order_of_ranks,
    leader_worker_set_rolled_with_a_surge,
    ray_resized_by_its_autoscaler,
)
from tests.reconciler.kinds.scenarios import LEADER_WORKER_SET, RUNTIME, SCENARIOS, Scenario, runtime
from tests.reconciler.kinds.stage import Stage, name_of
from tests.reconciler.scenes import GPU, Scene

# Pods that are made only when others run, and so never while all are gated: executors by the driver, and what submits to a
# Ray cluster that is ready.
LATE = {"SparkApplication": 3, "RayJob": 1}
# A TFJob and an XGBoostJob failed when a pod was lost, a TFJob also with OnFailure.
NEVER = {(kind, name) for kind in ("TFJob", "XGBoostJob") for name in LOSING_NODES}
SPARE_NODES = 4  # of a rack from which one is taken away


@dataclass(frozen=True)
class Act:
    """One scene of one kind."""

    kind: str
    what: str
    play: Callable[[Cluster, Topogate], None]
    is_simulated: bool = False  # it takes nodes away, which containers are not made for


class KindScene(Scene):
    """Objects are made such as real operators take them."""

    def create(self, obj: Mapping[str, Any]) -> dict[str, Any]:
        return super().create(build_real_object(obj))

    def abandon(self) -> None:
        """Leaves as little as it can to the next scene, after one that failed."""
        with contextlib.suppress(ApiError, TimeoutError):
            self.clear()
            self.cluster.delete_namespace(self.namespace)
            gone = f"/api/v1/namespaces/{self.namespace}"
            wait_for(f"{gone} to be gone", lambda: self.api.find(gone) is None)


class KindStage(Stage):
    """The operators are there, and act all the time."""

    def install(self) -> None:
        queue = f"{self.scene.prefix}queue"
        made = build_cluster_queue(queue, {f"{self.scene.prefix}flavor": {"cpu": 1000, GPU: 1000, "memory": "1000Gi"}})
        self.scene.api.patch(f"{get_path(made)}/{queue}", {"spec": {"resourceGroups": made["spec"]["resourceGroups"]}})
        for obj in build_account_objects(self.scene.namespace):
            self.scene.api.create(get_path(obj), obj)

    def uninstall(self) -> None:
        """The operators stay."""

    def acting(self, *scenarios: Scenario) -> ExitStack:
        return ExitStack()

    def make(self, scenario: Scenario, name: str, *, level: str | None = None) -> dict[str, Any]:
        return build_real_object(super().make(scenario, name, level=level))

    def have_runtime(self) -> None:
        """What TrainJobs refer to."""
        made = runtime()
        if self.scene.api.find(f"{get_path(made)}/{RUNTIME}") is None:
            self.scene.create(made)


@contextlib.contextmanager
def open_scene(cluster: Cluster, blocks: int, nodes: int = SHAPE.nodes) -> Iterator[KindScene]:
    """A scene over so many blocks of the shape, left tidy."""
    scene = KindScene(cluster, blocks=blocks, racks=SHAPE.racks, nodes=nodes)
    try:
        scene.open()
        yield scene
        scene.close()
    except BaseException:
        scene.abandon()
        raise


@contextlib.contextmanager
def open_stage(cluster: Cluster, scenario: Scenario, nodes: int = SHAPE.nodes) -> Iterator[KindStage]:
    with open_scene(cluster, SHAPE.blocks, nodes) as scene:
        stage = KindStage(scene)
        stage.install()
        if scenario.kind == "TrainJob":
            stage.have_runtime()
        yield stage


# --- the scenes -----------------------------------------------------------------------------------------


def run_life(name: str, scenario: Scenario, cluster: Cluster, topogate: Topogate) -> None:
    with open_stage(cluster, scenario, SPARE_NODES if name in LOSING_NODES else SHAPE.nodes) as stage:
        LIVES[name](stage, scenario, topogate)


def delete_while_gated(scenario: Scenario, cluster: Cluster, topogate: Topogate) -> None:
    """The reconciler is killed at the write that would take the first gate off: operators cannot be told to wait for that."""
    name = name_of(scenario)
    with open_stage(cluster, scenario) as stage, WritesProxy(cluster.server, cluster.ca_file, cluster.token) as proxy:
        scene = stage.scene
        topogate.kill_reconciler()
        ungatings = rf"^PATCH /api/v1/namespaces/{scene.namespace}/pods/"
        proxy.cut(Cut(1, after=False, act=topogate.kill_reconciler, only=ungatings, lasting=True))
        try:
            topogate.start_reconciler(kubeconfig=proxy.write_kubeconfig(cluster.log_dir.parent / "proxy.kubeconfig"))
            stage.create(scenario, name)
            wait_for(f"{name} to be about to be ungated", proxy.has_cut.is_set)

            def all_gated(now: truth.Snapshot) -> bool:
                pods = [pod for pod in now.pods if pod["metadata"]["namespace"] == scene.namespace]
                return len(pods) >= scenario.total - LATE.get(scenario.kind, 0) and all(truth.has_gate(pod) for pod in pods)

            scene.eventually("all pods to be there, and gated", all_gated)
            stage.delete(scenario, name)
        finally:
            if topogate.reconciler is not None:
                topogate.kill_reconciler()
            topogate.start_reconciler()
        stage.until_gone(name)


def run_scene(play: Callable[[Scene], None], cluster: Cluster, topogate: Topogate) -> None:
    """In one block: what waits for want of room must have none elsewhere."""
    with open_scene(cluster, 1) as scene:
        play(scene)


def resize_ray(kind: str, cluster: Cluster, topogate: Topogate) -> None:
    """With the gate on that is off by default."""
    topogate.kill_reconciler()
    topogate.start_reconciler(options=["--feature-gates", "ElasticJobsViaWorkloadSlicesWithTAS=true"])
    try:
        run_scene(partial(ray_resized_by_its_autoscaler, kind), cluster, topogate)
    finally:
        topogate.kill_reconciler()
        topogate.start_reconciler()


def run_story(story: Story, cluster: Cluster, topogate: Topogate) -> None:
    """These nodes have room for more pods than those that it was written for, so that fewer of its pods have to spread."""
    pool = NodePool(SHAPE.blocks, SHAPE.racks, SHAPE.nodes, prefix="told-", labels={POOL_LABEL: "stories"})
    names = cluster.add_nodes(pool)
    for name in names:
        cluster.api.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {HOST: name}}})
    cluster.create_namespace(NAMESPACE)
    try:
        a_story_comes_true(RealStory(story.file, story.levels, story.pods, story.check, story.stand_in), cluster)
    finally:
        cluster.delete_namespace(NAMESPACE, wait=True)
        cluster.delete_nodes(names)


def _build_acts(kind: str, *plays: Callable[[Scene], None]) -> list[Act]:
    return [Act(kind, play.__name__.removeprefix("test_").replace("_", " "), partial(run_scene, play)) for play in plays]


ACTS: tuple[Act, ...] = (
    *(
        act
        for scenario in SCENARIOS
        for act in (
            *(
                Act(scenario.kind, name, partial(run_life, name, scenario), name in LOSING_NODES)
                for name in lives_of(scenario.kind)
                if (scenario.kind, name) not in NEVER
            ),
            Act(scenario.kind, "deleted while gated", partial(delete_while_gated, scenario)),
        )
    ),
    *(
        Act("LeaderWorkerSet", name, partial(run_life, name, LEADER_WORKER_SET), name in LOSING_NODES)
        for name in lives_of("LeaderWorkerSet")
    ),
    *_build_acts("JobSet", jobset_restarted_after_a_pod_has_failed, jobset_with_a_second_job_that_depends_on_the_first),
    *_build_acts(
        "LeaderWorkerSet",
        leader_worker_set_rolled_with_a_surge,
        leaderworkersets.test_leader_and_workers_of_each_group_share_a_rack_in_the_order_of_their_indexes,
        leaderworkersets.test_workers_with_a_leader_of_another_template_count_from_one,
        leaderworkersets.test_groups_come_and_go_as_it_is_scaled_and_the_others_stay,
        leaderworkersets.test_a_deactivated_group_comes_back_gated_and_the_other_runs_on,
        leaderworkersets.test_deleted_while_it_is_gated_it_leaves_nothing,
    ),
    *_build_acts("MPIJob", launcher_that_is_no_worker_beside_its_workers_in_the_order_of_ranks),
    *(Act(kind, "resized by its autoscaler", partial(resize_ray, kind)) for kind in ("RayCluster", "RayJob", "RayService")),
    *(Act(story.stand_in, story.name, partial(run_story, story)) for story in STORIES if story.stand_in is not None),
)


def list_acts(kinds: Iterable[str]) -> list[Act]:
    """In the order of the kinds."""
    return [act for kind in kinds for act in ACTS if act.kind == kind]
