"""The event of a pod that requests more than was admitted advises what makes another pod of the same job start."""

from __future__ import annotations

from typing import Any

from core.model.pod_resources import compute_pod_requests
from core.plan.steps.excess import explain_excess

SIDECAR = {"name": "proxy", "resources": {"requests": {"cpu": "500m"}}}


def build_template(cpu: str, **spec: Any) -> dict[str, Any]:
    return {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}], **spec}


def inject(spec: dict[str, Any]) -> dict[str, Any]:
    """What a webhook that adds a container by name makes of a pod."""
    names = [container["name"] for container in spec["containers"]]
    return spec if "proxy" in names else {**spec, "containers": [*spec["containers"], SIDECAR]}


def explain(spec: dict[str, Any]) -> str:
    return explain_excess(compute_pod_requests(inject(spec)), compute_pod_requests(spec), "main")


def test_excess_of_a_sidecar_names_the_ways_that_help():
    message = explain(build_template("1"))
    assert all(part in message for part in ("500m cpu", "as main", "same container", "spec.resources"))
    assert len(message) <= 1024
    assert explain(build_template("1500m")), "which the message used to advise"
    assert not explain({"containers": [*build_template("1")["containers"], SIDECAR]})
    assert not explain(build_template("1", resources={"requests": {"cpu": "1500m"}}))
