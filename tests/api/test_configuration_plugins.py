"""The block `topogate.podGroups.plugins`: what it says, and what is wrong with it, all at once."""

from __future__ import annotations

from typing import Any

import pytest

from core.api.files.configuration_file import read_configuration
from core.api.files.mistakes import InvalidFile
from core.model.plugin_choice import BUILT_IN, GroupPluginRules, PluginChoice, PluginLimits
from core.podgroups.algorithm import default_plugins
from core.podgroups.builtin import GENERATORS, SCORERS
from tests.api.configuring import as_text, build_file, list_mistakes_of_blocks, read

PATH = "topogate.podGroups.plugins"
A_NUMBER = "a number from 0 (off) to 1000 is expected"


def build_block(**fields: Any) -> dict[str, Any]:
    return {"topogate": {"podGroups": {"plugins": fields}}}


def test_without_the_block_all_is_as_it_always_was():
    rules = read().group_plugins
    assert rules == read(**build_block()).group_plugins == GroupPluginRules()
    usual = default_plugins()
    assert [one.name for one in rules.generators] == [one.name for one in usual.generators]
    assert [(one.name, one.weight) for one in rules.scorers] == [(scorer.name, weight) for scorer, weight in usual.scorers]


def test_the_names_of_built_in_plugins_are_those_that_there_are():
    assert {"generate": tuple(GENERATORS), "score": tuple(SCORERS)} == BUILT_IN
    for makers in (GENERATORS, SCORERS):
        assert {name: make({}).name for name, make in makers.items()} == {name: name for name in makers}


def test_a_list_stands_for_the_whole_and_the_other_keeps_its_default():
    scorers = [{"name": "RankDistance", "weight": 0.5}, {"name": "acme", "arguments": {"zone": "a"}}]
    rules = read(**build_block(scorers=scorers, timeout="500ms", memory="1Gi")).group_plugins
    assert rules.generators == GroupPluginRules().generators
    assert rules.scorers == (PluginChoice("RankDistance", 0.5), PluginChoice("acme", 1.0, {"zone": "a"}))
    assert rules.limits == PluginLimits(0.5, 1 << 30)
    assert read(**build_block(scorers=[])).group_plugins.scorers == ()


def test_plugin_configuration_without_topology_placement_gets_a_warning():
    found = read(**build_block(generators=[{"name": "acme"}]))
    assert found.warnings == (
        f"different: {PATH}.generators: without TopologyPlacement no group is held to its topologyConstraints by topogate itself",
    )


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"scorers": [{"name": "PodCount", "weight": -1}]}, f"scorers[0].weight: -1 is not accepted; {A_NUMBER}"),
        ({"scorers": [{"name": "PodCount", "weight": 1001}]}, f"scorers[0].weight: 1001 is not accepted; {A_NUMBER}"),
        ({"scorers": [{"name": "PodCount", "weight": float("nan")}]}, f"scorers[0].weight: nan is not accepted; {A_NUMBER}"),
        ({"scorers": [{"name": "PodCount", "weight": float("inf")}]}, f"scorers[0].weight: inf is not accepted; {A_NUMBER}"),
        ({"scorers": [{"name": "PodCount", "weight": True}]}, f"scorers[0].weight: true is not accepted; {A_NUMBER}"),
        ({"scorers": [{"name": "PodCount", "weight": "1"}]}, f'scorers[0].weight: "1" is not accepted; {A_NUMBER}'),
        ({"scorers": [{"name": "PodCount"}, {"name": "PodCount"}]}, "scorers[1].name: PodCount is given twice; leave one out"),
        ({"scorers": [{"weight": 1}]}, "scorers[0].name: it is missing; it has to be given"),
        (
            {"scorers": [{"name": "TopologyPlacement"}]},
            'scorers[0].name: "TopologyPlacement" is not accepted; it belongs to the generators',
        ),
        ({"generators": [{"name": "PodCount"}]}, 'generators[0].name: "PodCount" is not accepted; it belongs to the scorers'),
        ({"generators": [{"name": "acme", "weight": 1}]}, "generators[0].weight: unknown key; arguments, name are known here"),
        ({"generators": [{"name": ""}]}, 'generators[0].name: "" is not accepted; the name of a plugin is expected'),
        (
            {"generators": [{"name": "TopologyPlacement", "arguments": {"by": 1}}]},
            "generators[0].arguments.by: unknown argument; TopologyPlacement takes none",
        ),
        (
            {"scorers": [{"name": "BinPacking", "arguments": {"resource": {}}}]},
            "scorers[0].arguments.resource: unknown key; did you mean resources?",
        ),
        (
            {"scorers": [{"name": "BinPacking", "arguments": {"resources": {"cpu": -1}}}]},
            f"scorers[0].arguments.resources.cpu: -1 is not accepted; {A_NUMBER}",
        ),
        (
            {"scorers": [{"name": "acme", "arguments": {"far": float("inf")}}]},
            "scorers[0].arguments: an object is not accepted; text, numbers, true, false, null, lists and objects of these are expected",
        ),
        ({"timeout": "0s"}, 'timeout: "0s" is not accepted; more than 0s is expected'),
        ({"memory": "63Mi"}, 'memory: "63Mi" is not accepted; a quantity such as "512Mi", of 64Mi or more, is expected'),
        ({"memory": "much"}, 'memory: "much" is not accepted; a quantity such as "512Mi", of 64Mi or more, is expected'),
        ({"feasibleLimit": 0}, "feasibleLimit: 0 is not accepted; 1 or more is expected"),
        ({"q": []}, "q: unknown key; feasibleLimit, generators, memory, scorers, timeout are known here"),
    ],
)
def test_plugin_configuration_mistake_names_field_value_and_accepted_values(fields: dict[str, Any], said: str):
    assert list_mistakes_of_blocks(**build_block(**fields)) == [f"{PATH}.{said}"]


def test_unknown_plugin_names_are_reported_with_other_mistakes_if_installed_plugins_are_known():
    scorers = [{"name": "BinPackin"}, {"name": "acme-prise", "weight": -1}, {"name": "acme-price"}, {"name": "zzz"}]
    text = as_text(build_file(**build_block(scorers=scorers, memory="1")))
    with pytest.raises(InvalidFile) as error:
        read_configuration(text, ["acme-price"])
    no_such, scorer = "no such plugin is built in or installed", f"{PATH}.scorers"
    assert str(error.value).splitlines() == [
        f'{scorer}[0].name: "BinPackin" is not accepted; {no_such}; did you mean BinPacking?',
        f'{scorer}[1].name: "acme-prise" is not accepted; {no_such}; did you mean acme-price?',
        f"{scorer}[1].weight: -1 is not accepted; {A_NUMBER}",
        f'{scorer}[3].name: "zzz" is not accepted; {no_such}; use PodCount, BinPacking, RankDistance or acme-price',
        f'{PATH}.memory: "1" is not accepted; a quantity such as "512Mi", of 64Mi or more, is expected',
    ]


def test_plugin_arguments_with_aliases_that_multiply_are_refused():
    """Found by a reader: they were written out as JSON, beyond all memory."""
    bomb = "".join(f"            x{level}: &x{level} [{', '.join([f'*x{level - 1}'] * 9)}]\n" for level in range(1, 30))
    text = f"{as_text(build_file())}topogate:\n  podGroups:\n    plugins:\n      scorers:\n        - name: acme\n          arguments:\n"
    with pytest.raises(InvalidFile, match="at most 10000 values are expected"):
        read_configuration(f"{text}            x0: &x0 [a]\n{bomb}")
