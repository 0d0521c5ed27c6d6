"""The worst cases of what is remembered of evictions: `core.queueing.preemption.eviction_cycles`,
`core.queueing.preemption.reservations`."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice, pairwise
from types import SimpleNamespace
from typing import Any, cast

from core.queueing.preemption.eviction_cycles import MOST, Circles
from core.queueing.preemption.reservations import Claims
from core.state.facts import WorkloadFacts
from tests.bench.parts.steps import Steps, case
from tests.builders import NAMESPACE, build_pod_set_json, build_workload_json

PREEMPTORS = 1_000


def build_facts(count: int) -> list[WorkloadFacts]:
    """Workloads that differ in nothing but their names."""
    facts = WorkloadFacts.read(build_workload_json("w", [build_pod_set_json("main")]))
    return [replace(facts, key=f"{NAMESPACE}/w{i}", uid=f"u{i}") for i in range(count)]


@case()
def chain_of_10_000_remembered_evictions() -> Steps:
    facts = build_facts(MOST + 2)
    seen, remembered = {each.key: each for each in facts}, Circles()
    remembered.begin(seen, 0)
    for victim, preemptor in islice(pairwise(facts), MOST):
        remembered.note(preemptor, [victim])
    raised = {key: replace(each, priority=7) for key, each in seen.items()}

    def steps() -> Steps:
        yield remembered.begin(seen, 0)
        yield remembered.find_spared("u0")
        remembered.note(facts[-1], [facts[0]])
        yield None
        yield remembered.begin(raised, 0)

    return steps()


@case()
def evictions_of_10_000_workloads_withdrawn_at_once() -> Steps:
    """Each of 1,000 preemptors is deleted while its victims are not seen to be evicted yet."""
    facts = build_facts(MOST + PREEMPTORS)
    preemptors, victims, share = facts[:PREEMPTORS], facts[PREEMPTORS:], MOST // PREEMPTORS
    workloads = SimpleNamespace(facts={each.key: each for each in facts}, holding=lambda key: None)
    state = SimpleNamespace(workloads=workloads, rule_changes=0, note_unclaimed=lambda queue: None)
    claims = Claims(cast("Any", state))
    for number, preemptor in enumerate(preemptors):
        told = [SimpleNamespace(workload=each) for each in victims[share * number : share * (number + 1)]]
        found = SimpleNamespace(admission=SimpleNamespace(cluster_queue="q"))
        claims.note(preemptor, cast("Any", SimpleNamespace(victims=told, leaving=(), found=found)))

    def steps() -> Steps:
        yield claims.begin(())

    return steps()
