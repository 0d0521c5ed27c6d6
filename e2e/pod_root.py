"""Becomes the process of a pod: `python -m e2e.pod_root SPEC.json`, in user and mount namespaces of its own (`unshare --user --mount`).

The machine's own root is seen read-only, with the pod's volumes where the pod says they are; then the command is executed as the user
that the pod asks for, without any capability. What a kubelet and a container runtime would do, as far as a process can tell.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# Rebuilt entry by entry, so that there can be mount points which the machine does not have; `run` and the rest of `var` stay out of sight.
_OPENED = ("etc", "run", "var")
_SPECIAL = ("proc", "sys", "dev")


def main(arguments: Sequence[str]) -> None:
    spec: dict[str, Any] = json.loads(Path(arguments[0]).read_text())
    root = Path(spec["root"])
    _mount("-t", "tmpfs", "-o", "mode=755", "none", str(root))
    _mirror(Path("/"), root)
    _open(root)
    for volume in spec["volumes"]:
        at = root / volume["at"].lstrip("/")
        at.mkdir(parents=True, exist_ok=True)
        _bind(volume["from"], at)
        if volume["read_only"]:
            _mount("-o", "remount,bind,ro", str(at))
    _mount("-o", "remount,ro", str(root))
    # Not chroot: who is in one may have no user namespace of its own.
    os.chdir(root)
    subprocess.run(["pivot_root", ".", "."], check=True)
    subprocess.run(["umount", "--lazy", "."], check=True)
    os.chdir("/")
    user = spec["user"]
    command = ["unshare", "--user", f"--map-user={user}", f"--map-group={user}", "--", *spec["command"]]
    os.execvpe(command[0], command, spec["environment"])


def _mirror(source: Path, target: Path) -> None:
    """Every entry of the root: as it is, and read-only but for what is no disk."""
    for entry in sorted(source.iterdir()):
        at = target / entry.name
        if entry.is_symlink():
            at.symlink_to(os.readlink(entry))
        elif entry.is_dir() and entry.name not in _OPENED:
            at.mkdir()
            _bind(entry, at)
            if entry.name not in _SPECIAL:
                _mount("-o", "remount,bind,ro", str(at))


def _open(root: Path) -> None:
    for name in _OPENED:
        (root / name).mkdir(exist_ok=True)
    for entry in sorted(Path("/etc").iterdir()):
        at = root / "etc" / entry.name
        if entry.is_symlink():
            at.symlink_to(os.readlink(entry))
        elif entry.is_dir() or entry.is_file():
            at.mkdir() if entry.is_dir() else at.touch()
            _bind(entry, at)
    (root / "var" / "run").symlink_to("../run")  # as seen from outside, too


def _bind(source: Path | str, at: Path) -> None:
    _mount("--rbind", str(source), str(at))


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
