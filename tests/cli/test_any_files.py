"""Whatever stands in files, the command says what is wrong with it: it never fails by itself."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cli.planning.documents import MAX_BYTES, read_documents
from tests.cli.commands import BLOCK, RACK, Commands, Obj, build_job, build_node, build_queues
from tests.cli.lives import build_queued_job
from tests.podgroups.devices import build_claim, build_device_class, build_resource_slice, build_template, pool_of_nodes
from tests.strategies import scale_examples

POD: Obj = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "default", "ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "u"}]},
    "spec": {"nodeName": "n1", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}, "ports": [{"hostPort": 80}]}]},
    "status": {"phase": "Running"},
}
CLASSES: list[Obj] = [
    {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 5, "globalDefault": True},
    {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 5},
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": {"a": "b"}}},
]
CLUSTER: list[Obj] = [
    *(build_node(f"n{i}", {BLOCK: "b", RACK: f"r{i % 2}"}) for i in range(3)),
    *build_queues(),
    *CLASSES,
    POD,
    *build_queued_job(build_job("there", 1)),
]
SELECTOR = {"nodeSelectorTerms": [{"matchExpressions": [{"key": RACK, "operator": "In", "values": ["r0"]}]}]}
SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "x", "1", "-1", "cpu", "a/b/c", "Ⅷ", "1e400"])
NAMES = st.sampled_from(["name", "x", "0"])
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3))


def walk_paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in a document."""
    yield path
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from walk_paths(inner, (*path, key))


def replaced(document: Obj, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    changed = copy.deepcopy(document)
    parent: Any = changed
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = value
    return changed


def test_pod_with_an_invalid_node_name_in_a_file_is_reported(topogate: Commands) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ns"}, "spec": {"nodeName": [None], "containers": []}}
    ran = topogate.run("topology", "--nodes", topogate.write("cluster.yaml", *CLUSTER, pod))
    assert ran.code in (0, 1, 2), ran.err
    assert "nodeName" in ran.err


DEVICES: list[Obj] = [
    build_device_class(),
    build_template(namespace="default"),
    *pool_of_nodes("p", {"n0": 1, "n1": 2}),
    build_resource_slice("q", [{"name": "x", "attributes": {"a": {"int": 1}}, "capacity": {"m": {"value": "1"}}}], nodeSelector=SELECTOR),
    build_claim("c", [("p", "n0-0")], namespace="default", nodeSelector=SELECTOR),
    {
        "apiVersion": "topogate.dev/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "default"},
        "spec": {
            "schedulingPolicy": {"basic": {}},
            "schedulingConstraints": {"draConstraints": [{"resourceClaimTemplateName": "one-gpu"}]},
        },
    },
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "g-0", "namespace": "default", "labels": {"topogate.dev/podgroup": "g"}},
        "spec": {
            "containers": [{"name": "c"}],
            "schedulingGates": [{"name": "topogate.dev/podgroup"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}, {"name": "all", "resourceClaimName": "c"}],
        },
        "status": {"phase": "Pending", "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "made"}]},
    },
]


@settings(max_examples=scale_examples(0.5), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_random_json_in_device_files_is_used_or_reported(topogate: Commands, data: st.DataObject):
    documents = copy.deepcopy(DEVICES)
    at = data.draw(st.integers(0, len(documents) - 1))
    path = data.draw(st.sampled_from(list(walk_paths(documents[at]))))
    documents[at] = replaced(documents[at], path, data.draw(JSON))
    with tempfile.TemporaryDirectory() as folder:
        here = Commands(topogate.capsys, Path(folder))
        ran = here.run("explain", "podgroup", "g", "--nodes", here.write("cluster.yaml", *CLUSTER, *documents))
        assert ran.code in (0, 1, 2), ran.err


@pytest.mark.parametrize("field", ["uid", "resourceVersion", "name", "namespace"])
@pytest.mark.parametrize("value", [None, [], {}, 1, True])
def test_metadata_text_of_another_type_is_reported_or_omitted(topogate: Commands, field: str, value: object) -> None:
    running, wanted = build_job("there", 2, required=RACK), build_job("a", 2, required=RACK)
    for obj in (running, wanted):
        obj["metadata"][field] = value
    here: list[str | Path] = ["--nodes", topogate.write("cluster.yaml", *CLUSTER[:-1], running)]
    asked: list[list[str | Path]] = [["explain", "job", "there"], ["plan", "-f", topogate.write("job.yaml", wanted)]]
    for words in asked:
        ran = topogate.run(*words, *here)
        is_told = f"metadata.{field}" in ran.err
        assert is_told is (value is not None or field == "name"), ran.err
        assert value is None or ran.code == 2, ran.err


@settings(max_examples=scale_examples(0.5), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_random_json_in_files_is_used_or_reported(topogate: Commands, data: st.DataObject):
    documents = copy.deepcopy([*CLUSTER, build_job("a", 2, required=RACK)])
    at = data.draw(st.integers(0, len(documents) - 1))
    path = data.draw(st.sampled_from(list(walk_paths(documents[at]))))
    documents[at] = replaced(documents[at], path, data.draw(JSON))
    *cluster, wanted = documents
    with tempfile.TemporaryDirectory() as folder:
        here = Commands(topogate.capsys, Path(folder))
        files: list[str | Path] = ["--nodes", here.write("cluster.yaml", *cluster)]
        ran = here.run("plan", "-f", here.write("job.yaml", wanted), *files)
        assert ran.code in (0, 2, 3), ran.err
        for words in (["explain", "job", "there"], ["topology", "--seats"], ["topology", "suggest"]):
            assert here.run(*words, *files).code in (0, 1, 2)


def test_file_without_an_end_is_read_no_further_than_the_limit() -> None:
    wrong: list[str] = []
    assert read_documents([Path("/dev/zero")], wrong) == []
    assert wrong == [f"/dev/zero: it has more than {MAX_BYTES} bytes, which is as much as is read"]
