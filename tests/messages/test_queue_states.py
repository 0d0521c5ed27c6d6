"""The catalogue of sentences, queues: why one admits nothing, how a workload was admitted, and what an administrator has paused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from core.model.pause_state import Pause, Stop
from core.queueing.cycle.queue_resolution import find_inactive_reason
from core.queueing.flavors.outcome import Admissible
from core.state.queue_facts import ClusterQueueFacts
from tests.builders import RACK, build_cluster_queue_json
from tests.messages.test_queue_refusals import ADMISSIONS, build_scene
from tests.queueing.cycle.test_spares import build_sparing_scene
from tests.queueing.flavors.test_lending import build_scene_with_one_lent_spare
from tests.queueing.ordering.test_partial_admission import build_pod_set as build_partial_pod_set
from tests.queueing.ordering.test_partial_admission import build_scene as build_partial_scene
from tests.queueing.ordering.test_partial_admission import submit as submit_partial
from tests.queueing.scene import Scene

# --- queues that admit nothing ----------------------------------------------------------------------------


def find_inactive(change: Callable[[Scene], None], **spec: Any) -> str:
    scene = build_scene(1)
    scene.queue("cq", {"tas": "1"}, **spec)
    change(scene)
    found = find_inactive_reason(scene.state, scene.state.cluster_queues["cq"])
    assert found is not None
    return found[1]


def end_cluster_queue(scene: Scene) -> None:
    wire = build_cluster_queue_json("cq", {"tas": "1"})
    wire["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    scene.state.observe_cluster_queue("cq", ClusterQueueFacts.read(wire))


INACTIVE: dict[str, tuple[Callable[[], str], str]] = {
    "being deleted": (lambda: find_inactive(end_cluster_queue), "Can't admit new workloads; the ClusterQueue is being deleted"),
    "stopped": (
        lambda: find_inactive(lambda scene: None, stopPolicy="HoldAndDrain"),
        "Can't admit new workloads: its stopPolicy is HoldAndDrain, it admits no workload until stopPolicy is None",
    ),
    "no flavor": (
        lambda: find_inactive(lambda scene: scene.state.observe_flavor("tas", None)),
        "Can't admit new workloads: references missing ResourceFlavor(s): tas; an administrator can make them",
    ),
    "no topology": (
        lambda: find_inactive(lambda scene: scene.state.observe_topology("t", None)),
        "Can't admit new workloads: there is no Topology 't'",
    ),
    "no check": (
        lambda: find_inactive(lambda scene: None, admissionChecksStrategy={"admissionChecks": [{"name": "budget"}]}),
        "Can't admit new workloads: references missing AdmissionCheck(s): budget; an administrator can make them",
    ),
    "paused": (
        lambda: find_inactive(lambda scene: scene.state.observe_pause(Pause(admissions=ADMISSIONS))),
        "Can't admit new workloads: admissions are paused by alice since 2026-11-22T10:00:00Z: rewiring; `topogate resume "
        "admissions` ends that",
    ),
}


@pytest.mark.parametrize(("build", "sentence"), INACTIVE.values(), ids=INACTIVE)
def test_inactive_cluster_queue_has_its_sentence(build: Callable[[], str], sentence: str):
    assert build() == sentence


# --- admitted workloads -----------------------------------------------------------------------------------


def keep_spares(*, is_lent: bool = False, is_broken: bool = False) -> str:
    if is_lent:
        return str(build_scene_with_one_lent_spare().keep("w"))
    scene = build_sparing_scene(2)
    scene.ask("w", 1, 1)
    scene.run()
    if is_broken:
        scene.break_down("r0-n1")
    return str(scene.keep("w"))


def remove_spare() -> str:
    scene = build_sparing_scene(2)
    scene.ask("w", 1, 1)
    scene.run()
    scene.state.observe_node("r0-n1", None)
    return str(scene.keep("w"))


def start_with_fewer() -> str:
    scene = build_partial_scene()
    submit_partial(scene, "w", build_partial_pod_set(12, 4, topology={"required": RACK}))
    outcome = scene.run()["w"]
    assert isinstance(outcome, Admissible)
    return outcome.fewer_since


ADMITTED: dict[str, tuple[Callable[[], str], str]] = {
    "spares": (keep_spares, "pod set main: 1 of 1 spare node kept free for 1 pod each: r0-n1"),
    "lent spares": (
        lambda: keep_spares(is_lent=True),
        "pod set main: 1 of 1 spare node kept free for 1 pod each: r0-n2; 1 of these lent: r0-n2 to ns/low",
    ),
    "spares that do not serve": (
        lambda: keep_spares(is_broken=True),
        "pod set main: 0 of 1 spare node kept free for 1 pod each; no other node of its domain has room for 1 pod; r0-n1 does "
        "not serve now: NotReady",
    ),
    "spares that are gone": (
        remove_spare,
        "pod set main: 0 of 1 spare node kept free for 1 pod each; no other node of its domain has room for 1 pod",
    ),
    "fewer pods": (
        start_with_fewer,
        'couldn\'t assign flavors to pod set main: topology "t" allows to fit only 8 out of 12 pod(s). It would fit with its '
        "level preferred instead of required, or with 8 pods. Best cloud/rack r0: 8 of 12 pods, short of 4 cpu.",
    ),
}


@pytest.mark.parametrize(("build", "sentence"), ADMITTED.values(), ids=ADMITTED)
def test_admitted_workload_has_its_sentence(build: Callable[[], str], sentence: str):
    assert build() == sentence


def test_pause_without_details_has_its_sentence():
    assert Stop("evictions").sentence == "evictions are paused by an unnamed user; `topogate resume evictions` ends that"
