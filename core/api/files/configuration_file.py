"""From a configuration file to the values of `core.model.configuration`: nothing else has to know how the file is written."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from core.api.files.configuration_fields import filter_placement_gates, list_unknown_gates
from core.api.files.configuration_plugins import InstalledPlugins, PodGroupPlugins
from core.api.files.configuration_wire import (
    ConfigurationFile,
    HealthBlock,
    IntegrationsBlock,
    LeaderElectionSection,
    MetricsBlock,
    NodeReplacementBlock,
    NodeRequeueBlock,
    PodGroupsBlock,
    RequeuingStrategy,
    Resources,
    SparesBlock,
    StormBlock,
    Topogate,
    WaitForPodsReady,
    WebhookBlock,
)
from core.api.files.mistakes import InvalidFile, Mistake, build_path, find_nearest
from core.api.files.strict import list_ignored
from core.api.files.yaml_document import MAX_BYTES
from core.model.configuration import (
    Configuration,
    FairSharing,
    LeaseRules,
    PodGroupRules,
    ResourceRules,
    SecondPass,
    Transformation,
    WebhookRules,
)
from core.model.gates import GATES
from core.model.kueue_gates import DISABLE_PODS_READY, FORMER_GATES, OTHER_GATES
from core.model.node_health_rules import HealthRules, RequeueRules, StormRules
from core.model.own_pods_ready import MOST_READY_S
from core.model.plugin_choice import BUILT_IN_GENERATORS, PATH
from core.model.pods_ready_rules import PodsReadyRules, Scope

MOST_UNKNOWN_GATES = 32  # that are named in a warning each: finding a like name takes time
CURRENT_VERSION = "config.kueue.x-k8s.io/v1beta2"


def read_configuration(text: str | bytes, plugins: Collection[str] | None = None) -> Configuration:
    """Returns the configuration in a file (YAML or JSON). `plugins` are the names of installed plugins of other packages, and names beyond
    them and the built-in ones are mistakes; None: they are unknown, and any name is accepted.

    Raises `core.api.files.mistakes.InvalidFile`, which names every mistake in it.
    """
    return build_configuration(ConfigurationFile.read_text(text, InstalledPlugins(plugins)))


def read_configuration_file(path: str, plugins: Collection[str] | None = None) -> Configuration:
    """Returns the configuration in the file of a path; `plugins` as in `read_configuration`. Raises InvalidFile, with the path before each
    mistake, also where the file cannot be read.
    """
    try:
        with Path(path).open("rb") as file:
            return read_configuration(file.read(MAX_BYTES + 1), plugins)
    except InvalidFile as error:
        raise InvalidFile([Mistake(path, str(mistake)) for mistake in error.mistakes]) from error
    except OSError as error:
        raise InvalidFile([Mistake(path, error.strerror or str(error))]) from error
    except ValueError as error:  # no file can have that name
        raise InvalidFile([Mistake(path, str(error))]) from error


def build_configuration(file: ConfigurationFile) -> Configuration:
    """Returns the values of a well-formed file, durations in seconds, with defaults for what is not given. Its warnings are one for each
    key that has no effect, then those of defaults other than Kueue's. Nothing is checked again."""
    ours = file.topogate or Topogate()
    return Configuration(
        pods_ready=_build_pods_ready(file),
        most_ready_s=_find_most_ready_s(file),
        second_pass=_build_second_pass(ours),
        node_health=_build_node_health(ours),
        fair_sharing=_build_fair_sharing(file),
        resources=_build_resources(file.resources or Resources(), ours),
        lease=_build_lease(file.leader_election or LeaderElectionSection()),
        webhook=_build_webhook(file.webhook or WebhookBlock()),
        pod_groups=_build_pod_groups(ours.pod_groups or PodGroupsBlock()),
        metrics=(file.metrics or MetricsBlock()).bind_address,
        health=(file.health or HealthBlock()).health_probe_bind_address,
        gates=filter_placement_gates(file.feature_gates or {}),
        namespace=file.namespace,
        copied_labels=tuple((file.integrations or IntegrationsBlock()).label_keys_to_copy or ()),
        placement_profile=ours.placement_profile,
        reserves_daemon_sets=ours.reserve_daemon_sets,
        nominates_nodes=ours.nominate_nodes,
        group_plugins=((ours.pod_groups or PodGroupsBlock()).plugins or PodGroupPlugins()).rules,
        warnings=(*list_ignored(file), *_list_ignored_gates(file), *_list_differences(file)),
    )


def _is_on(file: ConfigurationFile, enable: bool | None) -> bool:
    # v1beta1 has a key that switches a block on; v1beta2 has none, and a block that is written is on.
    return file.api_version == CURRENT_VERSION if enable is None else enable


def _is_waiting_enabled(file: ConfigurationFile) -> bool:
    block = file.wait_for_pods_ready
    return block is not None and _is_on(file, block.enable) and not (file.feature_gates or {}).get(DISABLE_PODS_READY)


def _build_pods_ready(file: ConfigurationFile) -> PodsReadyRules | None:
    block = file.wait_for_pods_ready
    if block is None or not _is_waiting_enabled(file):
        return None
    usual, requeuing = PodsReadyRules(), block.requeuing_strategy or RequeuingStrategy()
    return PodsReadyRules(
        timeout_s=_choose_given(block.timeout, usual.timeout_s),
        recovery_timeout_s=block.recovery_timeout or None,  # 0s means never in Kueue
        blocks=(block.block_admission_scope or Scope.CLUSTER) if _should_block_admission(file, block) else None,
        requeue_time=requeuing.timestamp or usual.requeue_time,
        backoff_limit=requeuing.backoff_limit_count,
        backoff_base_s=float(_choose_given(requeuing.backoff_base_seconds, usual.backoff_base_s)),
        backoff_max_s=float(_choose_given(requeuing.backoff_max_seconds, usual.backoff_max_s)),
    )


def _find_most_ready_s(file: ConfigurationFile) -> float | None:
    if (file.feature_gates or {}).get(DISABLE_PODS_READY):
        return None
    block = file.wait_for_pods_ready
    return _choose_given(block.max_timeout_on_workload if block is not None else None, MOST_READY_S)


def _should_block_admission(file: ConfigurationFile, block: WaitForPodsReady) -> bool:
    # Kueue's defaults: v1beta1 blocks where waiting is enabled, as KEP-349 describes it; v1beta2 does not.
    return file.api_version != CURRENT_VERSION if block.block_admission is None else block.block_admission


def _build_second_pass(ours: Topogate) -> SecondPass:
    usual, block = SecondPass(), ours.second_pass
    return (
        SecondPass(_choose_given(block.base_delay, usual.base_delay_s), _choose_given(block.timeout, usual.timeout_s)) if block else usual
    )


def _build_node_health(ours: Topogate) -> HealthRules:
    usual, block = HealthRules(), ours.node_replacement or NodeReplacementBlock()
    storm, requeue = block.storm or StormBlock(), block.requeue or NodeRequeueBlock()
    return HealthRules(
        not_ready_delay_s=_choose_given(block.not_ready_delay, usual.not_ready_delay_s),
        unschedulable_delay_s=_choose_given(block.unschedulable_delay, usual.unschedulable_delay_s),
        max_nodes=block.max_nodes,
        max_share=block.max_share,
        leaving_taints=usual.leaving_taints if block.leaving_taints is None else tuple(block.leaving_taints),
        storm=StormRules(
            _choose_given(storm.share, usual.storm.share),
            usual.storm.min_nodes if storm.min_nodes is None else storm.min_nodes,
            _choose_given(storm.within, usual.storm.within_s),
            _choose_given(storm.longest, usual.storm.longest_s),
        ),
        requeue=RequeueRules(
            _choose_given(requeue.base, usual.requeue.base_s),
            _choose_given(requeue.limit, usual.requeue.limit_s),
            _choose_given(requeue.forget_after, usual.requeue.forget_after_s),
        ),
    )


def _build_fair_sharing(file: ConfigurationFile) -> FairSharing | None:
    block = file.fair_sharing
    if block is None or not _is_on(file, block.enable):
        return None
    return FairSharing(tuple(block.preemption_strategies)) if block.preemption_strategies else FairSharing()


def _build_resources(block: Resources, ours: Topogate) -> ResourceRules:
    spares = (ours.node_replacement or NodeReplacementBlock()).spares or SparesBlock()
    mappings = block.device_class_mappings or ()
    # One that quota is to count by counters, too, would run uncounted if only its number was counted.
    uncounted = {device_class for one in mappings if one.sources is not None for device_class in one.device_class_names}
    return ResourceRules(
        tuple(block.exclude_resource_prefixes or ()),
        tuple(
            Transformation(entry.input, entry.strategy != "Replace", dict(entry.outputs or {}), entry.multiply_by)
            for entry in block.transformations or ()
        ),
        counts_spares=spares.count_in_quota is not False,
        device_classes={
            device_class: one.name for one in mappings for device_class in one.device_class_names if device_class not in uncounted
        },
    )


def _build_lease(block: LeaderElectionSection) -> LeaseRules:
    usual = LeaseRules()
    return LeaseRules(
        block.leader_elect,
        block.resource_namespace,
        _choose_given(block.lease_duration, usual.lease_duration_s),
        _choose_given(block.renew_deadline, usual.renew_deadline_s),
        _choose_given(block.retry_period, usual.retry_period_s),
    )


def _build_webhook(block: WebhookBlock) -> WebhookRules:
    return WebhookRules(block.host, block.port, block.cert_dir)


def _build_pod_groups(block: PodGroupsBlock) -> PodGroupRules:
    return PodGroupRules(_choose_given(block.desired_count_wait, PodGroupRules().desired_count_wait_s))


def _choose_given(given: float | None, usual: float) -> float:
    return usual if given is None else given


def _list_ignored_gates(file: ConfigurationFile) -> Iterator[str]:
    for name in file.feature_gates or {}:
        if name in FORMER_GATES or (name in OTHER_GATES and name != DISABLE_PODS_READY):
            yield f"ignored: {build_path('featureGates', name)}: it switches nothing in topogate"
    unknown = list_unknown_gates(file.feature_gates or {})
    for name in unknown[:MOST_UNKNOWN_GATES]:
        near = find_nearest(name, (*GATES, *OTHER_GATES))
        known = f"; did you mean {near}?" if near else ""
        yield f"ignored: {build_path('featureGates', name)}: unknown feature gate, so that it switches nothing{known}"
    if len(unknown) > MOST_UNKNOWN_GATES:
        yield f"ignored: featureGates: {len(unknown) - MOST_UNKNOWN_GATES} more gates are unknown"


def _list_differences(file: ConfigurationFile) -> Iterator[str]:
    # topogate has KEP-349's defaults; those of Kueue's v1beta2 differ, which is reported.
    block = file.wait_for_pods_ready
    if block is not None and _is_waiting_enabled(file) and file.api_version == CURRENT_VERSION:
        if block.timeout is None:
            yield "different: waitForPodsReady.timeout: it is not given and stands at 5m, as in KEP-349; newer releases of Kueue take 30m"
        if block.recovery_timeout is None:
            yield "different: waitForPodsReady.recoveryTimeout: it is not given and never ends, as in KEP-349; Kueue takes that of timeout"
        if block.block_admission is None:
            yield (
                "different: waitForPodsReady.blockAdmission: the default is false, as in Kueue's v1beta2; "
                "KEP-349 and v1beta1 block other admissions until all pods are ready"
            )
    plugins = ((file.topogate or Topogate()).pod_groups or PodGroupsBlock()).plugins
    if plugins is not None and not {one.name for one in plugins.rules.generators}.issuperset(BUILT_IN_GENERATORS):
        yield f"different: {PATH}.generators: without TopologyPlacement no group is held to its topologyConstraints by topogate itself"
