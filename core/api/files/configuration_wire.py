"""Kueue's configuration file (`config.kueue.x-k8s.io`, kind Configuration) as it is written, with our own block
`topogate`.

A key is one of three: used; known and ignored, which gives a warning (`Ignored` in its annotation, and why); or a
mistake. The content of a key that is ignored as a whole is not checked: it may be of a newer Kueue.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from core.api.files.configuration_fields import (
    EMPTY_IS_NONE,
    BindAddress,
    Count,
    DeviceClassName,
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
    filter_placement_gates,
)
from core.api.files.configuration_plugins import PodGroupPlugins
from core.api.files.mistakes import Mistake
from core.api.files.strict import Ignored, Says, Strict, refuse, refuse_inside
from core.model.configuration import FairSharing, LeaseRules, PodGroupRules, PreemptionStrategy, SecondPass
from core.model.duration import show_duration
from core.model.node_health_rules import HealthRules, RequeueRules
from core.model.own_pods_ready import MOST_READY_S
from core.model.pods_ready_rules import PodsReadyRules, RequeueTime, Scope
from core.placement.algorithms.profile import ContradictingProfile, read_profiles

_UNSERVED = Ignored("topogate does not serve it yet")
_OF_VISIBILITY = Ignored("the flag --visibility-port of the reconciler says where the visibility API listens")
_READY, _HEALTH = PodsReadyRules(), HealthRules()  # the defaults
_MANAGED = Ignored("the label topogate.dev/managed=true on a namespace says the same of its jobs")


class RequeuingStrategy(Strict):
    """What becomes of a workload that was evicted because its pods were not ready."""

    timestamp: Annotated[
        Annotated[RequeueTime, Field(strict=False)] | None,
        Says("what an evicted workload queues up by, `Eviction` or `Creation`", _READY.requeue_time.value),
    ] = None
    backoff_limit_count: Annotated[Count | None, Says("after how many evictions a workload is deactivated", "never")] = None
    backoff_base_seconds: Annotated[Count | None, Says("the first pause, doubled each time", f"{_READY.backoff_base_s:g}")] = None
    backoff_max_seconds: Annotated[Count | None, Says("the longest pause", f"{_READY.backoff_max_s:g}")] = None


class WaitForPodsReady(Strict):
    """KEP-349. v1beta2 has no `enable`: there the block itself says so."""

    enable: Annotated[
        bool | None,
        Says(
            "whether pods are waited for (KEP-349); v1beta2 has no such key: there the block switches it on, "
            "unless `enable: false` stands in it",
            "v1beta1: false",
        ),
    ] = None
    timeout: Annotated[Pause | None, Says("how long pods may take to be ready", show_duration(_READY.timeout_s))] = None
    recovery_timeout: Annotated[Duration | None, Says("how long pods that had been ready may not be; `0s`: for ever", "for ever")] = None
    block_admission: Annotated[
        bool | None, Says("one workload is admitted at a time, until its pods are ready", "v1beta1: true; v1beta2: false")
    ] = None
    block_admission_scope: Annotated[
        Annotated[Scope, Field(strict=False)] | None,
        Says("ours: among which workloads, `Cluster`, `Cohort` or `ClusterQueue`; only with `blockAdmission: true`", Scope.CLUSTER.value),
    ] = None
    requeuing_strategy: RequeuingStrategy | None = None
    max_timeout_on_workload: Annotated[
        Pause | None,
        Says(
            "the longest time that a workload may ask for by `kueue.x-k8s.io/wait-for-pods-ready` (gate `WorkloadLevelWaitForPodsReady`)",
            show_duration(MOST_READY_S),
        ),
    ] = None

    @field_validator("block_admission_scope")
    @classmethod
    def _validate_scope(cls, scope: Scope | None, info: ValidationInfo) -> Scope | None:
        if scope is not None and info.data.get("block_admission", True) is not True:
            raise refuse("it needs blockAdmission: true beside it; set that or leave this out")
        return scope


class FairSharingBlock(Strict):
    """v1beta2 has no `enable`: there the block itself says so."""

    enable: Annotated[
        bool | None,
        Says("whether quota is divided by shares ([queues.md](queues.md)); v1beta2 as for `waitForPodsReady`", "v1beta1: false"),
    ] = None
    preemption_strategies: Annotated[
        list[Annotated[PreemptionStrategy, Field(strict=False)]] | None,
        Says(
            "by which comparisons of shares a queue may take from another, in the order tried",
            ", ".join(one.value for one in FairSharing().strategies),
        ),
    ] = None

    @field_validator("preemption_strategies")
    @classmethod
    def _validate_unique(cls, given: list[PreemptionStrategy] | None) -> list[PreemptionStrategy] | None:
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


MOST_MAPPINGS, MOST_CLASSES = 16, 8
"""Of `deviceClassMappings`, and DeviceClasses of each, as in Kueue."""
_MISLEADING = ("cpu", "pods")  # quota counts these in thousandths, and by itself


class DeviceClassMapping(Strict):
    """Devices of some classes count as one resource."""

    name: ResourceName
    device_class_names: Annotated[list[DeviceClassName], Field(min_length=1, max_length=MOST_CLASSES)]
    sources: Annotated[
        Any,
        Ignored("quota counts devices, not their counters and capacity: its classes are left out, and jobs that claim such devices wait"),
    ] = None

    @field_validator("name")
    @classmethod
    def _validate_name(cls, name: str) -> str:
        if name in _MISLEADING:
            raise refuse("devices need a resource of their own, such as example.com/gpus")
        return name


class Resources(Strict):
    """What quota looks at."""

    exclude_resource_prefixes: Annotated[
        list[ResourcePrefix] | None, Says("quota does not count resources with a name that begins like this", "none")
    ] = None
    transformations: Annotated[
        list[TransformationEntry] | None,
        Says(
            "how requests for one resource (`input`) count as others for quota (`outputs`, times "
            "`multiplyBy`), beside it (`strategy: Retain`) or in its place (`Replace`). "
            "A flavor for what only quota counts needs no topology: pods are placed for what they really ask for",
            "none",
        ),
    ] = None
    device_class_mappings: Annotated[
        Annotated[list[DeviceClassMapping], Field(max_length=MOST_MAPPINGS)] | None,
        Says(
            "as which resource (`name`) quota counts the devices of some DeviceClasses (`deviceClassNames`) that pods claim "
            "([queues.md](queues.md#devices-that-pods-claim)); at most "
            f"{MOST_MAPPINGS} mappings with {MOST_CLASSES} classes each",
            "none: jobs with `resourceClaims` are refused",
        ),
    ] = None
    quota_check_strategy: Annotated[Any, _UNSERVED] = None

    @field_validator("device_class_mappings")
    @classmethod
    def _validate_unique_mappings(cls, given: list[DeviceClassMapping] | None) -> list[DeviceClassMapping] | None:
        mistakes, names, classes = list[Mistake](), set[str](), dict[str, str]()
        for index, one in enumerate(given or ()):
            if one.name in names:
                mistakes.append(Mistake(f"[{index}].name", f"{one.name} has a mapping already; put all its classes there"))
            names.add(one.name)
            for at, device_class in enumerate(one.device_class_names if one.sources is None else ()):
                if device_class in classes:
                    accepted = f"{device_class} counts as {classes[device_class]} already; leave one out"
                    mistakes.append(Mistake(f"[{index}].deviceClassNames[{at}]", accepted))
                classes.setdefault(device_class, one.name)
        if mistakes:
            raise refuse_inside(mistakes)
        return given

    @field_validator("transformations")
    @classmethod
    def _validate_unique_inputs(cls, given: list[TransformationEntry] | None) -> list[TransformationEntry] | None:
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
    label_keys_to_copy: Annotated[
        list[LabelKey] | None,
        Says(
            "labels of a job that its Workload gets, too, when it is made ([users.md](users.md#spread-over-domains)); "
            "pods of a group must not differ in them",
            "none",
        ),
    ] = None
    pod_options: Annotated[Any, Ignored("it is v1beta1's, and no pod is queued that does not ask for it")] = None


class LeaderElectionSection(Strict):
    """component-base's LeaderElectionConfiguration."""

    leader_elect: Annotated[bool | None, Says("whether a leader is elected", "true")] = None
    resource_namespace: Annotated[
        Namespace,
        Says("where the Lease is, and the ConfigMap that pauses ([pausing.md](pausing.md)); stronger than `namespace`", "topogate-system"),
    ] = None
    resource_name: Annotated[ObjectName, _UNSERVED] = None
    resource_lock: Annotated[str | None, Ignored("it is always a Lease")] = None
    retry_period: Annotated[
        Pause | None, Says("how often the lease is renewed, or tried for", show_duration(LeaseRules().retry_period_s))
    ] = None
    renew_deadline: Annotated[
        Pause | None,
        Says(
            "a leader that cannot renew its lease for so long ends; shorter than the lease, so that there are never two",
            show_duration(LeaseRules().renew_deadline_s),
        ),
    ] = None
    lease_duration: Annotated[
        Pause | None,
        Says(
            "after how long without a sign of the leader another takes over; both follow all objects meanwhile, so that it decides at once",
            show_duration(LeaseRules().lease_duration_s),
        ),
    ] = Field(None, validate_default=True)

    @field_validator("lease_duration")
    @classmethod
    def _validate_longer_than_renewing(cls, duration: float | None, info: ValidationInfo) -> float | None:
        usual = LeaseRules()
        if "renew_deadline" in info.data:
            held, renewed = duration or usual.lease_duration_s, info.data["renew_deadline"] or usual.renew_deadline_s
            if held <= renewed:
                raise refuse_inside([Mistake("", f"{held:g}s is too short: must exceed renewDeadline ({renewed:g}s)")])
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


class ControllerSection(Strict):
    """How many objects of a kind are reconciled at once."""

    group_kind_concurrency: dict[str, Count] | None = None
    cache_sync_timeout: Any = None


class WebhookBlock(Strict):
    """Where the webhook serves, and with which certificate."""

    port: Annotated[
        Port | None, Says("where the webhook listens; flag `--port`. The reconciler passes over this block with a warning", "9443")
    ] = None
    host: Annotated[Annotated[str | None, EMPTY_IS_NONE], Says("likewise; flag `--host`", "0.0.0.0")] = None
    cert_dir: Annotated[
        Annotated[str | None, EMPTY_IS_NONE],
        Says("the folder of its `tls.crt` and `tls.key`, where `--cert-mode` is `files`; flags `--cert-file` and `--key-file`", "none"),
    ] = None


class MetricsBlock(Strict):
    """Where metrics are scraped, of both processes."""

    bind_address: Annotated[
        BindAddress,
        Says(
            "where both processes serve metrics, by plain HTTP: `:8080`, `127.0.0.1:8080`, `[::1]:8080`; "
            '`"0"`: nowhere. Of the flags `--metrics-port` is stronger for the port, and `--health-address` '
            "(reconciler) or `--host` (webhook) for the address",
            ":8080",
        ),
    ] = None
    enable_cluster_queue_resources: Annotated[bool | None, Ignored("quota and usage of queues are always reported")] = None
    custom_labels: Annotated[Any, _UNSERVED] = None
    local_queue_metrics: Annotated[Any, _UNSERVED] = None


class HealthBlock(Strict):
    """Where the reconciler answers probes."""

    health_probe_bind_address: Annotated[
        BindAddress, Says("where the reconciler answers probes, likewise; flags `--health-port` and `--health-address`", ":8081")
    ] = None
    readiness_endpoint_name: Annotated[str | None, Ignored("it is /readyz")] = None
    liveness_endpoint_name: Annotated[str | None, Ignored("it is /healthz")] = None


class SecondPassBlock(Strict):
    """When a delayed placement is tried again."""

    base_delay: Annotated[
        Pause | None,
        Says(
            "the first pause before a placement that waits for admission checks is tried again; doubled each time",
            show_duration(SecondPass().base_delay_s),
        ),
    ] = None
    timeout: Annotated[Pause | None, Says("after which the workload is evicted", show_duration(SecondPass().timeout_s))] = Field(
        None, validate_default=True
    )

    @field_validator("timeout")
    @classmethod
    def _validate_one_pause(cls, timeout: float | None, info: ValidationInfo) -> float | None:
        usual = SecondPass()
        if "base_delay" in info.data:
            whole, pause = timeout or usual.timeout_s, info.data["base_delay"] or usual.base_delay_s
            if whole < pause:
                raise refuse_inside([Mistake("", f"{whole:g}s is too short: must be at least baseDelay ({pause:g}s)")])
        return timeout


class StormBlock(Strict):
    """When so many nodes are away at once that none is replaced."""

    share: Annotated[
        Share | None, Says("with so large a share of the nodes of a topology away there is a storm; 1: never", f"{_HEALTH.storm.share:g}")
    ] = None
    min_nodes: Annotated[Count | None, Says("and with so many of them at least", f"{_HEALTH.storm.min_nodes}")] = None
    within: Annotated[Pause | None, Says("which went within this time", show_duration(_HEALTH.storm.within_s))] = None
    longest: Annotated[Pause | None, Says("for how long there is a storm at most", show_duration(_HEALTH.storm.longest_s))] = None


class NodeRequeueBlock(Strict):
    """How long a workload waits that loses its nodes time after time."""

    base: Annotated[
        Duration | None,
        Says(
            "how long a workload waits that was evicted for lost nodes the second time in a row, doubled each time; `0s`: it never waits",
            show_duration(_HEALTH.requeue.base_s),
        ),
    ] = None
    limit: Annotated[Duration | None, Says("how long it waits at most", show_duration(_HEALTH.requeue.limit_s))] = Field(
        None, validate_default=True
    )
    forget_after: Annotated[
        Duration | None, Says("how long it runs until all is forgotten", show_duration(_HEALTH.requeue.forget_after_s))
    ] = None

    @field_validator("limit")
    @classmethod
    def _validate_one_pause(cls, limit: float | None, info: ValidationInfo) -> float | None:
        usual = RequeueRules()
        if "base" not in info.data:  # it is wrong itself
            return limit
        longest = usual.limit_s if limit is None else limit
        first = usual.base_s if info.data["base"] is None else info.data["base"]
        if longest < first:
            raise refuse_inside([Mistake("", f"{longest:g}s is too short: must be at least base ({first:g}s)")])
        return limit


class SparesBlock(Strict):
    """What becomes of nodes that are kept free for workloads."""

    count_in_quota: Annotated[bool | None, Says("whether nodes that are kept free for a workload use quota", "true")] = None


class NodeReplacementBlock(Strict):
    """When a node counts as lost, and when a workload has lost too many."""

    not_ready_delay: Annotated[
        Pause | None,
        Says(
            "with `TASReplaceNodeOnPodTermination` off, or `TASReplaceNodeDueToNotReadyOverFixedTime` on; how "
            "long a pod waits for a node that has left its flavor or topology",
            show_duration(_HEALTH.not_ready_delay_s),
        ),
    ] = None
    unschedulable_delay: Annotated[
        Pause | None,
        Says(
            "how long kube-scheduler may find that a pod does not fit where it was sent, alone or beside others of its workload",
            show_duration(_HEALTH.unschedulable_delay_s),
        ),
    ] = None
    max_nodes: Annotated[
        Count | None,
        Says(
            "a workload that has lost more nodes than this is evicted, and gets no other nodes one by one; "
            "the condition says by which limit ([nodes.md](nodes.md#settings))",
            "none",
        ),
    ] = None
    max_share: Annotated[
        Share | None, Says("the same with a share (0 to 1) of the nodes that it is assigned to ([nodes.md](nodes.md#settings))", "none")
    ] = None
    leaving_taints: Annotated[
        list[LabelKey] | None,
        Says(
            "keys of taints, of whatever effect, by which a node is announced to go: pods that are replaced "
            "get it only where there is no other",
            "those of the Cluster Autoscaler, Karpenter, GKE and cloud providers",
        ),
    ] = None
    requeue: NodeRequeueBlock | None = None
    storm: StormBlock | None = None
    spares: SparesBlock | None = None


class PodGroupsBlock(Strict):
    """How groups of pods without a queue are placed."""

    desired_count_wait: Annotated[
        Pause | None,
        Says(
            "how long pods of a PodGroup that says how many there will be are waited for, since the last one "
            "came ([podgroups.md](podgroups.md))",
            show_duration(PodGroupRules().desired_count_wait_s),
        ),
    ] = None
    plugins: PodGroupPlugins | None = None


class Topogate(Strict):
    """What only topogate has."""

    pod_groups: PodGroupsBlock | None = None
    node_replacement: NodeReplacementBlock | None = None
    second_pass: SecondPassBlock | None = None
    placement_profile: Annotated[
        Literal["kep", "compact", "best-fit", "least-free", "balanced"] | None,
        Says("`kep`, `compact`, `best-fit`, `least-free` or `balanced` ([placement.md](placement.md)); flag `--placement-profile`", "kep"),
    ] = None
    reserve_daemon_sets: Annotated[
        bool | None, Says("keep room for pods of DaemonSets that are not there yet; flag `--reserve-daemonsets`", "true")
    ] = None
    nominate_nodes: Annotated[bool | None, Says("keep each pod's slot until it is bound; flag `--nominate-nodes`", "false")] = None


class ConfigurationFile(Strict):
    """The whole file in both of Kueue's versions, which differ in the keys that were added and removed."""

    api_version: Literal["config.kueue.x-k8s.io/v1beta2", "config.kueue.x-k8s.io/v1beta1"]
    kind: Literal["Configuration"]
    namespace: Annotated[Namespace, Says("where the Lease is, and the ConfigMap that pauses", "topogate-system")] = None
    wait_for_pods_ready: WaitForPodsReady | None = None
    feature_gates: Annotated[
        Gates | None,
        Says(
            "by Kueue's names, as `--feature-gates`; a gate that switches nothing here is ignored. A gate for "
            "what topogate always does stays on: `false` draws a warning. `DisableWaitForPodsReady` is used. "
            "The webhook uses `TopologyAwareWorkloadScheduling` alone ([podgroups.md](podgroups.md))",
            "below",
        ),
    ] = None
    fair_sharing: FairSharingBlock | None = None
    resources: Resources | None = None
    integrations: IntegrationsBlock | None = None
    leader_election: LeaderElectionSection | None = None
    webhook: WebhookBlock | None = None
    metrics: MetricsBlock | None = None
    health: HealthBlock | None = None
    topogate: Topogate | None = None

    client_connection: Annotated[ClientConnection | None, Ignored("the API server says when it has enough (429, Retry-After)")] = None
    controller: Annotated[ControllerSection | None, Ignored("how much is done at once is not set by hand")] = None
    manage_jobs_without_queue_name: Annotated[bool | None, _MANAGED] = None
    managed_jobs_namespace_selector: Annotated[Selector | None, _MANAGED] = None
    internal_cert_management: Annotated[Any, Ignored("the webhook's flags name its certificate")] = None
    tls: Annotated[Any, Ignored("the webhook is a process of its own, with flags")] = None
    pprof_bind_address: Annotated[Any, Ignored("there is no such profiler in Python")] = None
    multi_kueue: Annotated[Any, _UNSERVED] = None
    admission_fair_sharing: Annotated[Any, _UNSERVED] = None
    object_retention_policies: Annotated[Any, _UNSERVED] = None
    queue_visibility: Annotated[Any, Ignored("it is v1beta1's, and gone from Kueue")] = None
    visibility: Annotated[Any, _OF_VISIBILITY] = None
    visibility_server: Annotated[Any, _OF_VISIBILITY] = None

    @field_validator("topogate")
    @classmethod
    def _validate_against_gates(cls, ours: Topogate | None, info: ValidationInfo) -> Topogate | None:
        if ours and ours.placement_profile:
            try:
                read_profiles(filter_placement_gates(info.data.get("feature_gates") or {}), ours.placement_profile)
            except ContradictingProfile as error:
                raise refuse_inside([Mistake("placementProfile", str(error))]) from error
        return ours
