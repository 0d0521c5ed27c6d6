"""docs/adding-a-kind.md: its example is installed as its reader would, and its vectors pass."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtime.test_plugins import install

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "adding-a-kind.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (code,) = blocks("python")
    (tmp_path / "acme_pipeline.py").write_text(code)
    (toml,) = blocks("toml")
    name, target = re.findall(r'^(\w+) = "(.+)"$', toml, re.MULTILINE)[0]
    install(tmp_path, "topogate.integrations", **{name: target})
    return tmp_path


@pytest.mark.parametrize(("family", "which"), [("podsets", 0), ("validation", 1)])
def test_the_vectors_of_the_example_pass(package: Path, family: str, which: int):
    vectors = package / "vectors.jsonl"
    vectors.write_text(blocks("json")[which])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(package), str(ROOT)])}
    command = [sys.executable, "-m", "tests.replay", family, str(vectors)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=60, cwd=ROOT)
    assert done.stdout.splitlines()[-1:] == ["1 passed, 0 failed"], done.stdout + done.stderr


def test_files_that_it_names_are_there():
    for name in re.findall(r"`((?:core|tests|e2e|webhook)/[\w./]+\.py)`", TEXT):
        assert (ROOT / name).is_file(), name
    for name in re.findall(r"`(\w+\.py)`", TEXT):
        assert (ROOT / "core" / "jobs" / name).is_file(), name


def test_all_that_the_api_server_must_be_told_of_a_kind_is_named():
    for name in ("webhook.registration.configurations(..., kinds)", "webhook.policies.policies(kinds)"):
        assert f"`{name}`" in TEXT
