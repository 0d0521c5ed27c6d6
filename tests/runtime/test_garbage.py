"""What lives is left out of collections, and what has no use any more is not kept for it, nor the memory where it was."""

from __future__ import annotations

import gc
import platform
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.runtime.garbage import exclude_live_objects, exclude_survivors_of_long_collections, give_back_pages

pytestmark = pytest.mark.slow  # collections of many objects


class Thing:
    other: Thing


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_frozen_object_is_not_scanned_and_is_freed_without_references():
    kept, collected = [Thing()], gc.get_freeze_count()
    exclude_live_objects()
    assert gc.get_freeze_count() > collected
    assert kept[0] not in gc.get_objects()
    gone = weakref.ref(kept.pop())
    assert gone() is None


def test_unreferenced_young_cycle_is_collected_instead_of_frozen():
    thing = Thing()
    thing.other = thing
    gone = weakref.ref(thing)
    del thing
    exclude_live_objects()
    assert gone() is None


def test_exclude_live_objects_where_the_collector_is_off_does_nothing():
    thing = Thing()
    thing.other = thing
    gone, before = weakref.ref(thing), gc.get_freeze_count()
    gc.disable()
    try:
        del thing
        exclude_live_objects()
        assert (gone() is None, gc.get_freeze_count()) == (False, before)
    finally:
        gc.enable()


@pytest.mark.parametrize(("took_s", "generation", "is_spared"), [(0.03, 2, True), (0.01, 2, False), (0.03, 1, False)])
def test_objects_that_survive_a_long_collection_are_not_looked_at_again(took_s: float, generation: int, is_spared: bool):
    times, kept = iter((1.0, 1.0 + took_s)), [Thing()]
    gc.collect()
    gc.unfreeze()
    end = exclude_survivors_of_long_collections(0.02, lambda: next(times))
    try:
        gc.collect(generation)
    finally:
        end()
    assert any(each is kept[0] for each in gc.get_objects()) != is_spared
    before = gc.get_freeze_count()
    gc.collect()
    assert gc.get_freeze_count() <= before, "it has ended"


def _resident_kb() -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1])


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="this C library keeps no pages, or cannot be asked for them")
def test_freed_memory_pages_between_live_blocks_are_returned():
    blocks: list[bytes | None] = [bytes(20_000) for _ in range(4_000)]  # too small for mappings of their own
    for number in range(len(blocks)):
        if number % 50:
            blocks[number] = None
    before = _resident_kb()
    assert give_back_pages()
    assert before - _resident_kb() > 30_000, "of the 78 MB that were freed"
    assert blocks[0] is not None
