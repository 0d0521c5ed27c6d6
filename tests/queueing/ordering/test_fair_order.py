"""Whose turn it is by fair share: small tables, and the tournament recomputed from its definition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.model.configuration import FairSharing
from core.model.quota_tree import NO_SHARE, Share
from core.names import REASON_PENDING_EVALUATION
from core.queueing.flavors.outcome import Admissible, NotAdmissible
from core.queueing.ordering.fair_order import FairTurns
from core.queueing.ordering.pending import Pending
from core.state.facts import WorkloadFacts
from tests.queueing.scene import list_admitted, list_in_queue_order
from tests.queueing.shared import Shared
from tests.strategies import scale_examples

CPU = ("tas", "cpu")
ANYWHERE = {"unconstrained": True}


def name_of(workload: WorkloadFacts) -> str:
    return workload.key.partition("/")[2]


def build_scene(**weights: str) -> Shared:
    """Queues with these weights and nothing of their own; the cohort's quota is a lender's."""
    made = Shared(sharing=FairSharing())
    made.rack("r1", 10)
    made.pool("lender", "12", "cohort")
    for name, weight in weights.items():
        made.pool(name, "0", "cohort", fairSharing={"weight": weight})
    return made


def order(made: Shared) -> list[str]:
    """Names in the order of their turns, nobody being admitted."""
    return [name_of(workload) for workload in list_turns(made)]


def list_turns(made: Shared) -> Iterator[WorkloadFacts]:
    """Whose turn it is, one after the other; what they then use is up to the test."""
    pending = Pending(made.state.workloads)
    pending.sync()
    turns = FairTurns(made.state, 0)
    turns.begin(pending.list_classes())
    while (following := turns.get_next()) is not None:
        turn, _ = following
        turns.add_follower(turn)
        yield turn.workload


def get_usage(made: Shared) -> dict[str, int]:
    return {name: made.used(name) // 1000 for name in made.state.cluster_queues if made.used(name)}


# --- tables -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "shares"),
    [
        ({"a": "1", "b": "1"}, {"a": 6, "b": 6}),
        ({"a": "2", "b": "1"}, {"a": 8, "b": 4}),
        ({"a": "1", "b": "3"}, {"a": 3, "b": 9}),
        ({"a": "1", "b": "0"}, {"a": 12}),
        ({"a": "500m", "b": "1", "c": "500m"}, {"a": 3, "b": 6, "c": 3}),
        ({"a": "0", "b": "0"}, {"a": 6, "b": 6}),
    ],
)
def test_fair_sharing_divides_cohort_quota_by_weight(weights: dict[str, str], shares: dict[str, int]):
    made = build_scene(**weights)
    for name in weights:
        for i in range(12):
            made.submit(f"{name}{i}", queue=name, topology=ANYWHERE)
    made.run()
    assert get_usage(made) == shares


def test_first_queue_without_fair_sharing_gets_all_cohort_quota():
    made = Shared()
    made.rack("r1", 10)
    for name, nominal in (("lender", "4"), ("a", "0"), ("b", "0")):
        made.pool(name, nominal, "cohort")
    for name in ("a", "b"):
        for i in range(4):
            made.submit(f"{name}{i}", queue=name, topology=ANYWHERE)
    made.run()
    assert get_usage(made) == {"a": 4}


def test_of_equal_shares_priority_goes_first_and_then_time():
    made = build_scene(a="1", b="1", c="1")
    made.submit("late", queue="b")
    made.submit("later", queue="a")
    made.submit("important", queue="c", priority=1)
    assert order(made) == ["important", "late", "later"]


def test_a_lower_share_goes_before_a_higher_priority_in_another_queue_but_not_in_its_own():
    made = build_scene(a="1", b="1")
    made.submit("first", 3, queue="a", topology=ANYWHERE)
    made.run()
    made.submit("important", queue="a", priority=9)
    made.submit("plain", queue="a")
    made.submit("poor", queue="b", priority=-5)
    assert order(made) == ["poor", "important", "plain"]


def test_share_of_a_queue_includes_the_request_of_its_head():
    made = build_scene(a="1", b="1")
    made.submit("large", 6, queue="a", topology=ANYWHERE)
    made.submit("small", 1, queue="b", topology=ANYWHERE)
    assert order(made) == ["small", "large"]


def test_workload_within_nominal_quota_is_ordered_before_borrowing_workloads():
    """b's own quota is its own, though its cohort's other member has borrowed much already."""
    made = Shared(sharing=FairSharing())
    made.rack("r1", 10)
    for cohort in ("left", "right"):
        made.cohort(cohort, "root")
    made.pool("a", "0", "left")
    made.pool("b", "2", "left")
    made.pool("c", "10", "right")
    made.pool("d", "0", "right")
    made.submit("much", 6, queue="a", topology=ANYWHERE)
    made.run()
    made.submit("borrows", 1, queue="d", topology=ANYWHERE)
    made.submit("own", 1, queue="b", topology=ANYWHERE)
    assert order(made) == ["own", "borrows"]


def test_cohorts_compete_before_their_queues_do():
    """left has two queues and right has one: each side gets half, not each queue a third."""
    made = Shared(sharing=FairSharing())
    made.rack("r1", 10)
    made.cohort("root", nominal="12")
    for cohort in ("left", "right"):
        made.cohort(cohort, "root")
    for name, cohort in (("a", "left"), ("b", "left"), ("c", "right")):
        made.pool(name, "0", cohort)
        for i in range(12):
            made.submit(f"{name}{i}", queue=name, topology=ANYWHERE)
    made.run()
    assert get_usage(made) == {"a": 3, "b": 3, "c": 6}


def test_a_blocked_strict_queue_keeps_its_turn_and_its_order():
    made = Shared(sharing=FairSharing())
    made.rack("r1", 4)
    made.pool("lender", "8", "cohort")
    made.pool("a", "0", "cohort", queueingStrategy="StrictFIFO")
    made.pool("b", "0", "cohort")
    made.submit("head", 9, queue="a", topology=ANYWHERE)
    made.submit("behind", 1, queue="a", topology=ANYWHERE)
    made.submit("other", 1, queue="b", topology=ANYWHERE)
    verdicts = made.run()
    assert list_admitted(verdicts) == {"other"}
    behind = verdicts["behind"]
    assert isinstance(behind, NotAdmissible)
    assert behind.reason == REASON_PENDING_EVALUATION


def test_the_flavor_that_has_the_quota_is_the_one_that_counts():
    """a's first flavor is its own and used up: its next workload borrows of the second."""
    made = Shared(sharing=FairSharing())
    made.rack("r1", 10)
    made.flavor("more")
    cpu = {"name": "cpu", "nominalQuota": 2}
    for name, more in (("a", 0), ("b", 4)):
        flavors = [{"name": "tas", "resources": [cpu]}, {"name": "more", "resources": [{**cpu, "nominalQuota": more}]}]
        group = {"coveredResources": ["cpu"], "flavors": flavors}
        made.queue(name, {}, resourceGroups=[group], cohortName="cohort")
        made.local_queue(name, name)
    made.submit("own", 2, queue="a", topology=ANYWHERE)
    made.submit("lent", 2, queue="b", topology=ANYWHERE)
    made.run()
    made.submit("borrows", 1, queue="a", topology=ANYWHERE)
    made.submit("later", 1, queue="b", topology=ANYWHERE)
    assert order(made) == ["later", "borrows"]


def test_workload_without_a_queue_is_judged_and_does_not_block_others():
    made = build_scene(a="1")
    made.submit("lost", queue="nowhere")
    made.submit("found", queue="a")
    assert set(order(made)) == {"lost", "found"}
    assert list_admitted(made.run()) == {"found"}


def test_promises_put_a_queue_first_up_to_the_last_of_them_and_as_long_as_they_are_kept():
    made = build_scene(a="1", b="1")
    made.submit("used", 3, queue="a", topology=ANYWHERE)
    made.run()
    for name in ("a1", "a2", "a3", "b1"):
        made.submit(name, queue=name[0], topology=ANYWHERE)
    pending = Pending(made.state.workloads)
    pending.sync()
    order_of = {name_of(workload): pending.order_of(workload.uid) for workload in pending}
    turns = FairTurns(made.state, 0)
    turns.begin(pending.list_classes(), [("a", order_of["a2"]), ("a", order_of["a1"]), ("gone", order_of["a3"])])
    had = []
    for _ in range(2):
        following = turns.get_next()
        assert following is not None
        had.append(name_of(following[0].workload))
        turns.add_follower(following[0])
    following = turns.get_next()
    assert following is not None
    assert [*had, name_of(following[0].workload)] == ["a1", "a2", "b1"]
    anew = FairTurns(made.state, 1)
    anew.begin(pending.list_classes(), [("a", order_of["a2"])])
    anew.begin([])
    following = anew.get_next()
    assert following is not None
    assert name_of(following[0].workload) == "b1"


# --- against the definition -------------------------------------------------------------------------------

QUEUES = ("a", "b", "c", "d")
COHORTS = ("left", "right", "root")


@dataclass
class Job:
    queue: str
    cpu: int
    priority: int


jobs = st.builds(Job, st.sampled_from(QUEUES), st.integers(1, 4), st.integers(0, 1))
weights = st.sampled_from(["0", "500m", "1", "2"])


@st.composite
def scenes(draw: st.DrawFn) -> Shared:
    made = Shared(sharing=FairSharing())
    made.rack("r", 8)
    made.cohort("root", nominal=str(draw(st.integers(0, 6))))
    for cohort in ("left", "right"):
        made.cohort(cohort, draw(st.sampled_from(["root", "root", None])), str(draw(st.integers(0, 3))), draw(weights))
    for name in QUEUES:
        limits = draw(st.sampled_from([{}, {"lendingLimit": "1"}]))
        parent = draw(st.sampled_from([*COHORTS, *COHORTS, None]))
        nominal = str(draw(st.integers(0, 4)))
        made.pool(name, nominal, parent, fairSharing={"weight": draw(weights)}, **(limits if parent is not None else {}))
    return made


def find_heads(waiting: Iterable[WorkloadFacts]) -> dict[str, WorkloadFacts]:
    first: dict[str, WorkloadFacts] = {}
    for workload in waiting:
        first.setdefault(workload.queue.partition("/")[2], workload)
    return first


def find_next_by_definition(made: Shared, waiting: list[WorkloadFacts]) -> WorkloadFacts:
    """The whole tournament anew: every head is counted as admitted, then all shares on its way up are read off the tree."""
    tree = made.state.quota
    entries: dict[str, tuple[WorkloadFacts, bool, dict[str, Share]]] = {}
    for queue, head in find_heads(waiting).items():
        asked = sum(p.requests["cpu"] * p.count for p in head.pod_sets)
        tree.add(queue, {CPU: asked})
        path = tree.list_ancestors(queue)
        own = tree.compute_shares(queue)
        shares = {path[0]: own[-1]} if path else {}
        shares |= {above: tree.compute_cohort_share(cohort) for cohort, above in pairwise(path)}
        entries[queue] = head, tree.compute_borrowed(queue, CPU) > 0, shares
        tree.add(queue, {CPU: asked}, -1)

    def place(queue: str) -> tuple[bool, int]:
        head, borrows, _ = entries[queue]
        return borrows, waiting.index(head)

    def winner(cohort: str) -> str | None:
        children = [queue for queue in entries if tree.find_cohort(queue) == cohort]
        for name in made.state.cohorts:
            parent = made.state.cohorts[name].owner.parent
            best = winner(name) if parent == cohort else None
            children += [best] if best is not None else []
        return min(children, key=lambda q: (place(q)[0], entries[q][2].get(cohort, NO_SHARE), place(q)[1]), default=None)

    roots = {tree.list_ancestors(queue)[-1] for queue in entries if tree.list_ancestors(queue)}
    winners = [best for root in roots if (best := winner(root)) is not None] + [q for q in entries if not tree.list_ancestors(q)]
    return entries[min(winners, key=place)][0]


@given(scenes(), st.lists(jobs, min_size=1, max_size=10), st.lists(st.booleans(), min_size=10, max_size=10))
@settings(max_examples=scale_examples(2.5))
def test_every_turn_is_the_tournaments(made: Shared, coming: list[Job], taken: list[bool]):
    """Whether those whose turn it is get what they ask for is up to chance here: quota is only counted."""
    for i, job in enumerate(coming):
        made.submit(f"w{i}", cpu=str(job.cpu), queue=job.queue, priority=job.priority)
    waiting = list_in_queue_order(made.state)
    done: list[str] = []
    for workload in list_turns(made):
        assert workload is find_next_by_definition(made, waiting)
        waiting.remove(workload)
        if taken[len(done)]:
            asked = sum(p.requests["cpu"] * p.count for p in workload.pod_sets)
            made.state.quota.add(workload.queue.partition("/")[2], {CPU: asked})
        done.append(name_of(workload))
    assert len(done) == len(coming)


@given(scenes(), st.lists(jobs, min_size=1, max_size=10))
@settings(max_examples=scale_examples(1.5))
def test_waiting_workload_under_fair_sharing_exceeds_available_quota(made: Shared, coming: list[Job]):
    for i, job in enumerate(coming):
        made.submit(f"w{i}", cpu=str(job.cpu), queue=job.queue, priority=job.priority)
    while any(isinstance(outcome, Admissible) for outcome in made.run().values()):
        pass
    for workload in made.state.workloads.list_pending():
        asked = sum(p.requests["cpu"] * p.count for p in workload.pod_sets)
        assert asked > made.state.quota.compute_available(workload.queue.partition("/")[2], CPU)
