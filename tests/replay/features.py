"""Which cases of the placement family need what topogate cannot do yet; shrinks as it learns."""

from typing import Any

_LATER_GATES = ("ElasticJobsViaWorkloadSlicesWithTAS",)


def needs_later_features(case: dict[str, Any]) -> bool:
    """Whether a case needs resizing or node replacement."""
    gates = case.get("feature_gates", {})
    resized = any("previous_assignment" in pod_set for pod_set in case["pod_sets"])
    return "workload" in case or any(gates.get(gate) for gate in _LATER_GATES) or resized
