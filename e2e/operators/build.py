"""Builds operators from their modules, once: the program and its rendered manifests are kept in the cache folder.

`python -m e2e.operators.build [NAME ...]` makes sure of some or all and prints where they are.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from e2e.binaries import BUILD_ENVIRONMENT, build_lock, ensure_binaries, get_cache_dir
from e2e.operators.catalogue import OPERATORS, Operator, Part, UnknownOperator, find_operators
from e2e.progress import CommandFailed, run_with_progress
from e2e.toolchain import ensure_go

Obj = dict[str, Any]
INSTALLED = {
    "Namespace",
    "CustomResourceDefinition",
    "ServiceAccount",
    "Role",
    "ClusterRole",
    "RoleBinding",
    "ClusterRoleBinding",
    "ConfigMap",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
}
# The checksum of the module is compared here, and those of all others with its own go.sum: no database of checksums has to be asked.
_ENVIRONMENT = {**BUILD_ENVIRONMENT, "GONOSUMDB": "*"}


@dataclass(frozen=True)
class Built:
    """An operator that can be run."""

    operator: Operator
    program: Path
    manifests: Path  # JSON, a list of objects

    def read_manifests(self) -> list[Obj]:
        """What it needs on a cluster, as it is published."""
        found: list[Obj] = json.loads(self.manifests.read_text())
        return found


def find_key(operator: Operator) -> str:
    """The name of an operator's folder in the cache: another one with whatever changes the program or the manifests."""
    parts = operator.module, operator.version, operator.checksum, operator.package, operator.manifests, operator.changes, sorted(INSTALLED)
    more = tuple(each for each in (operator.tags, operator.parts) if each)
    return f"operator-{operator.name}-{hashlib.sha256(repr(parts + more).encode()).hexdigest()[:16]}"


def ensure_operators(names: Iterable[str], environ: Mapping[str, str] = os.environ) -> tuple[Built, ...]:
    """Operators and what they need, built where they are not yet. Raises UnknownOperator, or CommandFailed where a build fails."""
    return tuple(ensure_operator(operator, environ) for operator in find_operators(names))


def ensure_operator(operator: Operator, environ: Mapping[str, str] = os.environ) -> Built:
    """One operator, built where it is not yet. Raises CommandFailed."""
    cache = get_cache_dir(environ)
    home = cache / find_key(operator)
    built = Built(operator, home / operator.name, home / "manifests.json")
    operator.fetch(environ)
    if home.exists():
        return built
    kubectl = ensure_binaries(environ)["kubectl"]
    with build_lock(cache / ".build.lock"):
        if home.exists():  # another process built it while this one waited
            return built
        go = ensure_go(cache)
        module = _fetch_source(operator, go)
        parts = {part.folder: _fetch_source(part, go) for part in operator.parts}
        with tempfile.TemporaryDirectory(dir=cache, prefix=f".{operator.name}-") as scratch:
            out = Path(scratch) / "out"
            out.mkdir()
            source = Path(scratch) / "source"
            for part, origin in {"": module, **parts}.items():
                shutil.copytree(
                    origin, source / part, copy_function=shutil.copyfile
                )  # its own files are read-only, and those of all builds
                for folder in [source, *(path for path in source.rglob("*") if path.is_dir())]:
                    folder.chmod(0o755)
            change_source(operator, source)
            command: list[str | Path] = [go, "build", "-v", "-trimpath", "-ldflags", "-s -w", "-o", out / operator.name]
            command += [*(["-tags", operator.tags] if operator.tags else []), operator.package]
            task = f"building {operator.name} {operator.version} (once, a minute or more)"
            run_with_progress(task, command, cwd=source, env={**os.environ, **_ENVIRONMENT})
            objects = [obj for folder in operator.manifests for obj in _render(kubectl, source / folder)]
            kept = [obj for obj in objects if obj["kind"] in INSTALLED and obj["metadata"]["name"] not in operator.excluded]
            (out / "manifests.json").write_text(json.dumps(kept))
            out.rename(home)
    return built


def _fetch_source(module: Operator | Part, go: Path) -> Path:
    """The folder of a module's source. Raises CommandFailed where it is not the one that is pinned."""
    with tempfile.TemporaryDirectory() as nowhere:  # in no module of ours
        asked: list[str | Path] = [go, "mod", "download", "-json", f"{module.module}@{module.version}"]
        environment = {**os.environ, **_ENVIRONMENT, "GOFLAGS": ""}
        done = subprocess.run(asked, cwd=nowhere, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CommandFailed(f"{module.module} {module.version} cannot be had: {done.stdout}{done.stderr}")
    found = json.loads(done.stdout)
    if found["Sum"] != module.checksum:
        raise CommandFailed(f"{module.module} {module.version} has the checksum {found['Sum']}, and {module.checksum} is pinned")
    return Path(found["Dir"])


def change_source(operator: Operator, source: Path) -> None:
    """Makes the operator's changes in a copy of its source. Raises CommandFailed where a text is not there once."""
    for change in operator.changes:
        path = source / change.file
        text = path.read_text()
        if text.count(change.old) != 1:
            raise CommandFailed(f"{change.file} of {operator.module} {operator.version} has {change.old!r} {text.count(change.old)} times")
        path.write_text(text.replace(change.old, change.new))


def _render(kubectl: Path, path: Path) -> list[Obj]:
    return [obj for obj in yaml.load_all(path.read_text() if path.is_file() else _run_kustomize(kubectl, path), yaml.CSafeLoader) if obj]


def _run_kustomize(kubectl: Path, folder: Path) -> str:
    done = subprocess.run([kubectl, "kustomize", folder], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CommandFailed(f"kubectl kustomize {folder} failed: {done.stderr}")
    return done.stdout


def main(arguments: list[str] | None = None) -> int:
    names = (sys.argv[1:] if arguments is None else arguments) or [operator.name for operator in OPERATORS]
    try:
        found = ensure_operators(names)
    except (CommandFailed, UnknownOperator) as failure:
        print(failure, file=sys.stderr)
        return 1
    for built in found:
        print(f"{built.operator.name:<20} {built.operator.version:<10} {built.program}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
