"""A job that names a priority class which is not there is told which ones are."""

from __future__ import annotations

import pytest

from core.names import PRIORITY_CLASS_LABEL
from core.plan.jobs.workload_priority import MissingClass, find_changed_priority, find_priority
from core.runtime.controller import Retryable
from reconciler.jobs.read_jobs import read_classes
from sim.harness import Harness
from tests.reconciler.harness_pods import PodsHarness, build_pod
from tests.runtime.fakes import ManualClock


def get_message(*classes: str, asked: str = "urgnt") -> str:
    """What is said of a class that is not among these."""
    harness = Harness(ManualClock())
    for number, name in enumerate(classes):
        harness.put({"kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": number})
    with pytest.raises(MissingClass) as error:
        find_priority(read_classes(harness.observed), {PRIORITY_CLASS_LABEL: asked}, lambda: None)
    return str(error.value)


def test_the_nearest_is_named_first():
    message = get_message("high", "urgent")
    assert all(part in message for part in ('WorkloadPriorityClass "urgnt"', "urgent, high"))


def test_of_many_five_are_named():
    said = get_message("urgent", *(f"class-{number}" for number in range(9)))
    assert all(part in said for part in ('WorkloadPriorityClass "urgnt"', "urgent, class-", "5 more"))
    assert said.count("class-") == 4


def test_unknown_priority_class_without_any_class_is_reported():
    assert all(part in get_message() for part in ('WorkloadPriorityClass "urgnt"', "none"))


@pytest.mark.parametrize("group", [None, "g"])
def test_unknown_priority_class_of_pods_is_reported(group: str | None):
    harness = PodsHarness()
    for name in ("a", "b") if group else ("a",):
        asked = build_pod(name, group=group)
        asked["metadata"]["labels"][PRIORITY_CLASS_LABEL] = "urgnt"
        harness.put(asked)
    with pytest.raises(Retryable):
        harness.run()
    assert harness.events == [("Pod", "ns/a", "WorkloadRefused", get_message(), "Warning")]


@pytest.mark.parametrize("group", [None, "g"])
def test_waiting_workload_of_pods_keeps_its_priority_when_its_class_changes(group: str | None):
    harness = PodsHarness()
    harness.put({"kind": "WorkloadPriorityClass", "metadata": {"name": "normal"}, "value": 1})
    for name in ("a", "b") if group else ("a",):
        asked = build_pod(name, group=group)
        asked["metadata"]["labels"][PRIORITY_CLASS_LABEL] = "normal"
        harness.put(asked)
    harness.run()
    harness.put({"kind": "WorkloadPriorityClass", "metadata": {"name": "normal"}, "value": 1000})
    harness.run()
    assert [each["spec"]["priority"] for each in harness.all("Workload")] == [1]


@pytest.mark.parametrize(
    ("reference", "of_pods", "label", "asked", "is_followed"),
    [
        (None, None, None, None, False),
        (("WorkloadPriorityClass", "a"), None, "a", None, False),
        (("WorkloadPriorityClass", "a"), None, "b", None, True),
        (("WorkloadPriorityClass", "a"), "x", "a", "x", False),
        (("WorkloadPriorityClass", "a"), "x", None, "x", True),
        (("PriorityClass", "x"), "x", None, "x", False),
        (("PriorityClass", "x"), "x", "b", "x", True),
        (("PriorityClass", "x"), "x", None, "y", True),
        (None, "x", None, "x", False),
        (("PriorityClass", "default"), None, None, None, False),
    ],
    ids=str,
)
def test_priority_is_read_anew_when_the_job_names_another_class(
    reference: tuple[str, str] | None, of_pods: str | None, label: str | None, asked: str | None, is_followed: bool
):
    harness = Harness(ManualClock())
    for name in ("a", "b"):
        harness.put({"kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": 7})
    for name in ("x", "y"):
        harness.put({"kind": "PriorityClass", "metadata": {"name": name}, "value": 7})
    classes = read_classes(harness.observed)
    spec = {"priority": 1, "podSets": [{"name": "main", "template": {"spec": {"priorityClassName": of_pods} if of_pods else {}}}]}
    if reference is not None:
        spec["priorityClassRef"] = {"kind": reference[0], "name": reference[1]}
    labels = {PRIORITY_CLASS_LABEL: label} if label else {}
    assert find_changed_priority(classes, {"spec": spec}, labels, lambda: asked).get("priority") == (7 if is_followed else None)
