"""An archive from small trees: it keeps the rules of the format, and is the same for the same trees."""

from __future__ import annotations

import tarfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.image.rules import find_violations
from tools.image import oci
from tools.image.oci import Archive, Settings
from tools.image.tree import Tree, TreeError

SETTINGS = Settings("amd64", "7:7", ("run",), ("that",), {"PATH": "/bin"})


def build_small(order: int = 1, content: str = "hello\n") -> Archive:
    below, above = Tree(), Tree()
    for name in ["deep/er/file", "a", "deep-file"][::order]:
        below.put_file(name, content)
    below.put_folder("tmp", 0o1777)
    above.put_file("bin/run", "#!/bin/sh\n", 0o755)
    above.put_link("run", "/bin/run")
    layers = [oci.layer(below, "below"), oci.layer(above, "above")]
    return oci.archive(layers, SETTINGS, datetime(2026, 1, 2, tzinfo=UTC), "small:1", {"title": "small"})


def test_an_archive_keeps_the_rules(tmp_path: Path):
    build_small().write(tmp_path / "small.tar")
    assert find_violations(tmp_path / "small.tar") == []


def test_an_archive_with_another_blob_breaks_them(tmp_path: Path):
    said = build_small()
    Archive((*said.blobs[:-1], said.blobs[-1] + b" ", b"stray"), said.index, said.digest).write(tmp_path / "small.tar")
    with pytest.raises(KeyError):  # the manifest is not where the index says
        find_violations(tmp_path / "small.tar")
    Archive((*said.blobs, b"stray"), said.index, said.digest).write(tmp_path / "small.tar")
    (broken,) = find_violations(tmp_path / "small.tar")
    assert "belong to nothing" in broken


def test_the_order_in_which_a_tree_was_filled_does_not_show(tmp_path: Path):
    assert build_small(1) == build_small(-1)
    assert build_small().digest != build_small(content="else\n").digest
    build_small().write(tmp_path / "one")
    build_small(-1).write(tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_unpacked_archive_equals_the_packed_tree(tmp_path: Path):
    build_small().write(tmp_path / "small.tar")
    root = tmp_path / "root"
    assert oci.unpack(tmp_path / "small.tar", root) == {
        "User": "7:7",
        "Entrypoint": ["run"],
        "Cmd": ["that"],
        "Env": ["PATH=/bin"],
        "WorkingDir": "/",
        "Labels": {"title": "small"},
    }
    assert (root / "deep/er/file").read_text() == "hello\n"
    assert (root / "run").readlink() == Path("/bin/run")
    assert [(root / name).stat().st_mode & 0o7777 for name in ("tmp", "bin", "bin/run", "a")] == [0o1777, 0o755, 0o755, 0o644]


def test_archive_with_a_wrong_blob_digest_is_not_unpacked(tmp_path: Path):
    build_small().write(tmp_path / "small.tar")
    with tarfile.open(tmp_path / "small.tar") as archive:
        at = next(member.offset_data for member in archive if member.name.startswith("blobs/sha256/"))
    with (tmp_path / "small.tar").open("r+b") as file:
        file.seek(at + 20)
        file.write(b"\0\0\0\0")
    with pytest.raises(ValueError, match="is not what it says"):
        oci.unpack(tmp_path / "small.tar", tmp_path / "root")


def test_one_place_is_given_once():
    tree = Tree()
    tree.put_file("etc/name", "one")
    tree.put_file("etc/name", "one")
    tree.put_folder("etc", 0o700)
    tree.put_folder("etc")
    with pytest.raises(TreeError, match="/etc/name is given twice"):
        tree.put_file("etc/name", "two")
    with pytest.raises(TreeError):
        tree.put_folder("etc/name")
