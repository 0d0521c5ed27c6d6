"""Objects that Kueue's CRDs admit or refuse are admitted or refused by ours on the real API server, but for those of `DELTAS`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from e2e.api import ApiError
from e2e.cluster import Cluster

FOLDER = Path(os.environ.get("TOPOGATE_PEER_VECTORS") or Path(__file__).parents[3] / "shared" / "vectors" / "peer")
FILE = FOLDER / "validation_crd.jsonl"

# Case -> (what ours does, why). The peer checks these in its webhook only, or has another limit.
DELTAS: dict[str, tuple[bool, str]] = {
    "crd-0073": (False, "required and preferred exclude each other, whether or not a webhook is up (KEP: mutually exclusive)"),
    "crd-0079": (False, "a slice size without a slice topology means nothing (KEP: size goes with topology)"),
    "crd-0093": (False, "constraints are used exclusively, not with the two-level slice fields (KEP)"),
    "crd-0094": (False, "each layer's size is a multiple of the next one's (KEP)"),
    "crd-0095": (False, "each layer names another topology (KEP: ordered from coarsest to finest)"),
    "crd-0098": (False, "a slice size without a slice topology means nothing (KEP: size goes with topology)"),
    "crd-0142": (True, "up to 1,000 unhealthy nodes instead of 8 (rule j of docs/decisions/0004)"),
}


def load_cases() -> list[dict[str, Any]]:
    return [json.loads(line) for line in FILE.read_text().splitlines()] if FILE.exists() else []


CASES = load_cases()


@pytest.mark.skipif(not CASES, reason=f"the peer's vectors are not at {FOLDER}; say where with TOPOGATE_PEER_VECTORS")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_crd_validation_equals_that_of_kueue(case, cluster, converter, vector_namespace):
    expected, why = DELTAS.get(case["id"], (case["admitted"], "the peer's answer"))
    refusal = find_refusal(cluster, vector_namespace, case)
    assert (refusal is None) == expected, f"{why}; the API server says: {refusal}; the object: {json.dumps(case['object'])[:1500]}"


@pytest.mark.skipif(not CASES, reason=f"the peer's vectors are not at {FOLDER}; say where with TOPOGATE_PEER_VECTORS")
def test_every_difference_listed_is_one():
    peer = {case["id"]: case["admitted"] for case in CASES}
    assert {case: expected for case, (expected, _) in DELTAS.items()} == {case: not peer[case] for case in DELTAS}


@pytest.fixture(scope="module")
def vector_namespace(cluster: Cluster):
    cluster.create_namespace("crd-vectors")
    yield "crd-vectors"
    cluster.delete_namespace("crd-vectors")


def find_refusal(cluster: Cluster, namespace: str, case: dict[str, Any]) -> str | None:
    """What the API server says against the case's last write; None if it takes it. Nothing stays behind."""
    scope = f"/namespaces/{namespace}" if case["resource"] == "workloads" else ""
    collection = f"/apis/kueue.x-k8s.io/{case['version']}{scope}/{case['resource']}"
    path = f"{collection}/{case['object']['metadata']['name']}"
    try:
        if case["op"] == "update":
            write(cluster, collection, path, prepare(case["old_object"], namespace, scope), create=True)
        write(cluster, collection, path, prepare(case["object"], namespace, scope), create=case["op"] == "create")
    except ApiError as error:
        if error.status not in (400, 422):
            raise
        return str(error)
    finally:
        cluster.api.delete(path)
    return None


def prepare(value: dict[str, Any], namespace: str, scope: str) -> dict[str, Any]:
    metadata = {**value["metadata"], **({"namespace": namespace} if scope else {})}
    # A typed client's empty quantities and times come as null, which the API server drops.
    return {**value, "metadata": metadata}


def write(cluster: Cluster, collection: str, path: str, value: dict[str, Any], *, create: bool) -> None:
    """Spec and status are written apart: the API server takes the status by its subresource only."""
    spec_only = {key: part for key, part in value.items() if key != "status"}
    if create:
        current = cluster.api.create(collection, spec_only)
    else:
        current = cluster.api.get(path)
        spec_only["metadata"] = {**spec_only["metadata"], "resourceVersion": current["metadata"]["resourceVersion"]}
        current = cluster.api.replace(path, spec_only)
    if "status" in value:
        cluster.api.replace(f"{path}/status", {**current, "status": value["status"]})
