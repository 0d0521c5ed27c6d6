"""Whatever JSON stands in place of any part of an object, the answer is yes or no, never a bug of ours."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.jobs.kinds.registry import KINDS
from core.jobs.schema_check import Fields, build_spec_shape, find_misshapen
from core.names import API_VERSION, PREFERRED_TOPOLOGY, SLICE_CONSTRAINTS
from e2e import manifests
from tests.strategies import scale_examples
from tests.webhook.asking import Webhook, apply, get_causes, hook, patch_of
from tests.webhook.reviews.test_object_reviews import GOOD, build_pod_set, build_workload

RACK = "cloud.provider.com/topology-rack"
_TEMPLATE = build_pod_set()["template"] | {"metadata": {"labels": {"a": "b"}, "annotations": {PREFERRED_TOPOLOGY: RACK}}}
WHOLE: dict[str, dict[str, Any]] = {
    **GOOD,
    "Workload": build_workload(
        build_pod_set(template=_TEMPLATE, topologyRequest={"podSetSliceSize": 2, "required": RACK}),
        build_pod_set("b", topologyRequest={"podsetSliceRequiredTopologyConstraints": [{"topology": RACK, "size": 2}]}),
    ),
    "Cohort": {
        "apiVersion": API_VERSION,
        "kind": "Cohort",
        "metadata": {"name": "c"},
        "spec": {**manifests.build_cluster_queue("q", {"gpu": {"cpu": 4}})["spec"], "parentName": "p", "fairSharing": {"weight": "1"}},
    },
    "Job": manifests.build_job(
        "train",
        "team-a",
        pods=4,
        required=RACK,
        labels={"app": "x"},
        annotations={SLICE_CONSTRAINTS: f'[{{"topology": "{RACK}", "size": 2}}]'},
        spec={"suspend": True},
        pod_spec={"schedulingGates": [{"name": "example.com/wait"}], "tolerations": [{"operator": "Exists"}], "nodeSelector": {"a": "b"}},
    ),
}
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-10_000, 10_000)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(["name", "spec", RACK, "", "1e99", "-0", "\ud800", 2**70, -(2**70)]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8) | st.sampled_from(["name", "spec"]), inner, max_size=3),
    max_leaves=8,
)


def get_shape(kind: str) -> Fields:
    return next((job.spec_shape for job in KINDS if job.kind == kind), build_spec_shape(kind))


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for key, entry in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(entry, (*path, key))


def replaced(obj: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    result = copy.copy(obj)
    result[path[0]] = replaced(obj[path[0]], path[1:], value)
    return result


PLACES = {kind: [path for path in places(obj) if path and path[0] in ("metadata", "spec", "status")] for kind, obj in WHOLE.items()}


@pytest.mark.parametrize("kind", WHOLE)
@settings(max_examples=scale_examples(2.5))
@given(data=st.data())
def test_random_json_in_place_of_any_part_is_answered(kind: str, data: st.DataObject):
    good, webhook = WHOLE[kind], Webhook(default_queue=True)
    broken = good
    for _ in range(data.draw(st.integers(1, 2))):
        path = data.draw(st.sampled_from(PLACES[kind]))
        try:
            broken = replaced(broken, path, data.draw(JSON))
        except (TypeError, KeyError, IndexError):
            continue  # the place went with the first one
    # As on the API server: defaulted, then judged as stored; new, changed from a good one, and changed back to it.
    stored = apply(broken, patch_of(webhook.ask(hook("mutate", kind), broken)))
    for new, old in ((stored, None), (stored, good), (good, broken)):
        response = webhook.ask(hook("validate", kind), new, old)
        assert response["allowed"] or response["status"]["message"]


@pytest.mark.parametrize("kind", WHOLE)
def test_a_whole_object_has_its_shape_and_a_wrong_type_anywhere_in_it_is_named(kind: str):
    assert find_misshapen(get_shape(kind), WHOLE[kind]) == ()
    (error,) = find_misshapen(get_shape(kind), {**WHOLE[kind], "spec": "x"})
    assert (error.field, error.value) == ("spec", "x")
    assert "map" in error.accepted
    (error,) = find_misshapen(get_shape(kind), {"metadata": {}})
    assert (error.field, error.accepted) == ("spec", "is needed")


def test_a_misshapen_part_is_refused_with_its_path_and_left_alone_by_the_defaults():
    """A custom resource reaches the mutating webhook before its schema is judged."""
    broken = build_workload(
        build_pod_set(None, template={"spec": {"containers": [{"resources": [1]}]}, "metadata": {"labels": {"a": 1}}}), "x"
    )
    assert "patch" not in Webhook().ask(hook("mutate", "Workload"), broken)
    expected = {
        "spec.podSets[0].template.metadata.labels[a]": ("1", "text"),
        "spec.podSets[0].template.spec.containers[0].resources": ("[1]", "map"),
        "spec.podSets[1]": ('"x"', "map"),
    }
    found = get_causes(Webhook().validate(broken))
    assert sorted(found) == sorted(expected)
    assert all(found[field].startswith(f"{value}: ") and kind in found[field] for field, (value, kind) in expected.items())


def test_an_object_nested_too_deeply_is_refused_in_words():
    deep: Any = 1
    for _ in range(800):
        deep = {"a": deep}
    job = manifests.build_job("train", "team-a", pods=1, spec={"x": deep})
    response = Webhook().ask(hook("mutate", "Job"), job)
    assert response["allowed"] is False
    assert "nested" in response["status"]["message"]
