"""What the reconciler does, as an administrator has chosen: one value for all of its parts."""

from dataclasses import dataclass, field

from core.model.configuration import FairSharing, PodGroupRules, ResourceRules, SecondPass
from core.model.gates import NO_GATES, PARTIAL_ADMISSION, ChosenGates
from core.model.node_health_rules import HealthRules
from core.model.own_pods_ready import OwnPodsReady
from core.model.plugin_choice import GroupPluginRules
from core.model.pods_ready_rules import PodsReadyRules
from core.placement.algorithms.profile import Profiles
from core.queueing.cycle.second_pass import REPLACES, NodeReplacement
from reconciler.settings import Settings


@dataclass(frozen=True, slots=True)
class Behaviour:
    """By default as without a configuration file. `sharing` is None where it is not fair, `pods_ready` where no pods are waited for."""

    profiles: Profiles
    gates: ChosenGates = NO_GATES
    reserve_daemon_sets: bool = True
    nominates_nodes: bool = False
    shrinks: bool = True
    resource_rules: ResourceRules | None = None
    pods_ready: PodsReadyRules | None = None
    second_pass: SecondPass = field(default_factory=SecondPass)
    replacement: NodeReplacement = REPLACES
    node_health: HealthRules = field(default_factory=HealthRules)
    sharing: FairSharing | None = None
    pod_groups: PodGroupRules = field(default_factory=PodGroupRules)
    group_plugins: GroupPluginRules = field(default_factory=GroupPluginRules)
    own_pods_ready: OwnPodsReady = field(default_factory=OwnPodsReady)
    copied_labels: tuple[str, ...] = ()

    @classmethod
    def read(cls, settings: Settings) -> "Behaviour":
        """Returns what of the settings controls decisions on workloads. Partial admission, and whether lost nodes are replaced, follow from
        the feature gates."""
        return cls(
            settings.profiles,
            settings.gates,
            settings.reserve_daemon_sets,
            settings.nominates_nodes,
            settings.gates.is_on(PARTIAL_ADMISSION),
            settings.resources,
            settings.pods_ready,
            settings.second_pass,
            NodeReplacement.from_gates(settings.gates, settings.node_health.leaving_taints),
            settings.node_health,
            settings.fair_sharing,
            settings.pod_groups,
            settings.group_plugins,
            settings.own_pods_ready,
            settings.copied_labels,
        )
