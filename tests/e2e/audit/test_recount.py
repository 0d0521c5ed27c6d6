"""The audit from objects alone finds what is wrong, and nothing where all is well."""

from __future__ import annotations

import ast
from dataclasses import replace
from fractions import Fraction
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

import e2e.audit.amounts
import e2e.audit.recount
import e2e.audit.recount_places
import e2e.audit.recount_quota
from core.names import (
    CLUSTER_QUEUE_LABEL,
    MANAGED_NAMESPACE_LABEL,
    PODSET_LABEL,
    QUEUE_NAME_LABEL,
    SLICE_NAME,
    SLICE_REPLACES,
    WORKLOAD_ANNOTATION,
)
from e2e.audit.amounts import count_requests, read_quantity, show_amount
from e2e.audit.recount import Objects, find_broken

Obj = dict[str, Any]


def build_node(name: str = "n", cpu: str = "4") -> Obj:
    return {"metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu, "pods": "10"}}}


def build_pod(
    name: str, *, workload: str | None = "w", node: str = "n", cpu: str = "1", gated: bool = False, phase: str = "Running"
) -> Obj:
    metadata: Obj = {"name": name, "namespace": "ns", "labels": {PODSET_LABEL: "main"}}
    if workload is not None:
        metadata["annotations"] = {WORKLOAD_ANNOTATION: workload}
    spec: Obj = {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}
    if gated:
        spec = {**spec, "nodeName": "", "schedulingGates": [{"name": "g"}]}
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase}}


def build_workload(count: int = 2, name: str = "w", queue: str = "cq", flavors: Obj | None = None) -> Obj:
    given = [{"name": "main", "count": count, "flavors": {"cpu": "tas"} if flavors is None else flavors}]
    return {"metadata": {"name": name, "namespace": "ns"}, "status": {"admission": {"clusterQueue": queue, "podSetAssignments": given}}}


def queue(name: str = "cq", cpu: str = "2", cohort: str | None = None, **more: str) -> Obj:
    resources = [{"name": "cpu", "nominalQuota": cpu, **more}]
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "tas", "resources": resources}]}]
    return {"metadata": {"name": name}, "spec": {"resourceGroups": groups, **({"cohortName": cohort} if cohort else {})}}


def build_labelled_pod(one: Obj, **more: Any) -> Obj:
    """A pod with the label of its ClusterQueue, as its start gives it, and other metadata."""
    labels = {CLUSTER_QUEUE_LABEL: "cq", **one["metadata"]["labels"]}
    return {**one, "metadata": {**one["metadata"], "labels": labels, **more}}


def build_cohort(name: str, cpu: str = "0", parent: str | None = None, **more: str) -> Obj:
    made = queue(name, cpu, **more)
    return {**made, "spec": {**made["spec"], **({"parentName": parent} if parent else {})}}


def build_flavor(name: str, **labels: str) -> Obj:
    return {"metadata": {"name": name}, "spec": {"nodeLabels": labels}}


def is_not_ready(one: Obj) -> Obj:
    return {**one, "status": {**one["status"], "conditions": [{"type": "Ready", "status": "Unknown"}]}}


PAIR = [build_pod("a"), build_pod("b")]
ENDED = {"conditions": [{"type": "Finished", "status": "True"}]}
ADMITTED = {"conditions": [{"type": "Admitted", "status": "True"}]}


@pytest.mark.parametrize(
    ("objects", "found"),
    [
        (Objects([build_node()], PAIR, [build_workload()], [queue()]), []),
        (Objects([build_node()], [*PAIR, build_pod("c", gated=True), build_pod("d", phase="Failed")], [build_workload()], [queue()]), []),
        (Objects([build_node(cpu="1")], PAIR, [build_workload()], [queue()]), ["node n has 1 cpu, and its pods use 2"]),
        (
            Objects([build_node()], [*PAIR, build_pod("c")], [build_workload()], [queue(cpu="3")]),
            ["workload ns/w was admitted 2 pods as main, and 3 run"],
        ),
        (Objects([build_node()], PAIR, [build_workload()], [queue(cpu="1")]), ["queue cq may use 1 cpu of flavor tas, and pods use 2"]),
        (
            Objects([build_node()], [build_pod("a")], [build_workload(flavors={})], [queue()]),
            ["pod ns/a uses 1 cpu, and was admitted without"],
        ),
        (Objects([build_node()], PAIR, [build_workload()], [queue(cpu="1", cohort="x"), queue("other", "1", "x")]), []),
        (
            Objects([build_node()], PAIR, [build_workload()], [queue(cpu="1", cohort="x", borrowingLimit="0"), queue("other", "1", "x")]),
            ["queue cq may use 1 cpu of flavor tas, and pods use 2"],
        ),
        (
            Objects([build_node()], PAIR, [build_workload()], [queue(cpu="1", cohort="x")]),
            ["cohort x has 1 cpu of flavor tas to share, and pods use 2 of it"],
        ),
    ],
)
def test_an_excess_of_a_limit_is_found(objects: Objects, found: list[str]):
    assert list(find_broken(objects)) == found


@pytest.mark.parametrize(
    ("labels", "queues", "found"),
    [({}, True, 0), ({MANAGED_NAMESPACE_LABEL: "true"}, False, 0), ({MANAGED_NAMESPACE_LABEL: "true"}, True, 1)],
)
def test_a_pod_without_an_admitted_workload_is_found_in_a_managed_namespace(labels: dict[str, str], queues: bool, found: int):
    namespaces = [{"metadata": {"name": "ns", "labels": labels}}]
    local = [{"metadata": {"name": "default", "namespace": "ns"}}] if queues else []
    objects = Objects([build_node()], [build_pod("a", workload=None)], [], [], [], local, namespaces)
    assert len(list(find_broken(objects))) == found


FINISHED = {**build_workload(2), "status": {**build_workload(2)["status"], **ENDED}}
EVICTED = {**build_workload(2), "status": {"conditions": [{"type": "Evicted", "status": "True"}]}, "spec": {"queueName": "lq"}}
LOCAL = {"metadata": {"name": "lq", "namespace": "ns"}, "spec": {"clusterQueue": "cq"}}
NO_ROOM = ["queue cq may use 2 cpu of flavor tas, and pods use 3"]


@pytest.mark.parametrize(
    "left",
    [
        pytest.param(Objects(pods=[build_pod("x", workload="w")], workloads=[FINISHED]), id="finished"),
        pytest.param(
            Objects(pods=[build_pod("x", workload="w")], workloads=[EVICTED], local_queues=[LOCAL]), id="evicted-by-its-local-queue"
        ),
        pytest.param(
            Objects(pods=[build_labelled_pod(build_pod("x", workload="w"))], workloads=[EVICTED]), id="evicted-by-label-of-its-start"
        ),
        pytest.param(Objects(pods=[build_labelled_pod(build_pod("x", workload="w"))]), id="deleted"),
        pytest.param(
            Objects(pods=[build_labelled_pod(build_pod("x"), labels={QUEUE_NAME_LABEL: "lq"})], local_queues=[LOCAL]),
            id="deleted-by-its-local-queue",
        ),
        pytest.param(
            Objects(pods=[build_labelled_pod(build_pod("x", workload="w"), deletionTimestamp="2026-01-01T00:00:00Z")]),
            id="deleted-and-ending",
        ),
    ],
)
def test_a_pod_of_a_workload_that_is_not_admitted_counts_against_the_quota(left: Objects):
    """Each is a mutation of a state in which all is well: 2 pods of an admitted Workload, quota for 3."""
    others = [build_pod("a", workload="v"), build_pod("b", workload="v")]
    objects = replace(left, nodes=[build_node()], pods=[*others, *left.pods], workloads=[build_workload(name="v"), *left.workloads])
    assert list(find_broken(replace(objects, cluster_queues=[queue(cpu="3")]))) == []
    assert list(find_broken(replace(objects, cluster_queues=[queue(cpu="2")]))) == NO_ROOM


@pytest.mark.parametrize(("where", "found"), [([is_not_ready(build_node())], []), ([], []), ([build_node()], NO_ROOM)])
def test_a_pod_that_cannot_end_counts_no_longer_than_its_workload(where: list[Obj], found: list[str]):
    ending = build_labelled_pod(build_pod("x"), deletionTimestamp="2026-01-01T00:00:00Z")
    objects = Objects(where, [build_pod("a", workload="v"), build_pod("b", workload="v"), ending], [build_workload(name="v")], [queue()])
    assert list(find_broken(objects)) == found


@pytest.mark.parametrize(("ready", "found"), [(False, []), (True, NO_ROOM)])
def test_pod_on_a_lost_node_counts_no_more_once_another_runs_in_its_place(ready: bool, found: list[str]):
    """Found by seed 167 of the simulation: a workload with a replaced node had one pod more than quota."""
    lost = build_node("m") if ready else is_not_ready(build_node("m"))
    ending = build_labelled_pod(build_pod("x", workload="v", node="m"), deletionTimestamp="2026-01-01T00:00:00Z")
    pods = [build_pod("a", workload="v"), build_pod("b", workload="v"), ending]
    assert list(find_broken(Objects([build_node(), lost], pods, [build_workload(name="v")], [queue()]))) == found


def test_a_pod_without_an_admitted_workload_in_no_known_queue_is_found():
    found = ["pod ns/x runs, workload ns/w is not admitted, and its queue is not known"]
    assert list(find_broken(Objects([build_node()], [build_pod("x")], [], [queue()]))) == found


@pytest.mark.parametrize(
    ("labels", "first", "second", "found"),
    [
        ({"pool": "tas"}, "1", "0", []),
        ({"pool": "other"}, "1", "1", []),
        ({"pool": "other"}, "1", "0", ["queue cq may use 0 cpu of flavor other, and pods use 1"]),
        ({}, "1", "1", []),
        ({}, "0", "1", []),
        ({}, "0", "0", ["queue cq may use 0 cpu of flavor other, and pods use 1"]),
    ],
)
def test_a_pod_without_an_admitted_workload_counts_for_the_flavor_of_its_node(labels: Obj, first: str, second: str, found: list[str]):
    two = queue(cpu=first)
    two["spec"]["resourceGroups"][0]["flavors"].append({"name": "other", "resources": [{"name": "cpu", "nominalQuota": second}]})
    where = build_node()
    where["metadata"]["labels"] = labels
    flavors = [build_flavor("tas", pool="tas"), build_flavor("other", pool="other")]
    objects = Objects([where], [build_labelled_pod(build_pod("x"))], [], [two], resource_flavors=flavors)
    assert list(find_broken(objects)) == found


@pytest.mark.parametrize(
    ("mine", "lent", "found"),
    [
        # `lent` is what the other queue has, of which it lends 1.
        ("2", {"cpu": "5", "lendingLimit": "1"}, []),
        ("1", {"cpu": "5", "lendingLimit": "1"}, ["cohort x has 2 cpu of flavor tas to share, and pods use 3 of it"]),
        ("1", {"cpu": "5", "lendingLimit": "2"}, []),
        ("1", {"cpu": "5"}, []),
        ("1", {"cpu": "1", "lendingLimit": "9"}, ["cohort x has 2 cpu of flavor tas to share, and pods use 3 of it"]),
    ],
)
def test_use_beyond_a_lending_limit_is_found(mine: str, lent: Obj, found: list[str]):
    pods = [build_pod("a"), build_pod("b"), build_pod("c")]
    objects = Objects([build_node()], pods, [build_workload(3)], [queue("cq", mine, "x"), queue("other", cohort="x", **lent)])
    assert list(find_broken(objects)) == found


@pytest.mark.parametrize(
    ("limits", "found"),
    [
        ({}, []),
        ({"lendingLimit": "3"}, []),
        ({"lendingLimit": "2"}, ["cohort root has 2 cpu of flavor tas to share, and pods use 3 of it"]),
        ({"borrowingLimit": "0"}, []),
    ],
)
def test_lending_limits_of_cohorts_hold_for_queues_of_other_cohorts(limits: dict[str, str], found: list[str]):
    queues = [queue("cq", "0", "left"), queue("other", "1", "right")]
    cohorts = [build_cohort("left", parent="root"), build_cohort("right", "2", "root", **limits)]
    assert (
        list(find_broken(Objects([build_node()], [build_pod("a"), build_pod("b"), build_pod("c")], [build_workload(3)], queues, cohorts)))
        == found
    )


def test_quota_that_is_not_lent_is_used_beside_the_quota_that_others_borrow():
    queues = [queue("cq", "2", "x", lendingLimit="1"), queue("other", "0", "x")]
    pods = [build_pod("a"), build_pod("b", workload="v")]
    assert list(find_broken(Objects([build_node()], pods, [build_workload(), build_workload(name="v", queue="other")], queues))) == []
    more = [*pods, build_pod("c", workload="v")]
    found = ["cohort x has 1 cpu of flavor tas to share, and pods use 2 of it"]
    assert list(find_broken(Objects([build_node()], more, [build_workload(), build_workload(name="v", queue="other")], queues))) == found


@pytest.mark.parametrize(
    ("limits", "found"),
    [
        ({"borrowingLimit": "2"}, []),
        ({"borrowingLimit": "1"}, ["cohort left has 1 cpu of flavor tas to share, and pods use 2 of it"]),
    ],
)
def test_a_cohort_borrows_within_its_limit(limits: dict[str, str], found: list[str]):
    cohorts = [build_cohort("left", "0", "root", **limits), build_cohort("root", "2")]
    assert list(find_broken(Objects([build_node()], PAIR, [build_workload()], [queue(cpu="0", cohort="left")], cohorts))) == found


@pytest.mark.parametrize("depth", [1, 2_000])
def test_a_circle_of_cohorts_lends_nothing_and_a_chain_all_it_has(depth: int):
    chain = [build_cohort(f"c{i}", parent=f"c{i + 1}") for i in range(depth)]
    objects = Objects([build_node()], PAIR, [build_workload()], [queue(cpu="1", cohort="c0")], [*chain, build_cohort(f"c{depth}", "1")])
    assert list(find_broken(objects)) == []
    found = ["queue cq may use 1 cpu of flavor tas, and pods use 2"]
    assert list(find_broken(replace(objects, cohorts=[*chain, build_cohort(f"c{depth}", "1", "c0")]))) == found


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("500m", Fraction(1, 2)),
        ("1.5Gi", Fraction(3 * 2**29)),
        ("16Ei", Fraction(2**64)),
        ("1e3", Fraction(1000)),
        ("2E", Fraction(2 * 10**18)),
        ("-1k", Fraction(-1000)),
        ("1n", Fraction(1, 10**9)),
        (".5", Fraction(1, 2)),
    ],
)
def test_quantities_are_read_exactly(text: str, value: Fraction):
    assert read_quantity(text) == value


@pytest.mark.parametrize("text", ["", "x", "1x", "1ki", "1.2.3", "1 Gi", "."])
def test_text_that_is_no_quantity_is_refused(text: str):
    with pytest.raises(ValueError, match="is no quantity"):
        read_quantity(text)


def test_amounts_are_shown_as_decimals():
    assert [show_amount(read_quantity(text)) for text in ("4", "500m", "1n")] == ["4", "0.5", "0.000000001"]


def build_container(cpu: str | None, limit: str | None = None, **more: Any) -> Obj:
    amounts = {"requests": {"cpu": cpu} if cpu else None, "limits": {"cpu": limit} if limit else None}
    return {"resources": {kind: named for kind, named in amounts.items() if named}, **more}


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        ({"containers": [build_container("1"), build_container("500m")]}, "1.5"),
        ({"containers": [build_container(None, "2")]}, "2"),
        ({"containers": [build_container("1")], "overhead": {"cpu": "1"}}, "2"),
        ({"containers": [build_container("1")], "initContainers": [build_container("3")]}, "3"),
        (
            {"containers": [build_container("1")], "initContainers": [build_container("1", restartPolicy="Always"), build_container("3")]},
            "4",
        ),
        (
            {"containers": [build_container("1")], "initContainers": [build_container("3"), build_container("1", restartPolicy="Always")]},
            "3",
        ),
        ({"containers": [build_container("3")], "initContainers": [build_container("1", restartPolicy="Always")]}, "4"),
        ({"containers": [build_container("1")], "resources": {"requests": {"cpu": "5"}}}, "5"),
        ({"containers": [build_container("1")], "resources": {"limits": {"cpu": "5"}}}, "1"),
        ({"containers": [build_container(None)], "resources": {"limits": {"cpu": "5"}}}, "5"),
        ({"containers": [build_container("16Ei"), build_container("16Ei")]}, str(2**65)),
    ],
)
def test_requests_of_a_pod_are_counted_as_kubernetes_does(spec: Obj, cpu: str):
    assert count_requests(spec) == {"cpu": Fraction(cpu)}


@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.parametrize("names", [("w", "x", "y"), ("w", "y", "x"), ("w", "a", "b")])
def test_pods_of_an_elastic_job_count_for_the_workload_that_replaces_the_others(finished: bool, names: tuple[str, ...]):
    first, second, third = (build_workload(count, name) for count, name in enumerate(names, 1))
    for each, before in ((second, names[0]), (third, names[1])):
        each["metadata"]["annotations"] = {SLICE_NAME: "w", SLICE_REPLACES: f"ns/{before}"}
        each["status"] |= ADMITTED
    for each in (first, second) if finished else ():
        each["status"] |= ENDED
    pods = [build_pod(str(i)) for i in range(3)]
    for order in permutations((first, second, third)):
        assert list(find_broken(Objects([build_node()], pods, order, [queue(cpu="9")]))) == []
        [found] = find_broken(Objects([build_node()], [*pods, build_pod("more")], order, [queue(cpu="9")]))
        assert found == "workload ns/w was admitted 3 pods as main, and 4 run"


def test_pods_of_an_elastic_job_count_for_the_first_workload_while_the_second_waits_with_its_quota():
    first, second = build_workload(2, "w"), build_workload(3, "x")
    second["metadata"]["annotations"] = {SLICE_NAME: "w", SLICE_REPLACES: "ns/w"}
    for order in permutations((first, second)):
        [found] = find_broken(Objects([build_node()], [build_pod(str(i)) for i in range(3)], order, [queue(cpu="9")]))
        assert found == "workload ns/w was admitted 2 pods as main, and 3 run"


@pytest.mark.parametrize("module", [e2e.audit.recount, e2e.audit.recount_places, e2e.audit.recount_quota, e2e.audit.amounts])
def test_the_audit_imports_only_names_of_the_product(module: Any):
    nodes = list(ast.walk(ast.parse(Path(module.__file__).read_text())))
    imported = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    imported |= {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    ours = {name for name in imported if name.split(".")[0] in ("core", "webhook", "reconciler", "certs", "cli", "e2e", "tests")}
    assert ours <= {"core.names", "e2e.api", "e2e.audit.amounts", "e2e.audit.recount_places", "e2e.audit.recount_quota"}
