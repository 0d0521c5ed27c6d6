"""The real image, twice: the same digest, nothing in it that should not be, everything that its programs and its licences need; and both
processes run from its root, in a real cluster, as the chart starts them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from e2e import pods
from e2e.audit import truth
from e2e.binaries import get_cache_dir
from e2e.cluster import Cluster
from tests.chart.helm import CHART
from tests.chart.release import Release
from tests.image.rules import find_violations
from tests.image.test_packages import read_entries
from tests.reconciler.scenes import Scene
from tools.image import base, build, debian, oci, project, sbom, wheels
from tools.image.__main__ import main
from tools.image.build import Image
from tools.image.debian import Gone, Pin
from tools.image.interpreter import Interpreter
from tools.image.oci import Archive

pytestmark = [pytest.mark.cluster, pytest.mark.long]
# What the wheel of cel-expr-python says that it has at its top, and has not: where it was built.
FOLDERS_OF_BUILDERS = ("build_area", "build_deps", "dist", "kokoro", "tmp")
CREATED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@dataclass(frozen=True)
class Made:
    """An image, packed and unpacked."""

    pins: tuple[Pin, ...]
    image: Image
    archive: Archive
    path: Path
    unpacked: pods.Image


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """By our lock, or of the mirrors' newer packages where these are all they have: how an image is made is tested, not a lock's age."""
    folder = tmp_path_factory.mktemp("image")
    pins = build.pins()
    with pytest.MonkeyPatch.context() as environ:
        environ.setenv("SOURCE_DATE_EPOCH", str(int(CREATED.timestamp())))
        try:
            image = build.build(pins)
        except Gone:
            pins = debian.read_lock(build.renew())
            image = build.build(pins)
    archive = build.archive(image, CREATED)
    archive.write(folder / "image.tar")
    said = oci.unpack(folder / "image.tar", folder / "root")
    environment = dict(line.split("=", 1) for line in said["Env"])
    return Made(pins, image, archive, folder / "image.tar", pods.Image(folder / "root", environment))


def run(made: Made, folder: Path, *command: str) -> str:
    """What a command prints that runs in the image, as the user of the image and with its environment."""
    (folder / "root").mkdir(exist_ok=True)
    image = made.unpacked
    spec = {
        "root": str(folder / "root"),
        "image": str(image.root),
        "command": command,
        "environment": dict(image.environment),
        "user": base.USER,
        "volumes": [],
    }
    (folder / "spec.json").write_text(json.dumps(spec))
    words = ["unshare", "--user", "--map-root-user", "--mount", sys.executable, "-m", "e2e.pod_root", str(folder / "spec.json")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=project.ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# --- the archive ----------------------------------------------------------------------------------------------------


def test_the_archive_keeps_the_rules(made: Made):
    assert find_violations(made.path) == []


def test_another_build_gives_the_same_digest(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """By the command, in another folder and with another umask."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(int(CREATED.timestamp())))
    monkeypatch.setattr(build, "pins", lambda: made.pins)
    before = os.umask(0o077)
    try:
        assert main(["--out", str(tmp_path)]) == 0
    finally:
        os.umask(before)
    version = project.about()["project"]["version"]
    assert capsys.readouterr().out.splitlines()[-1] == made.archive.digest
    assert (tmp_path / f"topogate-{version}.oci.tar").read_bytes() == made.path.read_bytes()
    said = (tmp_path / f"topogate-{version}.sbom.json").read_text()
    assert said == sbom.build(made.image, "topogate", version, made.archive.digest, CREATED)


def test_the_step_of_the_dockerfile_makes_the_same_root(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Of the same trees: that another build makes the same is tested above."""
    monkeypatch.setattr(build, "build", lambda _: made.image)
    assert main(["root", str(tmp_path / "root")]) == 0
    assert list_content(tmp_path / "root") == list_content(made.unpacked.root)


def list_content(root: Path) -> dict[str, tuple[int, str, bytes]]:
    """Mode, target and content by path."""
    found = {}
    for path in root.rglob("*"):
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path.relative_to(root))] = (path.lstat().st_mode, os.readlink(path) if path.is_symlink() else "", content)
    return found


# --- what is in it --------------------------------------------------------------------------------------------------


def test_nothing_of_the_machine_that_built_it_is_in_it(made: Made):
    words = [re.escape(str(path)) for path in (project.ROOT, get_cache_dir(), sys.prefix)]
    scratch = re.escape(f"{tempfile.gettempdir()}/tmp") + "[a-z0-9_]{8}/"
    sought = re.compile("|".join([*words, scratch]).encode())
    trees = (made.image.base, made.image.application)
    assert [(path, hit[0]) for tree in trees for path, content in tree.files() if (hit := sought.search(content))] == []


def test_there_is_no_shell_nothing_that_gives_rights_and_no_test_in_it(made: Made):
    root = made.unpacked.root
    assert sorted(path.name for path in (root / "usr/bin").iterdir()) == ["python", "python3", "python3.11"]
    ours = {name for name, _, _ in wheels.scripts(made.image.wheels[-1])}
    assert {path.name for path in (root / "usr/local/bin").glob("*")} == ours
    every = list(root.rglob("*"))
    assert [path for path in every if path.stat(follow_symlinks=False).st_mode & 0o6000] == []
    assert [path for path in every if path.is_dir() and path.name in ("test", "tests", "man", "locale")] == []
    assert [path for path in every if path.suffix == ".pyc" and not (path.parents[1] / f"{path.name.split('.')[0]}.py").exists()] == []


def test_every_link_leads_somewhere_and_every_module_has_its_bytecode(made: Made):
    root = made.unpacked.root
    links = [path for path in root.rglob("*") if path.is_symlink()]
    assert links
    leads = {path: root / target.lstrip("/") if (target := os.readlink(path)).startswith("/") else path.parent / target for path in links}
    assert [path for path, target in leads.items() if not os.path.lexists(target)] == []
    modules = [path for path in root.rglob("*.py") if not path.is_symlink()]
    assert [path for path in modules if not (path.parent / "__pycache__" / f"{path.stem}.cpython-311.pyc").exists()] == []


def test_every_library_finds_those_that_it_needs_in_the_image(made: Made):
    root = made.unpacked.root
    (loader,) = Interpreter(root).command()[:1]
    libraries = [path for path in root.rglob("*") if re.search(r"\.so(\.|$)", path.name) and path.is_file() and not path.is_symlink()]
    assert len(libraries) > 90
    found = {}
    for path in [root / "usr/bin" / base.PYTHON, *libraries]:
        done = subprocess.run(
            [loader, "--library-path", root / base.LIBRARIES, "--list", path], capture_output=True, text=True, check=False
        )
        needed = re.findall(r"^\s*(\S+) => (not found|\S+)", done.stdout, re.MULTILINE)
        if missing := [(name, where) for name, where in needed if not where.startswith(str(root)) and where != str(loader)]:
            found[path.relative_to(root)] = missing
    assert found == {}


def test_the_licence_of_every_package_is_in_it(made: Made):
    root = made.unpacked.root
    for pin in (deb.pin for deb in made.image.debs):
        assert (root / "usr/share/doc" / pin.name / "copyright").read_text(), pin.name
    for wheel in made.image.wheels:
        with wheel.open() as archive:
            licences = [name for name in archive.namelist() if re.search(r"licen[cs]e|copying|notice", name.split("/")[-1], re.IGNORECASE)]
        kept = [name for name in licences if not re.search(r"\.(py|pyi|h|c)$|/tests?/|\.data/", name)]
        assert [name for name in kept if not (root / wheels.SITE / name).exists()] == [], wheel.name


def test_the_bill_of_materials_has_every_package_once_and_scanners_find_the_same(made: Made):
    said = json.loads(sbom.build(made.image, "topogate", "0.2.0", made.archive.digest, CREATED))
    assert (said["bomFormat"], said["specVersion"], said["version"]) == ("CycloneDX", "1.5", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", said["serialNumber"])
    assert said["metadata"]["component"]["purl"] == f"pkg:oci/topogate@{made.archive.digest.replace(':', '%3A')}"
    assert said["metadata"]["timestamp"] == "2026-01-02T03:04:05Z"
    packages = [one for one in said["components"] if one["type"] == "library"]
    assert len({one["bom-ref"] for one in said["components"]}) == len(said["components"])
    for one in packages:
        assert re.fullmatch(r"pkg:(deb/debian|pypi)/[a-z0-9.%B_-]+@[A-Za-z0-9.%+~_-]+(\?arch=(amd64|all)&distro=debian-12)?", one["purl"])
        assert re.fullmatch(r"[0-9a-f]{64}", one["hashes"][0]["content"])
    debs = {one["name"]: one["version"] for one in packages if one["purl"].startswith("pkg:deb/")}
    assert debs == {deb.fields["Package"]: deb.fields["Version"] for deb in made.image.debs} == read_status(made)
    pythons = {f"{one['name']}=={one['version']}" for one in packages if one["purl"].startswith("pkg:pypi/")}
    locked = {line.split(" ;")[0] for line in read_entries("requirements-run.lock")}
    assert pythons - locked == {f"topogate=={project.about()['project']['version']}"}
    assert locked - pythons == {one for one in locked if one.startswith(("numpy==", "colorama=="))} - pythons
    assert [one["name"] for one in packages if one["purl"].startswith("pkg:pypi/") and not one.get("licenses")] == []


def read_status(made: Made) -> dict[str, str]:
    """Package and version of each, where scanners look that find no dpkg."""
    folder = made.unpacked.root / "var/lib/dpkg/status.d"
    texts = [path.read_text() for path in folder.iterdir() if path.suffix != ".md5sums"]
    return {re.findall(r"^Package: (\S+)", text, re.M)[0]: re.findall(r"^Version: (\S+)", text, re.M)[0] for text in texts}


# --- what runs in it ------------------------------------------------------------------------------------------------


def test_image_process_is_unprivileged_cannot_write_and_trusts_debian_cas(made: Made, tmp_path: Path):
    ask = "import os, pwd, ssl, json; print(json.dumps([os.getuid(), os.getgid(), pwd.getpwuid(os.getuid()).pw_name, "
    ask += "os.access('/tmp', os.W_OK), len(ssl.create_default_context().get_ca_certs()) > 100, "
    ask += "[line.split()[1] for line in open('/proc/self/status') if line.startswith('CapEff')]]))"
    nobody = [base.USER, base.USER, "nonroot", False, True, ["0" * 16]]
    assert json.loads(run(made, tmp_path, "python", "-c", ask)) == nobody


def test_every_module_of_ours_can_be_imported_in_it(made: Made, tmp_path: Path):
    with made.image.wheels[-1].open() as archive:
        names = [name.removesuffix(".py").replace("/", ".") for name in archive.namelist() if name.endswith(".py")]
    modules = [name.removesuffix(".__init__") for name in names if not name.endswith("__main__")]
    assert len(modules) > 100
    said = run(made, tmp_path, "python", "-W", "error", "-c", f"import importlib; print(len([*map(importlib.import_module, {modules})]))")
    assert int(said) == len(modules)


def test_every_package_can_be_imported_in_it(made: Made, tmp_path: Path):
    """Some import only when they are used what might have been left out."""
    ask = "import importlib, json; from importlib import metadata; found = metadata.packages_distributions(); "
    ask += f"named = {{name: of for name, of in found.items() if name not in {FOLDERS_OF_BUILDERS}}}; "
    ask += "print(json.dumps(sorted({one for name, of in named.items() if importlib.import_module(name) for one in of})))"
    found = {wheels.spelt(name) for name in json.loads(run(made, tmp_path, "python", "-c", ask))}
    assert {"kubernetes-asyncio", "grpcio", "numpy", "topogate"} <= found
    assert {wheel.name for wheel in made.image.wheels} - found == set()


def test_expressions_that_choose_devices_are_evaluated_in_it(made: Made, tmp_path: Path):
    """Their library is loaded when the first is met."""
    said = run(
        made,
        tmp_path,
        "python",
        "-c",
        'from core.podgroups.devices.device_expressions import is_selected; print(is_selected(\'"a".upperAscii() == "A"\', {}))',
    )
    assert said.strip() == "True"


@pytest.mark.parametrize("process", ["webhook", "reconciler"])
def test_image_entry_point_starts_the_named_process(made: Made, tmp_path: Path, process: str):
    said = run(made, tmp_path, *build.SETTINGS.entrypoint, process, "--help")
    assert said.startswith("usage:")


@pytest.fixture(scope="module")
def own() -> Iterator[Cluster]:
    """A control plane that has never seen topogate."""
    with Cluster() as cluster:
        yield cluster


def test_both_processes_run_from_it_and_a_job_is_placed(made: Made, own: Cluster, tmp_path: Path):
    with Release(own, tmp_path, image=made.unpacked) as release:
        release.apply("install", CHART, release.values())
        release.run()
        for pod in release.pods.values():
            assert os.readlink(f"/proc/{pod.process.pid}/exe").endswith("/usr/bin/python3.11")
            seen = Path(f"/proc/{pod.process.pid}/root")
            assert (seen / wheels.SITE / "webhook").is_dir()
            assert not (seen / "usr/bin/sh").exists()
        scene = Scene(own).open()
        scene.submit("train", pods=2, required=scene.rack)
        scene.eventually("train to run", lambda now: not truth.check_all_bound(now, "train", 2))
        scene.close()
