"""The programs it takes: Docker, which must be there, and kind and Helm, built once at pinned versions from their Go modules.

`python -m e2e.kind.tools` makes sure of both: a test that builds them has no time left for itself.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.binaries import build_lock, ensure_binaries, find_control_plane, find_kubernetes_minor, get_cache_dir
from e2e.progress import run_with_progress
from e2e.toolchain import ensure_go

DOCKER_TIMEOUT_S = 20
MIN_CPUS = 4  # every node says that it has all of them; two pods and a third one that asks for no GPU share a node
MIN_MEMORY = 12 * 2**30  # ten nodes, the operators, and a Ray cluster


@dataclass(frozen=True)
class Tool:
    """A program that `go install` makes."""

    name: str
    package: str
    version: str


KIND = Tool("kind", "sigs.k8s.io/kind", "v0.33.0")
HELM = Tool("helm", "helm.sh/helm/v3/cmd/helm", "v3.22.0")


class ToolFailed(Exception):
    """A program ended with a code other than 0; the message has what it said."""


def find_docker_problem() -> str | None:
    """Why kind cannot work here, in one sentence; None if it can."""
    docker = shutil.which("docker")
    if docker is None:
        return "there is no docker on PATH."
    try:
        said = subprocess.run(
            [docker, "info", "--format", "{{json .}}"], capture_output=True, text=True, check=False, timeout=DOCKER_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return f"Docker did not answer within {DOCKER_TIMEOUT_S} s."
    except OSError as error:
        return f"docker cannot be started: {error}."
    info = _parse_object(said.stdout)
    if said.returncode != 0 or not info.get("ServerVersion"):
        words = (said.stderr.strip() or "; ".join(map(str, info.get("ServerErrors") or ())) or "it did not say why").splitlines()[-1]
        return f"Docker does not answer: {words.rstrip('.?!')}."
    if "Docker Desktop" in str(info.get("OperatingSystem")):
        return "Docker Desktop's containers do not reach this machine by the gateway of their network, where the webhook would listen."
    cpus, memory = int(info.get("NCPU") or 0), int(info.get("MemTotal") or 0)
    if cpus < MIN_CPUS or memory < MIN_MEMORY:
        has = f"{cpus} CPUs and {memory / 2**30:.1f} GiB"
        return f"Docker has {has}, and the scenes need {MIN_CPUS} CPUs and {MIN_MEMORY // 2**30} GiB."
    return None


def _parse_object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def ensure_tool(tool: Tool) -> Path:
    """Where it is; built into the cache the first time."""
    cache = get_cache_dir()
    cache.mkdir(parents=True, exist_ok=True)
    home = cache / f"{tool.name}-{tool.version}"
    if not (home / tool.name).exists():
        with build_lock(cache / ".build.lock"), tempfile.TemporaryDirectory(dir=cache, prefix=f".{tool.name}-") as scratch:
            if not home.exists():  # another process may have built it while this one waited
                out = Path(scratch) / "bin"
                env = {**os.environ, "GOBIN": str(out), "CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off"}
                install: list[str | Path] = [ensure_go(cache), "install", "-v", f"{tool.package}@{tool.version}"]
                run_with_progress(f"building {tool.name} {tool.version} (once)", install, cwd=Path(scratch), env=env)
                out.rename(home)
    return home / tool.name


def ensure_kubectl() -> Path:
    """The one that the other tests use."""
    return ensure_binaries(modules=[find_control_plane(find_kubernetes_minor())])["kubectl"]


def run(command: Sequence[str | Path], timeout_s: float = 900.0) -> str:
    """What a program printed. Raises ToolFailed."""
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=timeout_s)
    if done.returncode != 0:
        raise ToolFailed(f"{Path(words[0]).name} {' '.join(words[1:])} ended with code {done.returncode}: {done.stderr.strip()}")
    return done.stdout


if __name__ == "__main__":
    for each in (KIND, HELM):
        print(f"{each.name:24} {ensure_tool(each)}")
