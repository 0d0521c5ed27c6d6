"""The store against a plain model: whatever the events, it holds what was told, and the changes replayed give the same."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from core.resource import Obj
from core.runtime.watch.store import Change, Store, build_object_key
from core.runtime.watch.watch_step import Applied, Deleted, Event, Init, InitApply, InitDone
from tests.runtime.fakes import make_obj

NAMES = st.sampled_from(["a", "b", "c", "d"])
COLOURS = st.sampled_from(["red", "green", "blue"])


def colours(obj: Obj) -> list[str]:
    return list(obj.get("colours", []))


class StoreMachine(RuleBasedStateMachine):
    """The world changes while watched, or unseen between two lists; a list may be broken off."""

    def __init__(self) -> None:
        super().__init__()
        self.store = Store()
        self.store.add_index("colour", colours)
        self.world: dict[str, Obj] = {}
        self.told: dict[str, Obj] = {}
        self.version = 0
        self.uids = 0
        self.watched = False

    def feed(self, *events: Event) -> list[Change]:
        return self.hear([change for event in events for change in self.store.apply(event)])

    def hear(self, changes: list[Change]) -> list[Change]:
        for change in changes:
            key = build_object_key(change.obj)
            assert self.told.get(key) == change.old, "the old state is the one told before"
            assert change.old is not None or change.new is not None
            if change.new is None:
                del self.told[key]
            else:
                if change.old is not None:
                    assert change.old["metadata"]["uid"] == change.new["metadata"]["uid"]
                    assert change.old["metadata"]["resourceVersion"] != change.new["metadata"]["resourceVersion"]
                self.told[key] = change.new
        return changes

    @rule(name=NAMES, paint=st.sets(COLOURS), anew=st.booleans())
    def put(self, name: str, paint: set[str], anew: bool) -> None:
        known = self.world.get(name)
        self.version += 1
        self.uids += 1
        uid = str(self.uids) if known is None or anew else known["metadata"]["uid"]
        obj = make_obj(name, self.version, uid=uid, colours=sorted(paint))
        self.world[name] = obj
        if self.watched:
            changes = self.feed(Applied(obj))
            assert len(changes) == (2 if known is not None and uid != known["metadata"]["uid"] else 1)
            assert not any(change.initial for change in changes)
            assert self.feed(Applied(obj)) == [], "the same state again is no change"

    @precondition(lambda self: self.world)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        obj = self.world.pop(data.draw(st.sampled_from(sorted(self.world))))
        if self.watched:
            self.version += 1
            last = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}
            assert self.feed(Deleted(last)) == [Change(obj, None)]
            assert self.feed(Deleted(last)) == []

    @rule()
    def lose_connection(self) -> None:
        self.watched = False

    @rule(broken_off=st.integers(0, 2))
    def relist(self, broken_off: int) -> None:
        first = not self.store.synced
        before = dict(self.told)
        for _ in range(broken_off):
            assert self.feed(Init(), InitApply(make_obj("ghost", 0, uid="ghost"))) == []
            assert self.told == before, "readers see the old state until the new one is whole"
        changes = self.feed(Init(), *(InitApply(obj) for obj in self.world.values()), InitDone())
        assert all(change.initial is first for change in changes if change.new is not None)
        self.watched = True

    @precondition(lambda self: not self.store.synced)
    @rule(at_once=st.integers(1, 3), broken_off=st.one_of(st.none(), st.integers(0, 4)))
    def first_list_in_pieces(self, at_once: int, broken_off: int | None) -> None:
        """May be broken off: some of what it said is in the store then, and the next list is the first."""
        self.store.apply(Init())
        for obj in self.world.values():
            self.store.apply(InitApply(obj))
        for number, changes in enumerate(self.store.apply_list(at_once)):
            if number == broken_off:
                self.hear(changes)
                return
            assert len(changes) <= 2 * at_once
            self.hear(changes)
            assert not self.store.synced
            assert all(self.store.get(key) == obj for key, obj in self.told.items()), "what is told is there"
        self.watched = True

    @precondition(lambda self: self.watched)
    @rule(name=NAMES)
    def late_word_of_a_former_object(self, name: str) -> None:
        assert self.feed(Deleted(make_obj(name, self.version, uid="of old"))) == []

    @invariant()
    def agrees(self) -> None:
        if not self.watched:
            return
        assert self.store.synced
        world = {build_object_key(obj): obj for obj in self.world.values()}
        assert self.told == world
        assert self.store.list() == [world[key] for key in sorted(world)]
        assert len(self.store) == len(world)
        assert set(self.store.list_keys()) == set(world)
        for colour in ("red", "green", "blue"):
            assert self.store.list_by_index("colour", colour) == [world[key] for key in sorted(world) if colour in colours(world[key])]


TestStore = StoreMachine.TestCase


def test_object_deleted_during_a_watch_gap_is_reported_with_its_last_known_state():
    store = Store()
    old = make_obj("a", 1)
    for event in (Init(), InitApply(old), InitDone(), Init()):
        store.apply(event)
    assert store.get("ns/a") is old
    assert store.apply(InitDone()) == [Change(old, None)]


def test_the_same_name_with_another_uid_found_by_a_list_is_deleted_and_created():
    store = Store()
    old, new = make_obj("a", 1, uid="1"), make_obj("a", 2, uid="2")
    for event in (Init(), InitApply(old), InitDone(), Init(), InitApply(new)):
        store.apply(event)
    assert store.apply(InitDone()) == [Change(old, None), Change(None, new)]


def test_index_added_to_a_filled_store_covers_existing_objects():
    store = Store()
    obj = make_obj("a", 1, colours=["red"])
    store.apply(Applied(obj))
    store.add_index("colour", colours)
    assert store.list_by_index("colour", "red") == [obj]
    assert store.list_by_index("colour", "green") == []


def test_keys_are_names_where_there_is_no_namespace():
    assert build_object_key({"metadata": {"name": "node-1"}}) == "node-1"
    assert "ns/a" not in Store()
