"""The peer's configuration file (`config.kueue.x-k8s.io`, kind Configuration) as it is written, with our own block `topogate`.

A key is one of three: used; known and ignored, which draws a warning (`Ignored` in its annotation, and why); or a mistake.
What is inside a key that is ignored as a whole is not looked at: it may be of a newer peer.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from core.api.configuration_fields import (
    EMPTY_IS_NONE,
    BindAddress,
    Count,
    Duration,
    Framework,
    Gates,
    GroupVersionKind,
    LabelKey,
    Namespace,
    ObjectName,
    Pause,
    Port,
    ResourceName,
    ResourcePrefix,
    Share,
    Thousandths,
    placement_gates,
)
from core.api.configuration_plugins import PodGroupPlugins
from core.api.mistakes import Mistake
from core.api.strict import Ignored, Strict, refuse, refuse_inside
from core.model.configuration import LeaseRules, PreemptionStrategy, SecondPass
from core.model.node_health import RequeueRules
from core.model.pods_ready import RequeueTime, Scope
from core.placement.profile import ContradictingProfile, profiles_from_gates

_UNSERVED = Ignored("topogate does not serve it yet")
_MANAGED = Ignored("the label topogate.dev/managed=true on a namespace says the same of its jobs")


class RequeuingStrategy(Strict):
    """What becomes of a workload that was evicted because its pods were not ready."""

    timestamp: Annotated[RequeueTime, Field(strict=False)] | None = None
    backoff_limit_count: Count | None = None
    backoff_base_seconds: Count | None = None
    backoff_max_seconds: Count | None = None


class WaitForPodsReady(Strict):
    """KEP-349. v1beta2 has no `enable`: there the block itself says so."""

    enable: bool | None = None
    timeout: Pause | None = None
    recovery_timeout: Duration | None = None
    block_admission: bool | None = None
    block_admission_scope: Annotated[Scope, Field(strict=False)] | None = None
    requeuing_strategy: RequeuingStrategy | None = None
    max_timeout_on_workload: Annotated[Any, _UNSERVED] = None

    @field_validator("block_admission_scope")
    @classmethod
    def _only_if_it_blocks(cls, scope: Scope | None, info: ValidationInfo) -> Scope | None:
        if scope is not None and info.data.get("block_admission", True) is not True:
            raise refuse("it needs blockAdmission: true beside it; set that or leave this out")
        return scope


class FairSharingBlock(Strict):
    """v1beta2 has no `enable`: there the block itself says so."""

    enable: bool | None = None
    preemption_strategies: list[Annotated[PreemptionStrategy, Field(strict=False)]] | None = None

    @field_validator("preemption_strategies")
    @classmethod
    def _each_once(cls, given: list[PreemptionStrategy] | None) -> list[PreemptionStrategy] | None:
        twice = [index for index, one in enumerate(given or ()) if one in (given or ())[:index]]
        if twice and given:
            raise refuse_inside(Mistake(f"[{index}]", f"{given[index].value} is given twice; leave one out") for index in twice)
        return given


class TransformationEntry(Strict):
    """Requests for one resource count as others."""

    input: ResourceName
    strategy: Literal["Retain", "Replace"] | None = None
    multiply_by: Annotated[ResourceName | None, EMPTY_IS_NONE] = None
    outputs: dict[ResourceName, Thousandths] | None = None


class Resources(Strict):
    """What quota looks at."""

    exclude_resource_prefixes: list[ResourcePrefix] | None = None
    transformations: list[TransformationEntry] | None = None
    device_class_mappings: Annotated[Any, _UNSERVED] = None
    quota_check_strategy: Annotated[Any, _UNSERVED] = None

    @field_validator("transformations")
    @classmethod
    def _inputs_once(cls, given: list[TransformationEntry] | None) -> list[TransformationEntry] | None:
        inputs = [one.input for one in given or ()]
        twice = [index for index, name in enumerate(inputs) if name in inputs[:index]]
        if twice:
            raise refuse_inside(Mistake(f"[{index}].input", f"{inputs[index]} is transformed already; leave one out") for index in twice)
        return given


class IntegrationsBlock(Strict):
    """Which kinds are queued."""

    frameworks: Annotated[list[Framework] | None, _UNSERVED] = None
    external_frameworks: Annotated[
        list[GroupVersionKind] | None,
        _UNSERVED,
    ] = None
    label_keys_to_copy: Annotated[list[LabelKey] | None, _UNSERVED] = None
    pod_options: Annotated[Any, Ignored("it is v1beta1's, and no pod is queued that does not ask for it")] = None


class LeaderElection(Strict):
    """component-base's LeaderElectionConfiguration."""

    leader_elect: bool | None = None
    resource_namespace: Namespace = None
    resource_name: Annotated[ObjectName, _UNSERVED] = None
    resource_lock: Annotated[str | None, Ignored("it is always a Lease")] = None
    retry_period: Pause | None = None
    renew_deadline: Pause | None = None
    lease_duration: Pause | None = Field(None, validate_default=True)

    @field_validator("lease_duration")
    @classmethod
    def _longer_than_renewing(cls, duration: float | None, info: ValidationInfo) -> float | None:
        usual = LeaseRules()
        if "renew_deadline" in info.data:
            held, renewed = duration or usual.lease_duration_s, info.data["renew_deadline"] or usual.renew_deadline_s
            if held <= renewed:
                raise refuse_inside([Mistake("", f"{held:g} s are not accepted; more than renewDeadline ({renewed:g} s) is expected")])
        return duration


class LabelSelectorExpression(Strict):
    """As in every label selector."""

    key: LabelKey
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: list[str] | None = None


class Selector(Strict):
    """A label selector."""

    match_labels: dict[LabelKey, str] | None = None
    match_expressions: list[LabelSelectorExpression] | None = None


class ClientConnection(Strict):
    """The client's own rate limit, in requests a second."""

    qps: float | None = None
    burst: Annotated[int, Field(ge=-(2**31), le=2**31 - 1)] | None = None


class Controller(Strict):
    """How many objects of a kind are reconciled at once."""

    group_kind_concurrency: dict[str, Count] | None = None
    cache_sync_timeout: Any = None


class WebhookBlock(Strict):
    """Where the webhook serves, and with which certificate."""

    port: Port | None = None
    host: Annotated[str | None, EMPTY_IS_NONE] = None
    cert_dir: Annotated[str | None, EMPTY_IS_NONE] = None


class MetricsBlock(Strict):
    """Where metrics are scraped, of both processes."""

    bind_address: BindAddress = None
    enable_cluster_queue_resources: Annotated[bool | None, Ignored("quota and usage of queues are always told")] = None
    custom_labels: Annotated[Any, _UNSERVED] = None
    local_queue_metrics: Annotated[Any, _UNSERVED] = None


class HealthBlock(Strict):
    """Where the reconciler answers probes."""

    health_probe_bind_address: BindAddress = None
    readiness_endpoint_name: Annotated[str | None, Ignored("it is /readyz")] = None
    liveness_endpoint_name: Annotated[str | None, Ignored("it is /healthz")] = None


class SecondPassBlock(Strict):
    """When a delayed placement is tried again."""

    base_delay: Pause | None = None
    timeout: Pause | None = Field(None, validate_default=True)

    @field_validator("timeout")
    @classmethod
    def _one_pause_at_least(cls, timeout: float | None, info: ValidationInfo) -> float | None:
        usual = SecondPass()
        if "base_delay" in info.data:
            whole, pause = timeout or usual.timeout_s, info.data["base_delay"] or usual.base_delay_s
            if whole < pause:
                raise refuse_inside([Mistake("", f"{whole:g} s are not accepted; baseDelay ({pause:g} s) or more is expected")])
        return timeout


class StormBlock(Strict):
    """When so many nodes are away at once that none is replaced."""

    share: Share | None = None
    min_nodes: Count | None = None
    within: Pause | None = None
    longest: Pause | None = None


class NodeRequeueBlock(Strict):
    """How long a workload waits that loses its nodes time after time."""

    base: Duration | None = None
    limit: Duration | None = Field(None, validate_default=True)
    forget_after: Duration | None = None

    @field_validator("limit")
    @classmethod
    def _one_pause_at_least(cls, limit: float | None, info: ValidationInfo) -> float | None:
        usual = RequeueRules()
        if "base" not in info.data:  # it is wrong itself
            return limit
        longest = usual.limit_s if limit is None else limit
        first = usual.base_s if info.data["base"] is None else info.data["base"]
        if longest < first:
            raise refuse_inside([Mistake("", f"{longest:g} s are not accepted; base ({first:g} s) or more is expected")])
        return limit


class SparesBlock(Strict):
    """What becomes of nodes that are kept free for workloads."""

    count_in_quota: bool | None = None


class NodeReplacementBlock(Strict):
    """When a node counts as lost, and when a workload has lost too many."""

    not_ready_delay: Pause | None = None
    unschedulable_delay: Pause | None = None
    max_nodes: Count | None = None
    max_share: Share | None = None
    leaving_taints: list[LabelKey] | None = None
    requeue: NodeRequeueBlock | None = None
    storm: StormBlock | None = None
    spares: SparesBlock | None = None


class PodGroupsBlock(Strict):
    """How groups of pods without a queue are placed."""

    desired_count_wait: Pause | None = None
    plugins: PodGroupPlugins | None = None


class Topogate(Strict):
    """What only topogate has."""

    pod_groups: PodGroupsBlock | None = None
    node_replacement: NodeReplacementBlock | None = None
    second_pass: SecondPassBlock | None = None
    placement_profile: Literal["kep", "compact", "best-fit", "least-free", "balanced"] | None = None
    reserve_daemon_sets: bool | None = None
    nominate_nodes: bool | None = None


class ConfigurationFile(Strict):
    """The whole file; both versions of the peer's, which differ in what has been added and taken away."""

    api_version: Literal["config.kueue.x-k8s.io/v1beta2", "config.kueue.x-k8s.io/v1beta1"]
    kind: Literal["Configuration"]
    namespace: Namespace = None
    wait_for_pods_ready: WaitForPodsReady | None = None
    feature_gates: Gates | None = None
    fair_sharing: FairSharingBlock | None = None
    resources: Resources | None = None
    integrations: IntegrationsBlock | None = None
    leader_election: LeaderElection | None = None
    webhook: WebhookBlock | None = None
    metrics: MetricsBlock | None = None
    health: HealthBlock | None = None
    topogate: Topogate | None = None

    client_connection: Annotated[ClientConnection | None, Ignored("the API server says when it has enough (429, Retry-After)")] = None
    controller: Annotated[Controller | None, Ignored("how much is done at once is not set by hand")] = None
    manage_jobs_without_queue_name: Annotated[bool | None, _MANAGED] = None
    managed_jobs_namespace_selector: Annotated[Selector | None, _MANAGED] = None
    internal_cert_management: Annotated[Any, Ignored("the webhook's flags name its certificate")] = None
    tls: Annotated[Any, Ignored("the webhook is a process of its own, with flags")] = None
    pprof_bind_address: Annotated[Any, Ignored("there is no such profiler in Python")] = None
    multi_kueue: Annotated[Any, _UNSERVED] = None
    admission_fair_sharing: Annotated[Any, _UNSERVED] = None
    object_retention_policies: Annotated[Any, _UNSERVED] = None
    queue_visibility: Annotated[Any, Ignored("it is v1beta1's, and gone from the peer")] = None
    visibility: Annotated[Any, _UNSERVED] = None
    visibility_server: Annotated[Any, _UNSERVED] = None

    @field_validator("topogate")
    @classmethod
    def _agrees_with_the_gates(cls, ours: Topogate | None, info: ValidationInfo) -> Topogate | None:
        if ours and ours.placement_profile:
            try:
                profiles_from_gates(placement_gates(info.data.get("feature_gates") or {}), ours.placement_profile)
            except ContradictingProfile as error:
                raise refuse_inside([Mistake("placementProfile", str(error))]) from error
        return ours
