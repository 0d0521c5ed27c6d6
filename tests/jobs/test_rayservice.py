"""Changes of a running RayService: KubeRay makes a second cluster beside the first for most of them."""

from __future__ import annotations

from typing import Any

import pytest

from core.jobs.contract import ErrorType
from core.jobs.kinds.rayservice import RayService
from core.names import QUEUE_NAME_LABEL, WORKLOAD_ANNOTATION

Json = dict[str, Any]
TEMPLATE = {"metadata": {"annotations": {WORKLOAD_ANNOTATION: "w"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
GROUP = {"groupName": "w", "replicas": 2, "template": TEMPLATE}


def service(strategy: str | None = None, *, group: Json | None = None, suspend: bool = False, **config: Any) -> Json:
    cluster = {"suspend": suspend, "headGroupSpec": {"rayStartParams": config.pop("params", {}), "template": TEMPLATE}}
    cluster |= {"rayVersion": "2.9", "workerGroupSpecs": [GROUP | (group or {})], **config}
    spec = {"rayClusterConfig": cluster, "serveConfigV2": "a"} | ({"upgradeStrategy": {"type": strategy}} if strategy else {})
    return {"metadata": {"name": "s", "namespace": "ns", "labels": {QUEUE_NAME_LABEL: "main"}}, "spec": spec}


def get_refusals(old: Json, new: Json) -> dict[str, ErrorType]:
    return {error.field: error.type for error in RayService().validate_update(old, new).errors}


@pytest.mark.parametrize("strategy", [None, "NewCluster", "NewClusterWithIncrementalUpgrade"])
@pytest.mark.parametrize(
    "change",
    [{"rayVersion": "2.10"}, {"params": {"a": "b"}}, {"group": {"rayStartParams": {"a": "b"}}}, {"workerGroupSpecs": []}],
    ids=str,
)
def test_change_that_makes_a_second_cluster_is_refused_while_the_service_runs(strategy: str | None, change: Json):
    assert get_refusals(service(strategy), service(strategy, **change)) == {"spec.rayClusterConfig": ErrorType.FORBIDDEN}
    assert not get_refusals(service("None"), service("None", **change))
    assert not get_refusals(service(strategy, suspend=True), service(strategy, suspend=True, **change))


def test_upgrade_that_was_put_off_is_refused_while_the_service_runs():
    assert get_refusals(service("None"), service()) == {"spec.upgradeStrategy.type": ErrorType.INVALID}
    assert get_refusals(service("None"), service("NewCluster")) == {"spec.upgradeStrategy.type": ErrorType.INVALID}
    assert not get_refusals(service(), service("None"))
    assert not get_refusals(service("None", suspend=True), service(suspend=True))


def test_change_within_the_same_cluster_is_accepted_while_the_service_runs():
    changed = service(group={"replicas": 1, "minReplicas": 1, "maxReplicas": 5, "scaleStrategy": {"workersToDelete": ["p"]}})
    changed["spec"]["serveConfigV2"] = "b"
    assert not get_refusals(service(), changed)
