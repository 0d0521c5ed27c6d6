"""Feature gates that topogate serves: with Kueue's names and defaults (rule a of docs/decisions/0004), but for topogate's own and
`TASPartialSlices` and `TASGroupedPodSetSlicing`, which are on in Kueue and off here (rules d and g).

A gate has one of two effects here. Both values of a gate that switches are served. What topogate always does stays on: `false` is accepted
with a warning, so that a configuration file of Kueue loads unchanged.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class Stage(Enum):
    """The stage of a gate in Kueue; DEPRECATED and REMOVED give a warning."""

    ALPHA = "alpha"
    BETA = "beta"
    DEPRECATED = "deprecated"
    REMOVED = "removed"
    UNKNOWN = "not known"  # seen in the source of a release, without its stage and default
    OWN = "alpha, topogate's own"  # no gate of Kueue


class Effect(Enum):
    """What a gate does here."""

    SWITCHES = "both values are served"
    ALWAYS = "topogate always does this"


class Gate(NamedTuple):
    """A gate's default, its stage in Kueue and its effect here. The default is Kueue's; where the gate is removed, not one of Kueue or not
    known, it is on for what topogate always does, else off."""

    default: bool
    stage: Stage
    effect: Effect
    is_newer: bool = False  # in Kueue 0.20 and not in 0.19
    kueue_default: bool | None = None  # where Kueue has another


BALANCED_PLACEMENT = "TASBalancedPlacement"
RESPECT_PREFERRED_AFFINITY = "TASRespectNodeAffinityPreferred"
PROFILE_MIXED = "TASProfileMixed"
PROFILE_BEST_FIT = "TASProfileBestFit"
PROFILE_LEAST_FREE = "TASProfileLeastFreeCapacity"
PROFILE_MOST_FREE = "TASProfileMostFreeCapacity"
NODE_REPLACEMENT = "TASFailedNodeReplacement"
REPLACEMENT_FAILS_FAST = "TASFailedNodeReplacementFailFast"
REPLACE_ON_POD_TERMINATION = "TASReplaceNodeOnPodTermination"
REPLACE_ON_TAINTS = "TASReplaceNodeOnNodeTaints"
REPLACE_AFTER_FIXED_TIME = "TASReplaceNodeDueToNotReadyOverFixedTime"
PARTIAL_ADMISSION = "PartialAdmission"
ELASTIC_JOBS = "ElasticJobsViaWorkloadSlices"
ELASTIC_JOBS_WITH_TOPOLOGY = "ElasticJobsViaWorkloadSlicesWithTAS"
RECLAIMABLE_PODS = "ReclaimablePods"
LOCAL_QUEUE_METRICS = "LocalQueueMetrics"
POD_GROUPS = "TopologyAwareWorkloadScheduling"  # as Kubernetes calls its own
PARTIAL_SLICES = "TASPartialSlices"
SPREADING = "TASTopologySpreading"
PARTIAL_SLICES_HINT = f"with feature gate {PARTIAL_SLICES} the last slice may have fewer pods"
GROUPED_SLICES = "TASGroupedPodSetSlicing"
DESIRED_COUNT = "WorkloadBasicPolicyDesiredCount"  # KEP-5732, Basic Policy Extension
REPLACE_MULTIPLE = "TASReplaceMultipleFailedNodes"
WORKLOAD_PODS_READY = "WorkloadLevelWaitForPodsReady"
MAX_NOT_READY = "WaitForPodsReadyMaxNotReady"
REJECT_FALSE_UNCONSTRAINED = "TASRejectFalseUnconstrainedTopology"
DEVICES = "KueueDRAIntegration"
DEVICES_ON_NODES = "KueueDRADeviceFeasibility"
PROFILE_GATES = (PROFILE_MIXED, PROFILE_BEST_FIT, PROFILE_LEAST_FREE, PROFILE_MOST_FREE)  # at most one of them is on

GATES: Mapping[str, Gate] = {
    BALANCED_PLACEMENT: Gate(False, Stage.ALPHA, Effect.SWITCHES),
    RESPECT_PREFERRED_AFFINITY: Gate(False, Stage.ALPHA, Effect.SWITCHES),
    PROFILE_MIXED: Gate(True, Stage.DEPRECATED, Effect.SWITCHES),
    PROFILE_BEST_FIT: Gate(False, Stage.REMOVED, Effect.SWITCHES),
    PROFILE_LEAST_FREE: Gate(False, Stage.REMOVED, Effect.SWITCHES),
    PROFILE_MOST_FREE: Gate(False, Stage.REMOVED, Effect.SWITCHES),
    "TopologyAwareScheduling": Gate(True, Stage.BETA, Effect.ALWAYS),
    "TASMultiLayerTopology": Gate(True, Stage.BETA, Effect.ALWAYS),
    "TASHandleOverlappingFlavors": Gate(True, Stage.BETA, Effect.ALWAYS),
    "TASRecomputeAssignmentWithinSchedulingCycle": Gate(True, Stage.BETA, Effect.ALWAYS),
    "TASAssignmentsEncodingByHostnamePrefix": Gate(True, Stage.BETA, Effect.ALWAYS),
    "TASValidateWorkloadSliceSize": Gate(True, Stage.BETA, Effect.ALWAYS),
    "TASCacheNodeMatchResults": Gate(True, Stage.BETA, Effect.ALWAYS),
    "TASCacheTopologyTree": Gate(True, Stage.BETA, Effect.ALWAYS),
    "TASCachingRemainingResources": Gate(True, Stage.BETA, Effect.ALWAYS),
    PARTIAL_SLICES: Gate(False, Stage.BETA, Effect.SWITCHES, is_newer=True, kueue_default=True),
    SPREADING: Gate(False, Stage.ALPHA, Effect.SWITCHES, is_newer=True),
    GROUPED_SLICES: Gate(False, Stage.BETA, Effect.SWITCHES, is_newer=True, kueue_default=True),
    "TASLeaderPodSetFeasibility": Gate(True, Stage.UNKNOWN, Effect.ALWAYS, is_newer=True),
    RECLAIMABLE_PODS: Gate(True, Stage.BETA, Effect.SWITCHES),
    NODE_REPLACEMENT: Gate(True, Stage.BETA, Effect.SWITCHES),
    REPLACEMENT_FAILS_FAST: Gate(True, Stage.BETA, Effect.SWITCHES),
    PARTIAL_ADMISSION: Gate(True, Stage.BETA, Effect.SWITCHES),
    REPLACE_ON_POD_TERMINATION: Gate(True, Stage.BETA, Effect.SWITCHES),
    REPLACE_ON_TAINTS: Gate(True, Stage.BETA, Effect.SWITCHES),
    REPLACE_AFTER_FIXED_TIME: Gate(False, Stage.DEPRECATED, Effect.SWITCHES),
    ELASTIC_JOBS: Gate(True, Stage.BETA, Effect.SWITCHES),
    ELASTIC_JOBS_WITH_TOPOLOGY: Gate(False, Stage.ALPHA, Effect.SWITCHES),
    LOCAL_QUEUE_METRICS: Gate(True, Stage.BETA, Effect.SWITCHES),
    "TASNodeFeasibilityForAllLevels": Gate(True, Stage.BETA, Effect.ALWAYS, is_newer=True),
    REPLACE_MULTIPLE: Gate(False, Stage.ALPHA, Effect.SWITCHES, is_newer=True),
    WORKLOAD_PODS_READY: Gate(False, Stage.ALPHA, Effect.SWITCHES, is_newer=True),
    MAX_NOT_READY: Gate(False, Stage.ALPHA, Effect.SWITCHES, is_newer=True),
    REJECT_FALSE_UNCONSTRAINED: Gate(False, Stage.UNKNOWN, Effect.SWITCHES, is_newer=True),
    DEVICES: Gate(True, Stage.BETA, Effect.SWITCHES),
    DEVICES_ON_NODES: Gate(False, Stage.ALPHA, Effect.SWITCHES, is_newer=True),
    POD_GROUPS: Gate(False, Stage.OWN, Effect.SWITCHES),
    DESIRED_COUNT: Gate(False, Stage.OWN, Effect.SWITCHES),
}


class BadGates(ValueError):
    """Gates that cannot be set so; the message names them, and what would be accepted."""


@dataclass(frozen=True, slots=True)
class ChosenGates:
    """What was set, and what its author should be warned of; whatever was not set stands at its default."""

    values: Mapping[str, bool]
    warnings: tuple[str, ...] = ()

    def is_on(self, name: str) -> bool:
        """Returns the value that was set for a gate of `GATES`, else its default. Raises KeyError for a name that is not in `GATES`, set
        or not."""
        return self.values.get(name, GATES[name].default)


NO_GATES = ChosenGates({})
OF_THE_WEBHOOK = frozenset(
    {DEVICES, GROUPED_SLICES, PARTIAL_SLICES, POD_GROUPS, REJECT_FALSE_UNCONSTRAINED, REPLACE_MULTIPLE, SPREADING, WORKLOAD_PODS_READY},
)
"""Gates that change something in the webhook, too."""


def read_gates(texts: Iterable[str]) -> ChosenGates:
    """Returns gates as components of Kubernetes take them, `Name=true,Other=false`; the last value of a name holds, and empty parts are
    ignored. Only what was set is in `values`. A `false` for what topogate always does is left out, with a warning; deprecated and removed
    gates have a warning, too.

    Raises BadGates where a name is unknown, a value is missing or no boolean, two of `PROFILE_GATES` are on, or DEVICES_ON_NODES without
    DEVICES.
    """
    values = dict(_read(part.strip()) for text in texts for part in text.split(",") if part.strip())
    on = [name for name in PROFILE_GATES if values.get(name)]
    if len(on) > 1:
        raise BadGates(f"{' and '.join(on)} exclude each other: one of them at most can be true")
    if values.get(DEVICES_ON_NODES) and not values.get(DEVICES, GATES[DEVICES].default):
        raise BadGates(f"{DEVICES_ON_NODES}=true needs {DEVICES}=true")
    old = (name for name in values if GATES[name].stage in (Stage.DEPRECATED, Stage.REMOVED))
    stays_on = [name for name, value in values.items() if not value and GATES[name].effect is Effect.ALWAYS]
    return ChosenGates(
        {name: value for name, value in values.items() if name not in stays_on},
        (
            *(f"feature gate {name} is {GATES[name].stage.value}; do not rely on it" for name in old),
            *(f"feature gate {name}=false has no effect: {name} stays on, since {Effect.ALWAYS.value}" for name in stays_on),
        ),
    )


def _read(part: str) -> tuple[str, bool]:
    name, _, text = part.partition("=")
    gate = GATES.get(name)
    if gate is None:
        raise BadGates(f"unknown feature gate {name!r}; known are {', '.join(sorted(GATES))}")
    # What Kubernetes takes for a boolean.
    if text not in ("1", "t", "T", "true", "True", "TRUE", "0", "f", "F", "false", "False", "FALSE"):
        raise BadGates(f"feature gate {name}={text}: true or false is expected")
    return name, text[0] in "1tT"
