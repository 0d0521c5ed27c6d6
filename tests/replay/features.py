"""Which cases of the placement family need what topogate cannot do yet; shrinks as it learns."""

from typing import Any

_LATER_GATES = ("TASBalancedPlacement", "TASRespectNodeAffinityPreferred", "ElasticJobsViaWorkloadSlicesWithTAS")


def needs_later_features(case: dict[str, Any]) -> bool:
    """Whether a case needs balanced placement, affinity scores, groups, slice layers, resizing or node replacement."""
    gates = case.get("feature_gates", {})
    return "workload" in case or any(gates.get(gate) for gate in _LATER_GATES) or any(map(_pod_set_needs, case["pod_sets"]))


def _pod_set_needs(pod_set: dict[str, Any]) -> bool:
    layers = (pod_set.get("topology_request") or {}).get("podsetSliceRequiredTopologyConstraints") or ()
    return bool(pod_set.get("pod_set_group_name")) or len(layers) > 1 or "previous_assignment" in pod_set
