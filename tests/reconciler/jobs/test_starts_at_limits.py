"""Objects at the limits of what a template may ask for: each that is accepted is started, too."""

from __future__ import annotations

from typing import Any

import pytest

from core.jobs.pod_rules import MAX_SELECTOR_ENTRIES, MAX_TOLERATIONS
from e2e.audit import truth
from tests.long import mark_long
from tests.reconciler.kinds.pods import bound, build_template, list_live_pods, of_set
from tests.reconciler.scenes import JOBS, Scene

pytestmark = pytest.mark.in_memory

FLAVORS = "/apis/kueue.x-k8s.io/v1beta2/resourceflavors"
TOLERATIONS = [{"key": f"example.com/k{i}", "operator": "Exists"} for i in range(MAX_TOLERATIONS)]
EXPRESSIONS = [{"key": f"example.com/k{i}", "operator": "DoesNotExist"} for i in range(MAX_SELECTOR_ENTRIES)]
NODES = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": EXPRESSIONS}]}}}
AT_LIMITS: dict[str, dict[str, Any]] = {"tolerations": {"tolerations": TOLERATIONS}, "node affinity": {"affinity": NODES}}


def add_toleration(scene: Scene) -> None:
    added = [{"key": "example.com/flavor", "operator": "Exists", "effect": "NoSchedule"}]
    scene.api.patch(f"{FLAVORS}/{scene.prefix}flavor", {"spec": {"tolerations": added}})


@pytest.mark.parametrize("limit", mark_long(AT_LIMITS, but={0}))
def test_job_at_a_limit_is_started_stopped_and_started_again(scene: Scene, limit: str) -> None:
    """topogate's own webhook refused the start, which exceeds the limit, and the job held its quota without pods."""
    add_toleration(scene)
    before = scene.submit("limit", pods=1, gpus=8, required=scene.rack, pod_spec=AT_LIMITS[limit])["spec"]["template"]["spec"]
    now = scene.until_bound("limit", 1)
    assert len(now.pods_of("limit")[0]["spec"]["tolerations"]) > len(AT_LIMITS[limit].get("tolerations", ()))
    scene.patch_workload("limit", {"spec": {"active": False}})
    scene.eventually("quota to be given back", lambda now: "admission" not in (now.workload_of("limit") or {}).get("status", {}))
    assert scene.job("limit")["spec"]["template"]["spec"] == before
    scene.patch_workload("limit", {"spec": {"active": True}})
    scene.until_bound("limit", 1)
    assert truth.check_invariants(scene.read()) == []
    assert scene.api.get(f"{JOBS.format(scene.namespace)}/limit")["spec"]["suspend"] is False


@pytest.mark.parametrize("kind", ["StatefulSet", "Deployment"])
def test_pods_of_set_with_as_many_tolerations_as_it_may_have_run(scene: Scene, kind: str) -> None:
    """The API server adds two to each pod before the rules count."""
    add_toleration(scene)
    of_pods = build_template(4)
    of_pods["spec"]["tolerations"] = TOLERATIONS
    scene.create(of_set(kind, scene, "web", 2, of_pods))
    scene.eventually("its pods to run", lambda now: bound(list_live_pods(now, scene, app="web"), 2))
    scene.api.delete(f"/apis/apps/v1/namespaces/{scene.namespace}/{kind.lower()}s/web")
