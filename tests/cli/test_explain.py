"""`topogate explain` on clusters that files describe: the words of the condition, what would help, where and why there."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from typing import Any

import pytest

from core.names import (
    ADMITTED,
    COMPONENT_WORKLOAD_INDEX,
    FINISHED,
    IS_GROUP_WORKLOAD,
    LEND_SPARES,
    MIN_PARALLELISM,
    SPARE_NODES,
    SPARES_HELD,
    WORKLOAD_ANNOTATION,
)
from tests.builders import build_condition_json
from tests.cli.commands import BLOCK, RACK, Commands, build_job, build_nodes, build_queues
from tests.cli.lives import NOW, build_queued_job, decide_documents


def get_workload(documents: list[Any], job_name: str) -> Any:
    return next(d for d in documents if d["kind"] == "Workload" and d["metadata"]["ownerReferences"][0]["name"] == job_name)


def get_condition(workload: Any, kind: str) -> Any:
    return next(c for c in workload["status"]["conditions"] if c["type"] == kind)


def test_explain_of_a_waiting_workload_shows_its_condition_message_and_the_lack_of_the_best_domains(topogate: Commands):
    documents = decide_documents([*build_nodes(), *build_queues(), *build_queued_job(build_job("a", 5, required=RACK))])
    workload = get_workload(documents, "a")
    sentence = get_condition(workload, "QuotaReserved")["message"]
    file = topogate.write("cluster.yaml", *documents)
    ran = topogate.run("explain", "workload", workload["metadata"]["name"], "--nodes", file)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.count(sentence) == 1
    assert "state: waiting" in ran.out
    assert f"best {RACK} b0/b0-r0: 4 of 5 pods, short of 8 nvidia.com/gpu (4 domains)" in ran.out
    assert f"would fit: in one {BLOCK}" in ran.out
    assert "now:" not in ran.out


def build_full_queue() -> list[Any]:
    """`low` and `mid` hold the quota of 64 GPUs; `high` and then `last` wait for it."""
    jobs = [build_job("low", 2), build_job("mid", 6), build_job("high", 3), build_job("last", 1)]
    queued = [document for job, priority in zip(jobs, (-10, 0, 1000, -20), strict=True) for document in build_queued_job(job, priority)]
    running = decide_documents([*build_nodes(), *build_queues(gpus=64), *queued[:4]])
    return decide_documents([*running, *queued[4:]])


def test_explain_of_a_waiting_workload_shows_its_position_with_the_holders_and_the_reason_for_no_preemption(topogate: Commands):
    file = topogate.write("cluster.yaml", *build_full_queue())
    told = topogate.run("explain", "job", "high", "--nodes", file, "-o", "json").data
    assert {name: told["turn"][name] for name in ("position", "waiting", "localPosition", "localWaiting", "beforeCount")} == {
        "position": 1,
        "waiting": 2,
        "localPosition": 1,
        "localWaiting": 2,
        "beforeCount": 0,
    }
    (lack,) = told["missing"]
    assert (lack["flavor"], lack["resource"], lack["needs"], lack["available"], lack["holders"]) == ("gpu", "nvidia.com/gpu", "24", "0", 2)
    assert [(one["of"], one["amount"], one["priority"]) for one in lack["heldBy"]] == [
        ("default/job/mid", "48", 0),
        ("default/job/low", "16", -10),
    ]
    (sentence,) = told["notPreempted"]
    assert re.fullmatch(
        r"priority 1000 waits behind -10 \(default/job-low-\w+\) because withinClusterQueue of ClusterQueue research is Never", sentence
    )
    shown = topogate.run("explain", "job", "last", "--nodes", file).out
    assert "position: 2 of 2 in the ClusterQueue, 2 of 2 in the LocalQueue\n" in shown
    assert "before it: default/job/high (priority 1000)\n" in shown
    assert "needs quota: 8 nvidia.com/gpu of flavor gpu, of which 0 are available\n" in shown
    assert "held by default/job/mid 48 (priority 0, ClusterQueue research), default/job/low 16 (priority -10" in shown


def build_cohort(*, uses: int, asks: int) -> list[Any]:
    """Two queues of 32 GPUs each in one cohort: a job of `uses` pods holds quota of its own queue, and `large` waits in the other."""
    documents = build_queues(gpus=32, cohortName="teams")
    vision = deepcopy(next(d for d in documents if d["kind"] == "ClusterQueue"))
    vision["metadata"]["name"] = "vision"
    local = deepcopy(next(d for d in documents if d["kind"] == "LocalQueue"))
    local["metadata"]["name"], local["spec"]["clusterQueue"] = "vision", "vision"
    documents = decide_documents([*build_nodes(), *documents, vision, local, *build_queued_job(build_job("own", uses, queue="vision"))])
    return decide_documents([*documents, *build_queued_job(build_job("large", asks))])


def test_quota_that_another_queue_of_the_cohort_uses_itself_is_shown_with_remedies(topogate: Commands):
    """It said that no workload holds it."""
    file = topogate.write("cluster.yaml", *build_cohort(uses=4, asks=6))
    (lack,) = topogate.run("explain", "job", "large", "--nodes", file, "-o", "json").data["missing"]
    assert (lack["needs"], lack["available"], lack["holders"]) == ("48", "32", 0)
    assert (lack["usedByOwners"], lack["owners"]) == ([{"clusterQueue": "vision", "amount": "32"}], 1)
    shown = topogate.run("explain", "job", "large", "--nodes", file).out
    assert "    used by its owners: ClusterQueue vision 32\n" in shown
    assert "would help: the end of workloads of ClusterQueue vision: they use quota of their own queue" in shown
    assert "would help: 16 nvidia.com/gpu more as nominalQuota of ClusterQueue research in flavor gpu\n" in shown
    assert "no workload holds it" not in shown


def test_end_of_owners_workloads_is_no_remedy_where_it_is_not_enough(topogate: Commands):
    file = topogate.write("cluster.yaml", *build_cohort(uses=1, asks=9))
    (lack,) = topogate.run("explain", "job", "large", "--nodes", file, "-o", "json").data["missing"]
    assert lack["usedByOwners"] == [{"clusterQueue": "vision", "amount": "8"}]
    assert lack["wouldHelp"] == ["16 nvidia.com/gpu more as nominalQuota of ClusterQueue research in flavor gpu"]


def test_quota_advised_to_a_waiting_workload_counts_the_workloads_before(topogate: Commands):
    """What was advised gave the quota to the job before."""
    file = topogate.write("cluster.yaml", *build_full_queue())
    (lack,) = topogate.run("explain", "job", "last", "--nodes", file, "-o", "json").data["missing"]
    assert lack["wouldHelp"][-1] == (
        "8 nvidia.com/gpu more as nominalQuota of ClusterQueue research in flavor gpu, and 24 for 1 workload before it"
    )
    (first,) = topogate.run("explain", "job", "high", "--nodes", file, "-o", "json").data["missing"]
    assert first["wouldHelp"][-1] == "24 nvidia.com/gpu more as nominalQuota of ClusterQueue research in flavor gpu"


def test_explain_of_a_workload_without_a_place_shows_the_workloads_on_the_best_domain(topogate: Commands):
    queued = [d for name, pods in (("small", 2), ("large", 4)) for d in build_queued_job(build_job(name, pods, required=RACK))]
    running = decide_documents([*build_nodes(blocks=1, racks=1), *build_queues(), *queued[:2]])
    file = topogate.write("cluster.yaml", *decide_documents([*running, *queued[2:]]))
    told = topogate.run("explain", "job", "large", "--nodes", file, "-o", "json").data
    (domain,) = told["occupied"]
    assert (domain["domain"], domain["level"], domain["holders"]) == ("b0/b0-r0", RACK, 1)
    assert (domain["heldBy"][0]["of"], domain["heldBy"][0]["amounts"]) == ("default/job/small", {"nvidia.com/gpu": "16"})
    (sentence,) = told["notPreempted"]
    assert re.fullmatch(
        r"no workload that holds quota of ClusterQueue research has a priority below 0: the lowest is 0 \(default/job-small-\w+\); "
        "withinClusterQueue of ClusterQueue research is Never",
        sentence,
    )
    shown = topogate.run("explain", "job", "large", "--nodes", file).out
    assert f"on {RACK} b0/b0-r0: default/job/small 16 nvidia.com/gpu (priority 0)" in shown


def test_explain_of_a_job_that_no_rack_could_hold_blames_no_other_workload(topogate: Commands):
    documents = decide_documents([*build_nodes(), *build_queues(), *build_queued_job(build_job("a", 5, required=RACK))])
    told = topogate.run("explain", "job", "a", "--nodes", topogate.write("cluster.yaml", *documents), "-o", "json").data
    assert told["turn"]["position"] == 1
    assert not {"missing", "occupied", "notPreempted"} & told.keys()


def test_explain_of_a_preempted_workload_names_its_preemptor(topogate: Commands):
    documents = decide_documents(
        [
            *build_nodes(),
            *build_queues(),
            *build_queued_job(build_job("a", 5, required=RACK)),
            *build_queued_job(build_job("b", 5, required=RACK)),
        ]
    )
    workload, other = get_workload(documents, "a"), get_workload(documents, "b")["metadata"]
    message = f"Preempted to accommodate a workload (UID: {other['uid']}, JobUID: x) due to prioritization"
    workload["status"]["conditions"].append(build_condition("Preempted", "True", "InClusterQueue", message))
    ran = topogate.run("explain", "job", "a", "--nodes", topogate.write("cluster.yaml", *documents))
    assert f"preempted by: {other['namespace']}/{other['name']}" in ran.out
    workload["status"]["conditions"][-1]["message"] = message.replace(other["uid"], "gone")
    assert "preempted by" not in topogate.run("explain", "job", "a", "--nodes", topogate.write("cluster.yaml", *documents)).out


def test_the_data_has_each_level_each_reason_and_each_way_out(topogate: Commands):
    cluster = build_nodes(blocks=1)
    cluster[0]["spec"] = {"taints": [{"key": "repair", "effect": "NoSchedule"}]}
    documents = decide_documents([*cluster, *build_queues(), *build_queued_job(build_job("a", 5, required=RACK))])
    ran = topogate.run("explain", "job/a", "--nodes", topogate.write("cluster.yaml", *documents), "-o", "json")
    told = ran.data
    assert (told["state"], told["job"], told["clusterQueue"]) == ("waiting", {"kind": "Job", "name": "a"}, "research")
    assert told["condition"]["message"] == told["now"]["message"]
    (attempt,) = told["now"]["attempts"]
    assert [(level["level"], level["fit"], level["wanted"]) for level in attempt["levels"]] == [(RACK, 4, 5), (BLOCK, 7, 5)]
    assert attempt["levels"][0]["lacks"] == {"nvidia.com/gpu": "8"}
    assert attempt["excluded"] == [{"reason": 'taint "repair:NoSchedule"', "count": 1, "example": "n-0-0-0"}]
    assert [change.get("level") or change.get("pods") for change in attempt["wouldHelp"]] == [BLOCK, 4]


def test_explain_after_a_change_shows_the_condition_and_the_current_verdict(topogate: Commands):
    documents = decide_documents([*build_nodes(), *build_queues(), *build_queued_job(build_job("a", 5, required=RACK))])
    sentence = get_condition(get_workload(documents, "a"), "QuotaReserved")["message"]
    more = [document for document in build_nodes(hosts=5) if document["metadata"]["name"].endswith("0-4")]
    ran = topogate.run("explain", "job", "a", "--nodes", topogate.write("cluster.yaml", *documents, *more))
    assert sentence in ran.out
    assert "now: it would be admitted by ClusterQueue research" in ran.out
    assert "b0/b0-r0/n-0-0-4  1 pod" in ran.out


def test_explain_of_an_admitted_workload_shows_its_place_and_the_reason(topogate: Commands):
    documents = decide_documents([*build_nodes(), *build_queues(), *build_queued_job(build_job("a", 3, required=RACK))])
    file = topogate.write("cluster.yaml", *documents)
    ran = topogate.run("explain", "job", "a", "--nodes", file)
    assert "state: admitted" in ran.out
    assert "pod set main: 3 pods, flavor gpu" in ran.out
    assert ran.out.count("  1 pod\n") == 3
    assert f"why there, as things are now: pod set main: {RACK} b0/b0-r0 with room for 4, the tightest of 4 that hold all 3 pods" in ran.out
    assert "pods: 0 live, 0 on nodes, 0 gated" in ran.out
    told = topogate.run("explain", "job", "a", "--nodes", file, "-o", "json").data
    assert {tuple(domain["values"][:2]) for domain in told["podSets"][0]["domains"]} == {("b0", "b0-r0")}
    assert "now" not in told


def test_job_admitted_with_fewer_pods_shows_how_many_it_asked_for(topogate: Commands):
    asked = build_job("a", 12, required=RACK)
    asked["metadata"]["annotations"] = {MIN_PARALLELISM: "3"}
    file = topogate.write("cluster.yaml", *decide_documents([*build_nodes(), *build_queues(), *build_queued_job(asked)]))
    ran = topogate.run("explain", "job", "a", "--nodes", file)
    assert f"pod set main: 4 of the 12 pods that it asked for ({MIN_PARALLELISM} accepts 3 or more), flavor gpu" in ran.out
    (pod_set,) = topogate.run("explain", "job", "a", "--nodes", file, "-o", "json").data["podSets"]
    assert (pod_set["count"], pod_set["asked"], pod_set["minimum"]) == (4, 12, 3)


def test_explain_after_node_failures_shows_the_remaining_room(topogate: Commands):
    """Not "the tightest of 0"."""
    documents = decide_documents([*build_nodes(), *build_queues(), *build_queued_job(build_job("a", 3, required=RACK))])
    gone = [document for document in documents if not (document["kind"] == "Node" and document["metadata"]["name"] == "n-0-0-0")]
    full = [document for document in gone if not (document["kind"] == "Node" and document["metadata"]["name"].endswith(("-1", "-2", "-3")))]
    kept = [document for document in gone if document["kind"] == "Node" and document["metadata"]["name"] in ("n-0-0-1", "n-0-0-2")]
    ran = topogate.run("explain", "job", "a", "--nodes", topogate.write("cluster.yaml", *full, *kept))
    assert f"{RACK} b0/b0-r0 with room for 2; none holds all 3 pods now; next b0/b0-r1 with room for 1\n" in ran.out
    assert "of 0 that hold" not in ran.out


def test_where_it_is_not_held_any_more_its_place_is_not_called_the_tightest(topogate: Commands):
    documents = decide_documents([*build_nodes(), *build_queues(), *build_queued_job(build_job("a", 3, required=RACK))])
    less = [one for one in documents if not (one["kind"] == "Node" and one["metadata"]["name"] in ("n-0-0-0", "n-0-0-3"))]
    ran = topogate.run("explain", "job", "a", "--nodes", topogate.write("cluster.yaml", *less))
    assert f"{RACK} b0/b0-r0 with room for 2 of 3 pods now; b0/b0-r1 with room for 4 would hold all 3\n" in ran.out
    assert "tightest" not in ran.out


def test_explain_of_an_evicted_workload_shows_reason_and_former_place(topogate: Commands):
    documents = decide_documents([*build_nodes(), *build_queues(), *build_queued_job(build_job("a", 3, required=RACK))])
    told = "its node was lost. It was on rack b0/b0-r0 (node n). Placed again on the same"
    workload = get_workload(documents, "a")
    workload["status"]["conditions"].append(build_condition("Evicted", "False", "QuotaReserved", f"Previously: {told}"))
    ran = topogate.run("explain", "job", "a", "--nodes", topogate.write("cluster.yaml", *documents))
    assert f"before: {told}\n" in ran.out
    get_condition(workload, "Evicted").update(status="True", message="its node was lost")
    ran = topogate.run("explain", "job", "a", "--nodes", topogate.write("cluster.yaml", *documents))
    assert ran.out.count("its node was lost") == 1, "it is the condition that is shown"


def test_explain_shows_lent_nodes_for_holder_and_borrower_and_counts_them_once(topogate: Commands):
    holder, borrower = build_job("a", 3, required=RACK), build_job("b", 1, unconstrained="true")
    holder["spec"]["template"]["metadata"]["annotations"] |= {SPARE_NODES: "1", LEND_SPARES: "true"}
    there = [node for node in build_nodes() if node["metadata"]["labels"][RACK] == "b0-r0"]
    documents = [*there, *build_queues(), *build_queued_job(holder), *build_queued_job(borrower)]
    get_workload(documents, "a")["spec"]["priority"] = 5
    file = topogate.write("cluster.yaml", *decide_documents(documents))
    (lent,) = topogate.run("explain", "job", "a", "--nodes", file, "-o", "json").data["lent"]
    (key,) = lent["to"]
    assert key.startswith("default/job-b")
    told = topogate.run("explain", "job", "b", "--nodes", file, "-o", "json").data
    (borrowed,) = told["borrowed"]
    assert borrowed["nodes"] == [lent["node"]]
    assert {domain["values"][-1] for domain in told["podSets"][0]["domains"]} == {lent["node"]}
    assert f"of its spare nodes lent: {lent['node']} to {key}" in topogate.run("explain", "job", "a", "--nodes", file).out
    ran = topogate.run("explain", "job", "b", "--nodes", file)
    assert f"spare nodes lent to it: {lent['node']} of {borrowed['of']}, until that needs them" in ran.out
    (topology,) = topogate.run("topology", "default", "--nodes", file, "-o", "json").data["topologies"]
    (rack,) = topology["flavors"][0]["domains"][0]["domains"]
    (host,) = [host for host in rack["domains"] if host["values"][-1] == lent["node"]]
    assert (host["used"]["nvidia.com/gpu"], host["fits"]) == ("8", 0)
    assert rack["used"]["nvidia.com/gpu"] == "32"


def test_explain_shows_spare_nodes_of_a_workload_and_counts_them_as_used_for_others(topogate: Commands):
    asks = build_job("a", 2, required=RACK)
    asks["spec"]["template"]["metadata"]["annotations"][SPARE_NODES] = "1"
    documents = decide_documents([*build_nodes(), *build_queues(), *build_queued_job(asks)])
    workload = get_workload(documents, "a")
    file = topogate.write("cluster.yaml", *documents)
    told = topogate.run("explain", "job", "a", "--nodes", file, "-o", "json").data
    (spare,) = told["podSets"][0]["spares"]
    assert spare not in {domain["values"][-1] for domain in told["podSets"][0]["domains"]}
    assert f"kept free for it: {spare}" in topogate.run("explain", "job", "a", "--nodes", file).out
    (topology,) = topogate.run("topology", "default", "--nodes", file, "-o", "json").data["topologies"]
    racks = [rack for block in topology["flavors"][0]["domains"] for rack in block["domains"]]
    hosts = {host["values"][-1]: host for rack in racks for host in rack["domains"]}
    assert (hosts[spare]["used"]["nvidia.com/gpu"], hosts[spare]["fits"]) == ("8", 0)
    missing = {"type": SPARES_HELD, "status": "False", "reason": "Missing", "message": "pod set main: 0 of 1", "lastTransitionTime": NOW}
    workload["status"]["conditions"].append(missing)
    ran = topogate.run("explain", "job", "a", "--nodes", topogate.write("cluster.yaml", *documents))
    assert "topogate.dev/SparesHeld=False, Missing: pod set main: 0 of 1" in ran.out


def test_one_that_has_finished_is_so(topogate: Commands):
    documents = decide_documents([*build_nodes(), *build_queues(), *build_queued_job(build_job("a", 3, required=RACK))])
    finished = {"type": FINISHED, "status": "True", "reason": "Succeeded", "message": "Job finished", "lastTransitionTime": NOW}
    get_workload(documents, "a")["status"]["conditions"].append(finished)
    ran = topogate.run("explain", "job", "a", "--nodes", topogate.write("cluster.yaml", *documents))
    assert "state: finished" in ran.out
    assert "Job finished" in ran.out
    assert "pod set" not in ran.out


def test_explain_of_an_undecided_workload_decides_it_in_queue_order(topogate: Commands):
    documents = [
        *build_nodes(blocks=1, racks=1),
        *build_queues(),
        *build_queued_job(build_job("first", 3), priority=5),
        *build_queued_job(build_job("second", 2)),
    ]
    ran = topogate.run("explain", "job", "second", "--nodes", topogate.write("cluster.yaml", *documents), "-o", "yaml")
    assert "outcome: waits" in ran.out
    assert "condition:" not in ran.out
    ran = topogate.run("explain", "job", "first", "--nodes", topogate.write("cluster.yaml", *documents))
    assert "no decision yet" in ran.out
    assert "now: it would be admitted" in ran.out


def test_explain_lists_conditions_of_placements_that_were_not_kept(topogate: Commands):
    documents = decide_documents([*build_nodes(), *build_queues(), *build_queued_job(build_job("a", 3, required=RACK))])
    conditions = get_workload(documents, "a")["status"]["conditions"]
    conditions.append(build_condition("topogate.dev/PlacementKept", "False", "Split", "pods run in two racks"))
    conditions.append(build_condition("topogate.dev/RankOrderKept", "True", "Kept", "in order"))
    file = topogate.write("cluster.yaml", *documents)
    ran = topogate.run("explain", "job.batch/a", "--nodes", file)
    assert "topogate.dev/PlacementKept=False, Split: pods run in two racks" in ran.out
    assert "in order" not in ran.out
    told = topogate.run("explain", "jobs.batch/a", "--nodes", file, "-o", "json").data
    assert told["notKept"] == [{"type": "topogate.dev/PlacementKept", "reason": "Split", "message": "pods run in two racks"}]


def build_condition(kind: str, status: str, reason: str, message: str) -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": NOW}


RESERVED = build_condition("QuotaReserved", "True", "QuotaReserved", "has it")


@pytest.mark.parametrize(
    ("active", "conditions", "state", "told"),
    [
        (
            False,
            [build_condition("Evicted", "True", "Deactivated", "The workload is deactivated")],
            "deactivated",
            "The workload is deactivated",
        ),
        (
            True,
            [RESERVED, build_condition("Evicted", "True", "Preempted", "for b")],
            "stopping",
            "for b",
        ),
        (True, [RESERVED], "quota reserved", "has it"),
        (True, [build_condition("QuotaReserved", "False", "OnHold", "no replicas")], "on hold", "no replicas"),
        (
            True,
            [build_condition("Evicted", "True", "Slow", "too slow"), build_condition("QuotaReserved", "False", "Pending", "soon")],
            "waiting",
            "soon",
        ),
    ],
)
def test_explain_shows_each_state_with_its_condition(
    topogate: Commands, active: bool, conditions: list[dict[str, str]], state: str, told: str
):
    made, workload = build_queued_job(build_job("a", 2, required=RACK))
    workload["spec"]["active"] = active
    workload["status"] = {"conditions": conditions, "requeueState": {"requeueAt": "2999-01-01T00:00:00Z"}}
    ran = topogate.run("explain", "job", "a", "--nodes", topogate.write("cluster.yaml", *build_nodes(), *build_queues(), made, workload))
    assert ran.code == 0
    assert f"state: {state}\n" in ran.out
    assert f"\n    {told}\n" in ran.out
    assert "queued again at: 2999-01-01T00:00:00Z" in ran.out
    assert "now:" not in ran.out


def replace_owner(workload: Any, api_version: str, kind: str, name: str, index: int | None = None) -> Any:
    """The same Workload, made for another."""
    owner = {"apiVersion": api_version, "kind": kind, "name": name, "uid": f"{kind}/default/{name}", "controller": True}
    notes = {COMPONENT_WORKLOAD_INDEX: str(index)} if index is not None else {}
    metadata = {**workload["metadata"], "name": f"{name}-{index}" if index is not None else name, "ownerReferences": [owner]}
    return {**workload, "metadata": {**metadata, "uid": metadata["name"], "annotations": notes}}


def test_pods_and_their_groups_lead_to_their_workload_and_a_replica_of_many_is_to_be_named(topogate: Commands):
    _, workload = build_queued_job(build_job("a", 1))
    labels = {"kueue.x-k8s.io/managed": "true", "kueue.x-k8s.io/queue-name": "main", "kueue.x-k8s.io/pod-group-name": "team"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": labels}, "spec": {"containers": []}}
    metadata = {"name": "team", "namespace": "default", "uid": "team", "resourceVersion": "1", "annotations": {IS_GROUP_WORKLOAD: "true"}}
    group = {**workload, "metadata": metadata}
    parent: Any = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": {"name": "lws"}}
    parent["spec"] = {"replicas": 2, "leaderWorkerTemplate": {"size": 1, "workerTemplate": {"spec": {"containers": []}}}}
    replicas = [replace_owner(workload, "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "lws", index) for index in range(2)]
    file = topogate.write("cluster.yaml", *build_nodes(), *build_queues(), pod, group, parent, *replicas)
    for words in (["pod", "p"], ["po/p"], ["podgroup", "team"], ["team"]):
        assert topogate.run("explain", *words, "--nodes", file).out.startswith("Workload default/team\n"), words
    assert "explain leaderworkerset lws" in topogate.run("explain", "job", "lws", "--nodes", file).err
    several = topogate.run("explain", "leaderworkerset", "lws", "--nodes", file)
    assert (several.code, "lws-0, lws-1" in several.err) == (1, True)
    assert topogate.run("explain", "lws-1", "--nodes", file).code == 0


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        (["job", "b"], 1, "Job b"),
        (["job", "a", "-n", "other"], 1, "Job a"),
        (["workload", "job-a"], 1, "Workload job-a"),
        (["jbo", "a"], 2, "kind 'jbo' is not accepted; did you mean job? known are appwrapper"),
        (["job", "a", "b"], 2, "'job a b'"),
        (["job", "idle"], 1, "job default/idle"),
    ],
)
def test_explain_of_a_missing_object_fails_with_one_line(topogate: Commands, words: list[str], code: int, named: str):
    file = topogate.write(
        "cluster.yaml", *build_nodes(), *build_queues(), *build_queued_job(build_job("a", 1)), build_job("idle", 1, queue=None)
    )
    ran = topogate.run("explain", *words, "--nodes", file)
    assert (ran.code, ran.out) == (code, "")
    assert ran.err.startswith(f"topogate: {named}")
    assert ran.err.count("\n") == 1


def test_explain_of_a_message_with_control_characters_sends_none_to_the_terminal(topogate: Commands):
    documents = decide_documents([*build_nodes(), *build_queues(), *build_queued_job(build_job("a", 5, required=RACK))])
    workload = get_workload(documents, "a")
    get_condition(workload, "QuotaReserved")["message"] = "no \x1b]0;owned\x07 \x9b2J room\nstate: admitted"
    file = topogate.write("cluster.yaml", *documents)
    ran = topogate.run("explain", "workload", workload["metadata"]["name"], "--nodes", file)
    assert ran.code == 0
    assert not {"\x1b", "\x07", "\x9b"}.intersection(ran.out)
    assert "?2J room state: admitted" in ran.out
    ran = topogate.run("explain", "workload", workload["metadata"]["name"], "--nodes", file, "-o", "json")
    assert "\x9b" not in ran.out
    assert json.loads(ran.out)["condition"]["message"] == get_condition(workload, "QuotaReserved")["message"]


def build_running(job_status: dict[str, Any] | None = None) -> list[Any]:
    """A job of two pods that run on one node, which is not ready."""
    documents = decide_documents([*build_nodes(), *build_queues(), *build_queued_job(build_job("a", 2, gpus=4, required=RACK))])
    workload = get_workload(documents, "a")
    job = next(d for d in documents if d["kind"] == "Job")
    workload["status"]["conditions"].append(
        {"type": ADMITTED, "status": "True", "lastTransitionTime": NOW, "reason": "Admitted", "message": ""}
    )
    job["status"] = job_status or {}
    node = next(d for d in documents if d["kind"] == "Node")
    node["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    template = job["spec"]["template"]
    notes = {**(template["metadata"].get("annotations") or {}), WORKLOAD_ANNOTATION: workload["metadata"]["name"]}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": job["metadata"]["uid"], "controller": True}
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"a-{i}", "namespace": "default", "annotations": notes, "ownerReferences": [owner]},
            "spec": {**template["spec"], "schedulingGates": [], "nodeName": node["metadata"]["name"]},
            "status": {"phase": "Running"},
        }
        for i in range(2)
    ]
    return [*documents, *pods]


def test_explain_of_a_workload_with_pods_on_a_node_that_is_not_ready_names_the_node(topogate: Commands):
    """It said nothing for the five minutes until Kubernetes deletes the pods."""
    file = topogate.write("cluster.yaml", *build_running())
    pods = topogate.run("explain", "job", "a", "--nodes", file, "-o", "json").data["pods"]
    assert (pods["live"], pods["onNodesNotReady"], pods["nodesNotReady"]) == (2, 2, ["n-0-0-0"])
    assert "(2 of them on nodes that are not ready: n-0-0-0)" in topogate.run("explain", "job", "a", "--nodes", file).out


def test_explain_of_a_job_that_has_finished_with_pods_that_run_reports_them(topogate: Commands):
    """`explain` called it admitted, and only an event had the reason for the quota that it holds."""
    over = {"conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": NOW}]}
    file = topogate.write("cluster.yaml", *build_running(over))
    told = topogate.run("explain", "job", "a", "--nodes", file, "-o", "json").data
    assert told["jobFinished"] == {"succeeded": True, "podsLeft": 2}
    assert "job: it has finished, and 2 pods of it still run" in topogate.run("explain", "job", "a", "--nodes", file).out


def test_explain_of_a_job_without_a_local_queue_has_no_position_in_a_cluster_queue(topogate: Commands):
    documents = [d for d in [*build_nodes(), *build_queues()] if d["kind"] != "LocalQueue"]
    file = topogate.write("cluster.yaml", *decide_documents([*documents, *build_queued_job(build_job("a", 1))]))
    told = topogate.run("explain", "job", "a", "--nodes", file, "-o", "json").data
    assert (told["turn"].get("position"), told["turn"]["localPosition"]) == (None, 1)
    assert "in the ClusterQueue" not in topogate.run("explain", "job", "a", "--nodes", file).out


def test_explain_of_a_workload_that_waits_for_a_check_names_the_controller_that_is_to_answer(topogate: Commands):
    check = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "AdmissionCheck",
        "metadata": {"name": "budget"},
        "spec": {"controllerName": "example.com/budgets"},
        "status": {"conditions": [build_condition_json("Active")]},
    }
    queues = build_queues(admissionChecksStrategy={"admissionChecks": [{"name": "budget"}]})
    documents = decide_documents([*build_nodes(), *queues, check, *build_queued_job(build_job("a", 1))])
    get_workload(documents, "a")["status"]["admissionChecks"] = [
        {"name": "budget", "state": "Pending", "message": "", "lastTransitionTime": NOW}
    ]
    file = topogate.write("cluster.yaml", *documents)
    (shown,) = topogate.run("explain", "job", "a", "--nodes", file, "-o", "json").data["admissionChecks"]
    assert shown == {"name": "budget", "state": "Pending", "waitsFor": "example.com/budgets"}
    (queue,) = topogate.run("queue", "--nodes", file, "-o", "json").data["queues"]
    (row,) = queue["holding"]["workloads"]
    assert (row["state"], row["waitsForChecks"]) == ("quota reserved", ["budget"])
    assert "quota reserved, waits for check budget" in topogate.run("queue", "--nodes", file, "-o", "wide").out
