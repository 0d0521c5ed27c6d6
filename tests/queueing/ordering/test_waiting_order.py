"""The order that is shown is that in which workloads are admitted: tables, and the cycle with quota for one workload at a time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from core.model.configuration import FairSharing
from core.queueing.flavors.outcome import Admissible
from core.queueing.ordering.pending import build_order
from core.queueing.ordering.waiting_order import WaitingWorkload, list_all_waiting
from tests.builders import NAMESPACE
from tests.queueing.shared import Shared
from tests.strategies import scale_examples

ANYWHERE = {"unconstrained": True}


def get_names(waiting: Iterable[WaitingWorkload]) -> list[str]:
    return [each.workload.key.partition("/")[2] for each in waiting]


def build_scene(*, sharing: FairSharing | None = None) -> Shared:
    made = Shared(sharing=sharing)
    made.rack("r", 8)
    return made


def test_priority_precedes_time_within_a_queue_and_positions_count_in_both_queues():
    made = build_scene()
    made.pool("a", "4")
    made.local_queue("a2", "a")
    made.submit("first", queue="a")
    made.submit("second", queue="a2")
    made.submit("important", queue="a", priority=5)
    shown = list_all_waiting(made.state)
    assert [(*get_names([each]), each.position, each.local_position) for each in shown] == [
        ("important", 1, 1),
        ("first", 2, 2),
        ("second", 3, 1),
    ]
    assert {each.cluster_queue for each in shown} == {"a"}


def test_workload_of_a_missing_local_queue_counts_in_that_alone():
    made = build_scene()
    made.pool("a", "4")
    made.submit("lost", queue="nowhere")
    made.submit("found", queue="a")
    lost, _ = list_all_waiting(made.state)
    assert (get_names([lost]), lost.cluster_queue, lost.position, lost.local_position) == (["lost"], "", 1, 1)


def test_workload_that_is_held_back_comes_last_in_its_queue():
    made = build_scene()
    made.pool("a", "4")
    for name in ("x", "y", "z"):
        made.submit(name, queue="a")
    held_back = {"uid-x"}.__contains__
    assert get_names(list_all_waiting(made.state, is_held_back=held_back)) == ["y", "z", "x"]


def test_workload_that_has_to_borrow_comes_after_those_that_need_not_with_all_behind_it():
    made = build_scene()
    made.pool("owner", "2", "cohort")
    made.pool("guest", "1", "cohort")
    made.submit("large", 2, queue="guest", priority=9)
    made.submit("small", 1, queue="guest", priority=8)
    made.submit("own", 2, queue="owner")
    shown = list_all_waiting(made.state)
    assert get_names(shown) == ["own", "large", "small"]
    assert [(each.position, each.cohort_position) for each in shown] == [(1, 1), (1, 2), (2, 3)]


def test_lower_share_comes_first_with_fair_sharing():
    made = build_scene(sharing=FairSharing())
    made.pool("lender", "12", "cohort")
    made.pool("a", "0", "cohort")
    made.pool("b", "0", "cohort")
    made.submit("holds", 3, queue="a", topology=ANYWHERE)
    made.run()
    made.submit("important", queue="a", priority=9)
    made.submit("poor", queue="b", priority=-5)
    assert get_names(list_all_waiting(made.state, sharing=made.sharing)) == ["poor", "important"]


def test_reading_the_order_leaves_no_watch_behind():
    made = build_scene()
    made.pool("a", "4")
    made.submit("x", queue="a")
    before = len(made.state.workloads._indexes.lines._watches)
    list_all_waiting(made.state)
    assert len(made.state.workloads._indexes.lines._watches) == before


# --- against the cycle ------------------------------------------------------------------------------------

QUEUES = ("a", "b", "c", "d")
ALL = 4  # cpu of a tree of cohorts; every workload needs more than half of it


@dataclass(frozen=True)
class Job:
    queue: str
    cpu: int
    priority: int


jobs = st.builds(Job, st.sampled_from(QUEUES), st.integers(ALL // 2 + 1, ALL), st.integers(-1, 1))


@st.composite
def scenes(draw: st.DrawFn) -> Shared:
    """Two cohorts below a root, or queues alone: each tree has quota for one workload at a time, with whichever queue or cohort it is."""
    made = build_scene(sharing=draw(st.sampled_from([None, FairSharing()])))
    in_cohorts = draw(st.booleans())
    at = draw(st.sampled_from([*QUEUES, "root"])) if in_cohorts else ""
    strict = {name: draw(st.booleans()) for name in QUEUES}
    if in_cohorts:
        made.cohort("root", nominal=str(ALL if at == "root" else 0))
        for cohort in ("left", "right"):
            made.cohort(cohort, "root", weight=draw(st.sampled_from(["500m", "1", "2"])))
    for name in QUEUES:
        nominal = str(ALL if not in_cohorts or at == name else 0)
        parent = draw(st.sampled_from(["left", "right", "root"])) if in_cohorts else None
        made.pool(name, nominal, parent, queueingStrategy="StrictFIFO" if strict[name] else "BestEffortFIFO")
    return made


def get_root(made: Shared, queue: str) -> str:
    return (made.state.quota.list_ancestors(queue) or [queue])[-1]


@given(scenes(), st.lists(jobs, min_size=1, max_size=8))
@settings(max_examples=scale_examples(1.5))
def test_order_shown_is_the_order_of_admissions_with_quota_for_one_at_a_time(made: Shared, coming: list[Job]):
    for i, job in enumerate(coming):
        made.submit(f"w{i}", cpu=str(job.cpu), queue=job.queue, priority=job.priority, topology=ANYWHERE)
    shown = list_all_waiting(made.state, sharing=made.sharing)
    expected: dict[str, list[str]] = {}
    for each in shown:
        root = get_root(made, each.cluster_queue)
        expected.setdefault(root, []).extend(get_names([each]))
        assert each.cohort_position == len(expected[root])
    for queue in QUEUES:
        own = [each.workload for each in shown if each.cluster_queue == queue]
        assert own == sorted(own, key=lambda workload: build_order(workload))
    admitted: dict[str, list[str]] = {}
    while True:
        heads = {get_root(made, each.cluster_queue): each for each in reversed(list_all_waiting(made.state, sharing=made.sharing))}
        now = [name for name, outcome in made.run().items() if isinstance(outcome, Admissible)]
        assert sorted(now) == sorted(get_names(heads.values()))
        for name in now:
            admitted.setdefault(get_root(made, made.state.workloads.facts[f"{NAMESPACE}/{name}"].queue.partition("/")[2]), []).append(name)
            made.finish(name)
        if not now:
            break
    assert admitted == expected


def test_workloads_of_one_second_are_ordered_by_name_and_not_by_time_of_arrival():
    """Found by a new user: jobs z to a of one `kubectl apply` were admitted from z on, and shown from a on."""
    made = build_scene()
    made.pool("a", "1")
    for name in ("z", "y", "x"):
        made.submit(name, queue="a", created="2026-01-01T00:00:01Z")
    assert get_names(list_all_waiting(made.state)) == ["x", "y", "z"]


def test_workload_of_a_local_queue_that_admits_none_comes_last_also_in_its_cohort():
    made = build_scene()
    made.pool("a", "4", "cohort")
    made.pool("b", "4", "cohort")
    made.submit("stopped", queue="a", priority=9)
    made.submit("waits", queue="b")
    shown = list_all_waiting(made.state, is_stopped=lambda local_queue: local_queue.endswith("/a"))
    assert [(*get_names([each]), each.cohort_position) for each in shown] == [("waits", 1), ("stopped", 2)]
