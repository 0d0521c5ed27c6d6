"""Whether a node still serves a workload with pods assigned to it, and which pods block others (KEP-2724, Node failures
and Tainted nodes treatment; gates have Kueue's names).

    the node                                  is lost for the workload
    is gone                                   at once (the reconciler looks five seconds later)
    is not ready                              when its pods there have ended or are ending (TASReplaceNodeOnPodTermination), or after a
                                              delay: where none was there yet, with that gate off, or with
                                              TASReplaceNodeDueToNotReadyOverFixedTime
    has a NoExecute taint it does not         when none of its pods runs there any more; with that gate off when tolerationSeconds
    tolerate (TASReplaceNodeOnNodeTaints)     are over
    has a NoSchedule taint, or is cordoned    when none of its pods runs there any more: what runs may run on
    is ready, and takes its pods no more:     when none of its pods runs there any more: GPUs that have gone, a kubelet that rejects
    rejected, or unschedulable for a while    pods, whatever else keeps a pod from the node that it is pinned to; while others of
                                              its workload run there, that pod alone needs another place
    has left the flavor or the topology of    when none of its pods runs there any more, a pod waits for the place, and that has been so
    the assignment: its labels have changed   for a delay: labels may come late; while others of its workload run there, the pods that
                                              wait alone need another place

Pods that have succeeded are not missed: where all that were assigned to a node have, nothing is lost with it, unless others
replace them, as those of a Job with more completions than it runs pods at once.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from core.model.node_health_rules import HealthRules
from core.names import HOSTNAME_LABEL
from core.placement.topology.node_eligibility import find_untolerated, read_taints
from core.plan.steps.actions import to_time
from core.state.facts import FlavorFacts, PodFacts, TopologyFacts, WorkloadFacts, find_condition, is_condition_true

Json = Mapping[str, Any]
Place = tuple[str, str]  # a node's name and, where it is not at its place any more, the hostname by which assignments name it
_NO_EXECUTE, _NO_SCHEDULE = "NoExecute", "NoSchedule"
_CORDONED = "node.kubernetes.io/unschedulable"
_NOT_READY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
# What the API server adds to every pod without tolerations for these taints; templates do not have it.
_DEFAULT_TOLERATIONS = tuple({"key": key, "operator": "Exists", "effect": _NO_EXECUTE, "tolerationSeconds": 300} for key in _NOT_READY)


@dataclass(frozen=True, slots=True)
class NodeShare:
    """The part of one workload on one node: how many pods were assigned there, the pods that are bound or pinned to it,
    what its pods tolerate, per pod set that is there, and whether any has been bound there that may be gone now."""

    assigned: int
    pods: Sequence[PodFacts]
    tolerations: Sequence[Sequence[Json]]
    was_used: bool = False
    by_pod_set: Mapping[str, int] = field(default_factory=dict)  # of those assigned
    placed: frozenset[str] = frozenset()  # pod sets, see `find_placed`
    outside: "Outside | None" = None  # of a node that is not where the assignment has it; then `pods` has gated ones that wait for it, too
    is_awaited: bool = False  # gated pods of its workload need places here: all other places are not enough for them


@dataclass(frozen=True, slots=True)
class Outside:
    """A node that is there, and at none of the places that an assignment names: why, and since when that is known."""

    why: str
    since: datetime
    is_reported: bool = False  # its workload names it as lost


def is_node_lost(nodes: Mapping[str, Json], name: str) -> bool:
    """Whether the node of a name is not among Nodes by name, or has no condition Ready that is True, so that no kubelet reports what ends
    on it; False for an empty name."""
    node = nodes.get(name)
    return bool(name) and not (node is not None and is_condition_true(node, "Ready"))


def explain_departure(labels: Mapping[str, str], flavor: FlavorFacts, topology: TopologyFacts) -> str:
    """Returns why a node with some labels is not a node of a flavor and its topology, as a sentence about "it". It names the first label
    that is missing or differs, those of the flavor first. Empty if it is such a node."""
    for key, value in flavor.node_labels.items():
        if labels.get(key) != value:
            found = f"its label {key} is {labels[key]}" if key in labels else f"it has no label {key}"
            return f"it has left flavor {flavor.name}: {found}, and the flavor selects {key}={value}"
    return next((f"it has left topology {topology.name}: it has no label {level}" for level in topology.levels if level not in labels), "")


def explain_outside(labels: Mapping[str, str], host: str, flavor: FlavorFacts, topology: TopologyFacts) -> str:
    """Returns why a node with some labels is not at the place that an assignment by a flavor's topology names by the hostname `host`. It is
    never empty: a sentence about "it", or about its label."""
    if why := explain_departure(labels, flavor, topology):
        return why
    if labels[topology.levels[-1]] != host:
        return f"its label {topology.levels[-1]} is {labels[topology.levels[-1]]} now, and was {host}"
    return f"it has another place in topology {topology.name} now, or another node has the same labels of its levels"


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """`lost`: why the node is lost for the workload, empty while it is not. `look_again_s`: when time alone may change that.
    `in_the_way`: pods that are pinned to the node, wait and will never be bound. `stuck`: pods that it does not take though it serves
    others of the workload, which stay."""

    lost: str = ""
    look_again_s: float | None = None
    in_the_way: tuple[PodFacts, ...] = ()
    stuck: tuple[PodFacts, ...] = ()


def judge_node(node: Json | None, share: NodeShare, rules: HealthRules, now: datetime) -> NodeVerdict:
    """Returns what one workload has to expect of a node, by its part there: whether and why the node is lost, and which pods block others
    or are stuck. `look_again_s` are seconds after `now`; None where time alone changes nothing. `node` is the object as the API has it,
    None if it is gone. A node where the workload has no pods assigned is never lost for it. `in_the_way` has pods only of a lost node, and
    where none are assigned of one that is gone or has a condition Ready; `stuck` only of one that is not lost."""
    lost, after = _find_loss(node, share, rules, now)
    pinned = tuple(pod for pod in share.pods if is_pinned(pod, share.placed))
    # A node without a Ready condition yet may be one that they are about to have.
    are_unassigned = not share.assigned and (node is None or find_condition(node, "Ready") is not None)
    if lost or are_unassigned or not share.assigned:
        return NodeVerdict(lost, after, pinned if lost or are_unassigned else ())
    stuck, later = _find_stuck(share, pinned, rules, now)
    return NodeVerdict(lost, min((each for each in (after, later) if each is not None), default=None), stuck=stuck)


def _find_stuck(
    share: NodeShare, pinned: Sequence[PodFacts], rules: HealthRules, now: datetime
) -> tuple[tuple[PodFacts, ...], float | None]:
    """Pods that kube-scheduler has found for a while not to fit beside those that run; and when there may be more of them."""
    runs = any(_is_running(pod) for pod in share.pods)
    if not runs or any(pod.terminating for pod in share.pods):  # what ends there makes room for them
        return (), None
    gated = [replace(pod, unschedulable=share.outside.why) for pod in share.pods if pod.gated] if share.outside is not None else []
    if share.outside is not None and gated:
        remaining = (_find_end(share.outside, rules) - now).total_seconds()
        return ((), remaining) if remaining > 0 else (tuple(gated), None)
    ages = [(pod, (now - to_time(pod.unschedulable_since)).total_seconds()) for pod in pinned if pod.unschedulable_since]
    left = [rules.unschedulable_delay_s - age for _, age in ages if age < rules.unschedulable_delay_s]
    return tuple(pod for pod, age in ages if age >= rules.unschedulable_delay_s), min(left, default=None)


def _find_end(outside: Outside, rules: HealthRules) -> datetime:
    """Returns until when a node may come back to its place before pods that wait for it get another one."""
    return outside.since + timedelta(seconds=rules.not_ready_delay_s)


def count_stuck(share: NodeShare, stuck: Sequence[PodFacts]) -> dict[str, int]:
    """Returns the number of places, by pod set, that are to be found elsewhere for the pods `stuck` on the node of `share`. Of each pod set
    there are no more than were assigned there less other pods that need or have used their place. Pod sets without any are absent."""
    found = {}
    for pod_set, assigned in share.by_pod_set.items():
        waiting = sum(pod.pod_set == pod_set for pod in stuck)
        there = [pod for pod in share.pods if pod.pod_set == pod_set]
        others = sum(not pod.terminal or (pod.succeeded and not share.is_awaited) for pod in there) - waiting
        if (places := min(waiting, assigned - others)) > 0:
            found[pod_set] = places
    return found


def _is_running(pod: PodFacts) -> bool:
    return bool(pod.node) and not pod.terminal and not pod.terminating


def find_placed(facts: WorkloadFacts) -> frozenset[str]:
    """Returns the names of pod sets with templates that name no host: a host in the node selector of their pods was set when they were
    ungated. Those with a place that is no topology assignment are left out, as their host may be a node label of a flavor. Kueue writes no
    coordinates (docs/migration.md)."""
    given = facts.admission.pod_sets if facts.admission is not None else ()
    elsewhere = {one.name for one in given if one.assignment is None or not one.assignment.domains}
    return frozenset(one.name for one in facts.pod_sets if HOSTNAME_LABEL not in one.node_selector) - elsewhere


def is_pinned(pod: PodFacts, placed: Collection[str] = ()) -> bool:
    """Returns whether a pod was given its place, and waits to be bound there. It is past its gates, neither ended nor being deleted, with a
    hostname in its node selector. It also has coordinates, or its pod set is in `placed` (`find_placed`). The host of any other pod was
    chosen by its user."""
    waits = not pod.node and not pod.gated and not pod.terminal and not pod.terminating
    return waits and HOSTNAME_LABEL in pod.node_selector and (bool(pod.coordinates) or pod.pod_set in placed)


def may_move(facts: WorkloadFacts, pods: Iterable[PodFacts]) -> bool:
    """Returns whether a workload may get another place: a controller recreates its pods, or one of `pods` is gated, not ended and not being
    deleted. A plain pod without the gate can be nowhere else, and ends with its node."""
    return facts.remade or any(pod.gated and not pod.terminal and not pod.terminating for pod in pods)


def _find_loss(node: Json | None, share: NodeShare, rules: HealthRules, now: datetime) -> tuple[str, float | None]:
    succeeded = sum(pod.succeeded for pod in share.pods)
    if not share.assigned or (succeeded >= share.assigned and not share.is_awaited):
        return "", None
    if node is None:
        return "it is gone", None
    runs = any(map(_is_running, share.pods))
    waits: list[float] = []
    for why, loss in _list_causes(node, share, rules, now, runs=runs):
        if loss.at_rest and not runs:
            return why, None
        if loss.at is not None:
            remaining = (loss.at - now).total_seconds()
            if remaining <= 0:
                return why, None
            waits.append(remaining)
    return "", min(waits, default=None)


@dataclass(frozen=True, slots=True)
class _Loss:
    """`at_rest`: as soon as no pod runs there; `at`: at that time in any case."""

    at_rest: bool = False
    at: datetime | None = None


def _list_causes(node: Json, share: NodeShare, rules: HealthRules, now: datetime, *, runs: bool) -> Iterator[tuple[str, _Loss]]:
    leaving = share.was_used or any(pod.terminating or (pod.terminal and not pod.succeeded) for pod in share.pods)
    ready = find_condition(node, "Ready")
    if ready is not None and ready.get("status") != "True":
        # Where nothing has ended, since nothing ran there yet, a flap must change nothing.
        by_time = rules.after_fixed_time or not rules.on_pod_termination or not (leaving or runs)
        since = to_time(ready["lastTransitionTime"]) if ready.get("lastTransitionTime") else now
        yield (
            "it is not ready",
            _Loss(rules.on_pod_termination and leaving, since + timedelta(seconds=rules.not_ready_delay_s) if by_time else None),
        )
    if node["metadata"].get("deletionTimestamp"):
        yield "it is being deleted", _Loss(at_rest=True)
    if rules.on_taints:
        yield from _list_taint_causes(node, share, rules, now, leaving=leaving)
    outside, waiting = share.outside, any(pod.gated or is_pinned(pod, share.placed) for pod in share.pods)
    if outside is not None and not runs and (waiting or outside.is_reported):
        yield outside.why, _Loss(at=_find_end(outside, rules))
    for pod in share.pods:
        if pod.rejected:
            yield f"its kubelet rejects pods ({pod.rejected})", _Loss(at_rest=True)
        if is_pinned(pod, share.placed) and pod.unschedulable_since and not runs:  # what runs there must not move because of it
            begun = to_time(pod.unschedulable_since) + timedelta(seconds=rules.unschedulable_delay_s)
            yield f"pod {pod.key.partition('/')[2]} cannot be scheduled there: {pod.unschedulable or 'Unschedulable'}", _Loss(at=begun)


def _list_taint_causes(node: Json, share: NodeShare, rules: HealthRules, now: datetime, *, leaving: bool) -> Iterator[tuple[str, _Loss]]:
    spec = node.get("spec") or {}
    for taint in spec.get("taints") or ():
        repelled = [tolerations for tolerations in share.tolerations if not _is_tolerated(taint, tolerations)]
        text = f"it has the taint {taint['key']}{'=' if taint.get('value') else ''}{taint.get('value') or ''}:{taint.get('effect')}"
        if taint.get("effect") == _NO_SCHEDULE and taint["key"] in _NOT_READY:
            continue  # Kubernetes' own echo of the condition, which is judged above: by this a flap would be a loss within a second
        if taint.get("effect") == _NO_SCHEDULE and repelled:
            yield text, _Loss(at_rest=True)
        elif taint.get("effect") == _NO_EXECUTE:
            deadline = min((_compute_toleration_end(taint, each, now) for each in share.tolerations), default=now)
            if deadline != _FOR_EVER:
                # What is being deleted or has failed is on its way, however long it might have stayed.
                at_rest = leaving or (rules.on_pod_termination and deadline <= now)
                yield text, _Loss(at_rest, None if rules.on_pod_termination and deadline <= now else deadline)
    if spec.get("unschedulable") and any(not _is_tolerated({"key": _CORDONED, "effect": _NO_SCHEDULE}, each) for each in share.tolerations):
        yield "it is cordoned", _Loss(at_rest=True)


_FOR_EVER = datetime.max.replace(tzinfo=UTC)
_LONGEST_S = 100 * 365 * 86400  # a toleration of a hundred years has no end that can be reckoned with


def _compute_toleration_end(taint: Json, tolerations: Sequence[Json], now: datetime) -> datetime:
    """Until when pods may stay: the shortest time that a toleration of the taint gives, from when it was added."""
    asked = [one for one in tolerations if _is_tolerated(taint, [one])]
    asked = asked or [one for one in _DEFAULT_TOLERATIONS if _is_tolerated(taint, [one])]
    if not asked:
        return now
    times = [int(one["tolerationSeconds"]) for one in asked if one.get("tolerationSeconds") is not None]
    if not times:
        return _FOR_EVER
    if min(times) > _LONGEST_S:
        return _FOR_EVER
    since = to_time(taint["timeAdded"]) if taint.get("timeAdded") else now
    return since + timedelta(seconds=max(0, min(times)))


def _is_tolerated(taint: Json, tolerations: Sequence[Json]) -> bool:
    return find_untolerated(read_taints({"taints": [taint]}), tolerations) is None
