"""The patch turns the old object into the new one, for any two objects, and says no more than has changed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.webhook.asking import apply
from webhook.jsonpatch import diff

KEYS = st.sampled_from(["a", "b", "a/b", "~", "~1", "", "kueue.x-k8s.io/queue-name"])
VALUES = st.recursive(
    st.sampled_from([None, True, False, 0, 1, 1.0, "", "x"]), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner)
)
OBJECTS = st.dictionaries(KEYS, VALUES)


def exactly(value: Any) -> Any:
    """A value that is equal only where the JSON is: True is not 1."""
    if isinstance(value, dict):
        return {key: exactly(entry) for key, entry in value.items()}
    return [exactly(entry) for entry in value] if isinstance(value, list) else (type(value), value)


@given(OBJECTS, OBJECTS)
def test_applying_the_patch_to_the_old_object_gives_the_new_one(old: dict[str, Any], new: dict[str, Any]):
    operations = list(diff(old, new))
    assert exactly(apply(old, operations)) == exactly(new)
    assert (not operations) == (exactly(old) == exactly(new))


@pytest.mark.parametrize(("old", "new"), [([1], [True]), ([{"a": 1}], [{"a": 1.0}]), (0, False), ([1], [1, 1])])
def test_json_patch_distinguishes_values_that_are_equal_only_in_python(old: Any, new: Any):
    assert list(diff({"a": old}, {"a": new})) == [{"op": "replace", "path": "/a", "value": new}]


def test_json_patch_contains_only_changed_fields():
    old = {"metadata": {"labels": {"a/b": "1", "keep": "1"}}, "spec": {"suspend": False, "gates": [1]}}
    new = {"metadata": {"labels": {"keep": "1"}}, "spec": {"suspend": True, "gates": [1, 2]}, "x": {}}
    operations = sorted(diff(old, new), key=lambda operation: operation["path"])
    assert operations == [
        {"op": "remove", "path": "/metadata/labels/a~1b"},
        {"op": "replace", "path": "/spec/gates", "value": [1, 2]},
        {"op": "replace", "path": "/spec/suspend", "value": True},
        {"op": "add", "path": "/x", "value": {}},
    ]
