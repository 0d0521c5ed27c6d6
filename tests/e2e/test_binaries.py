"""Where the programs are found, in which order, and that a build happens once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from e2e import binaries
from e2e.binaries import (
    KUBERNETES_VERSIONS,
    KWOK,
    OLDER_KUBECTL,
    Module,
    ensure_binaries,
    find_binary,
    find_control_plane,
    find_kubernetes_minor,
    get_cache_dir,
)
from e2e.progress import CommandFailed, run_with_progress
from e2e.toolchain import GO_LOCK, find_go_on_path, parse_go_version, read_locked_go_version


def make_tool(folder: Path, name: str, says: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    tool = folder / name
    tool.write_text(f"#!/bin/sh\necho '{says}'\n")
    tool.chmod(0o755)
    return tool


@pytest.fixture
def module(tmp_path) -> Module:
    """A module of one tool, small enough to build in a moment."""
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "go.mod").write_text("module example.test/tool\n\ngo 1.26.0\n")
    (folder / "main.go").write_text('package main\n\nimport "os"\n\nvar version string\n\nfunc main() { os.Stdout.WriteString(version) }\n')
    return Module("tool", folder, ".", {"tool": ("1.2.3", ("--version",)), "alias": ("1.2.3", ("--version",))}, {"main.version": "v1.2.3"})


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "topogate"


def test_binary_in_the_assets_folder_is_found_before_path_and_cache(module, cache, tmp_path):
    said = make_tool(tmp_path / "assets", "tool", "any version")
    make_tool(tmp_path / "path", "tool", "tool v1.2.3")
    make_tool(cache / module.key, "tool")
    environ = {"KUBEBUILDER_ASSETS": str(said.parent), "PATH": str(tmp_path / "path")}
    assert find_binary(module, "tool", environ, cache) == said


def test_the_path_comes_second_at_the_right_version(module, cache, tmp_path):
    on_path = make_tool(tmp_path / "path", "tool", "tool v1.2.3")
    make_tool(cache / module.key, "tool")
    assert find_binary(module, "tool", {"PATH": str(on_path.parent), "KUBEBUILDER_ASSETS": str(tmp_path / "empty")}, cache) == on_path


@pytest.mark.parametrize("says", ["tool v1.2.30", "tool v1.2.4", "v11.2.3", ""])
def test_another_version_on_the_path_is_passed_over_for_the_cache(module, cache, tmp_path, says):
    on_path = make_tool(tmp_path / "path", "tool", says)
    cached = make_tool(cache / module.key, "tool")
    assert find_binary(module, "tool", {"PATH": f"{on_path.parent}{os.pathsep}{os.environ['PATH']}"}, cache) == cached


def test_found_nowhere_is_found_nowhere(module, cache):
    assert find_binary(module, "tool", {"PATH": ""}, cache) is None


def test_build_cache_key_depends_on_sources_and_flags_only(module):
    keys = {module.key}
    for name in ("go.mod", "main.go", "go.sum"):
        path = module.folder / name
        path.write_text((path.read_text() if path.exists() else "") + "\n// changed\n")
        keys.add(module.key)
    keys.add(Module(module.name, module.folder, ".", module.tools, {"main.version": "v1.2.4"}).key)
    (module.folder / "README").write_text("not part of it")
    keys.add(module.key)
    assert len(keys) == 5


def test_cache_folder_follows_the_environment():
    assert get_cache_dir({"TOPOGATE_CACHE": "/a", "XDG_CACHE_HOME": "/b"}) == Path("/a/topogate")
    assert get_cache_dir({"XDG_CACHE_HOME": "/b"}) == Path("/b/topogate")
    assert get_cache_dir({}) == Path.home() / ".cache" / "topogate"


@pytest.mark.skipif(find_go_on_path() is None, reason="building this test's own module needs a Go on PATH; the real ones bring their own")
def test_a_build_is_stamped_made_once_and_leaves_no_scratch(module, cache, monkeypatch):
    builds: list[str] = []
    real = run_with_progress

    def counted(task, *args, **kwargs):
        builds.append(task)
        real(task, *args, **kwargs)

    monkeypatch.setattr(binaries, "run_with_progress", counted)
    environ = {"TOPOGATE_CACHE": str(cache.parent), "PATH": ""}
    results: list[dict[str, Path]] = []
    threads = [threading.Thread(target=lambda: results.append(ensure_binaries(environ, (module,)))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert builds == ["building tool (once, some minutes)"]
    assert results[0] == results[1] == {"tool": cache / module.key / "tool", "alias": cache / module.key / "alias"}
    said = subprocess.run([results[0]["alias"]], capture_output=True, text=True, check=True).stdout
    assert said == "v1.2.3"
    assert sorted(path.name for path in cache.iterdir()) == [".build.lock", module.key]


@pytest.mark.skipif(find_go_on_path() is None, reason="needs a Go on PATH to fail with")
def test_failed_build_reports_the_compiler_error_and_leaves_no_folder(module, cache):
    (module.folder / "main.go").write_text("package main\n\nfunc main() { nonsense() }\n")
    with pytest.raises(CommandFailed, match="undefined: nonsense"):
        ensure_binaries({"TOPOGATE_CACHE": str(cache.parent), "PATH": ""}, (module,))
    assert not (cache / module.key).exists()


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("go version go1.26.8 linux/amd64", (1, 26)),
        ("go version go1.27rc1 linux/arm64", (1, 27)),
        ("go version devel +abc", None),
        ("", None),
    ],
)
def test_go_version_is_parsed_from_its_output(text, version):
    assert parse_go_version(text) == version


def test_an_old_go_on_the_path_does_not_count(tmp_path, monkeypatch):
    old = make_tool(tmp_path, "go", "go version go1.25.9 linux/amd64")
    monkeypatch.setenv("PATH", f"{old.parent}{os.pathsep}/usr/bin{os.pathsep}/bin")
    assert find_go_on_path() is None


def test_the_go_that_is_installed_is_pinned_by_hash_and_names_no_host():
    lock = GO_LOCK.read_text()
    assert read_locked_go_version().startswith("1.26.")
    assert len(re.findall(r"--hash=sha256:[0-9a-f]{64}\b", lock)) >= 5
    assert "//" not in lock
    assert "--index-url" not in lock
    assert "--find-links" not in lock


@pytest.mark.parametrize("minor", KUBERNETES_VERSIONS)
def test_control_plane_of_a_version_pins_that_version(minor):
    module = find_control_plane(minor)
    pins = (module.folder / module.modfile).read_text()
    version = KUBERNETES_VERSIONS[minor]
    assert version.startswith(f"{minor}.")
    assert f"k8s.io/kubernetes v{version}\n" in pins
    assert set(re.findall(r"^\tk8s.io/\S+ => k8s.io/\S+ v0\.(\S+)$", pins, re.MULTILINE)) == {version.removeprefix("1.")}
    assert f"go.etcd.io/etcd/server/v3 v{binaries.ETCD_VERSION}\n" in pins
    assert (module.folder / module.modfile.replace(".mod", ".sum")).exists()


def test_control_planes_of_all_versions_have_keys_of_their_own():
    assert len({find_control_plane(minor).key for minor in KUBERNETES_VERSIONS}) == len(KUBERNETES_VERSIONS)


def test_other_modules_pin_their_versions():
    assert f"sigs.k8s.io/kwok v{binaries.KWOK_VERSION} " in (KWOK.folder / "go.mod").read_text()
    assert f"k8s.io/kubectl v0.{binaries.OLDER_KUBECTL_VERSION.removeprefix('1.')}\n" in (OLDER_KUBECTL.folder / "go.mod").read_text()
    assert int(binaries.NEWEST_KUBERNETES.removeprefix("1.")) - int(binaries.OLDER_KUBECTL_VERSION.split(".")[1]) == 3


def test_kubernetes_version_without_a_choice_is_the_newest():
    assert find_kubernetes_minor({}) == find_kubernetes_minor({"TOPOGATE_KUBERNETES": ""}) == "1.36"
    assert find_kubernetes_minor({"TOPOGATE_KUBERNETES": "1.34"}) == "1.34"


@pytest.mark.parametrize("program", ["e2e.binaries", "e2e.demo", "e2e.cluster"])
def test_program_with_an_unknown_kubernetes_version_names_it_with_the_accepted_ones(program, tmp_path):
    environ = {**os.environ, "TOPOGATE_KUBERNETES": "1.29", "TOPOGATE_CACHE": str(tmp_path)}
    done = subprocess.run([sys.executable, "-m", program], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert done.stderr == "TOPOGATE_KUBERNETES (make: KUBERNETES) is '1.29'; accepted are 1.34, 1.35, 1.36\n"


def test_binaries_command_lists_existing_paths(cluster):
    said = subprocess.run([sys.executable, "-m", "e2e.binaries"], capture_output=True, text=True, check=True).stdout
    assert {line.split()[0] for line in said.splitlines()} == {*find_control_plane(find_kubernetes_minor()).tools, *KWOK.tools}
    for line in said.splitlines():
        assert os.access(line.split(maxsplit=1)[1], os.X_OK)
