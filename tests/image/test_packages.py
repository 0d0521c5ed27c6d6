"""Our wheel has what it should and nothing else; the second lock is what of the first one runs; a wheel's files go where they belong."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import re
import subprocess
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tools.image import project, wheels
from tools.image.tree import Tree
from tools.image.wheels import Wheel, WheelError

INFO = "topogate-{version}.dist-info"


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    return wheels.read(project.build_wheel(tmp_path_factory.mktemp("wheel")))


def test_the_wheel_has_the_modules_of_the_listed_packages_and_nothing_else(ours: Wheel):
    about = project.about()
    listed = tuple(name.rstrip("*") + "/" for name in about["tool"]["setuptools"]["packages"]["find"]["include"])
    done = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "*.py"], cwd=project.ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip("this is no git checkout")
    modules = {name for name in done.stdout.splitlines() if name.startswith(listed)}
    info = INFO.format(version=about["project"]["version"])
    named = {"METADATA", "WHEEL", "RECORD", "top_level.txt", "licenses/LICENSE"} | (
        {"entry_points.txt"} if "scripts" in about["project"] else set()
    )
    with ours.open() as archive:
        assert set(archive.namelist()) == modules | {f"{info}/{name}" for name in named}
    assert ours.info("top_level.txt").split() == sorted({name.split("/")[0] for name in listed})
    assert not {"tests", "e2e", "tools", "charts"} & set(ours.info("top_level.txt").split())
    assert ours.info("licenses/LICENSE") == (project.ROOT / "LICENSE").read_text()


def test_the_wheels_record_is_true(ours: Wheel):
    with ours.open() as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    rows = {name: said for name, said, _ in csv.reader(io.StringIO(ours.info("RECORD")))}
    assert set(rows) == set(contents)
    for name, said in rows.items():
        hashed = base64.urlsafe_b64encode(hashlib.sha256(contents[name]).digest()).decode().rstrip("=")
        assert said == ("" if name.endswith("/RECORD") else f"sha256={hashed}")


def test_wheel_metadata_equals_pyproject(ours: Wheel):
    said = project.about()["project"]
    assert (ours.name, ours.version) == (said["name"], said["version"])
    assert ours.metadata["License-Expression"] == said["license"]
    needed = [Requirement(line) for line in ours.metadata.get_all("Requires-Dist", [])]
    assert {one.name for one in needed if one.marker is None} == {Requirement(line).name for line in said["dependencies"]}


def test_the_same_sources_give_the_same_wheel_whatever_the_umask(ours: Wheel, tmp_path: Path):
    before = os.umask(0o077)
    try:
        again = wheels.read(project.build_wheel(tmp_path))
    finally:
        os.umask(before)
    assert again == ours


# --- the locks ------------------------------------------------------------------------------------------------------


def read_entries(name: str) -> dict[str, list[str]]:
    """A lock's hashes by what is required, comments left out."""
    lines = [line for line in (project.ROOT / name).read_text().splitlines() if not line.lstrip().startswith("#")]
    blocks = [block.split("\n") for block in re.split(r"\n(?=\S)", "\n".join(lines)) if block]
    return {block[0].removesuffix("\\").strip(): [line.strip(" \\") for line in block[1:]] for block in blocks}


def test_runtime_lock_is_a_subset_of_the_full_lock():
    every, run = read_entries("requirements.lock"), read_entries("requirements-run.lock")
    assert run
    assert {name: hashes for name, hashes in run.items() if every.get(name) != hashes} == {}


def test_runtime_lock_contains_exactly_the_required_packages():
    """By what the installed packages themselves say that they need."""
    needed: set[str] = set()
    left = [Requirement(line) for line in project.about()["project"]["dependencies"]]
    while left:
        one = left.pop()
        if (name := wheels.spelt(one.name)) in needed:
            continue
        needed.add(name)
        extras = {"", *one.extras}
        more = map(Requirement, metadata.requires(one.name) or ())
        left += [two for two in more if two.marker is None or any(two.marker.evaluate({"extra": extra}) for extra in extras)]
    here = (Requirement(line) for line in read_entries("requirements-run.lock"))
    assert {one.name for one in here if one.marker is None or one.marker.evaluate()} == needed


# --- unpacking ------------------------------------------------------------------------------------------------------


def build_wheel(files: dict[str, str]) -> Wheel:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
        archive.writestr("some-1.dist-info/RECORD", "".join(f"{name},,\n" for name in files) + "some-1.dist-info/RECORD,,\n")
    return Wheel("some-1-py3-none-any.whl", "0" * 64, out.getvalue())


def test_a_wheel_is_unpacked_without_its_tests_and_headers_and_its_record_says_so():
    files = ["some/__init__.py", "some/testing.py", "some/tests/test_it.py", "some/core.pyi", "some/include/core.h"]
    data = ["some-1.data/purelib/other.py", "some-1.data/scripts/some", "some-1.data/data/share/man/man1/some.1"]
    tree = Tree()
    wheels.unpack([build_wheel(dict.fromkeys([*files, *data], "x"))], tree)
    record = "some-1.dist-info/RECORD"
    assert {path.removeprefix(f"{wheels.SITE}/") for path, _ in tree.files()} == {*files[:2], "other.py", record}
    kept = [*files[:2], data[0], record]
    assert tree[f"{wheels.SITE}/{record}"].content == "".join(f"{name},,\n" for name in kept).encode()


def test_a_wheel_with_data_of_an_unknown_kind_is_refused():
    with pytest.raises(WheelError, match=r"some-1.data/other/x: a wheel's data are of purelib"):
        wheels.unpack([build_wheel({"some-1.data/other/x": ""})], Tree())


def test_commands_of_a_wheel_are_run_by_the_images_python():
    tree = Tree()
    said = "[console_scripts]\nsome-Tool = some.inner:main\n[topogate.integrations]\nx = some:Y\n"
    wheels.put_scripts(build_wheel({"some-1.dist-info/entry_points.txt": said}), tree)
    ((path, content),) = tree.files()
    assert (path, tree[path].mode) == ("usr/local/bin/some-Tool", 0o755)
    assert content.decode().startswith("#!/usr/bin/python3.11\n")
    assert "from some.inner import main\n" in content.decode()
