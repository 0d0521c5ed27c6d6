"""Python's packages: those of requirements-run.lock, fetched with their hashes by the image's own Python, and our wheel, unpacked to where
Debian's Python looks for what is not Debian's.

They are unpacked and not installed: pip would write down where and by which Python it did so, and scripts that only that one can run.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
import re
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from configparser import ConfigParser
from dataclasses import dataclass
from email.message import Message
from email.parser import Parser
from importlib.util import find_spec
from pathlib import Path

from e2e.progress import run_with_progress
from tools.image.base import PYTHON
from tools.image.interpreter import Interpreter
from tools.image.tree import PROGRAM_MODE, Tree

SITE = f"usr/local/lib/{PYTHON}/dist-packages"
SCRIPTS = "usr/local/bin"
# Tests, what only a compiler wants, and what wheels have beside their packages by mistake.
_LEFT_OUT = re.compile(rf".*/tests?/.*|.*\.(pyi|pxd|pyx|pxi|h|hpp|c|cpp|a|lib|f90|inc)|{SITE}/([A-Z]+\.md|pyproject\.toml)")
_DATA = re.compile(r"[^/]+\.data/([a-z]+)/(.+)")
_SCRIPT = """#!/usr/bin/{python}
import sys

from {module} import {function}

sys.exit({function}())
"""


class WheelError(Exception):
    """A wheel holds what is not known here."""


@dataclass(frozen=True)
class Wheel:
    """One that was read."""

    file: str
    sha256: str
    content: bytes

    def open(self) -> zipfile.ZipFile:
        return zipfile.ZipFile(io.BytesIO(self.content))

    def info(self, name: str) -> str:
        """A file of its dist-info folder; empty if there is none."""
        with self.open() as archive:
            found = [one for one in archive.namelist() if re.fullmatch(rf"[^/]+\.dist-info/{re.escape(name)}", one)]
            return archive.read(found[0]).decode() if found else ""

    @property
    def metadata(self) -> Message:
        return Parser().parsestr(self.info("METADATA"), headersonly=True)

    @property
    def name(self) -> str:
        """As indexes spell it."""
        return spelt(self.metadata["Name"])

    @property
    def version(self) -> str:
        return str(self.metadata["Version"])


def spelt(name: str) -> str:
    """A package's name as indexes spell it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read(path: Path) -> Wheel:
    content = path.read_bytes()
    return Wheel(path.name, hashlib.sha256(content).hexdigest(), content)


def fetch(python: Interpreter, python_version: str, lock: Path, cache: Path) -> list[Wheel]:
    """The wheels of a lock for the image's Python, from the cache or by pip, as it is configured. The caller holds the cache's lock."""
    key = hashlib.sha256(f"{python_version}\n".encode() + lock.read_bytes()).hexdigest()[:16]
    home = cache / f"wheels-{key}"
    if not home.exists():
        with tempfile.TemporaryDirectory(dir=cache, prefix=".wheels-") as scratch:
            into = Path(scratch) / "wheels"
            pip = ["-m", "pip", "download", "--no-deps", "--require-hashes", "--only-binary=:all:", "--no-cache-dir"]
            command = python.command(*pip, "--dest", into, "--requirement", lock)
            env = {**os.environ, "PYTHONPATH": _pip(scratch), "PYTHONDONTWRITEBYTECODE": "1"}
            run_with_progress("fetching Python packages of the image (once)", command, env=env)
            into.rename(home)
    return [read(path) for path in sorted(home.iterdir())]


def _pip(folder: str) -> str:
    """A folder with this Python's pip and nothing else that another Python could not import."""
    found = find_spec("pip")
    if found is None or found.origin is None:
        raise WheelError(f"{sys.executable} has no pip, which fetches the packages")
    alone = Path(folder) / "pip-alone"
    alone.mkdir()
    (alone / "pip").symlink_to(Path(found.origin).parent)
    return str(alone)


def unpack(wheels: list[Wheel], tree: Tree) -> None:
    """Puts their modules into the tree, with records that say what is there."""
    for wheel in wheels:
        kept = {}
        with wheel.open() as archive:
            for name in archive.namelist():
                at = None if name.endswith("/") else _place(name)
                if at is not None and not _LEFT_OUT.fullmatch(at):
                    kept[at] = archive.read(name)
        _record(kept)
        for at, content in kept.items():
            tree.put_file(at, content)


def _place(name: str) -> str | None:
    """Where a file of a wheel belongs; None: nowhere, since only who builds or types at a shell wants it."""
    found = _DATA.fullmatch(name)
    if found is None:
        return f"{SITE}/{name}"
    kind, rest = found.groups()
    if kind in ("purelib", "platlib"):
        return f"{SITE}/{rest}"
    if kind in ("scripts", "headers", "data"):
        return None
    raise WheelError(f"{name}: a wheel's data are of purelib, platlib, scripts, headers or data")


def _record(kept: dict[str, bytes]) -> None:
    """Takes the lines of what was left out from RECORD."""
    (path,) = (at for at in kept if at.endswith(".dist-info/RECORD"))
    lines = [row for row in csv.reader(io.StringIO(kept[path].decode())) if row and _place(row[0]) in kept]
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(lines)
    kept[path] = out.getvalue().encode()


def put_scripts(wheel: Wheel, tree: Tree) -> None:
    """Its commands, for the image's Python and on the image's PATH."""
    for name, module, function in scripts(wheel):
        tree.put_file(f"{SCRIPTS}/{name}", _SCRIPT.format(python=PYTHON, module=module, function=function), PROGRAM_MODE)


def scripts(wheel: Wheel) -> Iterator[tuple[str, str, str]]:
    """Name, module and function of each command."""
    said = ConfigParser(delimiters=("=",))
    said.optionxform = str  # type: ignore[assignment, method-assign]  # names are as they are written
    said.read_string(wheel.info("entry_points.txt"))
    if said.has_section("console_scripts"):
        for name, where in said.items("console_scripts"):
            module, _, function = where.partition(":")
            yield name, module.strip(), function.strip()
