"""The store with replies that come before the watch, or long after it: readers see what was written, and nothing that is gone."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from core.resource import Obj
from core.runtime.watch.store import Changes, Store, build_object_key, read_version
from core.runtime.watch.watch_step import Applied, Deleted, Event, Init, InitApply, InitDone
from tests.runtime.fakes import make_obj

NAMES = st.sampled_from(["a", "b", "c"])


class ReplyMachine(RuleBasedStateMachine):
    """A server whose watch is late. Every write has an event, which comes in order; those of this process have a reply, too, which comes at
    once or at any time later. Lists show one moment and may be folded in pieces."""

    def __init__(self) -> None:
        super().__init__()
        self.store = Store()
        self.world: dict[str, Obj] = {}
        self.version = self.uids = 0
        self.events: list[Event] = []  # that the watch has not brought yet
        self.replies: list[Obj] = []  # that are on their way
        self.told: dict[str, Obj] = {}
        self.pieces: list[Changes] = []
        self.gone: dict[str, int] = {}  # uids of deleted objects, and the version of their deletion
        self.brought = 0  # the version up to which the watch has told all
        self.hear(self.store.apply(Init()), self.store.apply(InitDone("0")))

    def hear(self, *folded: Changes) -> None:
        for change in (change for changes in folded for change in changes):
            key = build_object_key(change.obj)
            assert self.told.get(key) == change.old, "the old state is the one told before"
            if change.new is None:
                del self.told[key]
                continue
            if change.old is not None:
                assert read_version(change.new) > read_version(change.old), "nothing is told twice, or goes back"
            self.told[key] = change.new

    def write(self, name: str, *, anew: bool = False) -> Obj:
        self.version += 1
        self.uids += 1
        known = self.world.get(name)
        if known is not None and anew:
            self.remove(name)
            known = None
        obj = make_obj(name, self.version, uid=known["metadata"]["uid"] if known is not None else str(self.uids))
        self.world[name] = obj
        self.events.append(Applied(obj))
        return obj

    def remove(self, name: str) -> None:
        known = self.world.pop(name)
        self.gone[known["metadata"]["uid"]] = self.version
        self.events.append(Deleted({**known, "metadata": {**known["metadata"], "resourceVersion": str(self.version)}}))
        self.version += 1

    @rule(name=NAMES, anew=st.booleans())
    def others_write(self, name: str, anew: bool) -> None:
        self.write(name, anew=anew)

    @rule(name=NAMES, at_once=st.booleans())
    def this_process_writes(self, name: str, at_once: bool) -> None:
        reply = self.write(name)
        if not at_once:
            self.replies.append(reply)
            return
        self.hear(self.store.put_reply(reply))
        assert self.store.get(build_object_key(reply)) == reply, "whoever wrote it sees it"

    @precondition(lambda self: self.replies)
    @rule(data=st.data())
    def reply_comes(self, data: st.DataObject) -> None:
        reply = self.replies.pop(data.draw(st.integers(0, len(self.replies) - 1)))
        self.hear(self.store.put_reply(reply))
        if reply["metadata"]["uid"] not in self.gone:
            known = self.store.get(build_object_key(reply))
            assert known is not None, "it is there"
            assert read_version(known) >= read_version(reply), "whoever wrote it sees that or what came after it"

    @precondition(lambda self: self.world)
    @rule(data=st.data())
    def others_delete(self, data: st.DataObject) -> None:
        self.version += 1
        self.remove(data.draw(st.sampled_from(sorted(self.world))))

    @precondition(lambda self: self.events)
    @rule(count=st.integers(1, 3))
    def watch_brings_some(self, count: int) -> None:
        for event in self.events[:count]:
            assert isinstance(event, Applied | Deleted)
            self.hear(self.store.apply(event))
            self.brought = read_version(event.obj)
        del self.events[:count]

    @rule(late=st.integers(0, 3), between=st.lists(st.tuples(NAMES, st.booleans()), max_size=3))
    def relist(self, late: int, between: list[tuple[str, bool]]) -> None:
        """The list shows a moment from which on the watch goes on. While it is folded in, piece by piece, `between` is written."""
        shown, version = dict(self.world), self.version
        for name, is_own in between[:late]:  # after the moment that the list shows, before its first page is folded in
            obj = self.write(name)
            if is_own:
                self.hear(self.store.put_reply(obj))
        self.events = [event for event in self.events if isinstance(event, Applied | Deleted) and read_version(event.obj) > version]
        self.store.apply(Init())
        for obj in shown.values():
            self.store.apply(InitApply(obj))
        left = between[late:]
        for changes in self.store.apply_list(1, str(version)):
            self.hear(changes)
            if left:
                name, is_own = left.pop()
                obj = self.write(name)
                if is_own:
                    self.hear(self.store.put_reply(obj))
        self.brought = max(self.brought, version)

    @invariant()
    def nothing_is_there_that_the_watch_has_told_to_be_gone(self) -> None:
        for obj in self.store.list():
            assert self.gone.get(obj["metadata"]["uid"], self.brought + 1) > self.brought

    @invariant()
    def what_is_told_is_there(self) -> None:
        assert self.store.list() == [self.told[key] for key in sorted(self.told)]

    def teardown(self) -> None:
        for reply in self.replies[::2]:
            self.hear(self.store.put_reply(reply))
        for event in self.events:
            self.hear(self.store.apply(event))
        for reply in self.replies:
            self.hear(self.store.put_reply(reply))
        assert {build_object_key(obj): obj for obj in self.world.values()} == self.told, "with all events the store is as the server"


TestReplies = ReplyMachine.TestCase


def listed(*objects: Obj, version: int) -> list[Event]:
    return [Init(), *map(InitApply, objects), InitDone(str(version))]


def test_server_that_has_lost_writes_is_believed_by_the_second_list():
    """As one that was restored from a backup: its versions begin again further down."""
    store = Store()
    for event in listed(make_obj("a", 5), version=5):
        store.apply(event)
    store.put_reply(make_obj("a", 9))
    store.put_reply(make_obj("b", 10, uid="b"))
    for event in listed(make_obj("a", 3), version=4):
        store.apply(event)
    assert [read_version(obj) for obj in store.list()] == [9, 10], "the list may have been read before the replies came"
    for event in listed(make_obj("a", 3), version=4):
        store.apply(event)
    assert [read_version(obj) for obj in store.list()] == [3]


def test_reply_with_a_version_that_is_no_number_is_left_to_the_watch():
    store = Store()
    odd = make_obj("a", 1)
    odd["metadata"]["resourceVersion"] = "abc"
    assert store.put_reply(odd) == []
    assert store.list() == []


def test_reply_older_than_a_list_that_is_being_taken_brings_the_state_of_the_list():
    store = Store()
    first: list[Event] = [Init(), *(InitApply(make_obj(name, 5, uid=name)) for name in "ab"), InitDone("5")]
    second: list[Event] = [Init(), InitApply(make_obj("a", 6, uid="a")), InitApply(make_obj("b", 11, uid="b"))]
    for event in (*first, *second):
        store.apply(event)
    pieces = store.apply_list(1, "12")
    next(pieces)
    key = build_object_key(make_obj("b", 11, uid="b"))
    (change,) = store.put_reply(make_obj("b", 10, uid="b"))
    assert (change.new, store.get(key)) == (make_obj("b", 11, uid="b"),) * 2
    assert [change for piece in pieces for change in piece] == [], "it is not reported twice"
