"""Entry points of other packages: found where they are installed, and one clear line where they are broken."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from core.runtime.plugins import BrokenPlugin, load
from e2e.warm import run_to_its_end

GROUP = "tests.example.com.plugins"


def install(folder: Path, group: str, **entries: str) -> None:
    """A package as an installer leaves it."""
    info = folder / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    lines = [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    # Each test has a module of its own: Python keeps what it has imported.
    (tmp_path / f"acme_{request.node.name}.py").write_text("class Thing:\n    name = 'made'\n\nready = 'ready'\n")
    return tmp_path


def test_classes_are_made_objects_and_objects_are_taken(package: Path, request: pytest.FixtureRequest):
    module = f"acme_{request.node.name}"
    install(package, GROUP, b=f"{module}:ready", a=f"{module}:Thing")
    thing, ready = load(GROUP)
    assert (thing.name, ready) == ("made", "ready")


def test_no_package_no_plugin():
    assert load(GROUP) == []


@pytest.mark.parametrize(("target", "why"), [("acme_nowhere:X", "ModuleNotFoundError"), ("acme_broken:Missing", "AttributeError")])
def test_plugin_that_cannot_be_loaded_is_reported_by_name_and_cause(package: Path, target: str, why: str):
    (package / "acme_broken.py").write_text("")
    install(package, GROUP, x=target)
    with pytest.raises(BrokenPlugin) as broken:
        load(GROUP)
    message = str(broken.value)
    assert message.startswith(f"{GROUP} 'x' of package acme ({target}) cannot be loaded: {why}")
    assert "\n" not in message


# --- through the processes ----------------------------------------------------------------------------------

KIND = """
from core.jobs.kinds.mpijob import MPIJob

class AcmeJob(MPIJob):
    kind, group, plural = "AcmeJob", "acme.example.com", "acmejobs"
"""
ROOT = Path(__file__).parents[2]


def run(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)


def test_a_kind_of_another_package_is_reviewed_and_registered(tmp_path: Path):
    (tmp_path / "acme_kind.py").write_text(KIND)
    install(tmp_path, "topogate.integrations", acmejob="acme_kind:AcmeJob")
    code = (
        "from core.jobs.kinds.registry import INTEGRATIONS, with_integrations\n"
        "from core.runtime.plugins import load\n"
        "from webhook.registration import build_configurations\n"
        "from webhook.review import Reviews\n"
        "kinds = with_integrations(load(INTEGRATIONS))\n"
        "print([path for path in Reviews(None, kinds).handlers if 'acme' in path])\n"
        "for config in build_configurations('', {'url': ''}, kinds):\n"
        "    print([hook['name'] for hook in config['webhooks'] if 'acme' in hook['name']])\n"
    )
    done = run(tmp_path, code)
    assert done.stderr == ""
    assert "/mutate-acme-example-com-v2beta1-acmejob" in done.stdout
    assert "macmejob.kb.io" in done.stdout


@pytest.mark.parametrize("process", ["reconciler", "webhook"])
def test_a_broken_one_ends_the_process_with_one_clear_line(tmp_path: Path, process: str):
    install(tmp_path, "topogate.integrations", acmejob="acme_nowhere:AcmeJob")
    files = ["--cert-file", "x", "--key-file", "y"] if process == "webhook" else []
    code, lines = run_to_its_end(process, files, tmp_path)
    assert code == 1
    assert len(lines) == 1, lines
    assert "topogate.integrations 'acmejob' of package acme (acme_nowhere:AcmeJob) cannot be loaded: ModuleNotFoundError" in lines[0]
