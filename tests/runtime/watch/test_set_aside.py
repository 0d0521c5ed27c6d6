"""Objects that are set aside: what is kept of an error, and how often one object is reported."""

from __future__ import annotations

from core.resource import Resource
from core.runtime.watch.set_aside import Aside, SetAside
from tests.runtime.fakes import ManualClock

PODS = Resource("", "v1", "pods", "Pod")


def test_error_with_long_text_is_cut():
    """An error quotes the value, which a user may make as long as an object may be."""
    set_aside = SetAside(ManualClock())
    set_aside.add(PODS, "a/p", {}, ValueError("x" * 10_000))
    (aside,) = set_aside.objects
    assert len(aside.why) == 256
    assert aside.why.startswith("ValueError: xxx")


def test_object_with_ever_other_errors_is_reported_once_a_minute():
    """A user who changes one object each second drew a log line and an event each second."""
    clock, reported = ManualClock(), list[Aside]()
    set_aside = SetAside(clock)
    set_aside.on_add.append(reported.append)
    for i in range(120):
        set_aside.add(PODS, "a/p", {}, ValueError(f"error {i}"))
        assert len(set_aside) == 1
        set_aside.remove(PODS, "a/p")
        clock.time += 1
    assert [aside.why for aside in reported] == ["ValueError: error 0", "ValueError: error 60"]


def test_object_that_breaks_again_in_the_same_way_later_is_reported_again():
    """Found by a reader: an object that was corrected, and broken again hours later, was set aside without a word."""
    clock, reported = ManualClock(), list[str]()
    aside = SetAside(clock)
    aside.on_add.append(lambda one: reported.append(one.why))
    for after_s in (0.0, 300.0, 301.0):
        clock.time += after_s
        aside.add(PODS, "ns/p", {}, ValueError("odd"))
        aside.remove(PODS, "ns/p")
    assert reported == ["ValueError: odd"] * 2
