"""A command has its memory in large pages where there are such, and is otherwise the same process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cli import __main__ as large_pages
from tests.cli.commands import ROOT

SHOW = """
import os, sys
from cli.__main__ import start_with_large_pages
start_with_large_pages()
names = ("PYTHONMALLOC", "GLIBC_TUNABLES", "TOPOGATE_LARGE_PAGES")
with open("/proc/self/environ") as file:
    begun_with = file.read()
at_start = [name for name in names if f"{name}=" in begun_with]
print(sys.argv[1:], sys.flags.utf8_mode, [name for name in names if name in os.environ], os.environ["KEPT"], len(at_start))
"""


class Execs:
    """Stands for `os.execve`: what it was called with."""

    def __init__(self) -> None:
        self.environments: list[dict[str, str]] = []

    def __call__(self, path: str, arguments: list[str], environment: dict[str, str]) -> None:
        assert (path, arguments) == (sys.executable, [sys.executable, *sys.orig_argv[1:]])
        self.environments.append(environment)


@pytest.fixture
def execs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Execs:
    """A kernel that gives large pages on request, and an environment that says nothing of memory."""
    for name in ("PYTHONMALLOC", "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)
    enabled = tmp_path / "enabled"
    enabled.write_text("always [madvise] never\n")
    found = Execs()
    monkeypatch.setattr(large_pages, "_ENABLED", enabled)
    monkeypatch.setattr(os, "confstr", lambda name: "glibc 2.36")
    monkeypatch.setattr(os, "execve", found)
    return found


def test_process_is_started_anew_once(execs: Execs, monkeypatch: pytest.MonkeyPatch):
    large_pages.start_with_large_pages()
    [environment] = execs.environments
    assert environment["PYTHONMALLOC"] == "malloc"
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    large_pages.start_with_large_pages()
    assert len(execs.environments) == 1
    assert not {"PYTHONMALLOC", "GLIBC_TUNABLES", "TOPOGATE_LARGE_PAGES"} & os.environ.keys()


@pytest.mark.parametrize("library", ["glibc 2.34", "musl 1.2", "", None])
def test_process_with_another_library_is_left_as_it_is(execs: Execs, monkeypatch: pytest.MonkeyPatch, library: str | None):
    monkeypatch.setattr(os, "confstr", lambda name: library)
    large_pages.start_with_large_pages()
    assert not execs.environments


@pytest.mark.parametrize("name", ["PYTHONMALLOC", "GLIBC_TUNABLES"])
def test_environment_that_says_something_of_memory_is_obeyed(execs: Execs, monkeypatch: pytest.MonkeyPatch, name: str):
    monkeypatch.setenv(name, "")
    large_pages.start_with_large_pages()
    assert not execs.environments


def test_kernel_without_large_pages_is_left_alone(execs: Execs):
    large_pages._ENABLED.write_text("always madvise [never]\n")
    large_pages.start_with_large_pages()
    large_pages._ENABLED.unlink()
    large_pages.start_with_large_pages()
    assert not execs.environments


def test_program_on_standard_input_is_not_started_anew(execs: Execs, monkeypatch: pytest.MonkeyPatch):
    """What has been read of it is gone."""
    monkeypatch.setattr(sys, "orig_argv", [sys.executable, "-"])
    large_pages.start_with_large_pages()
    assert not execs.environments


def test_process_that_cannot_be_started_anew_goes_on(execs: Execs, monkeypatch: pytest.MonkeyPatch):
    def refuse(*given: Any) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "execve", refuse)
    large_pages.start_with_large_pages()


@pytest.mark.skipif(not large_pages._has_large_pages(), reason="this kernel or C library has no large pages on request")
def test_process_started_anew_keeps_its_arguments_and_environment():
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONMALLOC", "GLIBC_TUNABLES")} | {"KEPT": "yes"}
    command = [sys.executable, "-X", "utf8", "-c", SHOW, "queue", "--context", "a b"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "['queue', '--context', 'a b'] 1 [] yes 3\n"
