"""Pods with PersistentVolumeClaims go where the volumes can be used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from core.names import HOSTNAME_LABEL, REASON_MISCONFIGURED, REASON_TOPOLOGY_PLACEMENT_FAILED
from core.placement.algorithms.profile import STANDARD
from core.plan.steps import api_resources as r
from core.queueing.cycle.cycle import Cycle
from core.queueing.flavors.outcome import Admissible, NotAdmissible
from core.resource import Obj
from core.runtime.http.client import Client
from core.state.facts import WorkloadFacts
from core.state.volumes import Volumes
from reconciler.observe.observed import Observed
from reconciler.observe.slim import slim_volume, slim_volume_claim
from tests.builders import (
    NAMESPACE,
    RACK,
    Node,
    build_cluster_queue_json,
    build_flavor_json,
    build_local_queue_json,
    build_node_json,
    build_pod_set_json,
    build_topology_json,
    build_workload_json,
)
from tests.reconciler.pods.test_pods_to_come import settle
from tests.runtime.fakes import ManualClock

ZONE = "topology.kubernetes.io/zone"
OWNER = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "web", "controller": True}


def versioned(obj: Mapping[str, Any], version: int = 1) -> Obj:
    metadata = obj["metadata"]
    return {**obj, "metadata": {"uid": metadata["name"], **metadata, "resourceVersion": str(version)}}


def build_claim(name: str, volume: str | None, *, version: int = 1, modes: list[str] | None = None, **metadata: Any) -> Obj:
    spec = {"accessModes": modes or ["ReadWriteOnce"]} | ({"volumeName": volume} if volume else {})
    phase = {"phase": "Bound" if volume else "Pending"}
    return versioned({"metadata": {"name": name, "namespace": NAMESPACE, **metadata}, "spec": spec, "status": phase}, version)


def build_volume(name: str, of: str, *terms: Mapping[str, Any], version: int = 1) -> Obj:
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": list(terms)}}} if terms else {}
    return versioned({"metadata": {"name": name}, "spec": {"claimRef": {"namespace": NAMESPACE, "name": of}, **affinity}}, version)


def within(key: str, *values: str) -> Mapping[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}


def cluster() -> Observed:
    """A rack of two nodes in each of zones a, b and c; four pods fit on a node."""
    found = Observed(Client.make_offline(), ManualClock())
    found.namespaces.put(versioned({"metadata": {"name": NAMESPACE}}))
    found.topologies.put(versioned(build_topology_json("t", [RACK, HOSTNAME_LABEL])))
    found.flavors.put(versioned(build_flavor_json("tas", "t")))
    found.cluster_queues.put(versioned(build_cluster_queue_json("cq", {"tas": "100"})))
    found.local_queues.put(versioned(build_local_queue_json("lq", "cq")))
    for zone in "abc":
        for number in range(2):
            labels = {RACK: f"r{zone}", ZONE: zone, HOSTNAME_LABEL: f"{zone}{number}"}
            found.nodes.put(versioned(build_node_json(Node(f"{zone}{number}", labels, {"cpu": 4000, "pods": 10}))))
    return found


def submit(found: Observed, *claims: str, count: int = 2, owners: Sequence[Obj] = (), **spec: Any) -> None:
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]
    pod_set = build_pod_set_json(count=count, topology={"required": RACK}, volumes=volumes, **spec)
    workload = build_workload_json("w", [pod_set])
    workload["metadata"]["ownerReferences"] = list(owners)
    found.workloads.put(workload)


def judge(found: Observed) -> Admissible | NotAdmissible:
    (verdict,) = Cycle(found.state, STANDARD).run()
    return verdict.outcome


def place(found: Observed) -> tuple[set[str], tuple[str, ...]]:
    """Nodes of the pods, and what the choice names as not judged."""
    outcome = judge(found)
    assert isinstance(outcome, Admissible), outcome
    return set(dict(outcome.placements[0][1].nodes)), outcome.choices[0].unjudged


def list_unjudged(found: Observed) -> tuple[str, ...]:
    return found.state.workloads.facts[f"{NAMESPACE}/w"].pod_sets[0].traits.unjudged


@pytest.mark.parametrize(("terms", "nodes"), [((within(ZONE, "b"),), {"b"}), ((within(ZONE, "c"), within(HOSTNAME_LABEL, "c1")), {"c"})])
def test_pods_with_a_bound_claim_go_to_the_nodes_of_its_volume(terms: tuple[Any, ...], nodes: set[str]):
    found = cluster()
    found.volumes.volumes.put(build_volume("pv", "data", *terms))
    found.volumes.claims.put(build_claim("data", "pv"))
    submit(found, "data")
    used, unjudged = place(found)
    assert {name[0] for name in used} == nodes
    assert unjudged == ()


def test_node_affinities_of_several_volumes_have_all_to_be_met():
    found = cluster()
    found.volumes.volumes.put(build_volume("pv1", "data", within(ZONE, "b"), within(ZONE, "c")))
    found.volumes.volumes.put(build_volume("pv2", "logs", within(HOSTNAME_LABEL, "a1", "c1")))
    found.volumes.claims.put(build_claim("data", "pv1"))
    found.volumes.claims.put(build_claim("logs", "pv2"))
    submit(found, "data", "logs")
    assert place(found) == ({"c1"}, ())


def test_volumes_in_different_zones_leave_no_node():
    found = cluster()
    for name, zone in (("data", "a"), ("logs", "b")):
        found.volumes.volumes.put(build_volume(zone, name, within(ZONE, zone)))
        found.volumes.claims.put(build_claim(name, zone))
    submit(found, "data", "logs")
    outcome = judge(found)
    assert isinstance(outcome, NotAdmissible)
    assert outcome.reason == REASON_TOPOLOGY_PLACEMENT_FAILED


def test_node_affinity_of_the_pod_template_is_kept_beside_that_of_the_volume():
    found = cluster()
    found.volumes.volumes.put(build_volume("pv", "data", within(ZONE, "a", "b")))
    found.volumes.claims.put(build_claim("data", "pv"))
    own = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [within(ZONE, "b", "c")]}}
    submit(found, "data", affinity={"nodeAffinity": own})
    assert {name[0] for name in place(found)[0]} == {"b"}


def test_a_volume_without_node_affinity_leaves_all_nodes():
    found = cluster()
    found.volumes.volumes.put(build_volume("pv", "data"))
    found.volumes.claims.put(build_claim("data", "pv"))
    submit(found, "data")
    assert place(found)[1] == ()


@pytest.mark.parametrize(
    "of",
    [build_claim("data", None), build_claim("data", "unknown"), build_claim("data", "pv", modes=["ReadWriteOncePod"])],
    ids=["unbound", "unknown", "one pod"],
)
def test_a_claim_that_only_kube_scheduler_can_judge_is_named(of: Obj):
    found = cluster()
    found.volumes.volumes.put(build_volume("pv", "data", within(ZONE, "b")))
    found.volumes.claims.put(of)
    submit(found, "data")
    assert place(found)[1] == ("volumes.persistentVolumeClaim (data)",)


async def test_a_waiting_workload_is_judged_again_when_its_claim_is_bound():
    found = cluster()
    found.volumes.claims.put(build_claim("data", None))
    submit(found, "data", count=9)
    cycle, woken = Cycle(found.state, STANDARD), list[int]()
    found.state.on_free.append(lambda: woken.append(1))
    list(cycle.run())
    found.volumes.volumes.put(build_volume("pv", "data", within(ZONE, "b")))
    found.volumes.claims.put(build_claim("data", "pv", version=2))
    await settle(found)
    assert woken
    (verdict,) = cycle.run()
    assert isinstance(verdict.outcome, NotAdmissible)
    assert "excluded: affinity: 4." in verdict.outcome.message


async def test_a_workload_waits_for_a_claim_that_does_not_exist():
    found = cluster()
    submit(found, "data")
    outcome = judge(found)
    assert isinstance(outcome, NotAdmissible)
    assert outcome.reason == REASON_MISCONFIGURED
    assert not outcome.breaks_rule
    assert f"PersistentVolumeClaim {NAMESPACE}/data" in outcome.message
    found.volumes.claims.put(build_claim("data", None))
    await settle(found)
    assert isinstance(judge(found), Admissible)


def test_claim_that_an_appwrapper_may_create_is_named_as_not_judged():
    """Its components are created once it is admitted."""
    volumes = Volumes(lambda key: None, lambda name: None)
    wire = build_workload_json("w", [build_pod_set_json("main", 1)])
    wire["spec"]["podSets"][0]["template"]["spec"]["volumes"] = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
    assert "data does not exist" in volumes.adjust(WorkloadFacts.read(wire), wire).refused
    owner = {"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "name": "a", "uid": "u", "controller": True}
    wire["metadata"]["ownerReferences"] = [owner]
    found = volumes.adjust(WorkloadFacts.read(wire), wire)
    assert not found.refused
    assert any("data" in field for field in found.pod_sets[0].traits.unjudged)


@pytest.mark.parametrize(
    ("of", "why"),
    [
        (build_claim("data", "pv", deletionTimestamp="2026-01-01T00:00:00Z"), "is being deleted"),
        ({**build_claim("data", "pv"), "status": {"phase": "Lost"}}, "has lost its PersistentVolume pv"),
    ],
)
def test_a_workload_waits_for_a_claim_that_cannot_be_used(of: Obj, why: str):
    found = cluster()
    found.volumes.claims.put(of)
    submit(found, "data")
    outcome = judge(found)
    assert isinstance(outcome, NotAdmissible)
    assert why in outcome.message


def test_no_claim_is_missing_where_files_have_none():
    found = cluster()
    objects = {informer.resource: informer.store.list() for informer in found.informers}
    found.fill(objects)
    submit(found, "data")
    assert place(found)[1] == ("volumes.persistentVolumeClaim (data)",)


async def test_claims_of_a_stateful_set_restrict_its_pods_where_all_are_alike():
    found = cluster()
    spec = {"volumeClaimTemplates": [{"metadata": {"name": "data"}}, {"metadata": {"name": "logs"}}]}
    labels = {"kueue.x-k8s.io/queue-name": "lq"}
    submit(found, owners=[OWNER])
    found.parents["StatefulSet"].put(versioned({"metadata": {"name": "web", "namespace": NAMESPACE, "labels": labels}, "spec": spec}))
    await settle(found)
    assert list_unjudged(found) == ("volumeClaimTemplates",)
    for number in range(2):
        found.volumes.volumes.put(build_volume(f"pv{number}", f"data-web-{number}", within(ZONE, "b")))
        found.volumes.volumes.put(build_volume(f"nfs{number}", f"logs-web-{number}"))
        found.volumes.claims.put(build_claim(f"data-web-{number}", f"pv{number}"))
        found.volumes.claims.put(build_claim(f"logs-web-{number}", f"nfs{number}"))
    await settle(found)
    used, unjudged = place(found)
    assert ({name[0] for name in used}, unjudged) == ({"b"}, ())
    found.volumes.volumes.put(build_volume("pv1", "data-web-1", within(ZONE, "c"), version=2))
    await settle(found)
    assert list_unjudged(found) == ("volumeClaimTemplates",)


def test_a_claim_template_without_a_name_leaves_its_workload_readable():
    found = cluster()
    labels = {"kueue.x-k8s.io/queue-name": "lq"}
    spec: dict[str, Any] = {"volumeClaimTemplates": [{"spec": {}}]}
    found.parents["StatefulSet"].put(versioned({"metadata": {"name": "web", "namespace": NAMESPACE, "labels": labels}, "spec": spec}))
    submit(found, owners=[OWNER])
    assert list_unjudged(found) == ("volumeClaimTemplates",)


def test_affinities_that_would_multiply_without_bound_are_named_instead():
    found, names = cluster(), [f"data{number}" for number in range(40)]
    for number, name in enumerate(names):
        found.volumes.volumes.put(build_volume(name, name, within(ZONE, "b"), within(ZONE, f"z{number}")))
        found.volumes.claims.put(build_claim(name, name))
    submit(found, *names)
    (pod_set,) = found.state.workloads.facts[f"{NAMESPACE}/w"].pod_sets
    assert pod_set.affinity is not None
    terms = pod_set.affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert sum(len(term["matchExpressions"]) for term in terms) <= 2000
    assert pod_set.traits.unjudged[0].startswith("volumes.persistentVolumeClaim (data")
    assert "more)" in pod_set.traits.unjudged[0]


def test_stores_of_claims_and_volumes_keep_only_fields_that_are_read():
    whole = build_claim("data", "pv", annotations={"a": "b"}, labels={"c": "d"})
    assert set(slim_volume_claim(whole)["metadata"]) == {"name", "namespace", "uid", "resourceVersion"}
    kept = slim_volume({**build_volume("pv", "data"), "spec": {"csi": {"volumeHandle": "x"}, "claimRef": {"name": "data", "uid": "u"}}})
    assert kept["spec"] == {"claimRef": {"name": "data"}}
    first, *_ = cluster().stages
    assert {informer.resource for informer in first} >= {r.VOLUME_CLAIMS, r.VOLUMES}
