"""The example by which an administrator refuses jobs that could fail and recover for ever, on the real API server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from core.names import MAX_EXEC_TIME_LABEL
from e2e import manifests
from e2e.api import APPLY_PATCH, ApiError, wait_for
from e2e.cluster import Cluster

EXAMPLE = Path(__file__).parents[2] / "examples" / "policies" / "no-endless-jobs.yaml"
LIMITED = {"backoffLimit": 3}
SHORT = {MAX_EXEC_TIME_LABEL: "3600"}


@pytest.fixture
def policed(cluster: Cluster, namespace: str) -> Iterator[str]:
    objects: list[dict[str, Any]] = list(yaml.safe_load_all(EXAMPLE.read_text()))
    for obj in objects:
        cluster.api.patch(f"{manifests.get_path(obj)}/{obj['metadata']['name']}?fieldManager=e2e", obj, APPLY_PATCH)
    wait_for(
        "the policy to be in force", lambda: get_refusal(cluster, manifests.build_job(f"try-{time.monotonic_ns()}", namespace, pods=1))
    )
    yield namespace
    for obj in reversed(objects):
        cluster.api.delete(f"{manifests.get_path(obj)}/{obj['metadata']['name']}")


def get_refusal(cluster: Cluster, job: dict[str, Any]) -> str:
    """What the API server says to it; empty when it is taken."""
    try:
        cluster.api.create(f"{manifests.get_path(job)}?dryRun=All", job)
    except ApiError as error:
        return str(error)
    return ""


def test_example_policy_names_all_missing_limits_of_a_queued_job(cluster: Cluster, policed: str):
    said = get_refusal(cluster, manifests.build_job("endless", policed, pods=1))
    assert "spec.backoffLimit: 6 or no value: write at most 3" in said
    assert f'metadata.labels[{MAX_EXEC_TIME_LABEL}]: ""' in said


@pytest.mark.parametrize("seconds", ["0", "604801", "soon", "1.5"])
def test_example_policy_refuses_an_invalid_execution_time(cluster: Cluster, policed: str, seconds: str):
    said = get_refusal(cluster, manifests.build_job("long", policed, pods=1, spec=LIMITED, labels={MAX_EXEC_TIME_LABEL: seconds}))
    assert f'"{seconds}": write for how many seconds' in said
    assert "backoffLimit" not in said


def test_example_policy_accepts_limited_unqueued_or_owned_jobs(cluster: Cluster, policed: str):
    assert get_refusal(cluster, manifests.build_job("good", policed, pods=1, spec=LIMITED, labels=SHORT)) == ""
    assert (
        get_refusal(cluster, manifests.build_job("ranks", policed, pods=2, indexed=True, spec={"backoffLimitPerIndex": 1}, labels=SHORT))
        == ""
    )
    assert get_refusal(cluster, manifests.build_job("unqueued", policed, pods=1, queue=None)) == ""
    owned = manifests.build_job("made-by-a-jobset", policed, pods=1)
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "set", "uid": "1", "controller": True}
    owned["metadata"]["ownerReferences"] = [owner]
    assert get_refusal(cluster, owned) == ""
