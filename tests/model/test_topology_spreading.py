"""The annotation of topology spreading, read: exact shares, all mistakes with their fields, bounded input."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.topology_spreading import MOST_TEXT, WHOLE, Spreading, SpreadingRule, format_share, parse_spreading
from core.names import JOB_UID_LABEL

ZONE, RACK = "topology.kubernetes.io/zone", "cloud/rack"


def build(share: Any = "0.34", **more: Any) -> dict[str, Any]:
    return {"topologyKey": ZONE, "maxShareAllowingPlacement": share, **more}


def read(document: Any) -> Spreading | None:
    return parse_spreading(document if isinstance(document, str) else json.dumps(document))[0]


def list_mistakes(document: Any) -> list[tuple[str, str]]:
    return [(each.type, each.field) for each in parse_spreading(document if isinstance(document, str) else json.dumps(document))[1]]


@pytest.mark.parametrize(
    ("text", "thousandths"),
    [
        ('"0.34"', 340),
        ("0.34", 340),
        ('"450m"', 450),
        ("0.001", 1),
        ("0.999", 999),
        ("1e-1", 100),
        ("5E-1", 500),
        ('"340000u"', 340),
        ("0.29", 290),  # times 1000 it is 289.99999999999994 as a float
        ("0.0001", 1),
        ("0.3330000000000000000000000001", 334),
        ("0.9999", 999),
    ],
)
def test_share_as_text_or_number_is_exact_in_thousandths(text: str, thousandths: int):
    found = read(f'{{"rules": [{{"topologyKey": "{ZONE}", "maxShareAllowingPlacement": {text}}}]}}')
    assert found == Spreading((SpreadingRule(ZONE, thousandths),))


@given(st.integers(1, WHOLE - 1))
def test_share_of_any_thousandths_is_read_as_it_is_shown(share: int):
    assert read({"rules": [build(format_share(share))]}) == Spreading((SpreadingRule(ZONE, share),))
    assert read({"rules": [build(f"{share}m")]}) == Spreading((SpreadingRule(ZONE, share),))


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(1, WHOLE - 1))
def test_domain_is_over_by_exact_numbers(count: int, whole: int, share: int):
    assert SpreadingRule(ZONE, share).is_over(count, whole) == (Fraction(count) > Fraction(share, WHOLE) * whole)


def test_defaults_are_a_required_rule_with_the_label_of_the_job():
    found = read({"rules": [build()]})
    assert found == Spreading((SpreadingRule(ZONE, 340, required=True),))
    assert found is not None
    assert (found.resolve("u").label, found.resolve("u").values) == (JOB_UID_LABEL, ("u",))
    assert found.resolve(None).values == ()


def test_selector_rules_with_modes_are_read_whatever_the_case_of_keys():
    document = {
        "WorkloadLabelSelectors": [{"Key": "team", "operator": "In", "values": ["b", "a", "b"]}],
        "rules": [build(enforcementMode="Preferred"), {"TOPOLOGYKEY": RACK, "maxshareallowingplacement": "0.5", "other": 1}],
    }
    rules = (SpreadingRule(ZONE, 340, required=False), SpreadingRule(RACK, 500))
    assert read(document) == Spreading(rules, "team", ("a", "b"))
    assert read(document).resolve("u") == read(document)  # type: ignore[union-attr]


SELECTOR = {"key": "team", "operator": "In", "values": ["a"]}


@pytest.mark.parametrize(
    ("document", "mistakes"),
    [
        ("", [("INVALID", "")]),
        ("{", [("INVALID", "")]),
        ("[]", [("INVALID", "")]),
        ("null", [("INVALID", "")]),
        ("NaN", [("INVALID", "")]),
        ('{"rules": NaN}', [("INVALID", "")]),
        ("[" * 100_000, [("INVALID", "")]),
        (" " * (MOST_TEXT + 1), [("INVALID", "")]),
        ({}, [("INVALID", "")]),
        ({"rules": []}, [("INVALID", "")]),
        ({"rules": [build()] * 3}, [("INVALID", "")]),
        ({"rules": {}}, [("INVALID", "")]),
        ({"rules": ["a"]}, [("INVALID", "")]),
        ({"rules": [build(topologyKey=1)]}, [("INVALID", "")]),
        ({"rules": [build("a")]}, [("INVALID", "")]),
        ({"rules": [build("1" * 300)]}, [("INVALID", "")]),
        ({"rules": [build(True)]}, [("INVALID", "")]),
        ({"rules": [build(" 0.5")]}, [("INVALID", "")]),
        ({"rules": [build("0")]}, [("INVALID", ".rules[0].maxShareAllowingPlacement")]),
        ({"rules": [build(-0.5)]}, [("INVALID", ".rules[0].maxShareAllowingPlacement")]),
        ({"rules": [build(1)]}, [("INVALID", ".rules[0].maxShareAllowingPlacement")]),
        ({"rules": [build(None)]}, [("INVALID", ".rules[0].maxShareAllowingPlacement")]),
        ({"rules": [build(topologyKey="a b")]}, [("INVALID", ".rules[0].topologyKey")]),
        ({"rules": [build(topologyKey=None)]}, [("INVALID", ".rules[0].topologyKey")]),
        ({"rules": [build(), build()]}, [("DUPLICATE", ".rules[1].topologyKey")]),
        ({"rules": [build(enforcementMode="required")]}, [("NOT_SUPPORTED", ".rules[0].enforcementMode")]),
        ({"rules": [build()], "workloadLabelSelectors": [SELECTOR] * 2}, [("TOO_MANY", ".workloadLabelSelectors")]),
        (
            {"rules": [build()], "workloadLabelSelectors": [{**SELECTOR, "values": [str(i) for i in range(1_001)]}]},
            [("TOO_MANY", ".workloadLabelSelectors[0].values")],
        ),
        (
            {"rules": [build()], "workloadLabelSelectors": [{"key": "team", "operator": "Exists"}]},
            [("NOT_SUPPORTED", ".workloadLabelSelectors[0].operator"), ("REQUIRED", ".workloadLabelSelectors[0].values")],
        ),
        ({"rules": [build()], "workloadLabelSelectors": [{**SELECTOR, "key": "-"}]}, [("INVALID", ".workloadLabelSelectors[0].key")]),
        ({"rules": [build()], "workloadLabelSelectors": [{**SELECTOR, "values": ["a b"]}]}, [("INVALID", ".workloadLabelSelectors")]),
        ({"rules": [build()], "workloadLabelSelectors": [{**SELECTOR, "values": [1]}]}, [("INVALID", "")]),
    ],
)
def test_each_mistake_is_found_with_its_field(document: Any, mistakes: list[tuple[str, str]]):
    assert list_mistakes(document) == mistakes


def test_mistakes_of_one_value_are_all_found():
    document = {
        "workloadLabelSelectors": [{"key": "", "operator": "", "values": []}],
        "rules": [build(2, topologyKey=" ", enforcementMode="x"), build("0.5")],
    }
    assert len(list_mistakes(document)) == 6


def test_value_of_many_wrong_entries_has_few_mistakes():
    assert len(list_mistakes({"rules": [build()], "workloadLabelSelectors": [{}] * 50_000})) < 40
    assert len(list_mistakes({"rules": [{}] * 50_000})) == 1


def test_value_that_is_no_text_is_a_mistake():
    assert parse_spreading(3)[1]


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats(allow_nan=False) | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(
                    ["rules", "workloadLabelSelectors", "topologyKey", "maxShareAllowingPlacement", "enforcementMode", "key", "values"]
                ),
                inner,
            )
        ),
    )
)
def test_any_json_is_read_or_has_mistakes(document: Any):
    found, mistakes = parse_spreading(json.dumps(document))
    assert (found is None) == bool(mistakes)
