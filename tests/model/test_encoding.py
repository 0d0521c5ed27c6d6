"""Topology assignments on the wire: what is encoded is read again, and whatever is read is read as the peer does."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.api.kinds import assignment_fields as model
from core.model.admission import Admission, PodSetAdmission, decode_admission, encode_admission
from core.model.wire.assignment import DomainCount, TopologyAssignment
from core.model.wire.encoding import MAX_ROOTS, MAX_SLICES, InvalidAssignment, compute_encoded_size, decode, encode
from tests.model.cuts import encode_searching

VALUES = st.one_of(
    st.text("ab-", max_size=5),
    st.from_regex(r"[a-zA-Z0-9]([-_.a-zA-Z0-9]{0,61}[a-zA-Z0-9])?", fullmatch=True),
    st.builds(
        "{}{}{}".format, st.sampled_from(["gke-c-pool-", "x" * 40, ""]), st.integers(0, 200), st.sampled_from(["", ".local", "y" * 20])
    ),
)


@st.composite
def assignments(draw: st.DrawFn) -> TopologyAssignment:
    levels = draw(st.integers(1, 3))
    paths = draw(st.lists(st.tuples(*[VALUES] * levels), unique=True, min_size=1, max_size=40))
    counts = st.just(draw(st.integers(1, 9))) if draw(st.booleans()) else st.integers(1, 9)
    return TopologyAssignment(tuple(f"l{i}" for i in range(levels)), tuple(DomainCount(path, draw(counts)) for path in paths))


@given(assignments())
def test_encoded_assignment_decodes_to_the_same_assignment(assignment: TopologyAssignment):
    assert decode(encode(assignment)) == assignment
    assert decode(json.loads(json.dumps(encode(assignment)))) == assignment


@given(assignments())
def test_encoded_assignment_is_accepted_by_the_api_schema(assignment: TopologyAssignment):
    wire = encode(assignment)
    assert model.TopologyAssignmentFields.from_wire(wire).to_wire() == wire
    assert sum(part["domainCount"] for part in wire["slices"]) == len(assignment.domains)
    for part in wire["slices"]:
        assert len(part["valuesPerLevel"]) == len(wire["levels"])
        for values in (*part["valuesPerLevel"], part["podCounts"]):
            assert len(values) == 1
            assert set(values) <= {"universal", "individual"}
        for values in part["valuesPerLevel"]:
            if "individual" in values:
                assert len(values["individual"]["roots"]) == part["domainCount"]
                assert all(values["individual"].get(name, "x") for name in ("prefix", "suffix"))


@pytest.mark.parametrize("count", [MAX_ROOTS, MAX_ROOTS + 1, 120_000])
@pytest.mark.parametrize("name", ["n{}", "{:x}-node", "rack-{0[0]}{0[1]}-node-{0}"])
def test_more_domains_than_one_slice_may_have_are_cut_into_slices(count: int, name: str):
    assignment = TopologyAssignment(
        ("h",), tuple(DomainCount((name.format(str(i) if "[" in name else i),), 1) for i in range(100, count + 100))
    )
    wire = encode(assignment)
    assert max(part["domainCount"] for part in wire["slices"]) <= MAX_ROOTS
    assert -(-count // MAX_ROOTS) <= len(wire["slices"]) <= MAX_SLICES
    assert decode(wire) == assignment


@pytest.mark.parametrize("per_rack", [30, 90])
def test_more_groups_than_slices_are_allowed_still_fit(per_rack: int):
    """2,000 racks, each worth a slice: the best 1,000 slices, and all of the assignment."""
    names = [(f"rack-{hash_:08x}-{'z' * 20}", f"{hash_:08x}-{i:03}") for hash_ in range(0, 2000 * 7919, 7919) for i in range(per_rack)]
    assignment = TopologyAssignment(("r", "h"), tuple(DomainCount(path, 1 + int(path[1][-1] == "7")) for path in sorted(names)))
    wire = encode(assignment)
    assert MAX_SLICES // 2 < len(wire["slices"]) <= MAX_SLICES
    assert decode(wire) == assignment


def test_equal_domains_are_kept_apart():
    """Two slices of one assignment may name a domain twice; whoever writes that reads it."""
    assignment = TopologyAssignment(("a", "b"), (DomainCount(("x", "y"), 3),) * 100 + (DomainCount(("x", "z"), 2),) * 100)
    wire = encode_searching(assignment)
    assert [part["podCounts"] for part in wire["slices"]] == [{"universal": 3}, {"universal": 2}]
    assert decode(wire) == assignment


@pytest.mark.parametrize("separator", ["\0", "é", "😀", "\ud800"])
def test_characters_that_no_label_has_survive(separator: str):
    names = [f"pool{separator}{pool}-{separator}{'n' * 20}-{i}{separator}" for pool in "abcd" for i in range(100, 180)]
    assignment = TopologyAssignment(("h",), tuple(DomainCount((name,), 1) for name in names))
    assert decode(encode(assignment)) == assignment


def test_values_longer_than_a_label_are_written_where_affixes_take_them():
    """The peer's own measurements have such names; 63 characters each is the API's limit for prefix, root and suffix."""
    names = ["p" * 60 + f"{i:03}" + "s" * 60 for i in range(300)]
    assignment = TopologyAssignment(("h",), tuple(DomainCount((name,), 1) for name in names))
    wire = encode(assignment)
    assert model.TopologyAssignmentFields.from_wire(wire).to_wire() == wire
    assert decode(wire) == assignment
    single = TopologyAssignment(("h",), assignment.domains[:1])
    assert decode(encode(single)) == single
    with pytest.raises(InvalidAssignment, match="63 characters"):
        encode(TopologyAssignment(("h",), (DomainCount(("x" * 190,), 1),)))


@pytest.mark.parametrize(
    ("levels", "domains", "word"),
    [
        (("a",), [DomainCount(("x",), 1), DomainCount(("y",), 0)], r"domains\[1\] has 0 pods"),
        (("a", "b"), [DomainCount(("x",), 1)], "one value for each of the levels a, b"),
        (("a",), [DomainCount(("x",), 1), DomainCount(("x", "y"), 1)], "one value for each"),
        ((), [DomainCount((), 1)], "one value for each"),
    ],
)
def test_assignment_that_the_api_would_refuse_is_not_encoded(levels: tuple[str, ...], domains: list[DomainCount], word: str):
    with pytest.raises(InvalidAssignment, match=word):
        encode(TopologyAssignment(levels, tuple(domains)))


@given(assignments())
def test_the_size_is_that_of_compact_json(assignment: TopologyAssignment):
    wire = encode(assignment)
    assert compute_encoded_size(wire) == len(json.dumps(wire, separators=(",", ":")))


def test_an_assignment_to_nothing_has_no_slices():
    nothing = TopologyAssignment(("a", "b"), ())
    assert decode(encode(nothing)) == nothing


GOOD = {
    "levels": ["l"],
    "slices": [{"domainCount": 2, "valuesPerLevel": [{"individual": {"roots": ["a", "b"]}}], "podCounts": {"universal": 1}}],
}


def changed(**part: Any) -> dict[str, Any]:
    return {"levels": ["l"], "slices": [GOOD["slices"][0] | part]}  # type: ignore[index]


@pytest.mark.parametrize(
    ("wire", "field"),
    [
        (changed(domainCount=3), "valuesPerLevel"),
        (changed(podCounts={"individual": [1]}), "podCounts"),
        (changed(podCounts={}), "podCounts"),
        (changed(valuesPerLevel=[]), "valuesPerLevel"),
        (changed(valuesPerLevel=[{}]), "valuesPerLevel"),
        (changed(domainCount=0), r"slices\[0\].domainCount"),
        (changed(domainCount=True), "domainCount"),
        (changed(domainCount=2.0), "domainCount"),
        (changed(domainCount=None), "domainCount"),
        (changed(domainCount=10**6 + 1), "domainCount makes more than"),
        (changed(domainCount=2**31), "domainCount is no number"),
        (changed(podCounts=None), "podCounts is no object"),
        (changed(podCounts={"universal": -1}), "podCounts.universal"),
        (changed(podCounts={"universal": "1"}), "podCounts.universal"),
        (changed(podCounts={"universal": 1, "individual": [1, 1]}), "podCounts must have exactly one"),
        (changed(podCounts={"individual": 5}), "podCounts.individual is no list"),
        (changed(podCounts={"individual": [1, "x"]}), r"podCounts.individual\[1\]"),
        (changed(podCounts={"individual": [1, -1]}), r"podCounts.individual\[1\]"),
        (changed(podCounts={"individual": [True, 1]}), r"podCounts.individual\[0\]"),
        (changed(podCounts={"individual": [1, 2**31]}), r"podCounts.individual\[1\]"),
        (changed(valuesPerLevel={}), "valuesPerLevel is no list"),
        (changed(valuesPerLevel=["x"]), r"valuesPerLevel\[0\] is no object"),
        (changed(valuesPerLevel=[{"universal": 1}]), r"valuesPerLevel\[0\].universal is no string"),
        (changed(valuesPerLevel=[{"universal": "x", "individual": {}}]), r"valuesPerLevel\[0\] must have exactly one"),
        (changed(valuesPerLevel=[{"individual": []}]), "individual is no object"),
        (changed(valuesPerLevel=[{"individual": {"roots": ["a", 1]}}]), r"roots\[1\] is no string"),
        (changed(valuesPerLevel=[{"individual": {"roots": "ab"}}]), "roots is no list"),
        (changed(valuesPerLevel=[{"individual": {"prefix": 0, "roots": ["a", "b"]}}]), "prefix is no string"),
        (changed(valuesPerLevel=[{"individual": {"suffix": [], "roots": ["a", "b"]}}]), "suffix is no string"),
        (GOOD | {"slices": [GOOD["slices"][0], 5]}, r"slices\[1\] is no object"),  # type: ignore[index]
        (GOOD | {"slices": "x"}, "slices is no list"),
        (GOOD | {"levels": "l"}, "levels is no list"),
        (GOOD | {"levels": [None]}, r"levels\[0\] is no string"),
        ([], "topologyAssignment is no object"),
        (None, "topologyAssignment is no object"),
        (GOOD | {"levels": []}, "levels"),
        (GOOD | {"levels": [], "slices": [{"domainCount": 2, "podCounts": {"universal": 1}}]}, "levels"),
    ],
)
def test_a_wire_form_that_contradicts_itself_is_refused_by_field(wire: Any, field: str):
    assert decode(GOOD).count == 2
    with pytest.raises(InvalidAssignment, match=field):
        decode(wire)


def test_repeated_domains_of_all_slices_are_limited():
    """A universal value costs nothing to repeat: a few bytes stood for a million domains, which the webhook wrote out for 17 s."""
    part = {"domainCount": 101, "valuesPerLevel": [{"universal": "x"}], "podCounts": {"universal": 1}}
    assert len(decode({"levels": ["l"], "slices": [part] * 2}).domains) == 202
    with pytest.raises(InvalidAssignment, match=r"slices\[2\].domainCount repeats domains; at most 200"):
        decode({"levels": ["l"], "slices": [part] * 1000})


def test_number_of_domains_is_bounded_over_all_slices():
    values = [{"individual": {"roots": ["x"] * 100_000}}]
    part = {"domainCount": 100_000, "valuesPerLevel": values, "podCounts": {"universal": 1}}
    with pytest.raises(InvalidAssignment, match=r"slices\[10\].domainCount makes more than"):
        decode({"levels": ["l"], "slices": [part] * 11})


def test_absent_and_null_are_empty():
    assert decode({}) == TopologyAssignment((), ())
    assert decode({"levels": ["l"], "slices": None}) == TopologyAssignment(("l",), ())
    part = {"domainCount": 1, "valuesPerLevel": [{"universal": None, "individual": {"prefix": None, "roots": ["x"]}}]}
    wire = {"levels": ["l"], "slices": [part | {"podCounts": {"universal": 0}}]}
    assert decode(wire) == TopologyAssignment(("l",), (DomainCount(("x",), 0),))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


def mutated(draw: Any, value: Any) -> Any:
    """A wire form with one place of it, at any depth, replaced, taken out or given twice."""
    if not isinstance(value, dict | list) or not value or draw(st.integers(0, 5)) == 0:
        return draw(JSON)
    key = draw(st.sampled_from(sorted(value) if isinstance(value, dict) else range(len(value))))
    copy = value.copy()
    what = draw(st.integers(0, 4))
    if what == 0:
        del copy[key]
    elif what == 1 and isinstance(copy, list):
        copy.append(copy[key])
    else:
        copy[key] = mutated(draw, value[key])
    return copy


@given(st.data(), assignments())
def test_random_wire_assignment_is_decoded_or_refused(data: st.DataObject, assignment: TopologyAssignment):
    wire: Any = mutated(data.draw, encode(assignment)) if data.draw(st.booleans()) else data.draw(JSON)
    try:
        found = decode(wire)
    except InvalidAssignment as error:
        said = str(error)
    else:
        said = "levels"
        assert all(len(domain.values) == len(found.levels) for domain in found.domains)
        assert all(type(value) is str for domain in found.domains for value in domain.values)
        assert all(type(domain.count) is int for domain in found.domains)
    assert said.startswith(("levels", "slices", "topologyAssignment"))


@given(assignments())
def test_ranks_follow_the_domains(assignment: TopologyAssignment):
    order = list(assignment.expand())
    assert len(order) == assignment.count
    runs = [(domain, len(list(run))) for domain, run in groupby(order)]
    assert runs == [(i, domain.count) for i, domain in enumerate(assignment.domains)]
    assert assignment.build_selector(0) == dict(zip(assignment.levels, assignment.domains[0].values, strict=True))


@given(st.one_of(st.none(), assignments()), st.dictionaries(st.sampled_from(["cpu", "memory", "pods"]), st.integers(0, 10**12), min_size=1))
def test_an_admission_survives_the_wire(assignment: TopologyAssignment | None, usage: dict[str, int]):
    admission = Admission("cq", (PodSetAdmission("main", dict.fromkeys(usage, "flavor"), usage, 3, assignment),))
    assert decode_admission(json.loads(json.dumps(encode_admission(admission)))) == admission


def test_no_admission_is_none():
    assert decode_admission(None) is None
    assert decode_admission({}) is None
