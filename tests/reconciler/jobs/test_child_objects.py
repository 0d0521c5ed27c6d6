"""What controllers made for a job, compared with what was admitted."""

from __future__ import annotations

from typing import Any

import pytest

from core.jobs.templated import MAX_POD_SETS
from core.model.configuration import ResourceRules
from core.resource import Obj
from core.runtime.clock import SystemClock
from reconciler.jobs.child_objects import find_excess_of_parts, limit_facts
from reconciler.observe.observed import Observed
from tests.builders import build_cluster_queue_json

QUEUED = {"kueue.x-k8s.io/queue-name": "main"}


def _metadata(name: str, **more: Any) -> Obj:
    return {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": "1", **more}


def _owned_by(kind: str, version: str, name: str) -> list[Obj]:
    return [{"apiVersion": version, "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}]


def _build_template(**requests: str) -> Obj:
    return {"spec": {"containers": [{"name": "node", "resources": {"requests": requests}}]}}


def _replicated(name: str, pods: int, **requests: str) -> Obj:
    job = {"parallelism": pods, "completions": pods, "template": _build_template(**requests)}
    return {"name": name, "replicas": 1, "template": {"spec": job}}


class Parts:
    """A TrainJob that was admitted with one pod of one CPU, and its JobSet."""

    def __init__(self, *covered: str, rules: ResourceRules | None = None) -> None:
        self.observed = Observed(None, SystemClock(), resource_rules=rules)  # type: ignore[arg-type]
        queue = build_cluster_queue_json("q", {"f": "100"})
        queue["spec"]["resourceGroups"][0]["coveredResources"] = list(covered)
        queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"] = [{"name": name, "nominalQuota": "100"} for name in covered]
        self.observed.cluster_queues.put({**queue, "metadata": {**queue["metadata"], "uid": "uid-q", "resourceVersion": "1"}})
        self.job = {"metadata": _metadata("train", labels=QUEUED), "spec": {"runtimeRef": {"name": "r"}}}
        self.observed.jobs["TrainJob.trainer.kubeflow.org"].put(self.job)

    def admit(self, **requests: str) -> Obj:
        given = {"name": "node", "count": 1, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "1"}}
        conditions = [{"type": kind, "status": "True", "reason": kind, "message": ""} for kind in ("QuotaReserved", "Admitted")]
        workload = {
            "metadata": _metadata("w", ownerReferences=_owned_by("TrainJob", "trainer.kubeflow.org/v1alpha1", "train")),
            "spec": {"podSets": [{"name": "node", "count": 1, "template": _build_template(**requests)}]},
            "status": {"admission": {"clusterQueue": "q", "podSetAssignments": [given]}, "conditions": conditions},
        }
        self.observed.workloads.put(workload)
        return workload

    def make(self, *replicated: Obj) -> None:
        owner = _owned_by("TrainJob", "trainer.kubeflow.org/v1alpha1", "train")
        job_set = {"metadata": _metadata("set", ownerReferences=owner), "spec": {"replicatedJobs": list(replicated)}}
        self.observed.jobs["JobSet.jobset.x-k8s.io"].put(job_set)

    def explain(self, workload: Obj) -> str:
        return find_excess_of_parts(self.observed, self.job, workload)


def test_jobset_as_admitted_is_no_excess():
    parts = Parts("cpu")
    workload = parts.admit(cpu="1")
    parts.make(_replicated("node", 1, cpu="1"))
    assert parts.explain(workload) == ""


@pytest.mark.parametrize("empty", [0, MAX_POD_SETS - 1, MAX_POD_SETS, 40])
def test_jobset_with_pods_behind_many_empty_templates_is_excess(empty: int):
    parts = Parts("cpu")
    workload = parts.admit(cpu="1")
    parts.make(_replicated("node", 1, cpu="1"), *(_replicated(f"empty{n}", 0) for n in range(empty)), _replicated("more", 1000, cpu="1"))
    assert parts.explain(workload)


@pytest.mark.parametrize("requests", [{"cpu": "2"}, {"cpu": "1", "memory": "2Gi"}])
def test_jobset_with_larger_pods_is_excess(requests: dict[str, str]):
    parts = Parts("cpu", "memory")
    workload = parts.admit(cpu="1", memory="1Gi")
    parts.make(_replicated("node", 1, **requests))
    assert parts.explain(workload)


@pytest.mark.parametrize(("admitted", "made", "says"), [("", "a", "a"), ("a", "b", "b"), ("a", "a", ""), ("a", "", "")])
def test_jobset_with_claims_that_were_not_admitted_is_excess(admitted: str, made: str, says: str):
    parts = Parts("cpu", rules=ResourceRules(device_classes={"gpu": "example.com/gpus"}))
    workload, replicated = parts.admit(cpu="1"), _replicated("node", 1, cpu="1")
    templates = workload["spec"]["podSets"][0]["template"], replicated["template"]["spec"]["template"]
    for template, name in zip(templates, (admitted, made), strict=True):
        template["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": name}] if name else []
    parts.make(replicated)
    wanted = f"the pods of JobSet set claim devices as node that were not admitted: {says}" if says else ""
    assert parts.explain(workload) == wanted


def test_jobset_as_admitted_is_no_excess_after_its_queue_covers_another_resource():
    """Quota of memory came after the admission: an administrator who adds it must not evict what runs."""
    parts = Parts("cpu", "memory")
    workload = parts.admit(cpu="1", memory="1Gi")
    parts.make(_replicated("node", 1, cpu="1", memory="1Gi"))
    assert parts.explain(workload) == ""


@pytest.mark.parametrize(("template", "memory"), [({"memory": "1Gi"}, 1 << 30), ({"cpu": "1"}, 0)])
def test_limit_range_adds_nothing_to_resource_that_is_covered_since_the_admission(template: dict[str, str], memory: int):
    """The pods keep what the template requests, and no more."""
    parts = Parts("cpu", "memory")
    limits = {"limits": [{"type": "Container", "defaultRequest": {"cpu": "8", "memory": "8Gi"}}]}
    parts.observed.limit_ranges.put({"metadata": _metadata("limits"), "spec": limits})
    parts.admit(**template)
    [pod_set] = limit_facts(parts.observed, parts.observed.state.workloads.facts["ns/w"]).pod_sets
    assert pod_set.requests == {"cpu": 1000, "memory": memory}
