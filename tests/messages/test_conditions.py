"""The catalogue of sentences, conditions and events: what is reported of workloads, pods, nodes and queues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from core.model.node_health_rules import HealthRules
from core.model.pods_ready_rules import PodsReadyRules
from core.names import (
    EVICTED,
    HOSTNAME_LABEL,
    PLACEMENT_KEPT,
    PODS_SCHEDULABLE,
    PRIORITY_CLASS_LABEL,
    QUOTA_RESERVED,
    RESOURCE_IN_USE_FINALIZER,
    SPARES_HELD,
    TOPOLOGY_PENDING,
)
from core.plan.jobs.jobs import plan_job
from core.plan.pods.node_steps import plan_leftovers
from core.plan.steps.actions import Evict
from core.plan.steps.pausing import find_stopped
from core.plan.steps.steps import ParallelSteps, Plan, Step
from core.plan.workloads.admission_status import build_released_status
from core.plan.workloads.checks import Sync
from core.plan.workloads.queue_status import plan_flavor
from core.plan.workloads.reports import report_drift, report_rank_order, report_spares, report_stuck
from core.plan.workloads.verdict_steps import plan_verdict
from core.state.facts import PodFacts, find_condition
from core.state.whereabouts import describe_move, describe_place
from tests.builders import BLOCK, RACK
from tests.plan.jobs import test_jobs as of_jobs
from tests.plan.pods import test_node_steps as of_nodes
from tests.plan.pods import test_ungate_steps as of_ungating
from tests.plan.steps import test_excess as of_excess
from tests.plan.steps import test_pausing as of_pausing
from tests.plan.workloads import test_activity as of_activity
from tests.plan.workloads import test_checks as of_checks
from tests.plan.workloads import test_drift as of_drift
from tests.plan.workloads import test_pods_ready as of_readiness
from tests.plan.workloads import test_provisioning as of_provisioning
from tests.plan.workloads import test_queue_status as of_queues
from tests.plan.workloads import test_reports as of_reports
from tests.plan.workloads import test_requeue as of_requeue
from tests.plan.workloads import test_verdict_steps as of_verdicts
from tests.state import test_whereabouts as of_places

Cases = dict[str, tuple[Callable[[], str], str]]
TWO_RACKS = of_drift.build_nodes(a1="r1", a2="r2", b1="r2")


def read_report(step: Step | None) -> str:
    message: str = of_reports.read(step)["message"]
    return message


def get_event(plan: Plan, at: int = -1) -> str:
    """The message of the first event of a step."""
    return plan.steps[at].events[0].message


def get_message(action: Any) -> str:
    assert isinstance(action, Evict)
    return action.message


# --- workloads --------------------------------------------------------------------------------------------


def evict_beyond_backoff() -> str:
    rules = PodsReadyRules(timeout_s=10, backoff_limit=1)
    wire = of_readiness.build_admitted_workload(of_readiness.WAITS, requeue_state={"count": 1})
    return get_message(of_readiness.plan(wire, of_readiness.NOT_READY, 1000, rules))


def release_until_requeued() -> str:
    wire = of_readiness.build_admitted_workload(of_readiness.RUNS, requeue_state={"count": 1, "requeueAt": of_readiness.format_time(60)})
    wire["status"] = build_released_status(wire, "why", of_readiness.format_time(20))
    return str((find_condition(wire, QUOTA_RESERVED) or {})["message"])


def stop_eviction() -> str:
    workload = of_pausing.running()
    found = find_stopped(of_pausing.BY_EVICTIONS, workload, of_pausing.evict_for("PodsReadyTimeout")(workload))
    assert found is not None
    return found.message


def evict_again_for_nodes() -> str:
    life = of_requeue.Life()
    for since in (0, 6):
        life.admit(since)
        life.evict(since + 1)
    return str(life.message(EVICTED))


def preempt() -> str:
    (step,) = of_verdicts.preempt(of_verdicts.make_workload(*of_verdicts.RUNS, admission=of_verdicts.admit("n1")))
    return step.events[0].message


def admit_in_second_pass() -> str:
    before = of_verdicts.make_workload(QUOTA_RESERVED, admission=of_verdicts.admit(delayed=TOPOLOGY_PENDING))
    return get_event(plan_verdict(of_verdicts.decide(of_verdicts.find("n1"), before, second=True)))


def describe_change(before: Any, after: Any, *lost: str) -> str:
    return describe_move(of_places.admitted(*before), of_places.admitted(*after), set(lost))


HOSTS = (of_places.HOSTS, of_places.hosts("a", "b")), (of_places.HOSTS, of_places.hosts("c", "b"))
WORKLOADS: Cases = {
    "maximum execution time": (
        lambda: get_message(of_activity.plan(of_activity.build_admitted_workload(since=0, limit=60), 1000)),
        "The workload is deactivated: it was admitted for its maximumExecutionTimeSeconds of 60. To run it again, delete its "
        "job and create it again; or have an administrator (ClusterRole topogate-batch-admin) set spec.active of the Workload "
        "to true; both give it this time again",
    ),
    "pods not ready": (
        lambda: get_message(of_readiness.plan(of_readiness.build_admitted_workload(of_readiness.WAITS), of_readiness.NOT_READY, 1000)),
        "Not all pods were ready within 10 s of the start. It is queued again at 2026-01-01T00:17:00Z (requeue 1 of 2)",
    ),
    "pods not ready too often": (
        evict_beyond_backoff,
        "Not all pods were ready within 10 s of the start. The workload is deactivated: it has been queued again 1 time "
        "already, and backoffLimitCount is 1. To run it again, delete its job and create it again; or have an administrator "
        "(ClusterRole topogate-batch-admin) set spec.active of the Workload to true",
    ),
    "released until it is queued again": (release_until_requeued, "Not to be admitted before 2026-01-01T00:01:00Z: why"),
    "nodes lost again": (
        evict_again_for_nodes,
        "Workload was evicted as there was no replacement for unhealthy node(s): n1; nothing else has room. It is queued again "
        "at 2026-01-01T00:00:17Z: it has lost its nodes 2 times in a row",
    ),
    "eviction stopped by a pause": (
        stop_eviction,
        "It would be evicted, but evictions are paused by bob since 2026-01-01T01:00:00Z: because; `topogate resume evictions` "
        "ends that. Why it would be: PodsReadyTimeout: message",
    ),
    "preempted": (
        preempt,
        "Preempted to accommodate a workload (UID: high, JobUID: job-1) due to prioritization in the ClusterQueue; preemptor "
        "path: /root/a; preemptee path: /root/b",
    ),
    "admitted in a second pass": (admit_in_second_pass, "Admitted by ClusterQueue cq, wait time since reservation was 86403s"),
    "moved": (lambda: describe_change(*HOSTS, "a"), "1 pod of node a goes to node c; the others stay (lost: node a)"),
    "moved, since a node that runs rejects pods": (
        lambda: describe_move(of_places.admitted(*HOSTS[0]), of_places.admitted(*HOSTS[1]), {"a"}, {"a"}),
        "1 pod of node a goes to node c; the others stay (node a did not take them)",
    ),
    "moved, since pods were stuck": (lambda: describe_change(*HOSTS), "1 pod of node a goes to node c; the others stay (they were stuck)"),
    "place of nodes": (
        lambda: describe_place(
            of_places.cluster(BLOCK, RACK, HOSTNAME_LABEL), of_places.admitted(of_places.HOSTS, of_places.hosts("b0-r0-n0", "b0-r0-n1"))
        ),
        "cloud/rack b0/b0-r0 (nodes b0-r0-n0, b0-r0-n1)",
    ),
    "place of racks": (
        lambda: describe_place(of_places.cluster(BLOCK, RACK), of_places.admitted((BLOCK, RACK), [("b0", "b0-r0"), ("b1", "b1-r0")])),
        "cloud/blocks b0, b1 (cloud/racks b0-r0, b1-r0)",
    ),
    "a job's class is missing": (
        lambda: plan_job(of_jobs.make_facts(of_jobs.make_job(labels={PRIORITY_CLASS_LABEL: "urgent"}))).problem,
        'WorkloadPriorityClass "urgent" does not exist; there is none at all. The job waits until it does, or names another',
    ),
}

# --- reports ----------------------------------------------------------------------------------------------


def drift_apart(*, together: bool = False) -> str:
    facts = of_drift.build_workload("a1", "b1", required=not together, together=together)
    pods = [of_drift.build_pod("p", "a1", "a" if together else "main"), of_drift.build_pod("q", "b1", "b" if together else "main")]
    return of_drift.drift(facts, pods, TWO_RACKS)[0][1]


REPORTS: Cases = {
    "pods run where they were placed": (
        lambda: read_report(report_drift(of_reports.make_workload_with(PLACEMENT_KEPT), (), of_reports.NOW, runs=True)),
        "All pods run where they were placed",
    ),
    "it does not run": (
        lambda: read_report(report_drift(of_reports.make_workload_with(PLACEMENT_KEPT), (), of_reports.NOW, runs=False)),
        "The workload does not run",
    ),
    "pods in two racks": (drift_apart, "pods of pod set main run in r1 (1), r2 (1), though one rack is required"),
    "pods of all pod sets in two racks": (
        lambda: drift_apart(together=True),
        "its pods run in r1 (1), r2 (1), though one rack is required",
    ),
    "a pod elsewhere": (
        lambda: of_drift.drift(of_drift.build_workload("a1"), [of_drift.build_pod("p", "a9")], of_drift.build_nodes(a1="r1", a9="r1"))[0][
            1
        ],
        "pod set main: outside of its assignment: p on node a9",
    ),
    "a node with another hostname": (
        lambda: of_drift.drift(
            of_drift.build_workload("a1"), [of_drift.build_pod("p", "a1")], {"a1": of_drift.build_node("a1", "r1", "other")}
        )[0][1],
        "pod set main: node a1 is other now, and was a1",
    ),
    "a stuck pod": (
        lambda: read_report(report_stuck(of_reports.make_workload(), of_reports.build_stuck_pods(1), of_reports.NOW)),
        "pod p0 cannot be scheduled on node n0, where others of its workload run: no room. Another place is looked for",
    ),
    "many stuck pods": (
        lambda: read_report(report_stuck(of_reports.make_workload(), of_reports.build_stuck_pods(5), of_reports.NOW)),
        "pod p0 cannot be scheduled on node n0, where others of its workload run: no room; pod p1 cannot be scheduled on node "
        "n1, where others of its workload run: no room; pod p2 cannot be scheduled on node n2, where others of its workload "
        "run: no room and 2 more pods. Another place is looked for",
    ),
    "no stuck pod": (
        lambda: read_report(report_stuck(of_reports.make_workload_with(PODS_SCHEDULABLE), (), of_reports.NOW)),
        "All pods are scheduled, or wait for no longer than usual",
    ),
    "spares": (
        lambda: read_report(report_spares(of_reports.make_workload(), [of_reports.MISSING], of_reports.NOW)),
        "pod set main: 1 of 2 spare nodes kept free for 2 pods each: n1; no other node of its domain has room for 2 pods",
    ),
    "no place for spares": (
        lambda: read_report(report_spares(of_reports.make_workload_with(SPARES_HELD), None, of_reports.NOW)),
        "The workload has no place beside which nodes could be kept free",
    ),
    "ranks in order": (
        lambda: read_report(report_rank_order(of_reports.make_workload(), {}, of_reports.NOW, kept=True)),
        "Consecutive ranks share a domain",
    ),
    "ranks in another order": (
        lambda: read_report(report_rank_order(of_reports.make_workload(), {"a": "twice"}, of_reports.NOW, kept=True)),
        "Pods are placed in the order of the list, not of ranks: pod set a: twice",
    ),
}

# --- nodes and pods ---------------------------------------------------------------------------------------


def end_leftover() -> str:
    pod = of_nodes.build_pinned_pod("n0")
    found = plan_leftovers(of_verdicts.make_workload(), [PodFacts.read(pod)], {"ns/on-n0": pod}, of_nodes.NOW)
    return of_nodes.list_first_steps(found)[0].events[0].message


def refuse_ungating() -> str:
    (step,) = [
        each for each in of_ungating.plan(of_ungating.build_facts(of_ungating.build_gated_pod(0))).steps if each.name == "ungate pods"
    ]
    assert isinstance(step.write, ParallelSteps)
    first = step.write.steps[0]
    assert isinstance(first, Step)
    assert first.if_refused is not None
    return first.if_refused("it contradicts").message


NODES: Cases = {
    "a lost node": (lambda: get_event(of_nodes.plan(["n0"])), "node n0: it is gone"),
    "more lost nodes than a limit": (
        lambda: get_event(of_nodes.plan(["n0", "n1"], rules=HealthRules(max_nodes=1))),
        "Workload eviction triggered due to multiple TAS assigned node failures: 2 of 3, nodeReplacement.maxNodes is 1: n0 (it "
        "is gone), n1 (it is gone)",
    ),
    "a pod without its place": (end_leftover, "Pod terminated by topogate: it waits for node n0, of which its workload has nothing"),
    "a pod that cannot be ungated": (
        refuse_ungating,
        "the gate kueue.x-k8s.io/topology stays on: the pod cannot be sent to kubernetes.io/hostname=n0: it contradicts; its "
        "nodeSelector was set otherwise, perhaps by another admission webhook; delete the pod once that is mended",
    ),
    "a pod with a sidecar": (
        lambda: of_excess.explain(of_excess.build_template("1")),
        "the pod requests 500m cpu more than the pods that were admitted as main, and stays gated. If an admission webhook "
        "added a container (a sidecar), create the job again in one of these ways: with the same container in the pod "
        "template, so that the webhook does not add it; with the requests of the whole pod in spec.resources of the pod "
        "template; or without the injection, as that webhook provides. Higher requests of the other containers do not help. "
        "Else delete the pod",
    ),
}

# --- checks and queues ------------------------------------------------------------------------------------


def spend_attempts(spent: int) -> str:
    check = of_checks.check() | {"podSetUpdates": of_checks.UPDATES, "retryCount": spent}
    action = of_checks.plan(check, after_s=11, retries=of_checks.RETRIES)
    assert isinstance(action, Sync)
    return str(action.checks[0]["message"])


def judge_request(entry: Any, *requests: Any, **options: Any) -> str:
    wire = of_provisioning.build_workload()
    return str(of_provisioning.judged(of_provisioning.plan(wire, entry, *requests, **options))["message"])


def judge_foreign_request() -> str:
    found = of_provisioning.request(of_provisioning.build_workload())
    found["metadata"]["ownerReferences"][0]["uid"] = "uid-other"
    return judge_request(of_provisioning.entry(), found)


def keep_flavor() -> str:
    flavor = of_queues.made(finalizers=[RESOURCE_IN_USE_FINALIZER], deletionTimestamp=of_queues.NOW)
    return get_event(plan_flavor(flavor, of_queues.SOME))


CHECKS: Cases = {
    "placement is tried again": (
        lambda: spend_attempts(0),
        "Retrying after placement: No place was found on the nodes within 10 s after all admission checks were Ready",
    ),
    "placement is given up": (
        lambda: spend_attempts(1),
        "No place was found on the nodes within 10 s after all admission checks were Ready (given up after 2 attempts)",
    ),
    "request of another workload": (judge_foreign_request, "ProvisioningRequest w-nodes-1 is not of this workload"),
    "check without its configuration": (lambda: judge_request(of_provisioning.entry(), config=None), "AdmissionCheck nodes is not active"),
    "request is gone": (lambda: judge_request(of_provisioning.entry("Ready", podSetUpdates=[])), "ProvisioningRequest w-nodes-1 is gone"),
    "flavor in use": (keep_flavor, "still used by Workloads ns/a, ns/b; it goes when they are over"),
}


@pytest.mark.parametrize(
    ("build", "sentence"),
    [pytest.param(*case, id=name) for cases in (WORKLOADS, REPORTS, NODES, CHECKS) for name, case in cases.items()],
)
def test_condition_or_event_has_its_sentence(build: Callable[[], str], sentence: str):
    assert build() == sentence
