"""Whatever body is posted, of whatever kind: refused as no review, or answered yes or no in JSON; never a bug of ours.

Beside JSON values of wrong types this takes what only the text of a body can say: numbers without end or of thousands of
digits, keys that stand twice, halves of characters, lists in lists in lists.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.api.admission_review import parse_review
from core.api.body import MalformedReview
from core.api.conversion_review import parse_conversion
from core.api.convert import CONVERTED
from core.jobs.kinds.pod_kinds import list_pod_kinds
from core.jobs.kinds.registry import KINDS
from core.names import (
    API_VERSION,
    OLD_API_VERSION,
    POD_GROUP_INDEX_LABEL_NAME,
    POD_GROUP_NAME,
    POD_GROUP_TOTAL_COUNT,
    PODSET_LABEL,
    PREFERRED_TOPOLOGY,
    QUEUE_NAME_LABEL,
    SLICE_CONSTRAINTS,
    TRACEPARENT_ANNOTATION,
    WORKLOAD_ANNOTATION,
)
from core.resource import Resource
from tests.api.converting import objects
from tests.reconciler.kinds.scenarios import SCENARIOS, runtime
from tests.strategies import scale_examples
from tests.webhook.asking import build_review, hook, run
from tests.webhook.reviews.test_misshapen import WHOLE, places, replaced
from webhook.review import Reviews
from webhook.server import _answer_conversion, _encode_answer

Json = dict[str, Any]
RACK = "cloud.provider.com/topology-rack"
_DEEP = 5000
TOKENS = [
    "null",
    "true",
    "0",
    "-1",
    "-0",
    "1.5",
    "3.0",
    "1e400",
    "-1e400",
    "1e-400",
    "NaN",
    "Infinity",
    "-Infinity",
    str(2**31),
    str(-(2**63) - 1),
    "9" * 400,
    "9" * 5000,
    "-" + "9" * 5000,
    '""',
    '"' + "9" * 5000 + '"',
    '"' + "0" * 5000 + '1"',
    '"1e99999999"',
    '"99999999999999999999Ei"',
    '"NaN"',
    r'"\ud800"',
    r'"\udc00\ud800"',
    r'"\u0000"',
    '"٣"',
    '"' + "a" * 70_000 + '"',
    '"' + "[" * _DEEP + '"',
    "[]",
    "[null]",
    '[["a"]]',
    "{}",
    '{"": null}',
    r'{"\ud800": "\ud800"}',
    '{"name": "a", "name": 3}',
    '{"spec": {"spec": []}, "metadata": 7, "template": "x"}',
    '{"requests": {"cpu": "' + "9" * 5000 + '"}, "limits": []}',
    "[" * _DEEP + "]" * _DEEP,
    '{"a":' * _DEEP + "1" + "}" * _DEEP,
    "[" * 200 + "]" * 200,
    *('{"a":' * depth + "1" + "}" * depth for depth in (300, 450, 700, 900)),
    *("[" * depth + "]" * depth for depth in (450, 900)),
    "[,]",
    "",
]
# By number, since Hypothesis writes out what it draws from when it has something to say.
TOKEN = st.integers(0, len(TOKENS) - 1).map(lambda number: TOKENS[number])


def made(kind: str) -> Json:
    """A good object of a kind, with all that topogate reads of any."""
    scenario = next((scenario for scenario in SCENARIOS if scenario.kind == kind), None)
    obj = WHOLE.get(kind) or ({"spec": scenario.spec(RACK)} if scenario is not None else _PODS[kind])
    obj = {**deepcopy(obj), "kind": kind}
    labels = {QUEUE_NAME_LABEL: "main", PODSET_LABEL: "main", POD_GROUP_NAME: "group", "index": "3"}
    notes = {
        WORKLOAD_ANNOTATION: "w",
        TRACEPARENT_ANNOTATION: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        POD_GROUP_TOTAL_COUNT: "4",
        POD_GROUP_INDEX_LABEL_NAME: "index",
        SLICE_CONSTRAINTS: f'[{{"topology": "{RACK}", "size": 2}}]',
        PREFERRED_TOPOLOGY: RACK,
        "topogate.dev/workload-required-topology": RACK,
    }
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "above", "uid": "u", "controller": True}
    metadata = {"name": "x", "namespace": "team-a", "labels": labels, "annotations": notes, "ownerReferences": [owner]}
    obj["metadata"] = {**metadata, **(obj.get("metadata") or {}), "finalizers": ["a"]}
    if kind not in ("Topology", "ResourceFlavor", "ClusterQueue", "Cohort"):
        obj["metadata"] |= {"labels": {**labels, **(obj["metadata"].get("labels") or {})}, "annotations": notes}
    return {**obj, "status": {"replicas": 0, "conditions": [{"type": "QuotaReserved", "status": "True"}]}}


_POD_SPEC = {
    "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}, "ports": [{"hostPort": 1}]}],
    "initContainers": [{"name": "i", "resources": {}}],
    "nodeSelector": {"a": "b"},
    "schedulingGates": [{"name": "g"}],
    "tolerations": [{"key": "k", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "overhead": {"cpu": "1"},
}
_TEMPLATE = {"metadata": {"labels": {"a": "b"}, "annotations": {PREFERRED_TOPOLOGY: RACK}}, "spec": _POD_SPEC}
_GROUPS = {"size": 3, "leaderTemplate": _TEMPLATE, "workerTemplate": _TEMPLATE}
_WRAPPED = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": {"name": "in"}}
_PODS: dict[str, Json] = {
    "Pod": {"spec": _POD_SPEC},
    "StatefulSet": {"spec": {"replicas": 3, "ordinals": {"start": 3}, "template": _TEMPLATE}},
    "Deployment": {"spec": {"replicas": 3, "template": _TEMPLATE}},
    "LeaderWorkerSet": {"spec": {"replicas": 2, "leaderWorkerTemplate": _GROUPS}},
}
NAMES = sorted({kind.kind for kind in (*KINDS, *list_pod_kinds())} | {"Workload", "Topology", "ResourceFlavor", "ClusterQueue", "Cohort"})
OBJECTS = {name: made(name) for name in NAMES}
OBJECTS["AppWrapper"]["spec"]["components"] += [
    {
        "template": {**_WRAPPED, "spec": {"replicas": 2, "leaderWorkerTemplate": _GROUPS}},
        "podSets": [
            {"path": "template.spec.leaderWorkerTemplate.leaderTemplate", "replicas": 2},
            {"path": "template.spec.leaderWorkerTemplate.workerTemplate", "replicas": 4},
        ],
        "podSetInfos": [{"labels": {"a": "b"}, "tolerations": [{"key": "k"}]}],
    }
]
PLACES = {name: [path for path in places(obj) if path and path[0] != "kind"] for name, obj in OBJECTS.items()}


async def _has_default_queue(namespace: str) -> bool:
    return True


async def _find(resource: Resource, name: str, namespace: str) -> Json | None:
    """What is there already the API server has judged."""
    return runtime() if resource.kind.endswith("Runtime") else None


REVIEWS = Reviews(_has_default_queue, find=_find)


def hole(index: int) -> str:
    return f"@hole {index}@"


def filled(value: Any, tokens: list[str]) -> bytes:
    """JSON with raw text in its holes."""
    text = json.dumps(value)
    for index, token in enumerate(tokens):
        text = text.replace(json.dumps(hole(index)), token)
    return text.encode()


def strictly(answer: bytes) -> Any:
    """As the API server reads an answer: NaN and its like are no JSON."""

    def refuse(text: str) -> Any:
        raise AssertionError(f"{text} is no JSON")

    return json.loads(answer, parse_constant=refuse)


def judged(kind: str, new: Any, old: Any, tokens: list[str]) -> Iterator[Json]:
    for action in ("mutate", "validate"):
        path = hook(action, kind)
        body = filled(build_review({"kind": kind}) | {"request": build_review({"kind": kind}, old)["request"] | {"object": new}}, tokens)
        with contextlib.suppress(MalformedReview):
            yield strictly(_encode_answer(run(REVIEWS.answer(path, parse_review(body)))))["response"]


@pytest.mark.parametrize("kind", NAMES)
def test_a_good_object_of_every_kind_is_taken(kind: str):
    """Or the others would say nothing."""
    answers = list(judged(kind, OBJECTS[kind], None, []))
    assert len(answers) == 2
    assert "nested too deeply" not in str(answers)
    if kind not in ("Pod", "Workload"):
        assert not [cause for answer in answers for cause in get_causes(answer) if cause["reason"] == "FieldValueTypeInvalid"]


def get_causes(answer: Json) -> list[Json]:
    return list(((answer.get("status") or {}).get("details") or {}).get("causes") or ())


@pytest.mark.parametrize("kind", NAMES)
@settings(max_examples=scale_examples(2), suppress_health_check=[HealthCheck.data_too_large])
@given(data=st.data())
def test_any_text_in_any_place_of_an_object_is_refused_or_answered(kind: str, data: st.DataObject):
    new, old = OBJECTS[kind], data.draw(st.sampled_from([None, OBJECTS[kind], *in_other_queues(OBJECTS[kind])]))
    tokens = data.draw(st.lists(TOKEN, min_size=1, max_size=2))
    for index in range(len(tokens)):
        with contextlib.suppress(TypeError, KeyError, IndexError):
            new = replaced(new, data.draw(st.sampled_from(PLACES[kind])), hole(index))
    if data.draw(st.booleans()):
        new, old = (old, new) if old is not None else (new, old)
    for answer in judged(kind, new, old, tokens):
        assert answer["allowed"] or answer["status"]["message"]


def in_other_queues(obj: Json) -> list[Json]:
    """In another one, and in none."""
    others = ({**obj["metadata"].get("labels", {}), QUEUE_NAME_LABEL: "another"}, {"app": "x"})
    return [{**obj, "metadata": {**obj["metadata"], "labels": labels}} for labels in others]


REQUEST = build_review(OBJECTS["Job"], OBJECTS["Job"])


@pytest.mark.parametrize("token", TOKENS, ids=lambda token: token[:20] or "nothing")
def test_any_text_in_any_place_of_the_review_around_it_is_refused_or_answered(token: str):
    for path in places(REQUEST):
        if path and not {"object", "oldObject"} & {*path[1:2]}:
            with contextlib.suppress(MalformedReview):
                strictly(
                    _encode_answer(
                        run(REVIEWS.answer(hook("mutate", "Job"), parse_review(filled(replaced(REQUEST, path, hole(0)), [token]))))
                    )
                )


@pytest.mark.parametrize("new", [True, False], ids=["down", "up"])
@settings(max_examples=scale_examples(5), suppress_health_check=[HealthCheck.data_too_large])
@given(data=st.data())
def test_any_text_in_any_place_of_an_object_is_converted_or_refused(new: bool, data: st.DataObject):
    obj = data.draw(objects(new=new))
    assert obj["kind"] in CONVERTED
    paths = [path for path in places(obj) if path and path != ("kind",)]
    broken = replaced(obj, data.draw(st.sampled_from(paths)), hole(0))
    request = {"uid": "7a", "desiredAPIVersion": OLD_API_VERSION if new else API_VERSION, "objects": [broken, obj]}
    whole = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request}
    with contextlib.suppress(MalformedReview):
        result = strictly(_answer_conversion(filled(whole, [data.draw(TOKEN)])))["response"]["result"]
        assert result["status"] == "Success" or result["message"]


@pytest.mark.parametrize("token", TOKENS, ids=lambda token: token[:20] or "nothing")
def test_any_text_in_any_place_of_a_conversion_review_is_refused_or_answered(token: str):
    request = {"uid": "7a", "desiredAPIVersion": API_VERSION, "objects": [{"kind": "Cohort", "apiVersion": OLD_API_VERSION}]}
    whole = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request}
    for path in places(whole):
        body = filled(replaced(whole, path, hole(0)), [token])
        with contextlib.suppress(MalformedReview):
            strictly(_answer_conversion(body))
        with contextlib.suppress(MalformedReview):
            parse_conversion(body)
