"""A group of pods on the real control plane is one trace, though the process that began it is another than the one that ends it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from core.names import TRACEPARENT_ANNOTATION
from e2e.api import wait_for
from e2e.audit.otlp import Receiver
from e2e.cluster import Cluster
from e2e.crds import install_crds
from tests.installed import Installed
from tests.reconciler.podgroups.test_podgroups import GATE, GROUPS, add, gang, get_condition, get_places
from tests.reconciler.scenes import Scene


@pytest.fixture
def hall(cluster: Cluster) -> Iterator[Scene]:
    install_crds(cluster.api)  # no topogate may have run here before
    scene = Scene(cluster, racks=2, nodes=2).open()
    yield scene
    scene.close()


def test_one_trace_from_the_first_look_to_the_last_bound_pod(installed: Installed, hall: Scene) -> None:
    with Receiver() as receiver:
        topogate = installed.run(otlp_endpoint=receiver.endpoint, is_fresh=True)
        topogate.kill_reconciler()
        topogate.start_reconciler(options=GATE)
        gang(hall, "train", 4)
        add(hall, "train", 0, 1, 2, 3, gpus=6)
        hall.eventually(
            "it to be told why it waits", lambda _: "none of 2 placements takes 4" in get_condition(hall, "train").get("message", "")
        )
        sentence = get_condition(hall, "train")["message"]
        assert topogate.reconciler is not None
        topogate.reconciler.stop(grace_s=10)  # it sends what it has; one that is killed takes along the spans of its last seconds
        topogate.start_reconciler(options=GATE)
        for number in (2, 3):
            hall.api.delete(f"/api/v1/namespaces/{hall.namespace}/pods/train-{number}", grace_period_s=0)
        add(hall, "train", 4, 5, gpus=2)
        hall.eventually("all to be bound", lambda now: len(get_places(now, "train")) == 4)
        group = hall.api.get(f"{GROUPS.format(hall.namespace)}/train")
        _, trace_id, root, _ = group["metadata"]["annotations"][TRACEPARENT_ANNOTATION].split("-")
        wait_for("the last span", lambda: any(span.name == "pods.bound" for span in receiver.list_spans(trace_id)))
        mine = receiver.list_spans(trace_id)
    assert {span.name for span in mine} == {"podgroup.observe", "placement.solve", "places.keep", "pods.ungate", "pods.bound"}
    assert {span.parent_id for span in mine} == {"", root}
    assert sentence in {span.attributes.get("topogate.message") for span in mine}
