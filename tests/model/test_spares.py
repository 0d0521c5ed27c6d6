"""What is written of the nodes that are kept free, and what of that counts."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.admission import Admission, PodSetAdmission, decode_admission, encode_admission
from core.model.spare_nodes import find_fullest, read_held_spares, show_held_spares, with_spares
from core.model.wire.assignment import DomainCount, TopologyAssignment
from core.names import HOSTNAME_LABEL


def build_admission(**per_node: int) -> Admission:
    domains = tuple(DomainCount((name,), count) for name, count in per_node.items())
    assignment = TopologyAssignment((HOSTNAME_LABEL,), domains) if domains else None
    return Admission("queue", (PodSetAdmission("main", {"cpu": "f"}, {"cpu": 4000}, 4, assignment),))


def test_written_spares_are_read_again():
    admission = with_spares(build_admission(a=3, b=1), {"main": ("d", "c")}, {"main": 2})
    assert admission.pod_sets[0].spares == ("c", "d")
    text = show_held_spares(admission)
    assert text == '{"main":["c","d"]}'
    assert with_spares(build_admission(a=3, b=1), read_held_spares(text), {"main": 2}) == admission


def test_a_node_that_was_swapped_in_is_a_spare_no_more():
    assert with_spares(build_admission(a=3, c=1), {"main": ("c", "d")}, {"main": 2}).pod_sets[0].spares == ("d",)


def test_no_more_count_than_are_asked_for_and_none_where_nothing_is_placed():
    held = {"main": ("c", "d", "e"), "other": ("f",)}
    assert with_spares(build_admission(a=4), held, {"main": 1}).pod_sets[0].spares == ("c",)
    assert with_spares(build_admission(a=4), held, {}).pod_sets[0].spares == ()
    assert with_spares(build_admission(), held, {"main": 2}).pod_sets[0].spares == ()
    assert show_held_spares(build_admission(a=4)) is None


def test_the_status_knows_nothing_of_them():
    admission = with_spares(build_admission(a=4), {"main": ("c",)}, {"main": 1})
    assert decode_admission(encode_admission(admission)) == build_admission(a=4)


def test_fullest_node_of_an_assignment_gives_the_size_of_a_spare():
    assert find_fullest(build_admission(a=1, b=3).pod_sets[0]) == 3
    assert find_fullest(build_admission().pod_sets[0]) == 0


@pytest.mark.parametrize("text", [None, "", "main=a", "[]", "{", "7", '{"main":"a"}', '{"main":[1]}', '{"main":null}', "[" * 100_000])
def test_spares_annotation_with_an_invalid_text_holds_no_nodes(text: str | None):
    assert read_held_spares(text) == {}


@given(st.dictionaries(st.text(max_size=3), st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=5), max_size=3))
def test_random_spares_annotation_is_read_without_an_error(written: dict[str, object]):
    found = read_held_spares(json.dumps(written))
    assert all(len(set(nodes)) == len(nodes) for nodes in found.values())
