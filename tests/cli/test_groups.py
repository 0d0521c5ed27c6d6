"""`topogate explain podgroup` and `topogate plan` of groups of pods: what they say is what the reconciler would do."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from core.names import JOB_COMPLETION_INDEX_LABEL, MEMBER_OF_LABEL, PODGROUP_GATE, PODGROUP_TOPOLOGY, REPLICA_LABEL
from tests.cli.commands import BLOCK, EXAMPLES, RACK, Commands, Obj, build_job, build_node, build_nodes, build_queues
from tests.cli.lives import NOW
from tests.podgroups.devices import build_device_class, build_resource_slice, build_template

LEVELS = [{"level": RACK}]


def group(name: str = "train", policy: Obj | None = None, levels: list[Obj] | None = None, **spec: Any) -> Obj:
    constraints = {"topologyConstraints": LEVELS if levels is None else levels}
    spec = {"schedulingPolicy": policy or {"gang": {"minCount": 2}}, "schedulingConstraints": constraints, **spec}
    return {"apiVersion": "topogate.dev/v1alpha1", "kind": "PodGroup", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def build_pod(name: str, of: str = "train", *, gpus: int = 8, on: str = "", kept: str = "", replica: int | None = None, **spec: Any) -> Obj:
    labels = {MEMBER_OF_LABEL: of} | ({} if replica is None else {REPLICA_LABEL: str(replica)})
    if name.rpartition("-")[2].isdigit():
        labels[JOB_COMPLETION_INDEX_LABEL] = name.rpartition("-")[2]
    container = {"name": "main", "image": "example", "resources": {"requests": {"nvidia.com/gpu": str(gpus)}}}
    spec = {"containers": [container], **({"nodeName": on} if on else {"schedulingGates": [{"name": PODGROUP_GATE}]}), **spec}
    status: Obj = {"phase": "Running" if on else "Pending"} | ({"nominatedNodeName": kept} if kept else {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": spec,
        "status": status,
    }


def build_pods(count: int, of: str = "train", **more: Any) -> list[Obj]:
    return [build_pod(f"{of}-{i}", of, **more) for i in range(count)]


def run_explain(topogate: Commands, *documents: Obj, what: str = "podgroup/train") -> Any:
    ran = topogate.run("explain", what, "--nodes", topogate.write("all.yaml", *documents), "-o", "json")
    assert (ran.code, ran.err) == (0, "")
    return ran.data


def run_plan(topogate: Commands, cluster: list[Obj], *documents: Obj, code: int = 0) -> list[Any]:
    files = topogate.write("plan.yaml", *documents), topogate.write("nodes.yaml", *cluster)
    ran = topogate.run("plan", "-f", files[0], "--nodes", files[1], "-o", "json")
    assert ran.code == code, ran.err
    told: list[Any] = ran.data["jobs"]
    return told


# --- explain ------------------------------------------------------------------------------------------


def test_explain_of_a_waiting_group_shows_the_lack_of_each_placement(topogate: Commands):
    told = run_explain(topogate, *build_nodes(), group(policy={"gang": {"minCount": 5}}), *build_pods(5))
    (replica,) = told["replicas"]
    assert (told["kind"], told["state"], replica["pods"]["gated"]) == ("PodGroup", "waiting", 5)
    now = replica["now"]
    assert (now["outcome"], now["reason"]) == ("waits", "Unschedulable")
    assert {(one["name"], one["fit"], tuple(one["lacks"].items())) for one in now["placements"]} == {
        (f"b{b}-r{r}", 4, (("nvidia.com/gpu", "8"),)) for b in range(2) for r in range(2)
    }


def test_explain_of_a_group_that_waits_for_devices_shows_the_lack_of_each_pool(topogate: Commands):
    constraints = {"draConstraints": [{"resourceClaimTemplateName": "one-gpu"}]}
    slices = [build_resource_slice("left", 1, node="n-0-0-0"), build_resource_slice("right", 2, node="n-0-0-1")]
    there = *build_nodes(), *slices, build_device_class(), build_template(namespace="default")
    claims = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    waiting = group(policy={"gang": {"minCount": 3}}, schedulingConstraints=constraints), *build_pods(3, gpus=0, resourceClaims=claims)
    told = run_explain(topogate, *there, *waiting)
    assert told["asks"]["claimTemplates"] == ["one-gpu"]
    assert told["replicas"][0]["now"]["placements"] == [
        {"name": "pool gpu.example.com/right", "nodes": 1, "fit": 2, "lacks": {"device of claim template one-gpu": "1"}},
        {"name": "pool gpu.example.com/left", "nodes": 1, "fit": 1, "lacks": {"devices of claim template one-gpu": "2"}},
    ]
    ran = topogate.run("explain", "podgroup", "train", "--nodes", topogate.write("all.yaml", *there, *waiting))
    assert "at least 3 pods at once, devices of one-gpu in one pool" in ran.out
    assert "pool gpu.example.com/left: 1 of at least 3 pods, short of 2 devices of claim template one-gpu" in ran.out


def test_a_plan_counts_the_devices_that_its_groups_before_it_get(topogate: Commands):
    constraints = {"draConstraints": [{"resourceClaimTemplateName": "one-gpu"}]}
    claims = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    there = [*build_nodes(), build_device_class(), build_resource_slice("right", 3, node="n-0-0-1")]
    planned_ = [build_template(namespace="default")]
    for name in ("a", "b"):
        planned_ += [group(name, schedulingConstraints=constraints), *build_pods(2, name, gpus=0, resourceClaims=claims)]
    first, second = run_plan(topogate, there, *planned_, code=3)
    assert (first["outcome"], second["outcome"]) == ("placed", "waits")
    assert second["placements"][0]["lacks"] == {"device of claim template one-gpu": "1"}


def test_every_word_for_the_kind_means_the_same(topogate: Commands):
    everything = *build_nodes(), group(), *build_pods(2)
    words = ("podgroup/train", "podgroups/train", "podgroup.topogate.dev/train", "PodGroup/train")
    assert len({str(run_explain(topogate, *everything, what=word)) for word in words}) == 1


def test_explain_of_a_group_as_text_shows_its_request_and_the_nodes_of_its_pods(topogate: Commands):
    levels = [{"level": BLOCK}, {"level": RACK, "mode": "Preferred"}]
    file = topogate.write("all.yaml", *build_nodes(), group(levels=levels), *build_pods(2))
    ran = topogate.run("explain", "podgroup", "train", "--nodes", file)
    assert f"asks for: at least 2 pods at once, in one {BLOCK}, if possible in one {RACK}" in ran.out
    assert "does the reconciler run with --feature-gates TopologyAwareWorkloadScheduling=true?" in ran.out
    assert "placement b0/b0-r0 has places for 2 of 2 pods" in ran.out
    assert "would go to: n-0-0-0, n-0-0-1" in ran.out


def test_explain_of_a_group_shows_its_condition_message_once(topogate: Commands):
    waiting = group(policy={"gang": {"minCount": 5}})
    (replica,) = run_explain(topogate, *build_nodes(), waiting, *build_pods(5))["replicas"]
    message = replica["now"]["message"]
    condition = {"type": "PodGroupScheduled", "status": "False", "reason": "Unschedulable", "message": message, "lastTransitionTime": NOW}
    waiting["status"] = {"conditions": [condition]}
    ran = topogate.run("explain", "podgroup", "train", "--nodes", topogate.write("all.yaml", *build_nodes(), waiting, *build_pods(5)))
    assert "condition: PodGroupScheduled=False, Unschedulable" in ran.out
    assert ran.out.count(message) == 1
    assert "b0-r0: 4 of at least 5 pods, short of 8 nvidia.com/gpu" in ran.out


def test_explain_of_a_running_group_shows_its_nodes_and_held_nodes_are_not_offered_to_others(topogate: Commands):
    here = [build_pod("train-0", on="n-0-0-0"), build_pod("train-1", kept="n-0-0-1")]
    told = run_explain(topogate, *build_nodes(blocks=1, racks=1, hosts=3), group(), *here)
    (replica,) = told["replicas"]
    assert (replica["nodes"], replica["kept"]) == ({"n-0-0-0": 1}, {"n-0-0-1": 1})
    assert replica["pods"] == {"live": 2, "bound": 1, "placed": 1, "gated": 0}
    others = run_explain(
        topogate, *build_nodes(blocks=1, racks=1, hosts=3), group(), *here, group("late"), *build_pods(2, "late"), what="podgroup/late"
    )
    assert others["replicas"][0]["now"]["placements"] == [{"name": "b0-r0", "nodes": 3, "fit": 1, "lacks": {"nvidia.com/gpu": "8"}}]


def test_explain_of_a_group_lists_each_replica(topogate: Commands):
    several = [build_pod(f"r{replica}-{i}", replica=replica) for replica in range(2) for i in range(2)]
    told = run_explain(topogate, *build_nodes(), group(replicas=2), *several)
    assert [replica["replica"] for replica in told["replicas"]] == [0, 1]


def test_explain_of_a_group_without_pods_reports_that_no_pod_names_it(topogate: Commands):
    ran = topogate.run("explain", "podgroup", "train", "--nodes", topogate.write("all.yaml", *build_nodes(), group()))
    assert "no pod names it" in ran.out


def test_a_pod_and_a_job_lead_to_the_group_that_their_pods_name(topogate: Commands):
    everything = *build_nodes(), group(), *build_pods(2)
    assert run_explain(topogate, *everything, what="pod/train-1") == run_explain(topogate, *everything)
    made = build_job("run", 2, queue=None)
    made["metadata"]["uid"] = "u"
    owned = build_pods(2)
    for one in owned:
        one["metadata"]["ownerReferences"] = [{"apiVersion": "batch/v1", "kind": "Job", "name": "run", "uid": "u", "controller": True}]
    told = run_explain(topogate, *build_nodes(), group(), made, *owned, what="job/run")
    assert (told["kind"], told["name"], told["replicas"][0]["pods"]["live"]) == ("PodGroup", "train", 2)


def test_explain_of_a_job_with_no_or_several_pod_groups_fails_with_the_reason(topogate: Commands):
    made = build_job("run", 2, queue=None)
    made["metadata"] |= {"annotations": {PODGROUP_TOPOLOGY: RACK}, "uid": "u"}
    owned = [build_pod("a-0", "a"), build_pod("b-0", "b")]
    for one in owned:
        one["metadata"]["ownerReferences"] = [{"apiVersion": "batch/v1", "kind": "Job", "name": "run", "uid": "u", "controller": True}]
    for documents, what in (([made], "job/run"), ([build_pod("a-0", "a")], "pod/a-0"), ([made, *owned], "job/run")):
        ran = topogate.run("explain", what, "--nodes", topogate.write("all.yaml", *build_nodes(), *documents))
        assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)


def test_kube_schedulers_own_is_explained_too(topogate: Commands):
    conditions = [
        {"type": "PodGroupScheduled", "status": "True", "reason": "Scheduled", "message": "fits", "lastTransitionTime": NOW},
        {"type": "topogate.dev/PlacementVerified", "status": "False", "reason": "Scattered", "message": "apart", "lastTransitionTime": NOW},
    ]
    theirs = group() | {"apiVersion": "scheduling.k8s.io/v1alpha2", "status": {"conditions": conditions}}
    theirs["spec"] = {"schedulingPolicy": {"gang": {"minCount": 2}}, "schedulingConstraints": {"topology": [{"key": RACK}]}}
    for what in ("podgroup/train", "podgroup.scheduling.k8s.io/train"):
        told = run_explain(topogate, *build_nodes(), theirs, *build_pods(2), what=what)
        assert (told["by"], told["state"], told["condition"]["message"]) == ("kube-scheduler", "waiting", "apart")
        assert told["asks"]["levels"] == [{"level": RACK, "mode": "Required"}]
    theirs["spec"]["podGroupTemplateRef"] = {"workload": {"workloadName": "run", "podGroupTemplateName": "workers"}}
    ran = topogate.run("explain", "podgroup", "train", "--nodes", topogate.write("all.yaml", *build_nodes(), theirs, *build_pods(2)))
    assert "PodGroup default/train of kube-scheduler's own" in ran.out
    assert "made from: template workers of Workload run" in ran.out


def test_explain_of_a_missing_group_fails_with_one_line(topogate: Commands):
    ran = topogate.run("explain", "podgroup", "train", "--nodes", topogate.write("all.yaml", *build_nodes()))
    assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)


# --- plan ---------------------------------------------------------------------------------------------


def test_a_group_gets_one_rack_and_the_next_does_not_find_it_free(topogate: Commands):
    first, second = run_plan(topogate, build_nodes(blocks=1), group("a"), *build_pods(4, "a"), group("b"), *build_pods(3, "b"))
    assert (first["outcome"], second["outcome"]) == ("placed", "placed")
    racks = [{name.rpartition("-")[0] for name in each["places"]} for each in (first, second)]
    assert [len(rack) for rack in racks] == [1, 1]
    assert racks[0] != racks[1]


def test_plan_of_a_group_without_room_exits_with_code_three(topogate: Commands):
    (told,) = run_plan(topogate, build_nodes(blocks=1, racks=1), group(policy={"gang": {"minCount": 5}}), *build_pods(5), code=3)
    assert (told["outcome"], told["placements"][0]["fit"]) == ("waits", 4)


def test_the_pods_of_a_job_are_planned_by_its_template(topogate: Commands):
    made = build_job("train", 4, queue=None)
    template = made["spec"]["template"]
    template["metadata"]["labels"] = {MEMBER_OF_LABEL: "train"}
    template["spec"]["schedulingGates"] = [{"name": PODGROUP_GATE}]
    (told,) = run_plan(topogate, build_nodes(), group(policy={"gang": {"minCount": 4}}), made)
    assert (told["outcome"], sum(told["places"].values())) == ("placed", 4)


@pytest.mark.parametrize(("name", "groups", "pods"), [("job.yaml", 1, 16), ("leaderworkerset.yaml", 2, 8)])
def test_a_job_that_asks_for_a_group_gets_it(topogate: Commands, name: str, groups: int, pods: int):
    documents = list(yaml.safe_load_all((EXAMPLES / "podgroups" / name).read_text()))
    told = run_plan(topogate, build_nodes(hosts=8), *documents)
    assert [each["outcome"] for each in told] == ["placed"] * groups
    assert [sum(each["places"].values()) for each in told] == [pods] * groups
    (made_for,) = {(each["job"]["kind"], each["job"]["name"]) for each in told}
    files = topogate.write("plan.yaml", *documents), topogate.write("nodes.yaml", *build_nodes(hosts=8))
    assert f"(for {made_for[0]} {made_for[1]}): " in topogate.run("plan", "-f", files[0], "--nodes", files[1]).out


def test_plan_of_a_job_with_an_invalid_group_annotation_reports_all_mistakes(topogate: Commands):
    made = build_job("train", 4, queue=None, required=RACK)
    made["metadata"]["annotations"] = {PODGROUP_TOPOLOGY: "rack:Perhaps"}
    files = topogate.write("plan.yaml", made), topogate.write("nodes.yaml", *build_nodes())
    ran = topogate.run("plan", "-f", files[0], "--nodes", files[1])
    assert ran.code == 2
    assert "rack:Required or rack:Preferred is expected" in ran.err
    assert "may not stand beside topogate.dev/podgroup-topology" in ran.err


def test_plan_of_a_job_without_pods_is_refused(topogate: Commands):
    made = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": {"replicatedJobs": []}}
    made["metadata"] = {"name": "none", "annotations": {PODGROUP_TOPOLOGY: "rack"}}
    ran = topogate.run("plan", "-f", topogate.write("plan.yaml", made), "--nodes", topogate.write("nodes.yaml", *build_nodes()))
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)


def test_plan_decides_queued_jobs_before_pod_groups(topogate: Commands):
    cluster = [*build_nodes(blocks=1, racks=1), *build_queues()]
    queued, grouped = run_plan(topogate, cluster, group(), *build_pods(2), build_job("queued", 3, required=RACK), code=3)
    assert (queued["outcome"], grouped["outcome"]) == ("admitted", "waits")


def test_the_higher_priority_goes_first(topogate: Commands):
    urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 1000}
    cluster = [*build_nodes(blocks=1, racks=1), urgent]
    late = build_pods(3, "late", priorityClassName="urgent")
    told = run_plan(topogate, cluster, group("early"), *build_pods(3, "early"), group("late"), *late, code=3)
    assert [(each["name"], each["outcome"]) for each in told] == [("late", "placed"), ("early", "waits")]


def test_an_alias_is_found_where_the_files_have_it(topogate: Commands):
    alias = {
        "apiVersion": "topogate.dev/v1alpha1",
        "kind": "NodeTopology",
        "metadata": {"name": "ours"},
        "spec": {"levels": [{"name": "rack", "nodeLabel": RACK}]},
    }
    (told,) = run_plan(topogate, build_nodes(), alias, group(levels=[{"level": "rack"}]), *build_pods(2))
    assert told["outcome"] == "placed"
    (told,) = run_plan(topogate, build_nodes(), group(levels=[{"level": "rack"}]), *build_pods(2), code=3)
    assert (told["reason"], "no NodeTopology has such a level" in told["message"]) == ("Invalid", True)


def test_a_pod_without_the_gate_is_warned_of(topogate: Commands):
    (told,) = run_plan(topogate, build_nodes(), group(), *build_pods(2), build_pod("free", schedulingGates=[]))
    assert told["warnings"] == [f"pod default/free has no scheduling gate {PODGROUP_GATE}: kube-scheduler places it wherever it fits"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schedulingPolicy": {}}, "one of gang and basic must be given"),
        ({"schedulingPolicy": {"gang": {"minCount": 1}, "basic": {}}}, "one of gang and basic must be given"),
        ({"schedulingPolicy": {"gang": {"minCount": 0}}}, "spec.schedulingPolicy.gang.minCount: 0 is not accepted"),
        ({"schedulingConstraints": {"topologyConstraints": LEVELS * 2}}, "levels must be unique"),
        ({"schedulingConstraints": {"topologyConstraint": LEVELS}}, "unknown key; did you mean topologyConstraints?"),
    ],
)
def test_plan_refuses_a_group_that_the_api_server_would_refuse(topogate: Commands, changes: Obj, words: str):
    wrong = group()
    wrong["spec"] |= changes
    files = topogate.write("plan.yaml", wrong, *build_pods(2)), topogate.write("nodes.yaml", build_node("n"))
    ran = topogate.run("plan", "-f", files[0], "--nodes", files[1])
    assert ran.code == 2
    assert words in ran.err
