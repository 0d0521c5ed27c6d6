"""docs/development/adding-a-kind.md: its example is installed as its reader would, and its vectors pass."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from core.jobs.contract import Defaults, PodSetStart
from core.jobs.kinds.registry import with_integrations
from core.names import QUEUE_NAME_LABEL, WORKLOAD_ANNOTATION
from core.plan.workloads.desired_workload import build_workload, has_other_pod_sets
from tests.runtime.test_plugins import install

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "development" / "adding-a-kind.md").read_text()


def list_blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (code,) = list_blocks("python")
    (tmp_path / "acme_pipeline.py").write_text(code)
    (toml,) = list_blocks("toml")
    name, target = re.findall(r'^(\w+) = "(.+)"$', toml, re.MULTILINE)[0]
    install(tmp_path, "topogate.integrations", **{name: target})
    return tmp_path


@pytest.mark.parametrize(("family", "which"), [("podsets", 0), ("validation", 1)])
def test_the_vectors_of_the_example_pass(package: Path, family: str, which: int):
    vectors = package / "vectors.jsonl"
    vectors.write_text(list_blocks("json")[which])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(package), str(ROOT)])}
    command = [sys.executable, "-m", "tests.replay", family, str(vectors)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, cwd=ROOT)
    assert done.stdout.splitlines()[-1:] == ["1 passed, 0 failed"], done.stdout + done.stderr


def test_job_of_the_example_is_started_stopped_and_restored():
    """Former defect: `count_active_pods` of the document had another signature, so that a stopped job never gave its quota back."""
    (code,) = list_blocks("python")
    module: dict[str, Any] = {"__name__": "acme_pipeline"}
    exec(compile(code, "acme_pipeline.py", "exec"), module)
    kind = with_integrations([module["PipelineJob"]()])[-1]
    stage = {"name": "train", "pods": 8, "template": {"spec": {"containers": [{"name": "c"}]}}}
    metadata = {"name": "p", "namespace": "ns", "uid": "u", "labels": {QUEUE_NAME_LABEL: "main"}}
    written = {"metadata": metadata, "spec": {"stages": [stage]}, "status": {"activePods": 3}}
    waiting = kind.default(written, Defaults())
    assert kind.is_suspended(waiting)
    workload = build_workload(kind, waiting, priority=0, priority_class=None)
    notes = {WORKLOAD_ANNOTATION: "w"}
    running = kind.start(waiting, [PodSetStart("train", True, {"pool": "a"}, annotations=notes)])
    assert not kind.is_suspended(running)
    assert kind.count_active_pods(running, dropped=1) == kind.count_active_pods(running) == 3
    stopped = kind.suspend(running)
    assert kind.is_suspended(stopped)
    restored = kind.restore(stopped, workload["spec"]["podSets"])
    assert not has_other_pod_sets(kind.list_pod_sets(restored), workload)
    assert kind.find_finish({**stopped, "status": {"conditions": [{"type": "Succeeded", "status": "True"}]}}) is not None


def test_files_that_it_names_are_there():
    for name in re.findall(r"`((?:core|tests|e2e|webhook)/[\w./]+\.py)`", TEXT):
        assert (ROOT / name).is_file(), name
    for name in re.findall(r"`(\w+\.py)`", TEXT):
        assert (ROOT / "core" / "jobs" / "kinds" / name).is_file(), name


def test_kind_document_names_all_registrations_with_the_api_server():
    for name in ("webhook.registration.build_configurations(..., kinds)", "webhook.policies.list_policies(kinds)"):
        assert f"`{name}`" in TEXT
