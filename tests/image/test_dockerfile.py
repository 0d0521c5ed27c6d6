"""No engine builds the Dockerfile here: what it says is compared with what `make image` does. `test_image` runs its own step."""

from __future__ import annotations

import json
import re
import shlex

import pytest

from tools.image import build, project
from tools.image.__main__ import main


@pytest.fixture(scope="module")
def stages() -> list[list[tuple[str, str]]]:
    """Instructions and their arguments, by stage."""
    lines = [line for line in (project.ROOT / "Dockerfile").read_text().splitlines() if line and not line.startswith("#")]
    found: list[list[tuple[str, str]]] = []
    for line in lines:
        word, _, rest = line.partition(" ")
        if word == "FROM":
            found.append([])
        found[-1].append((word, rest))
    return found


def test_dockerfile_starts_the_same_command_as_the_archive(stages):
    last = dict(stages[-1])
    said = build.SETTINGS
    assert dict(word.split("=", 1) for word in shlex.split(last["ENV"])) == said.environment
    assert (last["USER"], last["WORKDIR"]) == (said.user, "/")
    assert (tuple(json.loads(last["ENTRYPOINT"])), tuple(json.loads(last["CMD"]))) == (said.entrypoint, said.command)


def test_there_is_nothing_in_the_result_but_the_root_that_our_program_makes(stages):
    first, last = stages
    assert dict(last)["FROM"] == "scratch"
    assert [rest for word, rest in last if word in ("COPY", "ADD", "RUN")] == ["--from=build /image /"]
    assert first[-1] == ("RUN", "python -m tools.image root /image")


def test_dockerfile_build_image_and_requirements_are_pinned(stages):
    assert re.fullmatch(r"python:3\.\d+-slim-\w+@sha256:[0-9a-f]{64} AS build", stages[0][0][1])
    (installs,) = (rest for word, rest in stages[0] if word == "RUN" and "pip install" in rest)
    assert "--require-hashes --requirement requirements.lock" in installs


def test_dockerignore_excludes_nothing_that_the_build_needs():
    ignored = {line for line in (project.ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")}
    packages = {name.split(".")[0] for name in project.about()["tool"]["setuptools"]["packages"]}
    locks = {path.name for path in project.ROOT.glob("*.lock")}
    assert not ignored & {*packages, *locks, "e2e", "tools", "LICENSE", "README.md", "pyproject.toml"}


def test_image_build_on_another_architecture_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert main([]) == 1
    assert "the image is one for amd64, and made by its own Python: this machine is a aarch64" in capsys.readouterr().err
