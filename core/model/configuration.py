"""The content of a configuration file as values: `core.api.files.configuration_file` reads it, the reconciler uses it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from core.model.node_health_rules import HealthRules
from core.model.own_pods_ready import MOST_READY_S
from core.model.plugin_choice import GroupPluginRules
from core.model.pods_ready_rules import PodsReadyRules


@dataclass(frozen=True, slots=True)
class SecondPass:
    """When a workload that waits for its place after its admission checks is tried again, in seconds.

    The first pause is `base_delay_s`, each next one twice as long; after `timeout_s` the workload is evicted (rule i
    of docs/decisions/0004).
    """

    base_delay_s: float = 10.0
    timeout_s: float = 300.0

    def pause_s(self, attempt: int) -> float | None:
        """Returns the pause (s) after the `attempt`th failed attempt (from 1): `base_delay_s`, then twice the one before. None where all
        pauses up to the end of this one come to `timeout_s` or more: the workload is evicted then."""
        pause = self.base_delay_s * 2.0 ** (attempt - 1)
        return pause if 2 * pause - self.base_delay_s < self.timeout_s else None

    def compute_wait_s(self, waited_s: float) -> float | None:
        """Returns the seconds, above 0, until the next attempt; `waited_s` have passed since the first. None where no further one is due
        before `timeout_s`, at which the workload is evicted.

        It depends on time alone, so that a restarted process has the same times.
        """
        attempt, at = 0, 0.0
        while at <= waited_s:
            attempt += 1
            pause = self.pause_s(attempt)
            if pause is None:
                return None
            at += pause
        return at - waited_s


class PreemptionStrategy(Enum):
    """By which comparison of shares a queue may take from another. Values are those of `fairSharing.preemptionStrategies`."""

    FINAL_SHARE = "LessThanOrEqualToFinalShare"
    INITIAL_SHARE = "LessThanInitialShare"


@dataclass(frozen=True, slots=True)
class FairSharing:
    """Fair sharing is on; a later strategy is tried where those before it did not make room."""

    strategies: tuple[PreemptionStrategy, ...] = (PreemptionStrategy.FINAL_SHARE, PreemptionStrategy.INITIAL_SHARE)


@dataclass(frozen=True, slots=True)
class Transformation:
    """How requests for one resource count as others.

    Each whole unit of `input` (a core, a byte, a GPU) counts as `outputs_milli` thousandths of a whole unit of the others, and as itself
    too if `retains`. With `multiply_by` the amount that the workload asks for of that resource is a further factor.
    """

    input: str
    retains: bool = True
    outputs_milli: Mapping[str, int] = field(default_factory=dict)
    multiply_by: str | None = None


@dataclass(frozen=True, slots=True)
class ResourceRules:
    """Which resources quota does not look at, and which count as others; an input is transformed once at most. `counts_spares`: nodes
    that a workload asks to be kept free use quota, too. `device_classes`: the resource as which quota counts a device, by DeviceClass; if
    there are none, jobs that claim devices are refused."""

    excluded_prefixes: tuple[str, ...] = ()
    transformations: tuple[Transformation, ...] = ()
    counts_spares: bool = True
    device_classes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LeaseRules:
    """How the leader is elected; times in seconds. None: the file does not set it.

    Shorter times than component-base's 15, 10 and 2: a leader that was killed is to be followed within 15 s, including
    the time in which its successor checks the lease.
    """

    elects: bool | None = None
    namespace: str | None = None
    lease_duration_s: float = 10.0
    renew_deadline_s: float = 7.0
    retry_period_s: float = 1.5


@dataclass(frozen=True, slots=True)
class PodGroupRules:
    """How groups of pods are placed.

    If a group has a desired count, missing pods are waited for up to `desired_count_wait_s` seconds after the last one
    came. `counts_desired`: whether the desired count is used (its feature gate).
    """

    desired_count_wait_s: float = 5.0
    counts_desired: bool = True


@dataclass(frozen=True, slots=True)
class Address:
    """Where something is served; `host` None: on the address it would be served on anyway. A port of 0: nowhere."""

    host: str | None
    port: int


@dataclass(frozen=True, slots=True)
class WebhookRules:
    """Where reviews are answered, and the folder with `tls.crt` and `tls.key`. None: the file does not set it."""

    host: str | None = None
    port: int | None = None
    certificates: str | None = None


@dataclass(frozen=True, slots=True)
class Configuration:
    """A whole file. None: the file does not set it, and the default of the process applies.

    `gates` are those that `core.model.gates` knows. `warnings` describe what in the file has no effect, or another one
    than its author will expect.
    """

    pods_ready: PodsReadyRules | None = None
    most_ready_s: float | None = MOST_READY_S  # that a workload may ask for; None: no pods are waited for, whatever it says
    second_pass: SecondPass = SecondPass()
    node_health: HealthRules = field(default_factory=HealthRules)  # but for the gates
    fair_sharing: FairSharing | None = None
    resources: ResourceRules = ResourceRules()
    lease: LeaseRules = LeaseRules()
    pod_groups: PodGroupRules = PodGroupRules()  # but for the gate
    gates: Mapping[str, bool] = field(default_factory=dict)
    webhook: WebhookRules = WebhookRules()
    metrics: Address | None = None
    health: Address | None = None
    namespace: str | None = None
    copied_labels: tuple[str, ...] = ()  # keys of labels of a job that its Workload gets, too
    placement_profile: str | None = None
    reserves_daemon_sets: bool | None = None
    nominates_nodes: bool | None = None
    group_plugins: GroupPluginRules = field(default_factory=GroupPluginRules)
    warnings: tuple[str, ...] = ()
