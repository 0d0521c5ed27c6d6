"""What lives is left out of collections, and what has no use any more is not kept for it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from core.runtime.garbage import spare_what_lives


class Thing:
    other: Thing


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_what_lives_is_not_looked_at_again_and_goes_when_nobody_refers_to_it():
    kept, collected = [Thing()], gc.get_freeze_count()
    spare_what_lives()
    assert gc.get_freeze_count() > collected
    assert kept[0] not in gc.get_objects()
    gone = weakref.ref(kept.pop())
    assert gone() is None


def test_young_cycles_that_nobody_refers_to_are_collected_and_not_kept():
    thing = Thing()
    thing.other = thing
    gone = weakref.ref(thing)
    del thing
    spare_what_lives()
    assert gone() is None
