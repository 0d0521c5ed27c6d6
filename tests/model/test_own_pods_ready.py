"""What a workload says for itself of waitForPodsReady: read strictly, bounded, and only with its gates."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.gates import MAX_NOT_READY, WORKLOAD_PODS_READY, ChosenGates
from core.model.own_pods_ready import BadTimes, OwnPodsReady, OwnTimes, parse_times
from core.model.pods_ready_rules import PodsReadyRules, Scope
from core.names import MAX_NOT_READY_COUNT, WAIT_FOR_PODS_READY

BOTH = OwnPodsReady.from_gates(ChosenGates({WORKLOAD_PODS_READY: True, MAX_NOT_READY: True}), 7200.0)


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ('{"timeoutSeconds": 30, "recoveryTimeoutSeconds": 40}', (30, 40)),
        ('{"timeoutSeconds": 30}', (30, 30)),
        ('{"timeoutSeconds": 7200}', (7200, 7200)),
    ],
)
def test_own_times_of_a_workload_are_read(text: str, times: tuple[float, float]):
    assert parse_times(text, 7200.0) == OwnTimes(*times)


@pytest.mark.parametrize(
    "text",
    [
        *("", "30", "[]", "null", "{", "{}", 7, None, "[" * 100_000, '{"timeoutSeconds": ' + "9" * 5000 + "}"),
        '{"recoveryTimeoutSeconds": 40}',
        '{"timeoutSeconds": 0}',
        '{"timeoutSeconds": -1}',
        '{"timeoutSeconds": 1.5}',
        '{"timeoutSeconds": "30"}',
        '{"timeoutSeconds": true}',
        '{"timeoutSeconds": null}',
        '{"timeoutSeconds": 7201}',
        '{"timeoutSeconds": 30, "recoveryTimeoutSeconds": 0}',
        '{"timeoutSeconds": 30, "recoveryTimeoutSeconds": 7201}',
        '{"timeoutSeconds": 30, "timeout": 3}',
    ],
)
def test_own_times_that_cannot_be_are_refused_with_a_short_message(text: object):
    with pytest.raises(BadTimes) as refused:
        parse_times(text, 7200.0)
    assert 0 < len(str(refused.value)) < 200


@given(st.integers(1, 7200), st.none() | st.integers(1, 7200))
def test_own_times_within_the_bounds_are_read_as_written(timeout: int, recovery: int | None):
    text = json.dumps({"timeoutSeconds": timeout} | ({} if recovery is None else {"recoveryTimeoutSeconds": recovery}))
    assert parse_times(text, 7200.0) == OwnTimes(timeout, timeout if recovery is None else recovery)


def build_workload(text: str | None) -> dict[str, Any]:
    return {"metadata": {"name": "w", "annotations": {} if text is None else {WAIT_FOR_PODS_READY: text}}}


USUAL = PodsReadyRules(timeout_s=300, recovery_timeout_s=None, blocks=Scope.CLUSTER, backoff_limit=3)


@pytest.mark.parametrize(
    ("usual", "text", "expected"),
    [
        (USUAL, None, (300, None, Scope.CLUSTER, 3)),
        (USUAL, '{"timeoutSeconds": 30}', (30, 30, Scope.CLUSTER, 3)),
        (USUAL, "nonsense", (300, None, Scope.CLUSTER, 3)),
        (None, '{"timeoutSeconds": 30}', (30, 30, None, None)),
        (None, None, None),
        (None, "nonsense", None),
    ],
)
def test_own_times_stand_in_for_those_of_the_cluster(usual: PodsReadyRules | None, text: str | None, expected: Any):
    found = BOTH.choose_rules(usual, build_workload(text))
    assert (found and (found.timeout_s, found.recovery_timeout_s, found.blocks, found.backoff_limit)) == expected


@pytest.mark.parametrize("own", [OwnPodsReady(), OwnPodsReady.from_gates(ChosenGates({WORKLOAD_PODS_READY: True}), None)])
def test_own_times_are_not_read_without_the_gate_or_where_no_pods_are_waited_for(own: OwnPodsReady):
    assert own.choose_rules(None, build_workload('{"timeoutSeconds": 30}')) is None


def build_pods(*texts: Any) -> list[dict[str, Any]]:
    return [{"metadata": {"annotations": {} if text is None else {MAX_NOT_READY_COUNT: text}}} for text in texts]


@pytest.mark.parametrize(
    ("texts", "tolerated"),
    [
        ((), 0),
        (("2", "2", "2"), 2),
        (("2", "1", "2"), 1),
        (("2", None), 0),
        (("2", "x"), 0),
        (("2", "-1"), 0),
        (("3", "2"), 2),
        (("4", "4"), 0),  # all of them: it is no number below the total
        (("9" * 5000,), 0),
        ((2,), 0),
        (("0",), 0),
    ],
)
def test_lowest_number_of_the_pods_of_a_group_is_tolerated(texts: tuple[Any, ...], tolerated: int):
    assert BOTH.count_tolerated(build_pods(*texts), 4) == tolerated
    assert OwnPodsReady().count_tolerated(build_pods(*texts), 4) == 0
