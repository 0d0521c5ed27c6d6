"""Plugins of other packages at the start of the reconciler: each mistake in what the configuration says of them ends it, in a line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from core.model.plugin_choice import GroupPluginRules, PluginChoice, PluginLimits
from e2e.warm import run_to_its_end
from reconciler.podgroups.installed_plugins import judge
from tests.runtime.test_plugins import install

ROOT = Path(__file__).parents[3]
BLOCK = "topogate.podGroups.plugins"
TARGETS = {
    "picky": "acme_plugins:Picky",
    "prefers": "acme_plugins:Prefers",
    "halves": "acme_plugins:Halves",
    "assumes": "acme_plugins:Assumes",
    "gone": "acme_plugins:Gone",
    "nowhere": "acme_nowhere:X",
    "text": "acme_plugins:not_callable",
    "slow": "acme_slow:X",
}


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with all of them, installed for this process and for those that it starts."""
    install(tmp_path, "topogate.podgroup_plugins", **TARGETS)
    (tmp_path / "acme_plugins.py").write_text((Path(__file__).parents[1] / "acme_plugins.py").read_text())
    (tmp_path / "acme_slow.py").write_text("import time\ntime.sleep(600)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT)]))
    return tmp_path


def start(folder: Path, plugins: str, *more: str) -> tuple[int, list[str]]:
    """The process with a file that says this; it ends at the latest where it looks for a cluster."""
    file = folder / "config.yaml"
    file.write_text(
        f"apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\ntopogate: {{podGroups: {{plugins: {{{plugins}}}}}}}\n"
    )
    arguments = ["--config", str(file), "--kubeconfig", "/nowhere", *more]
    code, lines = run_to_its_end("reconciler", arguments, folder, timeout_s=100)
    return code, [line.replace(f"argument --config: {file}: ", "").strip() for line in lines]


def test_all_mistakes_of_plugin_arguments_are_reported_at_once(acme: Path):
    scorers = (
        "{name: picky, arguments: {colur: blue}}, {name: prefers, arguments: {zone: a}}, {name: assumes}, {name: gone}, "
        "{name: nowhere}, {name: text}, {name: halves}"
    )
    status, (first, *lines) = start(acme, f"generators: [{{name: halves}}, {{name: prefers}}], scorers: [{scorers}]")
    assert status == 2
    assert first.startswith("python -m reconciler: 8 mistakes")
    scorer = f"{BLOCK}.scorers"
    assert lines == [
        f"{BLOCK}.generators[1]: plugin prefers (acme_plugins:Prefers) cannot be used: it has no method generate",
        f"{scorer}[0].arguments.colur: unknown argument; did you mean colour?",
        f"{scorer}[1].arguments.zone: unknown argument; prefers are known here",
        f"{scorer}[2]: plugin assumes (acme_plugins:Assumes) cannot be used: "
        "it has assume and revert: what a plugin takes for granted cannot be shared with another process",
        f"{scorer}[3]: plugin gone (acme_plugins:Gone) cannot be loaded: AttributeError: module 'acme_plugins' has no attribute 'Gone'",
        f"{scorer}[4]: plugin nowhere (acme_nowhere:X) cannot be loaded: ModuleNotFoundError: No module named 'acme_nowhere'",
        f"{scorer}[5]: plugin text (acme_plugins:not_callable) cannot be used: "
        "the entry point is neither a class nor a function that makes a plugin",
        f"{scorer}[6]: plugin halves (acme_plugins:Halves) cannot be used: it has no method score",
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("{}", "scorers[0].arguments.zone: it is missing; picky has to be given it"),
        ("{zone: b}", "scorers[0]: plugin picky (acme_plugins:Picky) cannot be loaded: ValueError: there is no zone b"),
    ],
)
def test_one_mistake_is_one_line(acme: Path, arguments: str, said: str):
    status, lines = start(acme, f"scorers: [{{name: picky, arguments: {arguments}}}]")
    assert (status, lines) == (2, [f"python -m reconciler: {BLOCK}.{said}"])


def test_unknown_plugin_names_are_reported_with_all_other_mistakes(acme: Path):
    status, (first, *lines) = start(acme, "scorers: [{name: pickey}, {name: PodCount, weight: -1}], memory: 1", "--health-port=x")
    assert status == 2
    assert first.startswith("python -m reconciler: 4 mistakes")
    assert [line.partition(" is not accepted; ")[2] for line in lines[1:]] == [
        "no such plugin is built in or installed; did you mean picky?",
        "a number from 0 (off) to 1000 is expected",
        'a quantity such as "512Mi", of 64Mi or more, is expected',
    ]


def test_plugin_name_of_two_packages_is_refused_with_both(acme: Path):
    other = acme / "other"
    other.mkdir()
    install(other, "topogate.podgroup_plugins", picky="other:Picky")
    (other / "acme-1.0.dist-info").rename(other / "other-1.0.dist-info")
    (other / "other-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    sys.path.insert(0, str(other))  # taken back with the fixture's
    mistakes, _ = judge(GroupPluginRules(scorers=(PluginChoice("picky"),)))
    (mistake,) = mistakes
    named = (f"{BLOCK}.scorers[0].name: ", "picky", "acme_plugins:Picky of acme, other:Picky of other")
    assert all(part in str(mistake) for part in named)


def test_plugin_that_does_not_start_in_time_is_a_warning_and_the_reconciler_starts(acme: Path):
    """A plugin is no reason for nobody to be placed; the clock of the start is its own."""
    rules = GroupPluginRules(scorers=(PluginChoice("slow"), PluginChoice("prefers")), limits=PluginLimits(start_s=1.0))
    assert judge(rules) == (
        [],
        [
            f"{BLOCK}.scorers[0]: plugin slow (acme_slow:X): it did not answer within 1 s; "
            "groups are placed without it until it can be loaded"
        ],
    )


def test_one_that_is_off_or_not_chosen_is_not_started(acme: Path):
    assert judge(GroupPluginRules(scorers=(PluginChoice("slow", 0.0),))) == ([], [])
    assert judge(GroupPluginRules()) == ([], [])


def test_nothing_of_a_plugin_is_imported_by_the_reconciler(acme: Path):
    code = (
        "import sys\nfrom core.model.plugin_choice import GroupPluginRules, PluginChoice\n"
        "from reconciler.podgroups.installed_plugins import judge\n"
        "print(judge(GroupPluginRules(scorers=(PluginChoice('prefers'),))), 'acme_plugins' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=acme, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("([], []) False\n", "")


def test_plugins_without_the_feature_gate_are_reported_as_ignored(acme: Path):
    _, lines = start(acme, "scorers: [{name: prefers}]")
    (said,) = [why for line in lines if (why := json.loads(line).get("why", "")).startswith("ignored: ")]
    assert said == f"ignored: {BLOCK}: without the feature gate TopologyAwareWorkloadScheduling no group is placed"
    _, lines = start(acme, "scorers: [{name: prefers}]", "--feature-gates=TopologyAwareWorkloadScheduling=true")
    assert not [line for line in lines if "ignored: " in line]
