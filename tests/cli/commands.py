"""Running the command inside this process, and the small clusters that its tests write into files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.program import main

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
BLOCK, RACK, HOST = "cloud.provider.com/topology-block", "cloud.provider.com/topology-rack", "kubernetes.io/hostname"
Obj = dict[str, Any]


@dataclass(frozen=True)
class Ran:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


class Commands:
    """`topogate ...` in this process, and files beside it."""

    def __init__(self, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
        self.capsys, self._folder = capsys, folder

    def run(self, *arguments: str | Path) -> Ran:
        self.capsys.readouterr()
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = self.capsys.readouterr()
        assert "Traceback" not in err
        assert "this is a bug" not in err
        return Ran(code, out, err)

    def write(self, name: str, *documents: Obj) -> Path:
        path = self._folder / name
        path.write_text(yaml.dump_all(documents, Dumper=yaml.CSafeDumper))
        return path


def build_node(name: str, labels: dict[str, str] | None = None, **allocatable: str) -> Obj:
    """A Ready node as kubectl prints it, as far as anybody reads it."""
    offers = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8", **allocatable}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"node-group": "gpu", HOST: name, **(labels or {})}},
        "status": {"allocatable": offers, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def build_nodes(blocks: int = 2, racks: int = 2, hosts: int = 4, **allocatable: str) -> list[Obj]:
    """So many racks a block and hosts a rack."""
    return [
        build_node(f"n-{b}-{r}-{h}", {BLOCK: f"b{b}", RACK: f"b{b}-r{r}"}, **allocatable)
        for b in range(blocks)
        for r in range(racks)
        for h in range(hosts)
    ]


def build_job(name: str, pods: int, gpus: int = 8, *, queue: str | None = "main", **annotations: str) -> Obj:
    """A Job whose pod template has annotations `kueue.x-k8s.io/podset-...-topology`, given as required=, preferred=."""
    notes = {f"kueue.x-k8s.io/podset-{mode}-topology": level for mode, level in annotations.items()}
    container = {"name": "main", "image": "example", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}, "requests": {"cpu": "1"}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": queue} if queue else {}},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "completionMode": "Indexed",
            "template": {"metadata": {"annotations": notes}, "spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    }


def build_queues(gpus: int = 384, **changes: Any) -> list[Obj]:
    """The example's topology, flavor and queues, with so much quota; `changes` go into the ClusterQueue's spec."""
    documents: list[Obj] = list(yaml.safe_load_all((EXAMPLES / "queues.yaml").read_text()))
    for document in documents:
        if document["kind"] == "ClusterQueue":
            document["spec"]["resourceGroups"][0]["flavors"][0]["resources"][2]["nominalQuota"] = str(gpus)
            document["spec"] |= changes
    return documents


def run_process(module: str, *arguments: str, environment: Iterable[tuple[str, str]] = ()) -> subprocess.CompletedProcess[str]:
    """A process of its own: `cli`, or one of those that it runs."""
    command: Sequence[str] = (sys.executable, "-m", module, *arguments)
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, **dict(environment)})
