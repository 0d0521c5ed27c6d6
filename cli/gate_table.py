"""The table of feature gates in docs/reference.md: each with its default here and in Kueue, and the tests of both values.

A test knows whether a gate is missing, and whether the tests are there.
"""

from collections.abc import Iterator, Mapping

from core.model.gates import GATES, Gate, Stage

HEAD = ("gate", "default", "in Kueue by default", "its stage in Kueue", "here", "tests, below `tests/`", "also played on in")
_OF_NODES = "plan/pods/test_node_health.py"
_OF_GATES = "placement/algorithms/test_gates.py"
TESTS: Mapping[str, str] = {
    "TASPartialSlices": "placement/algorithms/test_partial_slices.py",
    "TASTopologySpreading": "queueing/flavors/test_topology_spreading.py",
    "TASGroupedPodSetSlicing": "placement/algorithms/test_grouped_slices.py",
    "TASLeaderPodSetFeasibility": "placement/algorithms/test_grouped_slices.py",
    "TASBalancedPlacement": _OF_GATES,
    "TASRespectNodeAffinityPreferred": _OF_GATES,
    "TASProfileMixed": _OF_GATES,
    "TASProfileBestFit": _OF_GATES,
    "TASProfileLeastFreeCapacity": _OF_GATES,
    "TASProfileMostFreeCapacity": _OF_GATES,
    "TopologyAwareScheduling": "queueing/cycle/test_cycle.py",
    "TASMultiLayerTopology": "placement/algorithms/test_slices.py",
    "TASHandleOverlappingFlavors": "state/test_ledger.py",
    "TASRecomputeAssignmentWithinSchedulingCycle": "queueing/cycle/test_cycle.py",
    "TASAssignmentsEncodingByHostnamePrefix": "model/test_encoding.py",
    "TASValidateWorkloadSliceSize": "webhook/reviews/test_object_reviews.py",
    "TASCacheNodeMatchResults": "placement/topology/test_node_eligibility.py",
    "TASCacheTopologyTree": "placement/topology/test_tree.py",
    "TASCachingRemainingResources": "state/test_ledger.py",
    "ReclaimablePods": "reconciler/jobs/test_reclaimable.py",
    "TASFailedNodeReplacement": "queueing/cycle/test_lost_nodes.py",
    "TASFailedNodeReplacementFailFast": "queueing/cycle/test_lost_nodes.py",
    "PartialAdmission": "queueing/ordering/test_partial_admission.py",
    "TASReplaceNodeOnPodTermination": _OF_NODES,
    "TASReplaceNodeOnNodeTaints": _OF_NODES,
    "TASReplaceNodeDueToNotReadyOverFixedTime": _OF_NODES,
    "ElasticJobsViaWorkloadSlices": "jobs/test_elastic.py",
    "ElasticJobsViaWorkloadSlicesWithTAS": "queueing/cycle/test_growth.py",
    "LocalQueueMetrics": "reconciler/workloads/test_local_queue_metrics.py",
    "TASNodeFeasibilityForAllLevels": "placement/topology/test_tree.py",
    "TASReplaceMultipleFailedNodes": "queueing/cycle/test_lost_nodes.py",
    "WorkloadLevelWaitForPodsReady": "reconciler/workloads/test_pods_ready_timers.py",
    "WaitForPodsReadyMaxNotReady": "reconciler/workloads/test_pods_ready_timers.py",
    "TASRejectFalseUnconstrainedTopology": "webhook/reviews/test_gated_rules.py",
    "TopologyAwareWorkloadScheduling": "webhook/reviews/test_group_reviews.py",
    "WorkloadBasicPolicyDesiredCount": "podgroups/test_acting.py",
    "KueueDRAIntegration": "reconciler/observe/test_counted_devices.py",
    "KueueDRADeviceFeasibility": "reconciler/observe/test_devices_of_nodes.py",
}
"""The file of tests that shows most of what a gate switches, or of what topogate always does in its place."""


_LIVES, _BOTH = "simulation", "simulation, vectors"
PLAYED: Mapping[str, str] = {
    "TASPartialSlices": _BOTH,
    "TASTopologySpreading": _BOTH,
    "TASGroupedPodSetSlicing": _BOTH,
    "TASReplaceMultipleFailedNodes": _BOTH,
    "WorkloadLevelWaitForPodsReady": _BOTH,
    "TASRejectFalseUnconstrainedTopology": _BOTH,
    "WaitForPodsReadyMaxNotReady": _LIVES,
    "KueueDRAIntegration": _LIVES,
    "KueueDRADeviceFeasibility": _LIVES,
    "ElasticJobsViaWorkloadSlicesWithTAS": _LIVES,
}
"""Where a gate that is off by default, or has no effect without a setting, is on in a share of the seeds of the simulation, or in all
measured vectors."""


def list_rows() -> Iterator[tuple[str, ...]]:
    """Yields the cells of one row per gate of `GATES`, in its order, as `HEAD` names them. Raises KeyError for a gate without tests."""
    for name, gate in GATES.items():
        yield (
            f"`{name}`",
            str(gate.default).lower(),
            _show_default(gate),
            gate.stage.value,
            gate.effect.value,
            f"`{TESTS[name]}`",
            PLAYED.get(name) or ("all" if gate.default else "-"),
        )


def _show_default(gate: Gate) -> str:
    """The default that Kueue has, where it has the gate and it was seen."""
    match gate.stage:
        case Stage.OWN | Stage.REMOVED:
            return "-"
        case Stage.UNKNOWN:
            return "not known"
        case _:
            return str(gate.default if gate.kueue_default is None else gate.kueue_default).lower()
