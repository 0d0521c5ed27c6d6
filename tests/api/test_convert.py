"""Conversion is the identity there and back, in both directions; no note, whatever it says, changes what the fields say."""

from __future__ import annotations

import contextlib
import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.api.convert import CONVERTED, Unconvertible, check_size, convert
from core.api.convert_assignment import MAX_CHARS, count_chars
from core.model.wire.encoding import decode, encode
from core.names import API_VERSION, FIELDS_OF_V1BETA1, FIELDS_OF_V1BETA2, OLD_API_VERSION
from tests.api.converting import json_values, notes, objects, strip_notes, with_note, workloads

OTHER = {API_VERSION: OLD_API_VERSION, OLD_API_VERSION: API_VERSION}
LAYERS = [{"topology": "block", "size": 4}, {"topology": "rack", "size": 2}]


def convert_there_and_back(obj: dict[str, Any]) -> dict[str, Any]:
    return convert(convert(obj, OTHER[obj["apiVersion"]]), obj["apiVersion"])


def build_workload(version: str = API_VERSION, *, spec: Any = None, status: Any = None, annotations: Any = None) -> dict[str, Any]:
    metadata = {"name": "w", **({"annotations": annotations} if annotations else {})}
    pod_set = {"name": "main", "count": 8, "template": {"spec": {}}, "topologyRequest": {"required": "zone"}}
    obj = {"apiVersion": version, "kind": "Workload", "metadata": metadata, "spec": {"podSets": [pod_set], **(spec or {})}}
    return obj | ({"status": status} if status else {})


def layered() -> dict[str, Any]:
    obj = build_workload()
    obj["spec"]["podSets"][0]["topologyRequest"]["podsetSliceRequiredTopologyConstraints"] = copy.deepcopy(LAYERS)
    return obj


def assigned(version: str, assignment: Any, **more: Any) -> dict[str, Any]:
    given = [{"name": "main", "count": 4, "topologyAssignment": assignment}]
    return build_workload(version, status={"admission": {"clusterQueue": "c", "podSetAssignments": given}}, **more)


def get_assignment(obj: dict[str, Any]) -> Any:
    return obj["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"]


def request_of(obj: dict[str, Any]) -> Any:
    return obj["spec"]["podSets"][0]["topologyRequest"]


# --- there and back ---------------------------------------------------------------------------------------


@given(objects(new=True))
def test_stored_object_survives_conversion_to_v1beta1_and_back(obj: dict[str, Any]):
    before = copy.deepcopy(obj)
    assert convert_there_and_back(obj) == obj == before


@given(objects(new=False))
def test_v1beta1_object_survives_conversion_to_v1beta2_and_back(obj: dict[str, Any]):
    before = copy.deepcopy(obj)
    assert convert_there_and_back(obj) == obj == before


@given(objects(new=True), notes())
def test_a_note_about_v1beta1_is_taken_or_dropped_and_changes_nothing_that_is_stored(obj: dict[str, Any], note: str):
    assert strip_notes(convert_there_and_back(with_note(obj, FIELDS_OF_V1BETA1, note))) == obj


@given(objects(new=False), notes())
def test_v1beta2_fields_annotation_does_not_change_v1beta1_fields(obj: dict[str, Any], note: str):
    forged = with_note(obj, FIELDS_OF_V1BETA2, note)
    back = convert_there_and_back(forged)
    # It may add what v1beta1 cannot say, which is then noted anew.
    assert strip_notes(back) == obj


@given(workloads(new=False), notes())
def test_a_note_never_changes_which_domains_there_are(obj: dict[str, Any], note: str):
    plain, forged = convert(obj, API_VERSION), convert(with_note(obj, FIELDS_OF_V1BETA2, note), API_VERSION)
    for one, other in zip(list_assignments(plain), list_assignments(forged), strict=True):
        assert decode(one) == decode(other)


def list_assignments(obj: dict[str, Any]) -> list[Any]:
    given = obj.get("status", {}).get("admission", {}).get("podSetAssignments", [])
    return [one["topologyAssignment"] for one in given if "topologyAssignment" in one]


@given(st.sampled_from(CONVERTED), st.sampled_from(sorted(OTHER)), json_values, json_values, json_values, notes())
def test_objects_that_no_schema_would_take_are_converted_or_refused_in_words(
    kind: str, version: str, metadata: Any, spec: Any, status: Any, note: str
):
    obj = {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec, "status": status}
    if isinstance(metadata, dict):
        obj["metadata"] = {**metadata, "annotations": {FIELDS_OF_V1BETA1: note, FIELDS_OF_V1BETA2: note}}
    with contextlib.suppress(Unconvertible):
        json.dumps(convert(obj, OTHER[version]))


@given(st.sampled_from(sorted(OTHER)), st.data())
def test_misshapen_parts_of_a_workload_are_converted_or_refused_in_words(version: str, data: st.DataObject):
    obj = data.draw(workloads(new=version == API_VERSION))
    node: Any = obj
    while isinstance(node, dict | list) and node:
        key = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
        if data.draw(st.integers(0, 2)) == 0 and node is not obj:
            node[key] = data.draw(json_values)
            break
        node = node[key]
    with contextlib.suppress(Unconvertible):
        json.dumps(convert(obj, OTHER[version]))


# --- reading, changing and writing as v1beta1 ----------------------------------------------------------------


def test_constraints_are_kept_by_a_client_that_never_saw_them():
    shown = convert(layered(), OLD_API_VERSION)
    assert request_of(shown) == {"required": "zone"}
    shown["metadata"]["labels"] = {"team": "a"}
    shown["spec"]["active"] = False
    stored = convert(shown, API_VERSION)
    assert request_of(stored) == {"required": "zone", "podsetSliceRequiredTopologyConstraints": LAYERS}
    assert stored["metadata"] == {"name": "w", "labels": {"team": "a"}}
    assert stored["spec"]["active"] is False


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ({"required": "hall"}, True),
        ({"podSetSliceRequiredTopology": "rack"}, False),
        ({"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 2}, False),
    ],
    ids=["another level", "slices by level", "slices by level and size"],
)
def test_a_changed_request_wins_over_the_constraints_that_it_excludes(change: dict[str, Any], kept: bool):
    shown = convert(layered(), OLD_API_VERSION)
    request_of(shown).update(change)
    stored = request_of(convert(shown, API_VERSION))
    assert {key: stored[key] for key in change} == change
    assert ("podsetSliceRequiredTopologyConstraints" in stored) == kept


def test_without_the_request_or_the_pod_set_there_are_no_constraints():
    shown = convert(layered(), OLD_API_VERSION)
    del shown["spec"]["podSets"][0]["topologyRequest"]
    assert "topologyRequest" not in convert(shown, API_VERSION)["spec"]["podSets"][0]
    shown = convert(layered(), OLD_API_VERSION)
    shown["spec"]["podSets"][0]["name"] = "other"
    assert request_of(convert(shown, API_VERSION)) == {"required": "zone"}


FORGED = {
    "no list": 3,
    "no layer": [{}],
    "size as text": [{"topology": "rack", "size": "2"}],
    "size true": [{"topology": "rack", "size": True}],
    "size zero": [{"topology": "rack", "size": 0}],
    "size too large": [{"topology": "rack", "size": 2**31}],
    "a field more": [{"topology": "rack", "size": 2, "x": 1}],
    "no topology": [{"topology": "", "size": 2}],
    "a long topology": [{"topology": "r" * 64, "size": 2}],
    "not nested": [{"topology": "block", "size": 4}, {"topology": "rack", "size": 3}],
    "one topology twice": [{"topology": "rack", "size": 4}, {"topology": "rack", "size": 2}],
    "four layers": [{"topology": f"l{i}", "size": 1} for i in range(4)],
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_constraints_that_the_schema_would_refuse_cannot_be_smuggled_in(forged: Any):
    note = json.dumps({"constraints": {"main": forged}})
    obj = build_workload(OLD_API_VERSION, annotations={FIELDS_OF_V1BETA2: note})
    assert convert(obj, API_VERSION) == build_workload()


# --- assignments --------------------------------------------------------------------------------------------

WIRE = {
    "levels": ["block", "rack"],
    "slices": [
        {
            "domainCount": 2,
            "valuesPerLevel": [{"universal": "b1"}, {"individual": {"prefix": "r", "roots": ["1", "2"]}}],
            "podCounts": {"universal": 2},
        },
        {"domainCount": 1, "valuesPerLevel": [{"universal": "b2"}, {"individual": {"roots": ["r3"]}}], "podCounts": {"individual": [1]}},
    ],
}
DOMAINS: list[dict[str, Any]] = [
    {"values": ["b1", "r1"], "count": 2},
    {"values": ["b1", "r2"], "count": 2},
    {"values": ["b2", "r3"], "count": 1},
]


def test_an_assignment_is_shown_as_domains_and_its_own_cut_is_kept():
    shown = convert(assigned(API_VERSION, WIRE), OLD_API_VERSION)
    assert get_assignment(shown) == {"levels": ["block", "rack"], "domains": DOMAINS}
    assert get_assignment(convert(shown, API_VERSION)) == WIRE


def test_conversion_of_an_encoded_assignment_needs_no_annotation():
    wire = encode(decode(WIRE))
    shown = convert(assigned(API_VERSION, wire), OLD_API_VERSION)
    assert "annotations" not in shown["metadata"]
    assert get_assignment(convert(shown, API_VERSION)) == wire


def test_changed_domains_win_over_the_cut_that_does_not_fit_them():
    shown = convert(assigned(API_VERSION, WIRE), OLD_API_VERSION)
    changed: list[dict[str, Any]] = [*DOMAINS[:2], {"values": ["b2", "r4"], "count": 3}, {"values": ["b3", "r5"], "count": 1}]
    get_assignment(shown)["domains"] = changed
    stored = convert(shown, API_VERSION)
    assert get_assignment(stored) == encode(decode(get_assignment(stored)))
    assert [(d.values, d.count) for d in decode(get_assignment(stored)).domains] == [(tuple(d["values"]), d["count"]) for d in changed]


UNREADABLE = {
    "levels": ["h"],
    "slices": [{"domainCount": 2_000_000, "valuesPerLevel": [{"universal": "n"}], "podCounts": {"universal": 1}}],
}


def test_unreadable_assignment_is_shown_empty_in_v1beta1_and_kept():
    shown = convert(assigned(API_VERSION, UNREADABLE), OLD_API_VERSION)
    assert get_assignment(shown) == {"levels": ["h"], "domains": []}
    assert get_assignment(convert(shown, API_VERSION)) == UNREADABLE


@pytest.mark.parametrize("smuggled", [{**WIRE, "levels": ["h"]}, {"levels": ["h"], "slices": [{"domainCount": "x"}]}, WIRE])
def test_an_assignment_cannot_be_smuggled_in_where_v1beta1_says_there_is_none(smuggled: Any):
    note = json.dumps({"slices": {"main": smuggled}})
    empty = {"levels": smuggled["levels"], "domains": []}
    stored = convert(assigned(OLD_API_VERSION, empty, annotations={FIELDS_OF_V1BETA2: note}), API_VERSION)
    assert get_assignment(stored) == {"levels": smuggled["levels"], "slices": []}


@pytest.mark.parametrize(
    ("domains", "message"),
    [
        ([{"values": ["b1"], "count": 1}], "domains[0].values has not one value for each of the 2 levels"),
        ([DOMAINS[0], {"values": ["b1", "r2"], "count": 0}], "domains[1].count is no number of pods"),
        ([{"values": ["b1", "r" * 200], "count": 1}], "is longer than the 63 characters"),
        ({}, "domains is no list"),
    ],
)
def test_domains_that_v1beta2_cannot_express_are_refused_with_the_field(domains: Any, message: str):
    obj = assigned(OLD_API_VERSION, {"levels": ["block", "rack"], "domains": domains})
    with pytest.raises(Unconvertible) as refused:
        convert(obj, API_VERSION)
    assert str(refused.value).startswith(f"Workload 'w' cannot be converted to {API_VERSION}: status.admission.podSetAssignments[0].")
    assert message in str(refused.value)


def test_the_largest_assignment_is_converted_and_its_note_stays_small():
    """100,000 domains in 1,000 slices that no encoder would make: the note must fit into an annotation."""
    slices = [
        {
            "domainCount": 100,
            "valuesPerLevel": [{"individual": {"prefix": "n", "roots": [f"{i:03d}{j:02d}" for j in range(100)]}}],
            "podCounts": {"individual": [1] * 100},
        }
        for i in range(1000)
    ]
    obj = assigned(API_VERSION, {"levels": ["h"], "slices": slices})
    shown = convert(obj, OLD_API_VERSION)
    assert len(get_assignment(shown)["domains"]) == 100_000
    assert len(shown["metadata"]["annotations"][FIELDS_OF_V1BETA2]) < 32 * 1024
    assert convert(shown, API_VERSION) == obj


def test_a_list_of_small_assignments_is_converted_without_a_search_for_the_best_cuts(monkeypatch: pytest.MonkeyPatch):
    """Thousands of workloads are listed at once, and the search took most of the seconds that others were held up for."""
    # Each rack would have a slice of its own, were the search worth its time.
    racks = [letter * 20 for letter in "acegikmo"]
    domains = [{"values": [racks[i // 16][:9], racks[i // 8], f"{racks[i // 8]}-{i % 8}"], "count": 1} for i in range(64)]
    levels = ["block", "rack", "kubernetes.io/hostname"]
    shown = assigned(OLD_API_VERSION, {"levels": levels, "domains": domains})
    written = get_assignment(convert(shown, API_VERSION))
    ours = encode(decode(written))
    assert len(ours["slices"]) > len(written["slices"]) == 1

    def search(*_: Any) -> Any:
        raise AssertionError("it looks for the best cuts")

    monkeypatch.setattr("core.model.wire.encoding.choose_parts", search)
    for wire in (ours, written):
        stored = assigned(API_VERSION, wire)
        assert convert_there_and_back(stored) == stored
    assert convert_there_and_back(shown) == shown


@pytest.mark.parametrize("count", [1, 2, 999, 1000, 1001])
@pytest.mark.parametrize("length", [8, 63, 64, 120], ids=lambda length: f"{length} characters")
def test_assignments_of_any_size_and_length_come_back_both_ways(count: int, length: int):
    domains = [{"values": ["b", f"{'n' * (length - 5)}-{i:04}"], "count": 1 + (i > 500)} for i in range(count)]
    shown = assigned(OLD_API_VERSION, {"levels": ["block", "h"], "domains": domains})
    stored = convert(shown, API_VERSION)
    assert convert(stored, OLD_API_VERSION) == shown
    assert convert_there_and_back(stored) == stored
    best = assigned(API_VERSION, encode(decode(get_assignment(stored))))
    assert convert_there_and_back(best) == best


def test_one_that_has_to_be_cut_is_cut_however_small():
    """Values longer than a label's fit in only if each slice has their common beginning in a prefix."""
    domains = [{"values": [letter * 60 + f"-node-{i}"], "count": 1} for letter in "ab" for i in range(3)]
    shown = assigned(OLD_API_VERSION, {"levels": ["h"], "domains": domains})
    stored = convert(shown, API_VERSION)
    assert len(get_assignment(stored)["slices"]) == 2
    assert convert_there_and_back(stored) == stored
    assert convert(stored, OLD_API_VERSION) == shown


# --- priority, queues ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group", "kind", "source"),
    [
        ("kueue.x-k8s.io", "WorkloadPriorityClass", "kueue.x-k8s.io/workloadpriorityclass"),
        ("scheduling.k8s.io", "PriorityClass", "scheduling.k8s.io/priorityclass"),
    ],
)
def test_the_class_of_a_priority_has_another_form(group: str, kind: str, source: str):
    new = build_workload(spec={"priority": 3, "priorityClassRef": {"group": group, "kind": kind, "name": "high"}})
    old = build_workload(OLD_API_VERSION, spec={"priority": 3, "priorityClassName": "high", "priorityClassSource": source})
    assert convert(new, OLD_API_VERSION) == old
    assert convert(old, API_VERSION) == new


def test_a_class_without_its_source_is_noted_and_gives_way_to_a_reference():
    old = build_workload(OLD_API_VERSION, spec={"priority": 3, "priorityClassName": "high"})
    stored = convert(old, API_VERSION)
    assert "priorityClassRef" not in stored["spec"]
    assert convert(stored, OLD_API_VERSION) == old
    stored["spec"]["priorityClassRef"] = {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "low"}
    shown = convert(stored, OLD_API_VERSION)
    assert shown["spec"]["priorityClassName"] == "low"
    assert "annotations" not in shown["metadata"]


def queue(version: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": "ClusterQueue", "metadata": {"name": "q"}, "spec": spec}


def test_a_queue_in_the_words_of_v1beta1():
    old = queue(
        OLD_API_VERSION,
        cohort="all",
        admissionChecks=["a", "b"],
        flavorFungibility={"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"},
    )
    stored = convert(old, API_VERSION)
    assert stored["spec"] == {
        "cohortName": "all",
        "admissionChecksStrategy": {"admissionChecks": [{"name": "a"}, {"name": "b"}]},
        "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch"},
    }
    assert convert(stored, OLD_API_VERSION) == old
    stored["spec"]["admissionChecksStrategy"]["admissionChecks"].append({"name": "c", "onFlavors": ["f"]})
    stored["spec"]["flavorFungibility"]["whenCanBorrow"] = "TryNextFlavor"
    shown = convert(stored, OLD_API_VERSION)["spec"]
    assert shown["admissionChecksStrategy"] == stored["spec"]["admissionChecksStrategy"], "what was changed since holds"
    assert "admissionChecks" not in shown
    assert shown["flavorFungibility"] == {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "Preempt"}


def test_fields_of_the_other_version_mean_nothing():
    """The API server prunes them before; nothing may come of them either."""
    old = build_workload(OLD_API_VERSION, spec={"priorityClassRef": {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "x"}})
    request_of(old)["podsetSliceRequiredTopologyConstraints"] = LAYERS
    assert convert(old, API_VERSION) == build_workload()
    assert convert(queue(OLD_API_VERSION, cohortName="x"), API_VERSION)["spec"] == {}


# --- what cannot be asked -------------------------------------------------------------------------------------


def test_the_same_version_is_the_same_object():
    assert convert(layered(), API_VERSION) == layered()


@pytest.mark.parametrize(
    ("kind", "given", "wanted"),
    [
        ("Topology", API_VERSION, OLD_API_VERSION),
        ("Workload", "kueue.x-k8s.io/v1alpha1", API_VERSION),
        ("Workload", API_VERSION, "kueue.x-k8s.io/v1"),
        ("Workload", None, API_VERSION),
        (["Workload"], API_VERSION, OLD_API_VERSION),
    ],
)
def test_other_kinds_and_versions_are_refused_in_words(kind: Any, given: Any, wanted: str):
    with pytest.raises(Unconvertible, match="cannot be converted to"):
        convert({"apiVersion": given, "kind": kind, "metadata": {}}, wanted)


def test_few_bytes_that_stand_for_a_million_domains_are_shown_as_none():
    """A body of 900 bytes kept the webhook busy for 17 s, and took 2.8 GB."""
    levels = [f"l{i}" for i in range(16)]
    slices = [{"domainCount": 10**6, "valuesPerLevel": [{"universal": "a"}] * 16, "podCounts": {"universal": 1}}]
    wire = {"levels": levels, "slices": slices}
    shown = convert(assigned(API_VERSION, wire), OLD_API_VERSION)
    assert get_assignment(shown) == {"levels": levels, "domains": []}
    assert get_assignment(convert(shown, API_VERSION)) == wire


def many(count: int, levels: int) -> dict[str, Any]:
    """An assignment of many domains with names of 60 characters at all levels but the lowest."""
    columns: list[dict[str, Any]] = [{"universal": f"{i:060}"} for i in range(levels - 1)]
    columns.append({"individual": {"roots": [str(i) for i in range(count)]}})
    slices = [{"domainCount": count, "valuesPerLevel": columns, "podCounts": {"universal": 1}}]
    return {"levels": [f"l{i}" for i in range(levels)], "slices": slices}


@pytest.mark.parametrize(("count", "levels"), [(20, 1), (50, 3), (1_000, 16)])
def test_characters_of_an_assignment_are_about_those_of_its_json(count: int, levels: int):
    wire = many(count, levels)
    written = len(json.dumps(get_assignment(convert(assigned(API_VERSION, wire), OLD_API_VERSION))))
    assert 0.7 * written <= count_chars(wire) <= 1.1 * written


def test_assignment_that_would_be_too_long_is_shown_as_no_domains():
    wire = many(50_000, 16)
    assert count_chars(wire) > MAX_CHARS
    shown = convert(assigned(API_VERSION, wire), OLD_API_VERSION)
    assert get_assignment(shown)["domains"] == []
    assert get_assignment(convert(shown, API_VERSION)) == wire


def test_objects_that_would_be_too_long_together_are_refused():
    objects = [assigned(API_VERSION, many(20_000, 16))] * 4
    check_size(objects[:2], OLD_API_VERSION)
    check_size(objects, API_VERSION)
    with pytest.raises(Unconvertible, match="at most 62 MB can: list fewer objects at once"):
        check_size(objects, OLD_API_VERSION)
