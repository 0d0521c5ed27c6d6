"""The generated CRDs on the real API server: structural, established, and every rule of the KEP refused in words."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from core.api.kinds.queue_kinds import ClusterQueue
from core.api.kinds.workload_kind import Workload
from e2e.api import APPLY_PATCH, ApiError
from e2e.crds import CRDS

API = "/apis/kueue.x-k8s.io/v1beta2"
TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}]}}
LEVELS = [{"nodeLabel": "cloud.provider.com/block"}, {"nodeLabel": "cloud.provider.com/rack"}]
HOSTNAME = {"nodeLabel": "kubernetes.io/hostname"}
AT = "2026-01-01T00:00:00Z"


def test_every_crd_is_established_and_structural(cluster, crds):
    assert len(crds) == 11
    for name in crds:
        conditions = {c["type"]: c for c in cluster.api.get(f"{CRDS}/{name}")["status"]["conditions"]}
        assert conditions["Established"]["status"] == "True"
        assert "NonStructuralSchema" not in conditions, conditions["NonStructuralSchema"]["message"]


@pytest.mark.parametrize("name", ["topo", "rf", "flavor", "cq", "lq", "queue", "kwl", "kueueworkload", "ac", "wpc", "co"])
def test_kubectl_knows_the_short_names(cluster, crds, name):
    cluster.kubectl("get", name)


TOPOLOGY_CASES = {
    "no level": ([], "should have at least 1 items"),
    "17 levels": ([{"nodeLabel": f"l{i}"} for i in range(17)], "must have at most 16 items"),
    "twice the same level": ([LEVELS[0], LEVELS[0]], "levels must be unique"),
    "hostname not lowest": ([HOSTNAME, LEVELS[0]], "kubernetes.io/hostname can only be the lowest level"),
    "not a label": ([{"nodeLabel": "no label"}], "should match"),
}


@pytest.mark.parametrize(("levels", "message"), TOPOLOGY_CASES.values(), ids=TOPOLOGY_CASES)
def test_a_topology_that_breaks_a_rule_is_refused(cluster, crds, levels, message):
    assert message in get_refusal(cluster, f"{API}/topologies", build_topology("refused", levels))


@pytest.fixture
def deleted_after(cluster) -> Iterator[list[str]]:
    """Paths of objects without a namespace."""
    paths: list[str] = []
    yield paths
    for path in paths:
        cluster.api.delete(path)


def test_levels_may_change_only_with_hostname_lowest_before_and_after(cluster, crds, deleted_after):
    path = f"{API}/topologies"
    deleted_after.append(f"{path}/changes")
    create(cluster, path, build_topology("changes", [LEVELS[0], HOSTNAME]))
    cluster.api.patch(f"{path}/changes", {"spec": {"levels": [*LEVELS, HOSTNAME]}})
    with pytest.raises(ApiError, match="levels can only be changed while"):
        cluster.api.patch(f"{path}/changes", {"spec": {"levels": LEVELS}})


FLAVOR_CASES = {
    "no node label": ({"topologyName": "t"}, "needs at least one entry in nodeLabels"),
    "empty node labels": ({"topologyName": "t", "nodeLabels": {}}, "needs at least one entry in nodeLabels"),
    "no name of a topology": ({"topologyName": "T t", "nodeLabels": {"a": "b"}}, "spec.topologyName"),
    "toleration without key": ({"tolerations": [{"operator": "Equal"}]}, "without a key the operator must be Exists"),
    "seconds for NoSchedule": (
        {"tolerations": [{"key": "k", "effect": "NoSchedule", "tolerationSeconds": 3}]},
        "tolerationSeconds is for the effect NoExecute only",
    ),
    "value with Exists": ({"tolerations": [{"key": "k", "operator": "Exists", "value": "v"}]}, "there must be no value"),
}


@pytest.mark.parametrize(("spec", "message"), FLAVOR_CASES.values(), ids=FLAVOR_CASES)
def test_a_flavor_that_breaks_a_rule_is_refused(cluster, crds, spec, message):
    assert message in get_refusal(cluster, f"{API}/resourceflavors", {"metadata": {"name": "refused"}, "spec": spec})


def test_the_topology_of_a_flavor_can_be_set_once(cluster, crds, deleted_after):
    path = f"{API}/resourceflavors"
    deleted_after.append(f"{path}/once")
    create(cluster, path, {"metadata": {"name": "once"}, "spec": {"nodeLabels": {"a": "b"}}})
    cluster.api.patch(f"{path}/once", {"spec": {"topologyName": "t"}})
    for change in ("u", None):
        with pytest.raises(ApiError, match="topologyName cannot be changed once it is set"):
            cluster.api.patch(f"{path}/once", {"spec": {"topologyName": change}})
    with pytest.raises(ApiError, match="needs at least one entry in nodeLabels"):
        cluster.api.patch(f"{path}/once", {"spec": {"nodeLabels": {"a": None}}})
    with pytest.raises(ApiError, match="nodeLabels"):
        cluster.api.patch(f"{path}/once", {"spec": {"nodeLabels": {f"l{i}": "v" for i in range(9)}}})
    taints, tolerations = [{"key": "gpu", "effect": "NoSchedule"}], [{"key": "gpu", "operator": "Exists"}]
    changes: list[dict[str, Any]] = [{"nodeLabels": {"a": "c", "b": "d"}}, {"nodeTaints": taints}, {"tolerations": tolerations}]
    for spec in (*changes, {"nodeTaints": []}):
        cluster.api.patch(f"{path}/once", {"spec": spec})


REQUEST_CASES = {
    "two modes": ({"required": "r", "preferred": "b"}, "at most one of required, preferred and unconstrained"),
    "unconstrained too": ({"required": "r", "unconstrained": True}, "at most one of required, preferred and unconstrained"),
    "size alone": ({"podSetSliceSize": 2}, "podSetSliceSize needs podSetSliceRequiredTopology"),
    "size zero": ({"podSetSliceRequiredTopology": "r", "podSetSliceSize": 0}, "should be greater than or equal to 1"),
    "size of more than all": (
        {"podSetSliceRequiredTopology": "r", "podSetSliceSize": 9},
        "podSetSliceSize must not be greater than count",
    ),
    "both forms": (
        {"podSetSliceRequiredTopology": "r", "podsetSliceRequiredTopologyConstraints": [{"topology": "b", "size": 2}]},
        "cannot be combined with podSetSliceRequiredTopology",
    ),
    "four layers": ({"podsetSliceRequiredTopologyConstraints": [{"topology": f"l{i}", "size": 1} for i in range(4)]}, "at most 3 items"),
    "layers that do not nest": (
        {"podsetSliceRequiredTopologyConstraints": [{"topology": "b", "size": 4}, {"topology": "r", "size": 3}]},
        "must be a multiple of the size of the layer below it",
    ),
    "one topology twice": (
        {"podsetSliceRequiredTopologyConstraints": [{"topology": "b", "size": 4}, {"topology": "b", "size": 2}]},
        "each layer must name another topology",
    ),
    "size as text": ({"podsetSliceRequiredTopologyConstraints": [{"topology": "b", "size": "4"}]}, "must be of type integer"),
}


@pytest.mark.parametrize(("request_", "message"), REQUEST_CASES.values(), ids=REQUEST_CASES)
def test_workload_with_an_invalid_topology_request_is_refused_by_the_crd(cluster, crds, namespace, request_, message):
    wanted = build_workload("refused", request_)
    assert message in get_refusal(cluster, f"{API}/namespaces/{namespace}/workloads", wanted)


def test_slices_in_a_pod_set_group_are_accepted(cluster, crds, namespace):
    asked = {"required": "b", "podSetGroupName": "g", "podSetSliceRequiredTopology": "r", "podSetSliceSize": 2}
    created = create(cluster, f"{API}/namespaces/{namespace}/workloads", build_workload("grouped", asked))
    assert created["spec"]["podSets"][0]["topologyRequest"] == asked


def test_minimum_of_no_pods_is_accepted_and_none_below(cluster, crds, namespace):
    path, wanted = f"{API}/namespaces/{namespace}/workloads", build_workload("minimum", {"required": "r"})
    wanted["spec"]["podSets"][0]["minCount"] = -1
    assert "should be greater than or equal to 0" in get_refusal(cluster, path, wanted)
    wanted["spec"]["podSets"][0]["minCount"] = 0
    assert create(cluster, path, wanted)["spec"]["podSets"][0]["minCount"] == 0


def test_a_refusal_names_the_field(cluster, crds, namespace):
    with pytest.raises(ApiError) as refused:
        create(cluster, f"{API}/namespaces/{namespace}/workloads", build_workload("refused", {"podSetSliceSize": 4}))
    assert [cause["field"] for cause in refused.value.causes] == ["spec.podSets[0].topologyRequest"]


def build_slice(**changes: Any) -> dict[str, Any]:
    return {"domainCount": 2, "valuesPerLevel": [{"individual": {"roots": ["a", "b"]}}], "podCounts": {"universal": 2}, **changes}


ASSIGNMENT_CASES = {
    "counts of both forms": (build_slice(podCounts={"universal": 2, "individual": [2, 2]}), "exactly one of universal and individual"),
    "no count": (build_slice(podCounts={}), "exactly one of universal and individual"),
    "too few counts": (build_slice(podCounts={"individual": [2]}), "podCounts.individual must have domainCount entries"),
    "values of both forms": (
        build_slice(valuesPerLevel=[{"universal": "a", "individual": {"roots": ["a", "b"]}}]),
        "exactly one of universal and individual",
    ),
    "too few values": (build_slice(valuesPerLevel=[{"individual": {"roots": ["a"]}}]), "roots must have domainCount entries"),
    "a level too many": (build_slice(valuesPerLevel=[{"universal": "a"}, {"universal": "b"}]), "one entry for each of the levels"),
    "no domain": (build_slice(domainCount=0), "should be greater than or equal to 1"),
}


@pytest.mark.parametrize(("slice_", "message"), ASSIGNMENT_CASES.values(), ids=ASSIGNMENT_CASES)
def test_an_assignment_that_breaks_a_rule_is_refused(cluster, crds, namespace, slice_, message):
    path = f"{API}/namespaces/{namespace}/workloads"
    created = create(cluster, path, build_workload("placed", {"required": "r"}))
    status = {"admission": build_admission({"levels": ["r"], "slices": [slice_]})}
    with pytest.raises(ApiError) as refused:
        cluster.api.replace(f"{path}/placed/status", {**created, "status": status})
    assert message in str(refused.value)


def test_an_admission_is_taken_by_server_side_apply_and_keeps_the_spec(cluster, crds, namespace):
    path = f"{API}/namespaces/{namespace}/workloads"
    created = create(cluster, path, build_workload("admitted", {"required": "r"}))
    status = {
        "admission": build_admission({"levels": ["r"], "slices": [build_slice()]}),
        "conditions": [build_condition("QuotaReserved"), build_condition("Admitted")],
    }
    apply(cluster, path, "admitted", created, status)
    read = Workload.from_wire(cluster.api.get(f"{path}/admitted"))
    assert read.status.admission is not None
    assert read.status.admission.to_wire() == status["admission"]
    assert read.spec.pod_sets[0].template == TEMPLATE
    assert read.spec.active

    for change, message in {
        "queueName": "queueName cannot be changed while quota is reserved",
        "maximumExecutionTimeSeconds": "cannot be changed while the workload is admitted",
        "priorityClassRef": "priorityClassRef can be neither set nor removed",
    }.items():
        value = {"queueName": "other", "maximumExecutionTimeSeconds": 5}.get(
            change, {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}
        )
        with pytest.raises(ApiError, match=message):
            cluster.api.patch(f"{path}/admitted", {"spec": {change: value, "priority": 1}})

    apply(cluster, path, "admitted", created, {"conditions": [build_condition("QuotaReserved", "False")]})
    after = Workload.from_wire(cluster.api.get(f"{path}/admitted"))
    assert after.status.admission is None
    assert [c.type for c in after.status.conditions] == ["QuotaReserved"]
    cluster.api.patch(f"{path}/admitted", {"spec": {"queueName": "other"}})


def test_an_admission_must_be_for_all_pod_sets(cluster, crds, namespace):
    path = f"{API}/namespaces/{namespace}/workloads"
    wanted = build_workload("two", {})
    wanted["spec"]["podSets"].append({**copy.deepcopy(wanted["spec"]["podSets"][0]), "name": "second"})
    created = create(cluster, path, wanted)
    status = {"admission": build_admission(None), "conditions": [build_condition("QuotaReserved")]}
    with pytest.raises(ApiError, match="one podSetAssignment for each"):
        apply(cluster, path, "two", created, status)


def test_the_largest_assignment_is_within_the_cost_that_cel_may_have(cluster, crds, namespace):
    """100,000 domains in one slice, and 1,000 slices: what the limits allow the API server must also be able to check."""
    path = f"{API}/namespaces/{namespace}/workloads"
    created = create(cluster, path, build_workload("large", {}))
    roots = [f"{i:05d}" for i in range(100_000)]
    one = {"domainCount": len(roots), "valuesPerLevel": [{"individual": {"prefix": "n", "roots": roots}}], "podCounts": {"universal": 1}}
    created = cluster.api.replace(
        f"{path}/large/status", {**created, "status": {"admission": build_admission({"levels": ["h"], "slices": [one]})}}
    )
    many = [{"domainCount": 1, "valuesPerLevel": [{"universal": f"v{i}"}] * 16, "podCounts": {"individual": [1]}} for i in range(1000)]
    levels = [f"l{i}" for i in range(16)]
    cluster.api.replace(f"{path}/large/status", {**created, "status": {"admission": build_admission({"levels": levels, "slices": many})}})


def test_a_thousand_unhealthy_nodes_with_long_names_are_taken(cluster, crds, namespace):
    path = f"{API}/namespaces/{namespace}/workloads"
    created = create(cluster, path, build_workload("sick", {}))
    names = [{"name": f"{i:04d}".rjust(253, "n")} for i in range(1000)]
    cluster.api.replace(f"{path}/sick/status", {**created, "status": {"unhealthyNodes": names}})


def test_the_api_server_fills_in_the_defaults_that_the_models_read(cluster, crds, deleted_after):
    path = f"{API}/clusterqueues"
    deleted_after.append(f"{path}/defaults")
    created = create(cluster, path, {"metadata": {"name": "defaults"}, "spec": {}})
    bare = ClusterQueue.from_wire({"metadata": {"name": "defaults"}, "spec": {}})
    assert ClusterQueue.from_wire(created).spec == bare.spec
    assert created["spec"]["preemption"]["borrowWithinCohort"] == {"policy": "Never"}


QUEUE_CASES = {
    "borrowing without cohort": ({}, {"borrowingLimit": "1"}, "borrowingLimit needs a cohortName"),
    "bad quantity": ({}, {"nominalQuota": "many"}, "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota"),
    "unknown strategy": ({"queueingStrategy": "LIFO"}, {}, "Unsupported value"),
    "preference without search": ({"flavorFungibility": {"preference": "BorrowingOverPreemption"}}, {}, "preference needs TryNextFlavor"),
    "borrow without reclaim": ({"preemption": {"borrowWithinCohort": {"policy": "LowerPriority"}}}, {}, "borrowWithinCohort needs"),
}


@pytest.mark.parametrize(("spec", "quota", "message"), QUEUE_CASES.values(), ids=QUEUE_CASES)
def test_a_queue_that_breaks_a_rule_is_refused(cluster, crds, spec, quota, message):
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": 3, **quota}]}]}
    wanted = {"metadata": {"name": "refused"}, "spec": {"resourceGroups": [group], **spec}}
    assert message in get_refusal(cluster, f"{API}/clusterqueues", wanted)


def test_a_flavor_must_have_a_quota_for_each_covered_resource(cluster, crds):
    group = {"coveredResources": ["cpu", "memory"], "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": 3}]}]}
    wanted = {"metadata": {"name": "refused"}, "spec": {"resourceGroups": [group]}}
    assert "a quota for each of the coveredResources" in get_refusal(cluster, f"{API}/clusterqueues", wanted)


def build_topology(name: str, levels: list[dict[str, str]]) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"levels": levels}}


def build_workload(name: str, request: dict[str, Any]) -> dict[str, Any]:
    pod_set = {"name": "main", "count": 4, "template": copy.deepcopy(TEMPLATE), "topologyRequest": request}
    return {"metadata": {"name": name}, "spec": {"queueName": "q", "podSets": [pod_set]}}


def build_admission(assignment: dict[str, Any] | None) -> dict[str, Any]:
    given = {"name": "main", "count": 4, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "4"}}
    return {"clusterQueue": "c", "podSetAssignments": [{**given, **({"topologyAssignment": assignment} if assignment else {})}]}


def build_condition(kind: str, status: str = "True") -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": kind, "message": "", "lastTransitionTime": AT}


def apply(cluster, path: str, name: str, created: dict[str, Any], status: dict[str, Any]) -> None:
    body = {key: created[key] for key in ("apiVersion", "kind")} | {"metadata": {"name": name}, "status": status}
    cluster.api.patch(f"{path}/{name}/status?fieldManager=kueue-admission&force=true", body, APPLY_PATCH)


def create(cluster, path: str, wanted: dict[str, Any]) -> dict[str, Any]:
    kind = {"topologies": "Topology", "resourceflavors": "ResourceFlavor", "clusterqueues": "ClusterQueue", "workloads": "Workload"}
    named = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind[path.rsplit("/", 1)[1]], **wanted}
    return dict(cluster.api.create(path, named))


def get_refusal(cluster, path: str, wanted: dict[str, Any]) -> str:
    with pytest.raises(ApiError) as refused:
        create(cluster, path, wanted)
    return str(refused.value)
