"""The shape of the code base: who may import whom, how long files are, and what must not be in them."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tools import measure

ROOT = Path(__file__).parents[1]
PRODUCT = ("core", "webhook", "reconciler", "certs", "cli")
MAX_LINES = 600
# A function can be seen whole: a screen, signature and docstring included.
SCREEN_LINES = 60
# Generated files are as long as they are; vectors are data.
GENERATED = ("requirements.lock", "requirements-run.lock", "e2e/controlplane/go.sum", "e2e/tools/go.sum", "e2e/jaeger/go.sum")


def list_tracked() -> list[Path]:
    """Files that git knows."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        pytest.skip("this is no git checkout")
    return [path for name in done.stdout.decode().split("\0") if name and (path := ROOT / name).is_file()]


def list_modules(*packages: str) -> Iterator[tuple[str, Path]]:
    for package in packages:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield ".".join(path.relative_to(ROOT).with_suffix("").parts), path


@cache
def list_imports(path: Path) -> set[str]:
    """Every module a file names in an import, wherever it stands."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def find_importers(*names: str) -> set[str]:
    """Product modules that import one of some modules, or what is inside of them."""
    return {
        module
        for module, path in list_modules(*PRODUCT)
        if any(used == name or used.startswith(f"{name}.") for used in list_imports(path) for name in names)
    }


def test_the_dependency_law_holds():
    """The law of docs/decisions/0004, by import-linter, exactly as `make check` runs it."""
    done = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"Contracts: [1-9]\d* kept, 0 broken", done.stdout)


def test_only_the_modules_of_traces_and_metrics_know_the_opentelemetry_sdk():
    assert find_importers("opentelemetry.sdk", "opentelemetry.exporter") == {"core.runtime.report.telemetry", "core.runtime.report.metrics"}
    assert find_importers("opentelemetry.metrics", "prometheus_client") == {"core.runtime.report.metrics"}


def test_only_the_shells_know_aiohttp():
    allowed = {
        "webhook.server",
        "webhook.intake",
        "webhook.__main__",
        "reconciler.visibility.visibility_server",
        "reconciler.visibility.visibility_api",
    }
    found = find_importers("aiohttp")
    assert found
    assert {module for module in found if module not in allowed and not module.startswith("core.runtime.")} == set()


def test_only_one_module_knows_kubernetes_asyncio():
    assert find_importers("kubernetes_asyncio") == {"core.runtime.http.credential_library"}


def test_every_package_of_the_product_is_in_the_wheel():
    text = (ROOT / "pyproject.toml").read_text()
    listed = re.search(r"packages.find.include = \[(.*?)\]", text)
    assert listed is not None
    assert {name.rstrip("*") for name in re.findall(r'"([\w*]+)"', listed[1])} == set(PRODUCT)
    assert {path.parent for _, path in list_modules(*PRODUCT)} == {
        path.parent for _, path in list_modules(*PRODUCT) if path.name == "__init__.py"
    }


@pytest.mark.parametrize("folder", [*PRODUCT, "e2e", "tools", "tests"])
def test_each_module_has_at_most_the_maximum_number_of_lines(folder: str):
    long = {module: lines for module, path in list_modules(folder) if (lines := len(path.read_text().splitlines())) > MAX_LINES}
    assert long == {}


def list_ways() -> list[list[str]]:
    """The table of docs/design.md, from an event to a write: the files of each row in their order."""
    table = (ROOT / "docs/design.md").read_text().partition("| event | files |")[2].partition("\n\n")[0]
    return [re.findall(r"`([a-z_/]+\.py)`", row.split("|")[2]) for row in table.splitlines()[2:]]


def test_file_of_a_way_is_named_once_and_imported_by_one_before_it():
    """What a controller is given comes from `reconciler/app.py`, or by what is observed."""
    for way in list_ways():
        assert len(way) == len(set(way))
        for at, name in enumerate(way[1:], 1):
            before = [*way[:at], "reconciler/app.py", "reconciler/observe/observed.py"]
            module = ".".join(Path(name).with_suffix("").parts)
            assert any(module in list_imports(ROOT / importer) for importer in before), name


def test_file_in_the_table_of_ways_exists_and_controller_is_in_it():
    named = {name for way in list_ways() for name in way}
    assert {name for name in named if not (ROOT / name).is_file()} == set()
    plans = {path.relative_to(ROOT).as_posix() for path in (ROOT / "core/plan").rglob("*.py") if "-> Plan:" in path.read_text()}
    assert plans - named == {"core/plan/steps/steps.py"}, "which is what plans are made of"


def test_events_are_emitted_by_the_executor_of_plans_alone():
    """Its writes are private methods; what cannot be handled at all (`report_set_aside`) has no plan."""
    found = {module for module, path in list_modules("reconciler") if re.search(r"\.(record_event|report_on_job)\(", path.read_text())}
    assert found == {"reconciler.execute.executor", "reconciler.execute.event_recorder"}


@pytest.mark.parametrize("package", PRODUCT)
def test_function_of_the_product_is_no_longer_than_a_screen(package: str):
    lengths = {
        f"{module}.{node.name}": node.end_lineno - node.lineno + 1
        for module, path in list_modules(package)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None
    }
    assert lengths
    assert {name: lines for name, lines in lengths.items() if lines > SCREEN_LINES} == {}


def test_tracked_files_name_no_machine_and_no_registry():
    """A mirror, a private index or a home directory in a file works on one machine only."""
    words = [
        r"/(?:home|Users)/(?!mpi[u]ser/)[a-z]\w*/",
        r"/wor[k]/(?:main|shared)\b",
        r"(?:index|extra-index|find-links)-url\s*[= ]\s*https?:",
    ]
    words += [r"\b(?:artifactory|nexus|pypi-mirror|goproxy)\.[\w.-]+\.\w+", r"\.internal\b(?!_)"]
    forbidden = re.compile("|".join(words))
    found = {}
    for path in list_tracked():
        name = path.relative_to(ROOT).as_posix()
        if name in GENERATED or path == Path(__file__) or path.suffix in (".jsonl", ".svg", ".png"):
            continue
        hit = forbidden.search(path.read_text(errors="ignore"))
        if hit is not None:
            found[name] = hit[0]
    assert found == {}


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-run.lock"])
def test_a_lock_has_hashes_for_everything_and_no_address(lock: str):
    text = (ROOT / lock).read_text()
    assert "://" not in text
    entries = re.split(r"\n(?=[A-Za-z0-9])", "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#")))
    assert len(entries) > 20
    for entry in filter(str.strip, entries):
        assert re.match(r"\S+==\S+", entry.strip()), entry
        assert "--hash=sha256:" in entry, entry


def test_folder_of_the_repository_has_at_most_24_files():
    assert measure.find_large_folders(measure.list_files()) == {}


def test_module_of_the_product_has_a_base_name_of_its_own():
    assert measure.find_same_modules(measure.list_files()) == []


def test_public_class_of_the_product_has_a_name_of_its_own():
    assert measure.find_same_classes(measure.list_files()) == {}


def shorten(package: str, beside: str) -> str:
    """The package that names the area of one: whole within the area of `beside`, else its first name, of core the first two."""
    area = ".".join(package.split(".")[: 2 if package.startswith("core.") else 1])
    return package if beside == area or beside.startswith(f"{area}.") else area


def list_packages() -> set[str]:
    """The packages of the product that others import from: all but `core` itself."""
    return {module.removesuffix(".__init__") for module, path in list_modules(*PRODUCT) if path.name == "__init__.py"} - {"core"}


@cache
def list_importers() -> dict[str, set[str]]:
    """For each package of the product the areas whose modules import it."""
    packages = list_packages()
    importers: dict[str, set[str]] = {package: set() for package in packages}
    for module, path in list_modules(*PRODUCT):
        own = module.rpartition(".")[0]
        for name in list_imports(path):
            used = name if name in packages else name.rpartition(".")[0]
            if used in importers and used != own:
                importers[used].add(shorten(own, used))
    return importers


def describe_importers(package: str, importers: set[str]) -> str:
    names = [f"`{name}`" for name in sorted(importers - {package})]
    return f"Imported by {', '.join(names)}." if names else "Imported by no other package."


@pytest.mark.parametrize("package", sorted(list_packages()))
def test_package_says_truly_which_packages_import_it(package: str):
    text = " ".join((ROOT / package.replace(".", "/") / "__init__.py").read_text().split())
    assert describe_importers(package, list_importers()[package]) in text
