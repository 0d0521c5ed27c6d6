"""What is ours: the wheel, its version, the commit."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RUN_LOCK = ROOT / "requirements-run.lock"
_BESIDE = ("pyproject.toml", "README.md", "LICENSE")


def about() -> dict[str, Any]:
    """pyproject.toml."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)


def epoch(environ: Mapping[str, str] = os.environ) -> int:
    """When this was written, in seconds: SOURCE_DATE_EPOCH, the time of the commit, or 0 where there is neither."""
    return int(environ.get("SOURCE_DATE_EPOCH") or _git("log", "-1", "--format=%ct") or 0)


def revision() -> str:
    """The commit; empty where there is none, or where what is here is no longer that."""
    return "" if _git("status", "--porcelain") else _git("rev-parse", "HEAD")


def _git(*words: str) -> str:
    try:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def build_wheel(folder: Path) -> Path:
    """The wheel, in a folder. Built of a copy: what an earlier build left beside the sources would find its way into it, and so would the
    modes of a checkout."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "topogate"
        _copy(copy)
        pip = [sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "--no-index", "--no-build-isolation"]
        command = [*pip, "--wheel-dir", f"{scratch}/out", str(copy)]
        env = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch())}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=env, umask=0o022)
        if done.returncode:
            raise RuntimeError(f"the wheel does not build:\n{done.stdout}{done.stderr}")
        (made,) = Path(scratch, "out").iterdir()
        folder.mkdir(parents=True, exist_ok=True)
        return Path(shutil.move(made, folder / made.name))


def _copy(folder: Path) -> None:
    """What the wheel is made of."""
    packages = {name.rstrip("*") for name in about()["tool"]["setuptools"]["packages"]["find"]["include"]}
    folder.mkdir()
    for name in _BESIDE:
        shutil.copyfile(ROOT / name, folder / name)
    for name in packages:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
