"""docs/development/adding-a-plugin.md: its example is installed as a reader would, named by its configuration, and does what it says."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from core.metric_names import PLUGIN_ANSWERS
from core.model.plugin_choice import SCORE, GroupPluginRules, PluginChoice, PluginLimits, Which
from core.plan.steps import pacing
from core.podgroups.members import GroupKey
from reconciler.podgroups.group_plugins import GroupPlugins
from reconciler.podgroups.plugin_process import LINES, MOST_BYTES, Launch
from reconciler.settings import parse
from sim.harness import NAMESPACE
from tests.reconciler.harness_groups import GroupsHarness
from tests.runtime.test_plugins import install

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "development" / "adding-a-plugin.md").read_text()
PRICE, FEED = "acme.example.com/price", "acme.example.com/feed"


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    return str(found)


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GroupPluginRules:
    (tmp_path / "acme_placement.py").write_text(block("python"))
    install(tmp_path, "topogate.podgroup_plugins", **dict(re.findall(r'^([\w-]+) = "(.+)"$', block("toml"), re.MULTILINE)))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT)]))
    file = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", **yaml.safe_load(block("yaml"))}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(file))
    return parse(["--config", str(tmp_path / "config.yaml"), "--feature-gates=TopologyAwareWorkloadScheduling=true"]).group_plugins


async def place(opened: GroupsHarness, name: str, count: int) -> set[str]:
    opened.gang(count, name=name)
    pods = [f"{name}-{number}" for number in range(count)]
    opened.add(*pods, group=name)
    for _ in range(4):
        await opened.groups.reconcile(GroupKey(NAMESPACE, name))
    return {node for pod, node in opened.where().items() if pod in pods}


async def test_the_example_places_groups_as_it_says(rules: GroupPluginRules):
    opened = GroupsHarness({}, lambda clock: GroupPlugins(rules, clock))
    for rack, price in (("r1", "4"), ("r2", "1")):
        for number, feed in enumerate(("a", "a", "b", "b")):
            opened.node(f"{rack}-{feed}{number}", rack, 1, **{PRICE: price, FEED: feed})
    opened.node("r3-0", "r3", 8, **{PRICE: "0"})  # without a feed
    try:
        assert await place(opened, "one", 2) == {"r2-a0", "r2-a1"}
        assert await place(opened, "two", 2) == {"r2-b2", "r2-b3"}, "the cheaper rack is taken first, one feed after the other"
        assert await place(opened, "three", 3) == set(), "no feed has three"
        assert "skipped" not in opened.says[2]
        assert set(opened.plugins.pids) == {"power-feeds", "cheapest-nodes"}
    finally:
        await opened.plugins.close()


def test_plugin_document_states_the_limits_of_the_code():
    for said in (
        f"{pacing.PLUGIN_PAUSE_S:g} s, doubled each time up to {pacing.PLUGIN_LONGEST_PAUSE_S / 60:g} minutes",
        f"more than {MOST_BYTES >> 20} MiB",
    ):
        assert said in TEXT
    assert f"the first {LINES} lines" in TEXT
    assert f"`{PLUGIN_ANSWERS.name}`" in TEXT


def documented(first: str) -> set[str]:
    """Fields in the table that begins so: the words in code of its first column."""
    table = TEXT[TEXT.index(f"\n| {first} | |\n") :].partition("\n\n")[0].splitlines()[3:]
    return {word for row in table for word in re.findall(r"`(\w+)`", row.split("|")[1])}


async def test_the_fields_that_a_plugin_is_handed_are_those_in_its_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parents[1]), str(ROOT)]))
    rules = GroupPluginRules(limits=PluginLimits(call_s=60.0, start_s=60.0))
    rules = replace(rules, scorers=(*rules.scorers, PluginChoice("acme")))
    outside = [Launch(Which(SCORE, "acme"), "acme_plugins:Records", {"path": str(tmp_path / "seen")})]
    opened = GroupsHarness({"r1": (2,), "r2": (2,)}, lambda clock: GroupPlugins(rules, clock, outside=outside))
    await place(opened, "one", 2)
    await opened.plugins.close()
    seen = json.loads((tmp_path / "seen").read_text())
    assert set(seen["group"]) == documented("`group`")
    assert set(seen["nodes"]["r1-0"]) == documented("one of `nodes`, by name")
    placement = documented("a placement")
    assert set(seen["candidates"][0]) == placement | documented("a candidate has these, too")
    in_words = TEXT.partition("| `podSets` |")[2].partition("\n")[0]
    assert set(seen["group"]["podSets"][0]) == set(re.findall(r"`(\w+)`", in_words))
