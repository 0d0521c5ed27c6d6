"""Workloads that can do with fewer pods get the most that can be admitted, whole slices of them, also at others' cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.model.admission import Admission, PodSetAdmission
from core.model.pieces import Pieces, run_whole
from core.names import REASON_EXCEEDS_MAX_QUOTA, REASON_IN_QUEUE, REASON_TOPOLOGY_PLACEMENT_FAILED
from core.placement.algorithms.profile import STANDARD
from core.queueing.cycle.cycle import Cycle
from core.queueing.flavors.outcome import Admissible, NotAdmissible
from core.queueing.ordering.partial_admission import can_shrink, find_largest
from core.state.check_facts import CheckFacts
from core.state.facts import WorkloadFacts
from tests.builders import RACK, build_pod_set_json, build_workload_json
from tests.queueing.running import Running
from tests.queueing.shared import Shared, get_victims
from tests.strategies import scale_examples

HOST = "kubernetes.io/hostname"
ANYWHERE = {"unconstrained": True}
LOWER = {"withinClusterQueue": "LowerPriority"}


def build_scene(nominal: str = "100", racks: int = 2, **spec: Any) -> Shared:
    """Racks of two nodes of four CPUs each."""
    made = Shared()
    for i in range(racks):
        made.rack(f"r{i}", 2)
    made.pool("q", nominal, **spec)
    return made


def build_pod_set(
    count: int, least: int | None, name: str = "main", cpu: str = "1", topology: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    made = build_pod_set_json(name, count, cpu=cpu, topology=ANYWHERE if topology is None else topology)
    return made | ({"minCount": least} if least is not None else {})


def submit(made: Shared, name: str, *pod_sets: Mapping[str, Any], priority: int = 0) -> None:
    made.clock += 1
    made.workload(build_workload_json(name, list(pod_sets), queue="q", priority=priority, created=made.now))


def list_counts(outcome: Admissible | NotAdmissible) -> list[int]:
    assert isinstance(outcome, Admissible), outcome
    for given_ in outcome.admission.pod_sets:
        assert given_.assignment is None or given_.assignment.count == given_.count
    return [pod_set.count for pod_set in outcome.admission.pod_sets]


@pytest.mark.parametrize(
    ("nominal", "asked", "least", "got"),
    [("10", 8, 2, 8), ("5", 8, 2, 5), ("2", 8, 2, 2), ("1", 8, 2, None), ("5", 8, None, None), ("5", 8, 0, 5), ("0", 8, 0, 0)],
)
def test_quota_for_some_is_enough(nominal: str, asked: int, least: int | None, got: int | None):
    made = build_scene(nominal)
    submit(made, "w", build_pod_set(asked, least))
    outcome = made.run()["w"]
    assert (list_counts(outcome) if isinstance(outcome, Admissible) else None) == ([got] if got is not None else None)
    assert made.used("q") == 1000 * (got or 0)


def test_a_place_for_some_is_enough():
    made = build_scene()
    submit(made, "w", build_pod_set(12, 4, topology={"required": RACK}))
    outcome = made.run()["w"]
    assert list_counts(outcome) == [8]
    assert isinstance(outcome, Admissible)
    assert "8 out of 12" in outcome.fewer_since


def test_slices_stay_whole():
    made = build_scene("10")
    sliced = {"required": RACK, "podSetSliceRequiredTopology": HOST, "podSetSliceSize": 3}
    submit(made, "w", build_pod_set(12, 4, topology=sliced))
    assert list_counts(made.run()["w"]) == [6]
    made = build_scene("5")
    submit(made, "w", build_pod_set(12, 4, topology=sliced))
    assert isinstance(made.run()["w"], NotAdmissible)


def test_pod_sets_without_a_least_keep_theirs_and_the_others_shrink_together():
    made = build_scene("10")
    submit(made, "w", build_pod_set(2, None, "driver"), build_pod_set(8, 4, "left"), build_pod_set(4, 2, "right"))
    assert list_counts(made.run()["w"]) == [2, 5, 3]


def test_pod_set_with_a_minimum_of_zero_gives_way_to_those_that_are_needed():
    made = build_scene("3", racks=1)
    submit(made, "w", build_pod_set(2, None, "driver"), build_pod_set(8, 0, "workers", cpu="4", topology={"required": RACK}))
    assert list_counts(made.run()["w"]) == [2, 0]
    assert made.used("q") == 2000
    assert made.state.ledger.find_drift() == {}


def test_minimum_of_zero_does_not_admit_a_workload_that_has_no_room_for_its_other_pods():
    made = build_scene("1")
    submit(made, "w", build_pod_set(2, None, "driver"), build_pod_set(8, 0, "workers"))
    assert isinstance(made.run()["w"], NotAdmissible)


def test_refusal_after_partial_admission_reports_that_fewer_pods_do_not_fit():
    made = build_scene("1")
    submit(made, "w", build_pod_set(8, 2))
    outcome = made.run()["w"]
    assert isinstance(outcome, NotAdmissible)
    assert outcome.reason == REASON_EXCEEDS_MAX_QUOTA
    assert all(part in outcome.message for part in ("kueue.x-k8s.io/job-min-parallelism", "2 of 8 pods", "pod set main"))
    assert ".;" not in outcome.message
    assert [attempt.pods for attempt in outcome.attempts] == [None, 2]
    assert made.run() == {}, "told once"


def test_with_the_gate_off_all_pods_are_needed():
    made = build_scene("5")
    made.cycle = Cycle(made.state, STANDARD, shrinks=False)
    submit(made, "w", build_pod_set(8, 2))
    assert isinstance(made.run()["w"], NotAdmissible)


def test_others_go_for_all_pods_before_some_are_admitted():
    made = build_scene("8", preemption=LOWER)
    submit(made, "low", build_pod_set(4, None))
    made.run()
    submit(made, "high", build_pod_set(8, 2), priority=1)
    assert get_victims(made.run()["high"]) == {"low": REASON_IN_QUEUE}
    made.leave("low")
    assert list_counts(made.run()["high"]) == [8]


def test_others_go_for_some_pods_where_all_are_out_of_reach():
    made = build_scene("8", preemption=LOWER)
    submit(made, "same", build_pod_set(3, None), priority=1)
    submit(made, "low", build_pod_set(3, None))
    made.run()
    submit(made, "high", build_pod_set(8, 2), priority=1)
    outcome = made.run()["high"]
    assert get_victims(outcome) == {"low": REASON_IN_QUEUE}
    assert isinstance(outcome, NotAdmissible)
    assert outcome.preempting is not None
    assert list_counts(outcome.preempting.found) == [5]
    made.leave("low")
    assert list_counts(made.run()["high"]) == [5]


def test_partially_admitted_workload_counts_only_its_admitted_pods():
    made = build_scene("8")
    submit(made, "some", build_pod_set(12, 1))
    submit(made, "next", build_pod_set(1, None))
    made.run()
    assert made.used("q") == 8000
    made.finish("some")
    assert list_counts(made.run()["next"]) == [1]
    assert made.state.ledger.find_drift() == {}


def test_workloads_with_equal_requests_and_different_minimum_counts_are_judged_separately():
    made = build_scene("5")
    submit(made, "all", build_pod_set(8, None))
    submit(made, "some", build_pod_set(8, 2))
    verdicts = made.run()
    assert isinstance(verdicts["all"], NotAdmissible)
    assert list_counts(verdicts["some"]) == [5]


def test_partial_admission_without_a_place_has_the_reason_of_the_whole_workload():
    made = build_scene()
    submit(made, "w", build_pod_set(12, 9, topology={"required": RACK}))
    outcome = made.run()["w"]
    assert isinstance(outcome, NotAdmissible)
    assert outcome.reason == REASON_TOPOLOGY_PLACEMENT_FAILED


# --- judged again -------------------------------------------------------------------------------------------


def test_a_little_quota_given_back_is_enough_to_be_judged_again():
    made = build_scene("8")
    for name in ("one", "two"):
        submit(made, name, build_pod_set(4, None))
    submit(made, "w", build_pod_set(8, 3))
    assert isinstance(made.run()["w"], NotAdmissible)
    made.finish("one")
    assert list_counts(made.run()["w"]) == [4]


def test_a_node_is_enough_to_be_judged_again_where_only_all_pods_lack_quota():
    made = build_scene("6", racks=0)
    submit(made, "w", build_pod_set(8, 3))
    assert isinstance(made.run()["w"], NotAdmissible)
    made.rack("r0", 2)
    assert list_counts(made.run()["w"]) == [6]


# --- after the admission ------------------------------------------------------------------------------------


def partly(made: Running) -> None:
    """Quota is for four of six pods of a whole node each."""
    sliced = build_pod_set(6, 2, cpu="4", topology={"required": RACK})
    made.workload(build_workload_json("w", [sliced], queue="lq"))
    assert list_counts(made.run()["w"]) == [4]


def test_the_second_pass_places_the_pods_that_have_quota():
    made = Running(quota="16")
    made.state.observe_check("check", CheckFacts("check", "kueue.x-k8s.io/provisioning-request", active=True))
    made.queue("cq", {"tas": "16"}, admissionChecksStrategy={"admissionChecks": [{"name": "check"}]})
    partly(made)
    made.rack("r0", 6)
    made.say("w")
    assert list_counts(made.run()["w"]) == [4]
    assert made.where("w").total() == 4


def test_a_failed_node_is_replaced_for_those_that_run():
    made = Running(quota="16")
    made.rack("r0", 5)
    partly(made)
    made.lose("w", "r0-n1")
    assert list_counts(made.run()["w"]) == [4]
    assert made.where("w") == {"r0-n0": 1, "r0-n2": 1, "r0-n3": 1, "r0-n4": 1}


# --- by force ---------------------------------------------------------------------------------------------


@given(
    st.integers(0, 14),
    st.integers(1, 3),
    st.integers(1, 12),
    st.integers(0, 12),
    st.sampled_from([1, 2, 3]),
    st.sampled_from([1, 1, 2, 3]),
    st.sampled_from(["required", "preferred", "unconstrained"]),
)
@settings(max_examples=scale_examples(2.5))
def test_the_most_that_fit_as_found_by_trying_all(nominal: int, racks: int, asked: int, least: int, cpu: int, size: int, mode: str):
    asked, least = max(asked, least) * size, min(asked, least)
    made = build_scene(str(nominal), racks)
    topology: dict[str, Any] = {mode: RACK if mode != "unconstrained" else True}
    if size > 1:
        topology |= {"podSetSliceRequiredTopology": HOST, "podSetSliceSize": size}
    wire = build_workload_json("w", [build_pod_set(asked, least, cpu=str(cpu), topology=topology)], queue="q")
    submit(made, "w", *wire["spec"]["podSets"])

    def fits(count: int) -> bool:
        """As if so many had been asked for in the first place."""
        other = build_scene(str(nominal), racks)
        submit(other, "w", build_pod_set(count, None, cpu=str(cpu), topology=topology))
        return isinstance(other.run()["w"], Admissible)

    expected = next((count for count in range(asked, least - 1, -1) if count % size == 0 and fits(count)), None)
    outcome = made.run()["w"]
    assert (list_counts(outcome)[0] if isinstance(outcome, Admissible) else None) == expected


@given(st.lists(st.tuples(st.integers(1, 9), st.none() | st.integers(0, 9)), min_size=1, max_size=3), st.integers(0, 30))
def test_several_pod_sets_shrink_by_the_same_part_and_none_below_its_least(asked: list[tuple[int, int | None]], room: int):
    """The first of all steps, one pod fewer after the other, that fits."""
    pod_sets = [build_pod_set(max(count, least or 1), least, f"p{i}") for i, (count, least) in enumerate(asked)]
    facts = WorkloadFacts.read(build_workload_json("w", pod_sets))

    def judge(smaller: WorkloadFacts) -> Pieces[Admissible | NotAdmissible]:
        yield
        given_ = tuple(PodSetAdmission(pod_set.name, {}, {}, pod_set.count) for pod_set in smaller.pod_sets)
        fits = sum(pod_set.count for pod_set in smaller.pod_sets) <= room
        return Admissible(Admission("q", given_), (), ()) if fits else NotAdmissible("", "", ())

    whole = [pod_set.count for pod_set in facts.pod_sets]
    spare = [pod_set.count - (pod_set.count if pod_set.min_count is None else pod_set.min_count) for pod_set in facts.pod_sets]
    steps = [[count - s * step // sum(spare) for count, s in zip(whole, spare, strict=True)] for step in range(1, sum(spare) + 1)]
    expected = next((step for step in steps if sum(step) <= room and step != whole), None)
    outcome = run_whole(find_largest(facts, judge))
    assert can_shrink(facts) == (sum(spare) > 0)
    assert (list_counts(outcome) if outcome is not None else None) == expected
