"""A job that names a priority class which is not there is told which ones are."""

from __future__ import annotations

import pytest

from core.names import PRIORITY_CLASS_LABEL
from core.runtime.controller import Retryable
from reconciler.steps import WorkloadSteps
from sim.harness import Harness
from tests.reconciler.harness_pods import PodsHarness, pod
from tests.runtime.fakes import ManualClock


def told(*classes: str, asked: str = "urgnt") -> str:
    """What is said of a class that is not among these."""
    harness = Harness(ManualClock())
    for number, name in enumerate(classes):
        harness.put({"kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": number})
    steps = WorkloadSteps(harness.observed, harness.writer)
    with pytest.raises(Retryable) as error:
        steps.priority({PRIORITY_CLASS_LABEL: asked}, lambda: None)
    return str(error.value)


WAITS = "The job waits until it does, or names another"


def test_the_nearest_is_named_first():
    assert told("high", "urgent") == f'WorkloadPriorityClass "urgnt" does not exist; there are urgent, high. {WAITS}'


def test_of_many_five_are_named():
    said = told("urgent", *(f"class-{number}" for number in range(9)))
    assert said.startswith('WorkloadPriorityClass "urgnt" does not exist; there are urgent, class-')
    assert said.endswith(f" and 5 more. {WAITS}")
    assert said.count("class-") == 4


def test_it_is_told_that_there_is_none():
    assert told() == f'WorkloadPriorityClass "urgnt" does not exist; there is none at all. {WAITS}'


@pytest.mark.parametrize("group", [None, "g"])
def test_pods_are_told_too(group: str | None):
    harness = PodsHarness()
    for name in ("a", "b") if group else ("a",):
        asked = pod(name, group=group)
        asked["metadata"]["labels"][PRIORITY_CLASS_LABEL] = "urgnt"
        harness.put(asked)
    with pytest.raises(Retryable):
        harness.run()
    message = f'WorkloadPriorityClass "urgnt" does not exist; there is none at all. {WAITS}'
    assert harness.events == [("Pod", "ns/a", "WorkloadRefused", message, "Warning")]
