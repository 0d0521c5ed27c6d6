"""What the pod templates of a job get when it starts."""

from __future__ import annotations

import pytest

from core.model.admission import Admission, PodSetAdmission
from core.plan.workloads.desired_workload import start_infos
from tests.builders import build_pod_set_json, build_workload_json


@pytest.mark.parametrize(("count", "gated"), [(0, True), (2, False)])
def test_template_without_pods_keeps_its_gate_on_a_flavor_without_topology(count: int, gated: bool) -> None:
    """A job that is admitted for no pods, and is scaled up while it runs, would start them all at once."""
    workload = build_workload_json("w", [build_pod_set_json("main", count)])
    (info,) = start_infos(workload, Admission("q", (PodSetAdmission("main", {}, {}, count),)), {}, "main")
    assert info.gated is gated
