"""A cluster for who reads the documents: nodes with labels, and Helm, kubectl and topogate on the path.

What Helm installs runs as the pods of its Deployments would, and is replaced whenever Helm changes it.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType

from e2e.api import PATIENCE_S
from e2e.cluster import Cluster
from e2e.kind import tools
from e2e.nodes import NodePool
from tests.chart.release import Release
from tests.docs.console import Command, run

ROOT = Path(__file__).parents[2]
LOOKING = (["kubectl", "get"], ["kubectl", "describe"], ["topogate", "explain"], ["topogate", "topology"])


class Reader:
    """Does what pages say, one after the other, in a folder of their own. A context manager: what runs for it ends with it."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder / "clone"
        self.folder.mkdir()
        for shown in ("charts", "examples", "docs"):
            (self.folder / shown).symlink_to(ROOT / shown)
        self.release = Release(cluster, folder)
        own = {name: value for name, value in self.release.values().items() if name != "certs"}  # certificates as by default
        values = folder / "ports.json"
        values.write_text(json.dumps(own))
        programs = folder / "bin"
        programs.mkdir()
        (programs / "helm").write_text(_run_helm(tools.ensure_tool(tools.HELM), values))
        (programs / "helm").chmod(0o755)
        (programs / "kubectl").symlink_to(cluster.binaries["kubectl"])
        (programs / "topogate").symlink_to(Path(sys.executable).with_name("topogate"))
        self._environment = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(folder),
            "KUBECONFIG": str(cluster.kubeconfig),
            "COLUMNS": "200",
            "USER": "alice",
        }
        cluster.add_nodes(NodePool(labels={"node-group": "gpu"}))

    def __enter__(self) -> Reader:
        self.release.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release.__exit__(kind, error, trace)

    def does(self, command: Command) -> None:
        """Raises AssertionError where it does not do what is shown."""
        words = shlex.split(command.text, comments=True)[:2]
        if words == ["helm", "uninstall"]:
            self.release.stop()
        if words in LOOKING or "--dry-run" in command.text:  # who looks too early looks again
            _wait_until_shown(partial(run, command, self.folder, self._environment))
        else:
            run(command, self.folder, self._environment)
        if words in (["helm", "install"], ["helm", "upgrade"]):
            self.release.run()


def _wait_until_shown(look: Callable[[], str], most_s: float = PATIENCE_S) -> None:
    """Until it shows what it should; raises what was seen last."""
    deadline = time.monotonic() + most_s
    while True:
        try:
            look()
        except AssertionError:
            if time.monotonic() > deadline:
                raise
        else:
            return
        time.sleep(0.2)


def _run_helm(program: Path, values: Path) -> str:
    """Helm, with ports that are free on this machine: the processes of all pods share its addresses."""
    quoted = shlex.quote(str(program)), shlex.quote(str(values))
    return """#!/bin/sh
case "$1" in
install | upgrade) exec {} "$@" --values {} ;;
*) exec {} "$@" ;;
esac
""".format(*quoted, quoted[0])
