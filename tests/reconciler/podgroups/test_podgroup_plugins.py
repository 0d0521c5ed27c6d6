"""Plugins of another package on the real control plane: a group goes where one says, and is placed without one that hangs."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from core.metric_names import PLUGIN_ANSWERS
from e2e.api import wait_for
from e2e.cluster import Cluster
from e2e.process import is_alive
from e2e.topogate import Topogate
from tests.reconciler.podgroups.test_podgroups import GATE, add, gang, get_condition, get_places, list_racks
from tests.reconciler.scenes import Scene
from tests.runtime.test_plugins import install
from tests.scraped import Scraped

CHILD = "reconciler.podgroups.plugin_child"
LAST = "{name: 100.0 * (name == max(names)) for name in names}"
Configured = Callable[..., None]


@pytest.fixture
def hall(cluster: Cluster, topogate: Topogate) -> Iterator[Scene]:
    """Three racks of two nodes with 8 GPUs each."""
    scene = Scene(cluster, racks=3, nodes=2).open()
    yield scene
    scene.close()


@pytest.fixture
def configured(topogate: Topogate, tmp_path: Path) -> Configured:
    """Starts the reconciler anew, with scorers of a package beside the usual ones."""
    install(tmp_path, "topogate.podgroup_plugins", answers="acme_plugins:Answers", hangs="acme_plugins:Hangs")
    (tmp_path / "acme_plugins.py").write_text((Path(__file__).parents[1] / "acme_plugins.py").read_text())
    file = tmp_path / "config.json"

    def start(*scorers: dict[str, Any], **more: Any) -> None:
        block = {"scorers": [{"name": "PodCount"}, {"name": "BinPacking"}, *scorers], **more}
        head = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}
        file.write_text(json.dumps({**head, "topogate": {"podGroups": {"plugins": block}}}))
        topogate.kill_reconciler()
        topogate.start_reconciler(options=[*GATE, "--config", str(file)], packages=tmp_path)

    return start


def children(topogate: Topogate) -> list[int]:
    """Processes of plugins that the reconciler has."""
    assert topogate.reconciler is not None
    found = Path(f"/proc/{topogate.reconciler.pid}/task").glob("*/children")
    return [int(pid) for each in found for pid in each.read_text().split() if is_alive(int(pid), CHILD)]


def placed(hall: Scene, name: str) -> set[str]:
    """Racks of a gang of four, once all are bound."""
    gang(hall, name, 4)
    add(hall, name, 0, 1, 2, 3)
    now = hall.eventually("all to be bound", lambda now: len(get_places(now, name)) == 4)
    hall.eventually("it to be told", lambda _: get_condition(hall, name).get("status") == "True")
    return list_racks(hall, now, name)


def racks(hall: Scene) -> list[str]:
    nodes = (node for name, node in hall.read().nodes.items() if name.startswith(hall.prefix))
    return sorted({node["metadata"]["labels"][hall.rack] for node in nodes})


def answers(topogate: Topogate) -> dict[tuple[str, ...], float]:
    """What plugins were asked, by name and by what came of it; without what never happened."""
    with urllib.request.urlopen(topogate.metrics_url) as reply:
        rows = Scraped(reply.read().decode()).rows(PLUGIN_ANSWERS.name, "plugin", "result")
    return {labels: count for labels, count in rows.items() if count}


def test_a_group_goes_where_a_scorer_of_another_package_says(hall: Scene, topogate: Topogate, configured: Configured):
    configured({"name": "answers", "arguments": {"code": LAST}})
    first, *_, last = racks(hall)
    assert placed(hall, "one") == {last}
    assert get_condition(hall, "one")["message"] == "4 pods have their places"
    assert answers(topogate) == {("answers", "answered"): 1}
    (pid,) = children(topogate)
    topogate.kill_reconciler()
    wait_for("the plugin's process to end with its owner, though that was killed", lambda: not is_alive(pid, CHILD))
    topogate.start_reconciler(options=GATE)
    assert placed(hall, "two") == {first}, "without it all are alike"


def test_a_group_is_placed_without_a_scorer_that_hangs(hall: Scene, topogate: Topogate, configured: Configured):
    configured({"name": "hangs"}, {"name": "answers", "arguments": {"code": LAST}}, timeout="700ms")
    assert placed(hall, "one") == {racks(hall)[-1]}, "the other one is heard"
    assert get_condition(hall, "one")["message"] == "4 pods have their places; plugin hangs was skipped: it did not answer within 0.7 s"
    assert answers(topogate) == {("answers", "answered"): 1, ("hangs", "timeout"): 1}
    (pid,) = children(topogate)
    assert topogate.reconciler is not None
    topogate.reconciler.stop(grace_s=10)
    assert not is_alive(pid, CHILD), "who is stopped ends his processes first"
    topogate.start_reconciler(options=GATE)
