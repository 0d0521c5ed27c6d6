"""The rules for topology annotations: every mistake at once, each with field, value and what is accepted."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.jobs.annotations import PodSetAnnotations, build_topology_request, validate_pod_sets
from core.jobs.contract import ErrorType, Rules
from core.model.label_names import is_label_name
from core.names import (
    ELASTIC_JOB,
    LEND_SPARES,
    POD_GROUP_FAST_ADMISSION,
    POD_GROUP_INDEX_LABEL_NAME,
    POD_INDEX_OFFSET,
    PODGROUP_GATE,
    PODSET_GROUP_NAME,
    PREFERRED_TOPOLOGY,
    REQUIRED_TOPOLOGY,
    RETRIABLE_IN_GROUP,
    SLICE_CONSTRAINTS,
    SLICE_REQUIRED_TOPOLOGY,
    SLICE_SIZE,
    SPARE_NODES,
    UNCONSTRAINED_TOPOLOGY,
)

PATH = "spec.template.metadata.annotations"
ALL = [
    REQUIRED_TOPOLOGY,
    PREFERRED_TOPOLOGY,
    UNCONSTRAINED_TOPOLOGY,
    SLICE_REQUIRED_TOPOLOGY,
    SLICE_SIZE,
    SLICE_CONSTRAINTS,
    PODSET_GROUP_NAME,
]


def judge(annotations: dict[str, str], count: int | None = 8) -> Rules:
    return validate_pod_sets([PodSetAnnotations(PATH, {"metadata": {"annotations": annotations}}, count)])


def layers(*entries: tuple[str, Any]) -> str:
    return json.dumps([{"topology": topology, "size": size} for topology, size in entries])


@pytest.mark.parametrize(
    "annotations",
    [
        {},
        {REQUIRED_TOPOLOGY: "rack"},
        {REQUIRED_TOPOLOGY: "auto"},
        {PREFERRED_TOPOLOGY: "cloud.com/block"},
        {UNCONSTRAINED_TOPOLOGY: "true"},
        {UNCONSTRAINED_TOPOLOGY: "F"},
        {SLICE_REQUIRED_TOPOLOGY: "rack", SLICE_SIZE: "4"},
        {REQUIRED_TOPOLOGY: "block", SLICE_REQUIRED_TOPOLOGY: "rack", SLICE_SIZE: "8"},
        {SLICE_CONSTRAINTS: layers(("block", 8), ("rack", 4), ("host", 2))},
        {SLICE_CONSTRAINTS: layers(("block", "8"), ("rack", "2"))},
        {SLICE_CONSTRAINTS: '[{"topology": "rack", "size": 4,},]'},
        {REQUIRED_TOPOLOGY: "rack", PODSET_GROUP_NAME: "a-group"},
        {REQUIRED_TOPOLOGY: "rack", SPARE_NODES: "2"},
        {REQUIRED_TOPOLOGY: "rack", SPARE_NODES: "2", LEND_SPARES: "true"},
        {REQUIRED_TOPOLOGY: "rack", SPARE_NODES: "2", LEND_SPARES: "false"},
        {UNCONSTRAINED_TOPOLOGY: "true", SPARE_NODES: "0"},
        {SLICE_REQUIRED_TOPOLOGY: "rack", SLICE_SIZE: "4", SPARE_NODES: "64"},
    ],
)
def test_valid_topology_annotations_are_accepted(annotations: dict[str, str]):
    assert judge(annotations) == Rules()


@pytest.mark.parametrize(
    ("annotations", "kind", "name", "words"),
    [
        ({REQUIRED_TOPOLOGY: "a rack"}, ErrorType.INVALID, REQUIRED_TOPOLOGY, "a node label name"),
        ({PREFERRED_TOPOLOGY: ""}, ErrorType.INVALID, PREFERRED_TOPOLOGY, "a node label name"),
        ({UNCONSTRAINED_TOPOLOGY: "yes"}, ErrorType.INVALID, UNCONSTRAINED_TOPOLOGY, '"true" or "false"'),
        ({SLICE_REQUIRED_TOPOLOGY: "auto", SLICE_SIZE: "/"}, ErrorType.INVALID, SLICE_SIZE, "one of 1, 2, 4, 8 is expected"),
        ({SLICE_REQUIRED_TOPOLOGY: "rack"}, ErrorType.REQUIRED, SLICE_SIZE, "a number of pods is needed"),
        ({SLICE_SIZE: "4"}, ErrorType.FORBIDDEN, SLICE_SIZE, f"means nothing without {SLICE_REQUIRED_TOPOLOGY}"),
        ({SLICE_REQUIRED_TOPOLOGY: "rack", SLICE_SIZE: "0"}, ErrorType.INVALID, SLICE_SIZE, "one of 1, 2, 4, 8 is expected"),
        ({SLICE_REQUIRED_TOPOLOGY: "rack", SLICE_SIZE: "2147483648"}, ErrorType.INVALID, SLICE_SIZE, "one of 1, 2, 4, 8 is expected"),
        ({SLICE_REQUIRED_TOPOLOGY: "rack", SLICE_SIZE: "3"}, ErrorType.INVALID, SLICE_SIZE, "one of 1, 2, 4, 8 is expected"),
        ({SLICE_CONSTRAINTS: "rack"}, ErrorType.INVALID, SLICE_CONSTRAINTS, "is no JSON (line 1, column 1"),
        ({SLICE_CONSTRAINTS: "{}"}, ErrorType.INVALID, SLICE_CONSTRAINTS, "a list of 1 to 3 layers"),
        ({SLICE_CONSTRAINTS: "[]"}, ErrorType.INVALID, SLICE_CONSTRAINTS, "a list of 1 to 3 layers"),
        ({SLICE_CONSTRAINTS: layers(*[(f"l{i}", 1) for i in range(4)])}, ErrorType.INVALID, SLICE_CONSTRAINTS, "a list of 1 to 3 layers"),
        ({SLICE_CONSTRAINTS: layers(("rack", 2.5))}, ErrorType.INVALID, SLICE_CONSTRAINTS, "[0].size is 2.5, and"),
        ({SLICE_CONSTRAINTS: layers(("rack", True))}, ErrorType.INVALID, SLICE_CONSTRAINTS, "[0].size is true, and"),
        (
            {SLICE_CONSTRAINTS: '[{"topology": "rack", "size": "x"}, {"topolgy": "host", "size": 3}, 7]'},
            ErrorType.INVALID,
            SLICE_CONSTRAINTS,
            '[0].size is "x", and slices must evenly divide the 8 pods: one of 1, 2, 4, 8 is expected; '
            "[1].topology is missing, and a node label name such as cloud.provider.com/topology-rack is expected; "
            "[2] is 7, and a topology with a size is expected; a list such as",
        ),
        ({SLICE_CONSTRAINTS: layers(("rack", 3))}, ErrorType.INVALID, SLICE_CONSTRAINTS, "one of 1, 2, 4, 8 is expected"),
        (
            {SLICE_CONSTRAINTS: '[{"topology": "rack", "size": 4}, {"topology": "host", "siz": 2}]'},
            ErrorType.INVALID,
            f"{SLICE_CONSTRAINTS}][1].size",
            "is missing, siz is not read; a whole number of at least 1",
        ),
        (
            {SLICE_CONSTRAINTS: '[{"size": 4}]'},
            ErrorType.INVALID,
            f"{SLICE_CONSTRAINTS}][0].topology",
            "is missing; a node label name",
        ),
        ({SLICE_CONSTRAINTS: layers(("rack", 0))}, ErrorType.INVALID, f"{SLICE_CONSTRAINTS}][0].size", "at least 1"),
        ({SLICE_CONSTRAINTS: layers(("a b", 4))}, ErrorType.INVALID, f"{SLICE_CONSTRAINTS}][0].topology", "a node label name"),
        ({SLICE_CONSTRAINTS: layers(("b", 8), ("r", 3))}, ErrorType.INVALID, f"{SLICE_CONSTRAINTS}][1].size", "a divisor of the 8"),
        (
            {SLICE_CONSTRAINTS: layers(("r", 8), ("r", 4))},
            ErrorType.DUPLICATE,
            f"{SLICE_CONSTRAINTS}][1].topology",
            "constraints[0] has this",
        ),
        ({REQUIRED_TOPOLOGY: "r", PODSET_GROUP_NAME: "7"}, ErrorType.INVALID, PODSET_GROUP_NAME, "a name that is no number"),
        ({REQUIRED_TOPOLOGY: "r", SPARE_NODES: "two"}, ErrorType.INVALID, SPARE_NODES, "a whole number of nodes from 0 to 64"),
        ({REQUIRED_TOPOLOGY: "r", SPARE_NODES: "-1"}, ErrorType.INVALID, SPARE_NODES, "a whole number of nodes from 0 to 64"),
        ({REQUIRED_TOPOLOGY: "r", SPARE_NODES: "65"}, ErrorType.INVALID, SPARE_NODES, "a whole number of nodes from 0 to 64"),
        ({REQUIRED_TOPOLOGY: "r", SPARE_NODES: ""}, ErrorType.INVALID, SPARE_NODES, "a whole number of nodes from 0 to 64"),
        ({SPARE_NODES: "2"}, ErrorType.INVALID, SPARE_NODES, "means nothing without a topology; a whole number"),
        ({SPARE_NODES: "two"}, ErrorType.INVALID, SPARE_NODES, "means nothing without a topology; a whole number"),
        ({REQUIRED_TOPOLOGY: "r", SPARE_NODES: "1", LEND_SPARES: "yes"}, ErrorType.INVALID, LEND_SPARES, '"true" or "false" is expected'),
        ({REQUIRED_TOPOLOGY: "r", LEND_SPARES: "true"}, ErrorType.FORBIDDEN, LEND_SPARES, "means nothing without topogate.dev/spare-nodes"),
        ({PODSET_GROUP_NAME: "g"}, ErrorType.FORBIDDEN, PODSET_GROUP_NAME, "a group needs"),
    ],
)
def test_invalid_topology_annotation_gives_one_error_with_accepted_values(
    annotations: dict[str, str], kind: ErrorType, name: str, words: str
):
    errors = [error for error in judge(annotations).errors if name in error.field]
    assert len(errors) == 1, judge(annotations).errors
    (error,) = errors
    assert error.type is kind
    assert error.field.startswith(f"{PATH}[{name.partition(']')[0]}")
    assert words in error.accepted
    assert str(error).startswith(error.field)


def test_three_mistakes_are_three_errors():
    """Issue 4: each names the field, the value and what is accepted."""
    errors = judge({REQUIRED_TOPOLOGY: "no rack", UNCONSTRAINED_TOPOLOGY: "maybe", SLICE_REQUIRED_TOPOLOGY: "rack", SLICE_SIZE: "3"}).errors
    texts = {error.field: str(error) for error in errors}
    exclusive = texts.pop(PATH)
    assert "exclude each other" in exclusive
    assert set(texts) == {f"{PATH}[{name}]" for name in (REQUIRED_TOPOLOGY, UNCONSTRAINED_TOPOLOGY, SLICE_SIZE)}
    for field, value, accepted in (
        (REQUIRED_TOPOLOGY, "'no rack'", "a node label name such as"),
        (UNCONSTRAINED_TOPOLOGY, "'maybe'", '"true" or "false" is expected'),
        (SLICE_SIZE, "'3'", "one of 1, 2, 4, 8 is expected"),
    ):
        text = texts[f"{PATH}[{field}]"]
        assert value in text
        assert accepted in text


def test_the_two_ways_to_ask_for_slices_exclude_each_other():
    errors = judge({SLICE_REQUIRED_TOPOLOGY: "r", SLICE_SIZE: "4", SLICE_CONSTRAINTS: layers(("r", 4))}).errors
    assert {(error.type, error.field) for error in errors} == {(ErrorType.FORBIDDEN, f"{PATH}[{SLICE_CONSTRAINTS}]")}
    assert len(errors) == 2


def test_layers_of_wrong_types_are_named_at_once_without_the_whole_text():
    """As in Kueue the annotation is unreadable as a whole then."""
    (error,) = judge({SLICE_CONSTRAINTS: layers(("a b", 4), ("rack", "x"), ("host", True))}).errors
    assert (error.field.endswith(f"{SLICE_CONSTRAINTS}]"), error.value) == (True, None)
    assert all(problem in error.accepted for problem in ('[0].topology is "a b"', '[1].size is "x"', "[2].size is true"))
    assert [judge({SLICE_CONSTRAINTS: text}).errors[0].value for text in ("[7]", "[{", "7")] == [None] * 3


@pytest.mark.parametrize("value", ["x", "-1", "1.5", "", " 1", "1 ", "9999999999", "\u0663", 1, None])
def test_index_offset_that_is_no_whole_number_is_refused(value: Any):
    errors = judge({POD_INDEX_OFFSET: value}).errors
    expected = [] if value is None else [(ErrorType.INVALID, f"{PATH}[{POD_INDEX_OFFSET}]", value)]
    assert [(error.type, error.field, error.value) for error in errors] == expected


@pytest.mark.parametrize("value", ["0", "+3", "007", "999999999"])
def test_index_offset_that_is_a_whole_number_is_accepted(value: str):
    assert judge({POD_INDEX_OFFSET: value}) == Rules()


def test_index_offset_beside_a_group_is_refused_unless_the_webhook_wrote_it():
    annotations = {REQUIRED_TOPOLOGY: "rack", PODSET_GROUP_NAME: "g", POD_INDEX_OFFSET: "1"}
    (error,) = judge(annotations).errors
    assert (error.type, error.field) == (ErrorType.FORBIDDEN, f"{PATH}[{POD_INDEX_OFFSET}]")
    template = {"metadata": {"annotations": annotations}}
    assert validate_pod_sets([PodSetAnnotations(PATH, template, 8, index_offset="1")]) == Rules()
    assert validate_pod_sets([PodSetAnnotations(PATH, template, 8, index_offset="0")]).errors == (error,)


def test_slice_level_auto_is_refused_with_the_annotations_that_accept_it():
    """Its Workload was made and deactivated."""
    (error,) = judge({SLICE_REQUIRED_TOPOLOGY: "auto", SLICE_SIZE: "4"}).errors
    assert REQUIRED_TOPOLOGY in error.accepted


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        (RETRIABLE_IN_GROUP, "maybe", "false"),
        (POD_GROUP_FAST_ADMISSION, "maybe", "true"),
        (ELASTIC_JOB, "maybe", "true"),
        (POD_GROUP_INDEX_LABEL_NAME, "Bad!", "example.com/index"),
    ],
)
def test_value_without_effect_draws_a_warning(name: str, value: str, accepted: str):
    """Kueue accepts these, so that they are not refused."""
    judged = judge({name: value})
    assert judged.errors == ()
    assert any(name in warning and f"{value!r} has no effect" in warning for warning in judged.warnings)
    assert not any("has no effect" in warning for warning in judge({name: accepted}).warnings)


def test_empty_group_of_pod_sets_draws_a_warning():
    (warning,) = judge({PODSET_GROUP_NAME: "", REQUIRED_TOPOLOGY: "rack"}).warnings
    assert PODSET_GROUP_NAME in warning
    assert judge({PODSET_GROUP_NAME: ""}).warnings == ()  # it is refused, which says more


def test_unknown_keys_of_a_layer_draw_a_warning_and_cases_do_not_matter():
    rules = judge({SLICE_CONSTRAINTS: '[{"Topology": "rack", "SIZE": 4, "extra": 1}]'})
    assert rules.errors == ()
    (warning,) = rules.warnings
    assert warning.startswith(f"{PATH}[{SLICE_CONSTRAINTS}][0]: ")
    assert warning.endswith(" extra")
    request = build_topology_request({SLICE_CONSTRAINTS: '[{"Topology": "rack", "SIZE": 4}]'})
    assert request == {"podsetSliceRequiredTopologyConstraints": [{"topology": "rack", "size": 4}]}


def test_a_misspelt_annotation_draws_a_warning_with_the_name_that_was_meant():
    rules = judge({"kueue.x-k8s.io/podset-required-topolgy": "rack", "example.com/other": "x"})
    assert not rules.errors
    expected = (
        f"{PATH}[kueue.x-k8s.io/podset-required-topolgy]: this annotation is not known and does nothing; did you mean {REQUIRED_TOPOLOGY}?"
    )
    assert rules.warnings == (expected,)
    assert "does nothing" in judge({"kueue.x-k8s.io/podset-zzz": "1"}).warnings[0]


def test_members_of_a_group_ask_for_the_same_level():
    def member(level: str, group: str = "g") -> PodSetAnnotations:
        return PodSetAnnotations(level, {"metadata": {"annotations": {REQUIRED_TOPOLOGY: level, PODSET_GROUP_NAME: group}}}, 2)

    assert validate_pod_sets([member("rack"), member("rack")]).errors == ()
    assert validate_pod_sets([member("rack"), member("block", "other")]).errors == ()
    assert [error.field for error in validate_pod_sets([member("rack"), member("block")]).errors] == ["rack", "block"]


def test_a_level_on_only_some_pod_sets_draws_a_warning():
    """Rule e of docs/decisions/0004."""
    some = PodSetAnnotations("a", {"metadata": {"annotations": {REQUIRED_TOPOLOGY: "rack"}}}, 2)
    rules = validate_pod_sets([some, PodSetAnnotations("b", {}, 2)])
    assert rules.errors == ()
    assert len(rules.warnings) == 1
    assert rules.warnings[0].startswith("b: ")


def test_unconstrained_annotation_on_some_pod_sets_causes_no_warning():
    asked = {"Master": {UNCONSTRAINED_TOPOLOGY: "true"}, "Worker": {REQUIRED_TOPOLOGY: "rack"}}
    pod_sets = [PodSetAnnotations(f"spec[{role}]", {"metadata": {"annotations": notes}}, 2) for role, notes in asked.items()]
    assert validate_pod_sets(pod_sets) == Rules()


# What was slow took minutes; a busy machine takes no two hundred seconds for any of these.
@pytest.mark.timeout(200)
@pytest.mark.parametrize("size", [1, 7, 2**31 - 1, 2**31 - 2])
def test_divisors_are_named_quickly_however_many_pods_there_are(size: int):
    errors = judge({SLICE_REQUIRED_TOPOLOGY: "rack", SLICE_SIZE: "1000000007"}, size).errors
    assert "one of 1" in errors[0].accepted
    assert str(size) in errors[0].accepted


@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    "text", ["[" * 100_000, "9" * 5000, '[{"size": %s}]' % ("9" * 5000), '"' + '\\"' * 60_000, ",]" * 60_000, "[" + " " * 100_000, "\x00"]
)
def test_monstrous_annotations_are_refused_quickly(text: str):
    """The webhook has seconds and one event loop."""
    errors = judge({SLICE_CONSTRAINTS: text}).errors
    assert [error.field for error in errors] == [f"{PATH}[{SLICE_CONSTRAINTS}]"]
    assert build_topology_request({SLICE_CONSTRAINTS: text}) is None


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(["topology", "size", "x", "Size"]), inner, max_size=4)
    ),
    max_leaves=12,
)
LAYER = st.fixed_dictionaries(
    {}, optional={"topology": st.one_of(st.sampled_from(["rack", "host", ""]), JSON), "size": st.one_of(st.integers(-2, 9), JSON)}
)
VALUES = st.one_of(
    st.text(max_size=12),
    st.sampled_from(["rack", "cloud.com/rack", "true", "4", "0", "auto", "-1", "+4", " 4"]),
    st.one_of(JSON, st.lists(LAYER, max_size=4)).map(json.dumps),
)


@given(st.lists(st.tuples(st.dictionaries(st.sampled_from(ALL), VALUES), st.one_of(st.none(), st.integers(0, 12))), min_size=1, max_size=3))
def test_random_annotations_raise_no_exception_and_accepted_ones_give_a_valid_request(pod_sets: list[tuple[dict[str, str], int | None]]):
    judged = [PodSetAnnotations(f"p{i}", {"metadata": {"annotations": own}}, count) for i, (own, count) in enumerate(pod_sets)]
    rules = validate_pod_sets(judged)
    for error in rules.errors:
        assert error.accepted
        assert error.field.startswith("p")
    for own, count in pod_sets:
        request = build_topology_request(own, pod_index_label="i")
        assert request is not None
        if not rules.errors:
            size = request.get("podSetSliceSize") or (request.get("podsetSliceRequiredTopologyConstraints") or [{"size": 1}])[0]["size"]
            assert size >= 1
            assert count is None or count % size == 0
            assert sum(mode in request for mode in ("required", "preferred", "unconstrained")) <= 1


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("rack", True),
        ("cloud.com/topology-rack", True),
        ("a" * 63, True),
        ("a" * 64, False),
        ("", False),
        ("/rack", False),
        ("a/b/c", False),
        ("Cloud.com/rack", False),
        ("cloud.com/", False),
        ("-rack", False),
        ("ra ck", False),
        ("rack\n", False),
        ("d" * 253 + "/x", True),
        ("d" * 254 + "/x", False),
    ],
)
def test_label_names_as_kubernetes_has_them(text: str, good: bool):
    assert is_label_name(text) == good


@pytest.mark.parametrize(("path", "shown"), [(PATH, "spec.template.spec"), ("metadata.annotations", "spec")])
def test_the_gate_of_a_group_is_not_for_queued_pods(path: str, shown: str) -> None:
    template = {"metadata": {"annotations": {}}, "spec": {"schedulingGates": [{"name": PODGROUP_GATE}]}}
    (error,) = validate_pod_sets([PodSetAnnotations(path, template, 8)]).errors
    assert (error.type, error.field) == (ErrorType.FORBIDDEN, f"{shown}.schedulingGates")
