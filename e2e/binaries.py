"""The programs of the real control plane: found, or built once and kept.

Order: `KUBEBUILDER_ASSETS` (somebody said so), PATH (only at exactly our version: a test must not pass or fail by the
accident of what is installed), the cache folder, and else a build from source. The cache is keyed by the content of
what defines the build, so a change of a pin builds anew and an older checkout still finds its own.

`TOPOGATE_KUBERNETES=1.34` chooses another control plane than the newest.
`python -m e2e.binaries` makes sure of everything and says where it is.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e.progress import CommandFailed, Progress, run_with_progress
from e2e.toolchain import ensure_go

KUBERNETES_VERSIONS = {"1.34": "1.34.4", "1.35": "1.35.4", "1.36": "1.36.3"}  # by minor version, the newest last
NEWEST_KUBERNETES = [*KUBERNETES_VERSIONS][-1]
ETCD_VERSION = "3.6.8"
KWOK_VERSION = "0.8.0"
OLDER_KUBECTL_VERSION = "1.33.5"  # three minor versions before the newest control plane
VERSION_PROBE_TIMEOUT_S = 60
BUILD_ENVIRONMENT = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false", "GOTOOLCHAIN": "local", "GOWORK": "off"}


@dataclass(frozen=True)
class Module:
    """A Go module of ours that yields one binary, called by one or several names."""

    name: str
    folder: Path
    package: str
    tools: Mapping[str, tuple[str, tuple[str, ...]]]  # name -> (its version, arguments that make it tell its version)
    stamps: Mapping[str, str]  # Go variables set at link time
    modfile: str = "go.mod"

    @property
    def key(self) -> str:
        """Changes with whatever changes the build: sources, pins, and the version stamps of this file."""
        digest = hashlib.sha256(repr(sorted(self.stamps.items())).encode())
        for name in (self.modfile, self.modfile.removesuffix(".mod") + ".sum", "main.go"):
            path = self.folder / name
            if path.exists():
                digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
        return f"{self.name}-{digest.hexdigest()[:16]}"

    @property
    def ldflags(self) -> str:
        return " ".join(["-s -w", *(f"-X {variable}={value}" for variable, value in self.stamps.items())])


class UnknownVersion(CommandFailed):
    """`TOPOGATE_KUBERNETES` names a version of which no control plane is built."""


def find_kubernetes_minor(environ: Mapping[str, str] = os.environ) -> str:
    """The minor version of Kubernetes that `TOPOGATE_KUBERNETES` names, or the newest. Raises UnknownVersion."""
    minor = environ.get("TOPOGATE_KUBERNETES") or NEWEST_KUBERNETES
    if minor not in KUBERNETES_VERSIONS:
        raise UnknownVersion(f"TOPOGATE_KUBERNETES (make: KUBERNETES) is {minor!r}; accepted are {', '.join(KUBERNETES_VERSIONS)}")
    return minor


def _build_version_stamps(version: str) -> dict[str, str]:
    # Without these `kubectl version` fails and the API server calls itself v0.0.0.
    major, minor, _ = version.split(".")
    base = "k8s.io/component-base/version."
    return {
        base + "gitVersion": f"v{version}",
        base + "gitMajor": major,
        base + "gitMinor": minor,
        base + "gitTreeState": "clean",
        base + "gitCommit": "topogate-e2e",
        base + "buildDate": "1970-01-01T00:00:00Z",
    }


_HERE = Path(__file__).parent
KWOK = Module(
    name="kwok",
    folder=_HERE / "controlplane" / "kwok",
    package="sigs.k8s.io/kwok/cmd/kwok",
    tools={"kwok": (KWOK_VERSION, ("--version",))},
    stamps={"sigs.k8s.io/kwok/pkg/consts.Version": f"v{KWOK_VERSION}"},
)
OLDER_KUBECTL = Module(
    name="kubectl-1.33",
    folder=_HERE / "controlplane" / "kubectl",
    package=".",
    tools={"kubectl-1.33": (OLDER_KUBECTL_VERSION, ("version", "--client"))},
    stamps=_build_version_stamps(OLDER_KUBECTL_VERSION),
)


def find_control_plane(minor: str) -> Module:
    """The control plane of one of `KUBERNETES_VERSIONS`: one source, and pins for each version."""
    version = KUBERNETES_VERSIONS[minor]
    return Module(
        name="controlplane",
        folder=_HERE / "controlplane",
        package=".",
        tools={
            "etcd": (ETCD_VERSION, ("--version",)),
            "kube-apiserver": (version, ("--version",)),
            "kube-controller-manager": (version, ("--version",)),
            "kube-scheduler": (version, ("--version",)),
            "kubectl": (version, ("version", "--client")),
        },
        stamps=_build_version_stamps(version),
        modfile="go.mod" if minor == NEWEST_KUBERNETES else f"go-{minor}.mod",
    )


def get_cache_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Where built things are kept, outside any checkout, so that all checkouts of one user share them."""
    root = environ.get("TOPOGATE_CACHE") or environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root).expanduser().absolute() / "topogate"


def ensure_binaries(environ: Mapping[str, str] = os.environ, modules: Sequence[Module] | None = None) -> dict[str, Path]:
    """The path of every tool by name, of these modules or of all that a cluster needs. Builds what is found nowhere, which takes
    minutes the first time. Raises UnknownVersion, and CommandFailed where a build fails."""
    if modules is None:
        modules = [find_control_plane(find_kubernetes_minor(environ)), KWOK]
    cache = get_cache_dir(environ)
    found: dict[str, Path] = {}
    for module in modules:
        here = {tool: find_binary(module, tool, environ, cache) for tool in module.tools}
        if None in here.values():
            _build(module, cache)
            here = {tool: find_binary(module, tool, environ, cache) for tool in module.tools}
        found |= {tool: path for tool, path in here.items() if path is not None}
    return found


def find_binary(module: Module, tool: str, environ: Mapping[str, str], cache: Path) -> Path | None:
    """Where the tool is, in the order of the module docstring; None if it has to be built."""
    assets = environ.get("KUBEBUILDER_ASSETS")
    if assets and os.access(Path(assets) / tool, os.X_OK):
        return Path(assets) / tool
    on_path = shutil.which(tool, path=environ.get("PATH", ""))
    version, question = module.tools[tool]
    if on_path and _has_version(Path(on_path), question, version):
        return Path(on_path)
    cached = cache / module.key / tool
    return cached if os.access(cached, os.X_OK) else None


def _has_version(binary: Path, question: tuple[str, ...], version: str) -> bool:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        said = subprocess.run([binary, *question], capture_output=True, text=True, check=False, timeout=VERSION_PROBE_TIMEOUT_S)
        words = (said.stdout + said.stderr).split()
        return version in words or f"v{version}" in words
    return False


def _build(module: Module, cache: Path) -> None:
    """Build into a scratch folder and rename: a build that was cut off leaves nothing that looks finished."""
    cache.mkdir(parents=True, exist_ok=True)
    with build_lock(cache / ".build.lock"):
        home = cache / module.key
        if home.exists():  # another process built it while this one waited
            return
        go = ensure_go(cache)
        with tempfile.TemporaryDirectory(dir=cache, prefix=f".{module.name}-") as scratch:
            out = Path(scratch) / "out"
            out.mkdir()
            command: list[str | Path] = [
                go,
                "build",
                "-v",
                "-trimpath",
                f"-modfile={module.modfile}",
                "-ldflags",
                module.ldflags,
                "-o",
                out / module.name,
                module.package,
            ]
            env = {**os.environ, **BUILD_ENVIRONMENT}
            run_with_progress(f"building {module.name} (once, some minutes)", command, cwd=module.folder, env=env)
            for tool in module.tools:
                if tool != module.name:
                    (out / tool).symlink_to(module.name)
            out.rename(home)


@contextlib.contextmanager
def build_lock(path: Path) -> Iterator[None]:
    """One build at a time on this machine: two would take twice the memory and end no sooner."""
    with path.open("w") as handle:
        progress = Progress("waiting for another process that is building")
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                progress.update()
                time.sleep(0.5)
        yield


def main() -> int:
    try:
        found = ensure_binaries()
    except CommandFailed as failure:
        print(failure, file=sys.stderr)
        return 1
    for tool, path in found.items():
        print(f"{tool:<24} {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
