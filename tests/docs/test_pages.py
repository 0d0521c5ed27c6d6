"""What the documents tell their readers to type works as it stands, on a real control plane, and prints what is shown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.cluster import Cluster
from tests.docs.console import DOCS, Command, list_commands
from tests.docs.reader import Reader

REMOVAL = "Removing it"
# In this order in one cluster: install.md comes first and its removal last.
PAGES = ("concepts.md", "users.md", "lives.md", "administration/loops.md", "pausing.md", "traces.md", "operating.md")
ALONE = {"command.md": "tests/cli/test_documented.py"}  # pages whose commands other tests run
PROGRAMS = re.compile(r"^(?: {4}|\t)\$? ?((?:kubectl|helm|topogate|\.venv/bin/topogate) .*)$", re.MULTILINE)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """One who has installed topogate as docs/install.md says."""
    with Cluster() as cluster, Reader(cluster, tmp_path_factory.mktemp("reader")) as opened:
        for command in list_commands_of_page("install.md"):
            if command.section != REMOVAL:
                opened.does(command)
        yield opened


def list_commands_of_page(page: str) -> list[Command]:
    found = list_commands(page)
    assert found, f"docs/{page} shows no command"
    return found


@pytest.mark.cluster
@pytest.mark.parametrize("page", PAGES)
def test_a_page_can_be_followed(reader: Reader, page: str):
    try:
        for command in list_commands_of_page(page):
            reader.does(command)
    finally:  # a page that cannot be followed must not spoil the next
        reader.cluster.kubectl("delete", "jobs", "--all", "--cascade=foreground")


@pytest.mark.cluster
def test_removal_commands_of_the_install_page_succeed(reader: Reader):
    for command in list_commands_of_page("install.md"):
        if command.section == REMOVAL:
            reader.does(command)


def test_every_page_with_commands_is_followed():
    shown = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md") if list_commands(path.relative_to(DOCS).as_posix())}
    assert shown == {*PAGES, "install.md", *ALONE}


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda path: path.name)
def test_document_has_no_command_outside_console_blocks(page: Path):
    assert PROGRAMS.findall(page.read_text()) == [], "write it into a console block"
