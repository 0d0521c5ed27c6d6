"""Who belongs to whom, whatever order objects are seen in."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from core.names import QUEUE_NAME_LABEL
from core.state.owners import Owners


def owned(parent: str | None, *, queued: bool) -> dict[str, Any]:
    owners = [{"uid": parent, "controller": True, "kind": "Any", "name": "any", "apiVersion": "v1"}] if parent else []
    return {"metadata": {"ownerReferences": owners, "labels": {QUEUE_NAME_LABEL: "lq"} if queued else {}}}


IN = "ns/"


def find_root(known: dict[str, tuple[str | None, bool]], uid: str) -> str:
    chain = [uid]
    while (parent := known.get(chain[-1], (None, False))[0]) is not None and parent in known and parent not in chain:
        chain.append(parent)
    return next((one for one in reversed(chain) if known.get(one, (None, False))[1]), uid)


@given(
    st.lists(
        st.tuples(st.sampled_from("abcde"), st.one_of(st.none(), st.tuples(st.one_of(st.none(), st.sampled_from("abcde")), st.booleans())))
    )
)
def test_pods_belong_to_the_highest_object_that_names_a_queue(events: list[tuple[str, tuple[str | None, bool] | None]]):
    owners, known = Owners(), dict[str, tuple[str | None, bool]]()
    for uid, facts in events:
        changed = owners.observe(IN + uid, None if facts is None else owned(facts[0], queued=facts[1]))
        assert changed == (known.get(uid) != facts)
        if facts is None:
            known.pop(uid, None)
        else:
            known[uid] = facts
    circular = any(_is_circular(known, uid) for uid in known)
    for uid in "abcdex":
        if not circular:
            assert owners.find_queued_root(IN + uid) == IN + find_root(known, uid)
        below = {uid} | {one for one in known if _climbs_to(known, one, uid)}
        assert owners.list_descendants(IN + uid) == {IN + one for one in below}


def _climbs_to(known: dict[str, tuple[str | None, bool]], uid: str, wanted: str) -> bool:
    seen: set[str] = set()
    here: str | None = uid
    while here is not None and here not in seen:
        seen.add(here)
        here = known.get(here, (None, False))[0]
        if here == wanted:
            return True
    return False


def _is_circular(known: dict[str, tuple[str | None, bool]], uid: str) -> bool:
    return _climbs_to(known, uid, uid)


def test_a_circle_of_owners_ends():
    owners = Owners()
    owners.observe("ns/a", owned("b", queued=False))
    owners.observe("ns/b", owned("a", queued=True))
    assert owners.find_queued_root("ns/a") == "ns/b"


def test_object_of_another_namespace_is_no_owner():
    owners = Owners()
    owners.observe("ns/a", owned(None, queued=True))
    owners.observe("other/b", owned("a", queued=False))
    assert owners.list_descendants("ns/a") == {"ns/a"}
    assert owners.find_queued_root("other/b") == "other/b"
