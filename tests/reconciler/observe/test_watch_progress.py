"""Whether a watch has delivered what was written before a resource version."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

from core.runtime.watch.watcher import Watcher
from reconciler.jobs.read_jobs import may_have_unseen_pods
from reconciler.observe.watch_progress import MOST_KEPT, STREAMS_KEPT, WatchProgress


@dataclass
class FakeWatcher:
    version: str = "10"
    opened: int = 1
    delivered: int = 1
    refreshes: int = 0

    def has_reached(self, version: str, opened: int) -> bool:
        return Watcher.has_reached(cast(Any, self), version, opened)

    def refresh(self, version: str) -> None:
        assert version
        self.refreshes += 1

    def open_anew(self) -> None:
        self.opened += 1

    def deliver(self) -> None:
        self.delivered = self.opened


def ask(watcher: Any) -> WatchProgress:
    return WatchProgress(watcher)


def test_version_that_the_watch_has_passed_is_passed_at_once():
    watcher = FakeWatcher(version="12")
    assert ask(watcher).has_passed("job", "12")
    assert watcher.refreshes == 0


def test_version_ahead_of_the_watch_is_passed_once_a_stream_opened_later_has_delivered():
    watcher = FakeWatcher()
    progress = ask(watcher)
    assert not progress.has_passed("job", "12")
    assert watcher.refreshes == 1
    watcher.deliver()  # a list that was begun before
    assert not progress.has_passed("job", "12")
    watcher.open_anew()
    assert not progress.has_passed("job", "12")
    watcher.deliver()
    assert progress.has_passed("job", "12")


def test_version_of_the_first_call_holds_while_the_object_changes():
    watcher = FakeWatcher()
    progress = ask(watcher)
    assert not progress.has_passed("job", "12")
    watcher.version = "12"
    assert progress.has_passed("job", "15")


def test_stream_that_was_opened_anew_is_left_open_until_it_has_delivered():
    """Each question of a busy minute would close it before its bookmark, and no question would ever be answered."""
    watcher = FakeWatcher()
    progress = ask(watcher)
    for number in range(100):
        assert not progress.has_passed(number, "12")
    assert watcher.refreshes == 1
    watcher.open_anew()
    assert not progress.has_passed("late", "13")
    assert watcher.refreshes == 1
    watcher.deliver()
    assert all(progress.has_passed(number, "12") for number in range(100))
    assert not progress.has_passed("late", "13")
    assert watcher.refreshes == 2, "what was asked after the stream was opened needs another one"


def test_questions_that_are_never_repeated_are_forgotten():
    watcher = FakeWatcher()
    progress = ask(watcher)
    for number in range(MOST_KEPT):
        progress.has_passed(number, "12")
    watcher.opened += STREAMS_KEPT + 1
    watcher.deliver()
    progress.has_passed("another", "13")
    assert len(progress._questions) == 1


def test_answers_to_thousands_of_questions_are_kept_until_they_are_asked_for():
    """Jobs that finish meanwhile ask before those that finished earlier ask again, which never had their answers."""
    watcher = FakeWatcher()
    progress = ask(watcher)
    early = range(2 * MOST_KEPT)
    assert not any(progress.has_passed(number, "12") for number in early)
    watcher.open_anew()
    watcher.deliver()
    assert not progress.has_passed("late", "13")
    assert all(progress.has_passed(number, "12") for number in early)


def test_resource_that_is_not_watched_delays_nothing():
    assert ask(FakeWatcher(version="")).has_passed("job", "12")


def test_job_that_ran_again_since_the_first_question_is_asked_about_anew():
    """Its user unsuspended it in between: what it made then is newer than the version of the first call."""
    watcher = FakeWatcher()
    given = SimpleNamespace(admission=SimpleNamespace(pod_sets=[SimpleNamespace(assignment=None)]))
    state = SimpleNamespace(workloads=SimpleNamespace(facts={"ns/w": given}))
    observed = cast(Any, SimpleNamespace(state=state, pods_progress=ask(watcher)))
    workload = {"metadata": {"namespace": "ns", "name": "w", "uid": "u"}}
    assert may_have_unseen_pods(observed, workload, "12", 1)
    watcher.version = "13"
    assert may_have_unseen_pods(observed, workload, "15", 3)
    watcher.version = "15"
    assert not may_have_unseen_pods(observed, workload, "16", 3)
