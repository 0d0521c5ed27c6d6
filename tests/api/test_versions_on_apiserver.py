"""Clients of v1beta1 on the real API server: they create, read, change and list, and lose nothing of what only v1beta2 can say."""

from __future__ import annotations

import base64
import copy
import itertools
import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from core.names import FIELDS_OF_V1BETA1, FIELDS_OF_V1BETA2
from e2e.api import APPLY_PATCH, JSON_PATCH, ApiError, wait_for
from e2e.cluster import Cluster
from e2e.crds import CRDS, install_crds, register_conversion
from e2e.topogate import Topogate

pytestmark = pytest.mark.usefixtures("converter")
GROUP = "/apis/kueue.x-k8s.io"
NEW, OLD = f"{GROUP}/v1beta2", f"{GROUP}/v1beta1"
_numbers = itertools.count(1)
AT = "2026-01-01T00:00:00Z"
LAYERS = [{"topology": "block", "size": 4}, {"topology": "rack", "size": 2}]
WIRE = {  # as no encoder of ours would cut it
    "levels": ["kubernetes.io/hostname"],
    "slices": [
        {"domainCount": 1, "valuesPerLevel": [{"individual": {"roots": ["n-1"]}}], "podCounts": {"individual": [4]}},
        {"domainCount": 2, "valuesPerLevel": [{"individual": {"prefix": "n-", "roots": ["2", "3"]}}], "podCounts": {"universal": 2}},
    ],
}
DOMAINS = [{"values": ["n-1"], "count": 4}, {"values": ["n-2"], "count": 2}, {"values": ["n-3"], "count": 2}]


def build_workload(name: str, version: str, request: dict[str, Any], **spec: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "registry.example/c:1", "resources": {"requests": {"cpu": "1"}}}]
    pod_set = {"name": "main", "count": 8, "template": {"spec": {"containers": containers}}, "topologyRequest": request}
    return {
        "apiVersion": f"kueue.x-k8s.io/{version}",
        "kind": "Workload",
        "metadata": {"name": name},
        "spec": {"queueName": "main", "podSets": [pod_set], **spec},
    }


def conditions(*kinds: str) -> list[dict[str, Any]]:
    return [{"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": AT} for kind in kinds]


def build_admission(assignment: dict[str, Any]) -> dict[str, Any]:
    given = {"name": "main", "count": 8, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "8"}, "topologyAssignment": assignment}
    return {"clusterQueue": "c", "podSetAssignments": [given]}


def strip_metadata_of_writes(obj: dict[str, Any]) -> dict[str, Any]:
    """Without what every write changes."""
    changing = ("resourceVersion", "managedFields", "generation")
    return {**obj, "metadata": {key: value for key, value in obj["metadata"].items() if key not in changing}}


def get_collection(root: str, namespace: str) -> str:
    return f"{root}/namespaces/{namespace}/workloads"


@pytest.fixture
def layered(cluster: Cluster, namespace: str) -> dict[str, Any]:
    """A Workload with nested slices that was admitted, as v1beta2 writes it."""
    path = get_collection(NEW, namespace)
    reference = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}
    request = {"required": "zone", "podsetSliceRequiredTopologyConstraints": LAYERS}
    created = cluster.api.create(path, build_workload("layered", "v1beta2", request, priority=7, priorityClassRef=reference))
    status = {
        "admission": build_admission(WIRE),
        "conditions": conditions("QuotaReserved", "Admitted"),
        "accumulatedPastExecutionTimeSeconds": 3,
        "unhealthyNodes": [{"name": "n-9"}],
    }
    body = {key: created[key] for key in ("apiVersion", "kind")} | {"metadata": {"name": "layered"}, "status": status}
    return cluster.api.patch(f"{path}/layered/status?fieldManager=kueue-admission&force=true", body, APPLY_PATCH)


# --- Workload ---------------------------------------------------------------------------------------------


def test_v1beta1_client_reads_a_v1beta2_workload_in_v1beta1_fields(cluster: Cluster, namespace: str, layered: dict[str, Any]):
    read = cluster.api.get(f"{get_collection(OLD, namespace)}/layered")
    assert read["apiVersion"] == "kueue.x-k8s.io/v1beta1"
    (given,) = read["status"]["admission"]["podSetAssignments"]
    assert given["topologyAssignment"] == {"levels": ["kubernetes.io/hostname"], "domains": DOMAINS}
    assert read["spec"]["priorityClassName"] == "high"
    assert read["spec"]["priorityClassSource"] == "kueue.x-k8s.io/workloadpriorityclass"
    assert read["status"]["accumulatedPastExexcutionTimeSeconds"] == 3
    assert read["spec"]["podSets"][0]["topologyRequest"] == {"required": "zone"}
    assert json.loads(read["metadata"]["annotations"][FIELDS_OF_V1BETA2])["constraints"] == {"main": LAYERS}
    assert "annotations" not in layered["metadata"], "v1beta2 shows no note"


def test_read_change_and_write_as_v1beta1_loses_nothing(cluster: Cluster, namespace: str, layered: dict[str, Any]):
    old, new = (f"{get_collection(root, namespace)}/layered" for root in (OLD, NEW))
    before = cluster.api.get(new)

    read = cluster.api.get(old)
    read["metadata"]["labels"] = {"by": "put"}
    cluster.api.replace(old, read)
    cluster.api.patch(old, {"metadata": {"labels": {"merge": "patch"}}})
    cluster.api.patch(old, [{"op": "add", "path": "/metadata/labels/json", "value": "patch"}], JSON_PATCH)
    applied = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload", "metadata": {"name": "layered", "labels": {"by-apply": "yes"}}}
    cluster.api.patch(f"{old}?fieldManager=dashboard", applied, APPLY_PATCH)
    status = cluster.api.get(old)
    status["status"]["conditions"].append(conditions("Checked")[0])
    cluster.api.replace(f"{old}/status", status)

    after = cluster.api.get(new)
    assert after["metadata"]["labels"] == {"by": "put", "merge": "patch", "json": "patch", "by-apply": "yes"}
    assert [one["type"] for one in after["status"]["conditions"]] == ["QuotaReserved", "Admitted", "Checked"]
    del after["metadata"]["labels"], after["status"]["conditions"][2]
    assert strip_metadata_of_writes(after) == strip_metadata_of_writes(before)


def test_change_by_a_v1beta1_client_is_stored_and_keeps_v1beta2_fields(cluster: Cluster, namespace: str, layered: dict[str, Any]):
    old, new = (f"{get_collection(root, namespace)}/layered" for root in (OLD, NEW))
    read = cluster.api.get(old)
    (given,) = read["status"]["admission"]["podSetAssignments"]
    given["topologyAssignment"]["domains"] = [{"values": ["n-5"], "count": 5}, {"values": ["n-6"], "count": 3}]
    cluster.api.replace(f"{old}/status", read)
    cluster.api.patch(old, {"spec": {"priorityClassName": "higher"}})
    stored, shown = cluster.api.get(new), cluster.api.get(old)
    assert stored["spec"]["priorityClassRef"]["name"] == "higher"
    (given,) = stored["status"]["admission"]["podSetAssignments"]
    assert sum(part["domainCount"] for part in given["topologyAssignment"]["slices"]) == 2
    (given,) = shown["status"]["admission"]["podSetAssignments"]
    assert given["topologyAssignment"]["domains"] == [{"values": ["n-5"], "count": 5}, {"values": ["n-6"], "count": 3}]
    assert stored["spec"]["podSets"][0]["topologyRequest"]["podsetSliceRequiredTopologyConstraints"] == LAYERS


def test_the_scheduler_goes_on_by_apply_after_an_old_client_wrote(cluster: Cluster, namespace: str, layered: dict[str, Any]):
    old, new = (f"{get_collection(root, namespace)}/layered" for root in (OLD, NEW))
    cluster.api.patch(old, {"metadata": {"labels": {"by": "v1beta1"}}})
    body = {key: layered[key] for key in ("apiVersion", "kind")} | {"metadata": {"name": "layered"}}
    evicted = cluster.api.patch(
        f"{new}/status?fieldManager=kueue-admission&force=true", {**body, "status": {"conditions": conditions("Evicted")}}, APPLY_PATCH
    )
    assert "admission" not in evicted["status"], "what kueue-admission applies no more is gone"
    assert evicted["metadata"]["labels"] == {"by": "v1beta1"}


def test_v1beta1_creates_lists_and_watches(cluster: Cluster, namespace: str):
    path = get_collection(OLD, namespace)
    for index in range(3):
        request = {"preferred": "rack", "podSetSliceRequiredTopology": "rack", "podSetSliceSize": 2}
        source = "scheduling.k8s.io/priorityclass"
        cluster.api.create(
            path, build_workload(f"w{index}", "v1beta1", request, priority=1, priorityClassName="p", priorityClassSource=source)
        )
    listed = cluster.api.get(path)
    assert listed["apiVersion"] == "kueue.x-k8s.io/v1beta1"
    assert [(one["metadata"]["name"], one["spec"]["priorityClassName"]) for one in listed["items"]] == [(f"w{i}", "p") for i in range(3)]
    stored = cluster.api.list(get_collection(NEW, namespace))
    assert [one["spec"]["priorityClassRef"]["kind"] for one in stored] == ["PriorityClass"] * 3
    assert "annotations" not in stored[0]["metadata"]
    shown = cluster.kubectl("get", "workloads.v1beta1.kueue.x-k8s.io", "-n", namespace, "-o", "jsonpath={.items[*].apiVersion}")
    assert shown.split() == ["kueue.x-k8s.io/v1beta1"] * 3


def test_constraints_forged_in_the_note_are_not_stored(cluster: Cluster, namespace: str):
    wanted = build_workload("forged", "v1beta1", {"required": "zone"})
    forged = {"constraints": {"main": [{"topology": "rack", "size": 0}]}, "slices": {"main": WIRE}}
    wanted["metadata"]["annotations"] = {FIELDS_OF_V1BETA2: json.dumps(forged)}
    cluster.api.create(get_collection(OLD, namespace), wanted)
    stored = cluster.api.get(f"{get_collection(NEW, namespace)}/forged")
    assert stored["spec"]["podSets"][0]["topologyRequest"] == {"required": "zone"}
    assert "annotations" not in stored["metadata"]


def test_domains_that_cannot_be_stored_are_refused_in_words(cluster: Cluster, namespace: str):
    path = get_collection(OLD, namespace)
    created = cluster.api.create(path, build_workload("wrong", "v1beta1", {}))
    status = {"admission": build_admission({"levels": ["a", "b"], "domains": [{"values": ["x"], "count": 8}]})}
    with pytest.raises(ApiError, match=r"topologyAssignment.domains\[0\].values has not one value for each of the 2 levels"):
        cluster.api.replace(f"{path}/wrong/status", {**created, "status": status})


def test_the_rules_of_v1beta1_while_quota_is_reserved(cluster: Cluster, namespace: str, layered: dict[str, Any]):
    path = f"{get_collection(OLD, namespace)}/layered"
    for change, message in (
        ({"priorityClassSource": "scheduling.k8s.io/priorityclass"}, "priorityClassSource cannot be changed while quota is reserved"),
        ({"queueName": "other"}, "queueName cannot be changed while quota is reserved"),
        ({"priority": None}, "priority must be set where priorityClassName is"),
    ):
        with pytest.raises(ApiError, match=message):
            cluster.api.patch(path, {"spec": change})


# --- queues -----------------------------------------------------------------------------------------------


@pytest.fixture
def queues(cluster: Cluster, namespace: str) -> Iterator[str]:
    """An old manifest, applied with kubectl as its users do."""
    name = f"{namespace}-old"
    resources = [{"name": "cpu", "nominalQuota": 9, "borrowingLimit": 3}]
    cluster_queue = {
        "cohort": f"{name}-all",
        "namespaceSelector": {},
        "admissionChecks": ["check"],
        "flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": resources}]}],
    }
    manifest = [
        ("ClusterQueue", {"name": name}, cluster_queue),
        ("LocalQueue", {"name": "main", "namespace": namespace}, {"clusterQueue": name}),
        ("Cohort", {"name": f"{name}-all"}, {"parentName": "root"}),
        ("AdmissionCheck", {"name": name}, {"controllerName": "a.b/c", "retryDelayMinutes": 15}),
        ("Topology", {"name": name}, {"levels": [{"nodeLabel": "rack"}]}),
        ("ResourceFlavor", {"name": name}, {"nodeLabels": {"pool": "a"}, "topologyName": name}),
    ]
    objects = [{"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": kind, "metadata": meta, "spec": spec} for kind, meta, spec in manifest]
    text = yaml.safe_dump_all(objects)
    cluster.kubectl("apply", "-f", "-", input=text)
    cluster.kubectl("apply", "-f", "-", input=text)
    yield name
    cluster.kubectl("delete", "-f", "-", input=text)


def test_v1beta1_manifest_is_accepted_and_equal_in_v1beta2(cluster: Cluster, namespace: str, queues: str):
    queue = cluster.api.get(f"{NEW}/clusterqueues/{queues}")
    assert queue["spec"]["cohortName"] == f"{queues}-all"
    assert queue["spec"]["admissionChecksStrategy"] == {"admissionChecks": [{"name": "check"}]}
    assert queue["spec"]["flavorFungibility"] == {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch"}
    assert "admissionChecks" in json.loads(queue["metadata"]["annotations"][FIELDS_OF_V1BETA1])
    shown = cluster.api.get(f"{OLD}/clusterqueues/{queues}")
    assert (shown["spec"]["cohort"], shown["spec"]["admissionChecks"]) == (f"{queues}-all", ["check"])
    assert shown["spec"]["flavorFungibility"] == {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}
    assert cluster.api.get(f"{NEW}/cohorts/{queues}-all")["spec"]["parentName"] == "root"
    assert "retryDelayMinutes" not in cluster.api.get(f"{NEW}/admissionchecks/{queues}")["spec"]
    assert cluster.api.get(f"{NEW}/resourceflavors/{queues}")["spec"]["topologyName"] == queues
    columns = cluster.kubectl("get", "clusterqueues.v1beta1.kueue.x-k8s.io", queues)
    assert f"{queues}-all" in columns


def test_levels_of_a_topology_are_changed_by_v1beta2_alone(cluster: Cluster, namespace: str):
    name, levels = f"{namespace}-levels", [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]
    cluster.api.create(
        f"{NEW}/topologies",
        {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Topology", "metadata": {"name": name}, "spec": {"levels": levels}},
    )
    with pytest.raises(ApiError, match="levels cannot be changed in v1beta1"):
        cluster.api.patch(f"{OLD}/topologies/{name}", {"spec": {"levels": levels[1:]}})
    cluster.api.patch(f"{NEW}/topologies/{name}", {"spec": {"levels": levels[1:]}})
    cluster.api.delete(f"{NEW}/topologies/{name}")


def test_queues_changed_by_v1beta2_are_read_and_changed_by_v1beta1(cluster: Cluster, namespace: str, queues: str):
    rules = [{"name": "check", "onFlavors": ["f"]}]
    cluster.api.patch(f"{NEW}/clusterqueues/{queues}", {"spec": {"admissionChecksStrategy": {"admissionChecks": rules}}})
    before = cluster.api.get(f"{NEW}/clusterqueues/{queues}")
    shown = cluster.api.get(f"{OLD}/clusterqueues/{queues}")
    assert shown["spec"]["admissionChecksStrategy"] == {"admissionChecks": rules}
    shown["spec"]["stopPolicy"] = "Hold"
    cluster.api.replace(f"{OLD}/clusterqueues/{queues}", shown)
    after = cluster.api.get(f"{NEW}/clusterqueues/{queues}")
    assert after["spec"] == {**before["spec"], "stopPolicy": "Hold"}

    path = f"namespaces/{namespace}/localqueues/main"
    usage = [{"name": "f", "resources": [{"name": "cpu", "total": "3"}]}]
    local = cluster.api.get(f"{NEW}/{path}")
    cluster.api.replace(f"{NEW}/{path}/status", {**local, "status": {"flavorsUsage": usage, "pendingWorkloads": 2}})
    read = cluster.api.get(f"{OLD}/{path}")
    assert (read["status"]["flavorUsage"], read["status"]["pendingWorkloads"]) == (usage, 2)
    read["status"]["pendingWorkloads"] = 1
    cluster.api.replace(f"{OLD}/{path}/status", read)
    assert cluster.api.get(f"{NEW}/{path}")["status"] == {"flavorsUsage": usage, "pendingWorkloads": 1}


# --- what is stored -----------------------------------------------------------------------------------------


def read_stored(cluster: Cluster, namespace: str, name: str) -> dict[str, Any]:
    """The object as it lies in etcd."""
    key = base64.b64encode(f"/registry/kueue.x-k8s.io/workloads/{namespace}/{name}".encode()).decode()
    url = f"http://127.0.0.1:{cluster._layout.ports.etcd_client}/v3/kv/range"
    with urllib.request.urlopen(url, json.dumps({"key": key}).encode(), timeout=120) as reply:
        (entry,) = json.load(reply)["kvs"]
    value: dict[str, Any] = json.loads(base64.b64decode(entry["value"]))
    return value


def store_as(cluster: Cluster, version: str, namespace: str) -> None:
    """Makes a version of Workload the stored one, and waits until the API server does so."""
    crd = cluster.api.get(f"{CRDS}/workloads.kueue.x-k8s.io")
    operations = [
        {"op": "replace", "path": f"/spec/versions/{index}/storage", "value": one["name"] == version}
        for index, one in enumerate(crd["spec"]["versions"])
    ]
    cluster.api.patch(f"{CRDS}/workloads.kueue.x-k8s.io", operations, JSON_PATCH)

    def is_so() -> bool:
        name = f"probe-{version}-{next(_numbers)}"
        cluster.api.create(get_collection(NEW, namespace), build_workload(name, "v1beta2", {}))
        return bool(read_stored(cluster, namespace, name)["apiVersion"] == f"kueue.x-k8s.io/{version}")

    wait_for(f"{version} to be stored", is_so)


@pytest.fixture
def v1beta1_stored(cluster: Cluster, namespace: str) -> Iterator[None]:
    """Nothing stored as v1beta1 is left: without the webhook not even v1beta2 could list it."""
    store_as(cluster, "v1beta1", namespace)
    yield
    store_as(cluster, "v1beta2", namespace)
    path = get_collection(NEW, namespace)
    cluster.api.request("DELETE", path)
    wait_for("all to be gone", lambda: not cluster.api.list(path))
    cluster.api.patch(f"{CRDS}/workloads.kueue.x-k8s.io/status", {"status": {"storedVersions": ["v1beta2"]}})


@pytest.mark.usefixtures("v1beta1_stored")
def test_objects_stored_in_either_version_are_read_in_both(cluster: Cluster, namespace: str):
    """As in a cluster in which another admission system stored v1beta1 before."""
    request = {"required": "zone", "podsetSliceRequiredTopologyConstraints": LAYERS}
    wanted = {name: build_workload(name, "v1beta2", copy.deepcopy(request)) for name in ("stored-old", "stored-new")}
    wanted["written-old"] = build_workload("written-old", "v1beta1", {"required": "zone"})
    for name, root in (("stored-old", NEW), ("written-old", OLD)):
        cluster.api.create(get_collection(root, namespace), wanted[name])
        assert read_stored(cluster, namespace, name)["apiVersion"] == "kueue.x-k8s.io/v1beta1"
    store_as(cluster, "v1beta2", namespace)
    cluster.api.create(get_collection(NEW, namespace), wanted["stored-new"])
    assert read_stored(cluster, namespace, "stored-new")["apiVersion"] == "kueue.x-k8s.io/v1beta2"

    for root in (NEW, OLD):
        listed = {one["metadata"]["name"]: one for one in cluster.api.list(get_collection(root, namespace))}
        assert listed.keys() > set(wanted)
    by_name = {one["metadata"]["name"]: one for one in cluster.api.list(get_collection(NEW, namespace))}
    assert by_name["stored-old"]["spec"] == by_name["stored-new"]["spec"]
    assert by_name["stored-old"]["spec"]["podSets"][0]["topologyRequest"] == request
    assert by_name["written-old"]["spec"]["podSets"][0]["topologyRequest"] == {"required": "zone"}

    cluster.api.patch(f"{get_collection(OLD, namespace)}/stored-old", {"metadata": {"labels": {"touched": "yes"}}})
    lying = read_stored(cluster, namespace, "stored-old")
    assert lying["apiVersion"] == "kueue.x-k8s.io/v1beta2", "any write moves it to the stored version"
    assert lying["spec"]["podSets"][0]["topologyRequest"] == request


def serve_old(cluster: Cluster, namespace: str, *, is_served: bool) -> None:
    """Has v1beta1 of Workload served, or not, and waits until the API server does so."""
    crd = cluster.api.get(f"{CRDS}/workloads.kueue.x-k8s.io")
    index = [one["name"] for one in crd["spec"]["versions"]].index("v1beta1")
    operation = {"op": "replace", "path": f"/spec/versions/{index}/served", "value": is_served}
    cluster.api.patch(f"{CRDS}/workloads.kueue.x-k8s.io", [operation], JSON_PATCH)
    wait_for(f"v1beta1 to be served: {is_served}", lambda: (cluster.api.find(get_collection(OLD, namespace)) is not None) is is_served)


@pytest.mark.usefixtures("v1beta1_stored")
def test_migration_command_rewrites_objects_stored_as_v1beta1_also_if_it_is_unserved(cluster: Cluster, namespace: str):
    names = ("old-a", "old-b")
    for name in names:
        cluster.api.create(
            get_collection(NEW, namespace), build_workload(name, "v1beta2", {"podsetSliceRequiredTopologyConstraints": LAYERS})
        )
        assert read_stored(cluster, namespace, name)["apiVersion"] == "kueue.x-k8s.io/v1beta1"
    store_as(cluster, "v1beta2", namespace)
    serve_old(cluster, namespace, is_served=False)
    try:
        before = {name: cluster.api.get(f"{get_collection(NEW, namespace)}/{name}") for name in names}
        run_migration(cluster, "--dry-run")
        assert read_stored(cluster, namespace, "old-a")["apiVersion"] == "kueue.x-k8s.io/v1beta1"
        assert "workloads.kueue.x-k8s.io: " in run_migration(cluster)
        for name in names:
            assert read_stored(cluster, namespace, name)["apiVersion"] == "kueue.x-k8s.io/v1beta2"
            assert cluster.api.get(f"{get_collection(NEW, namespace)}/{name}")["spec"] == before[name]["spec"]
        assert cluster.api.get(f"{CRDS}/workloads.kueue.x-k8s.io")["status"]["storedVersions"] == ["v1beta2"]
        written = {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in cluster.api.list(get_collection(NEW, namespace))}
        run_migration(cluster)
        again = {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in cluster.api.list(get_collection(NEW, namespace))}
        assert again == written, "what is stored as v1beta2 already is not written"
    finally:
        serve_old(cluster, namespace, is_served=True)


def run_migration(cluster: Cluster, *arguments: str) -> str:
    """What the command of docs/upgrading.md prints."""
    script = Path(__file__).parents[2] / "tools" / "migrate-to-v1beta2.sh"
    path = f"{cluster.binaries['kubectl'].parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "KUBECONFIG": str(cluster.kubeconfig)}
    ran = subprocess.run(["sh", str(script), *arguments], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


# --- with and without the webhook -----------------------------------------------------------------------------


def test_installing_the_crds_again_keeps_the_registered_webhook(cluster: Cluster, namespace: str):
    def client() -> Any:
        return cluster.api.get(f"{CRDS}/workloads.kueue.x-k8s.io")["spec"]["conversion"]["webhook"]["clientConfig"]

    before = client()
    install_crds(cluster.api)
    assert client() == before
    assert before["url"].endswith("/convert")


def test_without_the_webhook_v1beta2_works_and_v1beta1_says_why_not(cluster: Cluster, namespace: str, converter: Topogate):
    register_conversion(cluster.api, None)
    try:
        cluster.api.create(get_collection(NEW, namespace), build_workload("alone", "v1beta2", {}))

        def refusal() -> str | None:
            try:
                cluster.api.get(f"{get_collection(OLD, namespace)}/alone")
            except ApiError as error:
                return str(error)
            return None

        assert "conversion webhook" in wait_for("v1beta1 to be refused", refusal)
        cluster.api.patch(f"{get_collection(NEW, namespace)}/alone", {"metadata": {"labels": {"a": "b"}}})
        assert len(cluster.api.list(get_collection(NEW, namespace))) == 1
        assert cluster.api.get(f"{OLD}/topologies")["items"] is not None, "kinds whose versions are alike need no webhook"
    finally:
        converter.register_conversion()
    wait_for("v1beta1 to be back", lambda: refusal() is None)
