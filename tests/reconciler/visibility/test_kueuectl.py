"""Kueue's own command, unchanged, with topogate in Kueue's place: every subcommand it has, and the table of them in docs/migration.md."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from e2e import manifests
from e2e.api import wait_for
from e2e.cluster import Cluster
from e2e.operators.build import ensure_operator
from e2e.operators.kueue import KUEUECTL
from e2e.topogate import Topogate
from tests.conftest import ROOT
from tests.installed import Installed
from tests.reconciler.scenes import WORKLOADS, Scene
from tests.reconciler.visibility.registered import registered

pytestmark = [pytest.mark.cluster, pytest.mark.long]
DOCUMENT, WRITTEN = ROOT / "docs" / "migration.md", ROOT / "out" / "kueuectl.md"
BEGIN, END = "<!-- made by tests/reconciler/visibility/test_kueuectl.py -->", "<!-- end of kueuectl -->"
API = "/apis/kueue.x-k8s.io/v1beta2"
KINDS = {"clusterqueue": "clusterqueues", "localqueue": "localqueues", "resourceflavor": "resourceflavors", "workload": "workloads"}
SHELLS = ("bash", "fish", "powershell", "zsh")
NAMESPACED = ("localqueue", "workload")
EDIT = """import sys, yaml
with open(sys.argv[1]) as file:
    edited = yaml.safe_load(file)
edited["metadata"].setdefault("labels", {})["edited"] = "by-kueuectl"
with open(sys.argv[1], "w") as file:
    yaml.safe_dump(edited, file)
"""
AVAILABLE = re.compile(r"^(Available )?Commands:\n((?:  +\S.*\n?)+)", re.MULTILINE)


@dataclass(frozen=True)
class Ran:
    """What a subcommand printed."""

    code: int
    out: str
    err: str


class Kueuectl:
    """The command with the administrator's rights, and kubectl on its PATH; `table` has what each subcommand was seen to do."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._program = ensure_operator(KUEUECTL).program
        (folder / "kubectl").symlink_to(cluster.binaries["kubectl"])
        editor = folder / "edit"
        editor.write_text(f"#!{sys.executable}\n{EDIT}")
        editor.chmod(0o755)
        own = {"PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(folder), "KUBE_EDITOR": str(editor)}
        self._environment = {**os.environ, **own, "KUBECONFIG": str(cluster.kubeconfig)}
        self.table: dict[str, str] = {}

    def run(self, *words: str) -> Ran:
        """What it prints, whatever its exit code is."""
        command = [str(self._program), *words]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False, input="y\n")
        return Ran(done.returncode, done.stdout, done.stderr)

    def list_subcommands(self, *words: str) -> list[str]:
        """All subcommands below these words that have none below themselves, as its help names them."""
        found = AVAILABLE.search(self.run(*words, "--help").out)
        names = [line.split()[0] for line in found[2].splitlines()] if found is not None else []
        return [each for name in names if name != "help" for each in self.list_subcommands(*words, name)] or [" ".join(words)]

    def try_it(self, subcommand: str, *arguments: str, effect: str = "the same", until: Callable[[], object] | None = None) -> str:
        """Runs a subcommand, waits for its effect, adds it to the table and returns what it printed."""
        ran = self.run(*subcommand.split(), *arguments)
        assert ran.code == 0, f"{subcommand}: {ran.out}{ran.err}"
        if until is not None:
            wait_for(f"the effect of kueuectl {subcommand}", until)
        self.table[subcommand] = effect
        return ran.out


@pytest.fixture(scope="module")
def topogate(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topogate]:
    """With the visibility API."""
    running = installed.run()
    with registered(running, tmp_path_factory.mktemp("certs")):
        yield running


@pytest.fixture
def scene(cluster: Cluster, topogate: Topogate) -> Iterator[Scene]:
    opened = Scene(cluster).open()
    yield opened
    opened.close()


class Play:
    """A queue that kueuectl makes, with quota for one of its two jobs, until kueuectl deletes all of it."""

    def __init__(self, scene: Scene, kueuectl: Kueuectl) -> None:
        self.scene, self.kueuectl, self.api, self.namespace = scene, kueuectl, scene.api, scene.namespace
        self.queue, self.flavor = f"{scene.prefix}by-kueuectl", f"{scene.prefix}plain"
        self.of_namespace = ("--namespace", self.namespace)

    def find(self, kind: str, name: str) -> dict[str, Any]:
        """An object; empty where there is none."""
        where = f"{API}/namespaces/{self.namespace}" if kind in NAMESPACED else API
        return self.api.find(f"{where}/{KINDS[kind]}/{name}") or {}

    def has_condition(self, kind: str, name: str, condition: str, status: str = "True") -> bool:
        conditions = self.find(kind, name).get("status", {}).get("conditions", [])
        return any(each["type"] == condition and each["status"] == status for each in conditions)

    def find_workload(self, job: str) -> str:
        """The name of the Workload of a job."""
        found = self.api.get(WORKLOADS.format(self.namespace))["items"]
        names = [each["metadata"]["name"] for each in found if each["metadata"]["ownerReferences"][0]["name"] == job]
        return names[0] if names else ""

    def create(self) -> None:
        """Makes flavor, queues and two jobs of which the second one waits."""
        do = self.kueuectl.try_it
        do("create resourceflavor", self.flavor, "--node-labels", f"pool={self.scene.pool.labels['pool']}")
        quota = ("--nominal-quota", f"{self.flavor}:cpu=1")
        do("create clusterqueue", self.queue, *quota, until=lambda: self.has_condition("clusterqueue", self.queue, "Active"))
        local = (self.queue, "--clusterqueue", self.queue, *self.of_namespace)
        do("create localqueue", *local, until=lambda: self.has_condition("localqueue", self.queue, "Active"))
        for name in ("first", "second"):
            self.scene.create(manifests.build_job(name, self.namespace, pods=1, gpus=0, queue=self.queue))
            wait_for("its Workload", partial(self.find_workload, name))
            if name == "first":
                wait_for("it to be admitted", lambda: self.has_condition("workload", self.find_workload("first"), "Admitted"))

    def list_all(self) -> None:
        """Lists each kind; a position comes from the visibility API."""
        do = self.kueuectl.try_it
        assert self.queue in do("list clusterqueue", "--active", "true")
        assert self.queue in do("list localqueue", *self.of_namespace)
        assert self.flavor in do("list resourceflavor")
        wait_for("the position", lambda: self._find_position("second") == "0")
        do("list workload", *self.of_namespace, effect="the same; positions are those of the visibility API, if that is switched on")
        wait_for("its pod", lambda: "first-" in self.kueuectl.run("list", "pods", "--for", "job/first", *self.of_namespace).out)
        do("list pods", "--for", "job/first", *self.of_namespace)

    def _find_position(self, job: str) -> str:
        listed = self.kueuectl.run("list", "workload", "--status", "pending", *self.of_namespace).out.splitlines()
        at = listed[0].find("POSITION IN QUEUE") if listed else 0
        return next((line[at:].partition(" ")[0] for line in listed if self.find_workload(job) in line), "")

    def stop_and_resume(self) -> None:
        """Stops and resumes a workload, then each queue."""
        do, workload = self.kueuectl.try_it, self.find_workload("second")
        do("stop workload", workload, *self.of_namespace, until=lambda: self.find("workload", workload)["spec"]["active"] is False)
        do("resume workload", workload, *self.of_namespace, until=lambda: self.find("workload", workload)["spec"]["active"] is True)
        for kind, more in (("localqueue", self.of_namespace), ("clusterqueue", ())):
            do(f"stop {kind}", self.queue, "--keep-already-running", *more, until=partial(self._is_active, kind, "False"))
            assert self.has_condition("workload", self.find_workload("first"), "Admitted")
            do(f"resume {kind}", self.queue, *more, until=partial(self._is_active, kind, "True"))

    def _is_active(self, kind: str, status: str) -> bool:
        return self.has_condition(kind, self.queue, "Active", status)

    def pass_through(self) -> None:
        """Whatever kueuectl hands on to kubectl."""
        do, label = self.kueuectl.try_it, json.dumps({"metadata": {"labels": {"patched": "by-kueuectl"}}})
        names = {
            "clusterqueue": self.queue,
            "localqueue": self.queue,
            "resourceflavor": self.flavor,
            "workload": self.find_workload("second"),
        }
        for kind, name in names.items():
            more = self.of_namespace if kind in NAMESPACED else ()
            assert name in do(f"get {kind}", name, *more)
            assert name in do(f"describe {kind}", name, *more)
            patch = (name, "--type", "merge", "-p", label)
            do(f"patch {kind}", *patch, *more, until=partial(self._has, kind, name, "patched"))
            do(f"edit {kind}", name, *more, until=partial(self._has, kind, name, "edited"))

    def _has(self, kind: str, name: str, label: str) -> bool:
        return label in self.find(kind, name)["metadata"].get("labels", {})

    def delete_all(self) -> None:
        """Deletes what was made. A queue goes once its workloads are gone, as in Kueue."""
        do, workload = self.kueuectl.try_it, self.find_workload("second")
        effect = "the same: it deletes the job, too"
        do("delete workload", workload, "--yes", *self.of_namespace, effect=effect, until=lambda: self.find("workload", workload) == {})
        assert self.api.find(f"/apis/batch/v1/namespaces/{self.namespace}/jobs/second") is None
        self.scene.delete_job("first")
        do("delete localqueue", self.queue, *self.of_namespace, until=lambda: self.find("localqueue", self.queue) == {})
        do("delete clusterqueue", self.queue, until=lambda: self.find("clusterqueue", self.queue) == {})
        do("delete resourceflavor", self.flavor, until=lambda: self.find("resourceflavor", self.flavor) == {})


def test_every_subcommand_of_kueuectl_works_as_docs_say(cluster: Cluster, scene: Scene, tmp_path: Path):
    kueuectl = Kueuectl(cluster, tmp_path)
    for shell in SHELLS:
        assert "kueuectl" in kueuectl.try_it(f"completion {shell}")
    without_manager = "the client's version alone; Kueue's manager, of which it would print the image, is not there"
    assert "Client Version" in kueuectl.try_it("version", effect=without_manager)
    play = Play(scene, kueuectl)
    for part in (play.create, play.list_all, play.stop_and_resume, play.pass_through, play.delete_all):
        part()
    assert sorted(kueuectl.table) == sorted(kueuectl.list_subcommands())
    table = build_table(kueuectl.table)
    WRITTEN.parent.mkdir(exist_ok=True)
    WRITTEN.write_text(table)
    assert table in DOCUMENT.read_text(), f"docs/migration.md has another table than {WRITTEN.relative_to(ROOT)}, which this run has made"


def build_table(seen: dict[str, str]) -> str:
    """The part of docs/migration.md, with one row for the kinds that have one effect."""
    rows: dict[tuple[str, str], list[str]] = {}
    for subcommand, effect in seen.items():
        verb, _, kind = subcommand.partition(" ")
        rows.setdefault((verb, effect), []).append(kind)
    order = sorted(rows.items())
    lines = [f"| `{verb}` {', '.join(sorted(kinds))}".rstrip() + f" | {effect} |" for (verb, effect), kinds in order]
    return "\n".join([BEGIN, f"| `kueuectl` {KUEUECTL.version} | with topogate |", "|---|---|", *lines, END, ""])
