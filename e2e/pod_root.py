"""Becomes the process of a pod: `python -m e2e.pod_root SPEC.json`, in user and mount namespaces of its own (`unshare --user --mount`).

The machine's own root is seen read-only, or that of an image, with the pod's volumes where the pod says they are; then the command is
executed as the user that the pod asks for, without any capability. What a kubelet and a container runtime would do, as far as a process
can tell.
"""

from __future__ import annotations

import ctypes
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
_KUBELETS = ("hosts", "resolv.conf")  # in etc: a kubelet's, whatever the image has
_MNT_DETACH = 2
_CLONE_NEWUSER = 0x10000000


def main(arguments: Sequence[str]) -> None:
    spec: dict[str, Any] = json.loads(Path(arguments[0]).read_text())
    root = Path(spec["root"])
    _run_mount("-t", "tmpfs", "-o", "mode=755", "none", str(root))
    source = Path(spec["image"] or "/")
    _mirror(source, root)
    _open(source, root)
    for volume in spec["volumes"]:
        at = root / volume["at"].lstrip("/")
        at.mkdir(parents=True, exist_ok=True)
        _bind(volume["from"], at)
        if volume["read_only"]:
            _run_mount("-o", "remount,bind,ro", str(at))
    _run_mount("-o", "remount,ro", str(root))
    # Not chroot: who is in one may have no user namespace of its own.
    os.chdir(root)
    libc = ctypes.CDLL(None, use_errno=True)
    _run("pivot_root", ".", ".")
    # From here on there are no programs but the image's, which may have neither umount nor unshare.
    _call(libc.umount2, b".", _MNT_DETACH)
    os.chdir("/")
    _call(libc.unshare, _CLONE_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny")
    for ids in ("uid_map", "gid_map"):
        Path("/proc/self", ids).write_text(f"{spec['user']} 0 1")
    os.execvpe(spec["command"][0], spec["command"], spec["environment"])


def _call(function: Any, *arguments: Any) -> None:
    if function(*arguments):
        raise OSError(ctypes.get_errno(), f"{function.__name__} failed")


def _mirror(source: Path, target: Path) -> None:
    """Every entry of the root: as it is, and read-only but for what is no disk, which is the machine's."""
    for entry in sorted(source.iterdir()):
        at = target / entry.name
        if entry.is_symlink():
            at.symlink_to(os.readlink(entry))
        elif entry.is_dir() and entry.name not in _OPENED:
            at.mkdir()
            _bind(Path("/", entry.name) if entry.name in _SPECIAL else entry, at)
            if entry.name not in _SPECIAL:
                _run_mount("-o", "remount,bind,ro", str(at))


def _open(source: Path, root: Path) -> None:
    for name in _OPENED:
        (root / name).mkdir(exist_ok=True)
    entries = {entry.name: entry for entry in (source / "etc").iterdir()} | {name: Path("/etc", name) for name in _KUBELETS}
    for name, entry in sorted(entries.items()):
        at = root / "etc" / name
        if entry.is_symlink():
            at.symlink_to(os.readlink(entry))
        elif entry.is_dir() or entry.is_file():
            at.mkdir() if entry.is_dir() else at.touch()
            _bind(entry, at)
    (root / "var" / "run").symlink_to("../run")  # as seen from outside, too


def _bind(source: Path | str, at: Path) -> None:
    _run_mount("--rbind", str(source), str(at))


def _run_mount(*arguments: str) -> None:
    _run("mount", *arguments)


def _run(*command: str) -> None:
    """Also what is where a user's shell does not look."""
    subprocess.run(command, check=True, env={**os.environ, "PATH": f"{os.environ.get('PATH', '/usr/bin:/bin')}:/usr/sbin:/sbin"})


if __name__ == "__main__":
    main(sys.argv[1:])
