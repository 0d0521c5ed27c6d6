"""Which process of a test run plays which file.

A test on a control plane waits most of its time. So every third process has no control plane: it plays the other tests meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from tempfile import gettempdir

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

# The longest first: whoever begins one of these last keeps all others waiting.
LONG = (
    "tests/sim/test_scenarios.py",
    "tests/docs/test_pages.py",
    "tests/chart/test_rendered.py",
    "tests/chart/test_installed.py",
    "tests/e2e/test_demo.py",
    "tests/reconciler/process/test_shared_cluster.py",
    "tests/e2e/test_namespace_user.py",
    "tests/operators/test_scenes.py",
    "tests/reconciler/live/test_nodes.py",
    "tests/webhook/test_entry_points.py",
    "tests/certs/test_on_apiserver.py",
    "tests/cli/test_on_apiserver.py",
    "tests/reconciler/process/test_leadership.py",
    "tests/kueue_manifests/test_kueue_manifests.py",
    "tests/reconciler/live/test_kinds.py",
)

# Tests of these share nothing and take minutes: in one process they would take as long as all others together.
APART = ("tests/sim/test_scenarios.py",)


def starts_no_cluster(worker: str) -> bool:
    """Whether a process, `gw0` and so on, takes only files without a control plane."""
    return int(worker.removeprefix("gw")) % 3 == 2


def write_files(config: pytest.Config, on_cluster: Iterable[str]) -> None:
    """Tells the process that hands out the files which of them need a control plane: it collects none itself."""
    given = getattr(config, "workerinput", None)
    if given is not None and given["workerid"] == "gw0":
        _path(given["testrunuid"]).write_text("\n".join(on_cluster))


def _path(run: str) -> Path:
    return Path(gettempdir()) / f"topogate-files-{run}"


class Files(LoadFileScheduling):  # type: ignore[misc]
    """Files in the order in which they were collected, each to the next process that may take it."""

    def schedule(self) -> None:
        if self.collection is None:
            path = _path(self.nodes[0].workerinput["testrunuid"])
            self._on_cluster = set(path.read_text().splitlines())
            path.unlink()
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        """A file, and of those of `APART` a test."""
        scope = str(super()._split_scope(nodeid))
        return nodeid if scope in APART else scope

    def _find(self, node: WorkerController) -> str | None:
        """The next file for a process; None if there is none."""
        is_apart = starts_no_cluster(node.gateway.id)
        preferred = (scope for scope in self.workqueue if (scope in self._on_cluster) != is_apart)
        others = iter(()) if is_apart else iter(self.workqueue)
        return next(preferred, next(others, None))

    def _assign_work_unit(self, node: WorkerController) -> None:
        scope = self._find(node)
        if scope is not None:
            self.workqueue.move_to_end(scope, last=False)
            super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        if not node.shutting_down and self._find(node) is None:
            node.shutdown()
        else:
            super()._reschedule(node)
