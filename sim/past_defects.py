"""Defects of the past, each as what is to be replaced in the product so that it behaves as it did then.

The ids are those of the list of defects found in commit 9d98953; a defect without such an id is of the changelog, or of the same class.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import numpy as np

import core.plan.jobs.jobs
import core.plan.pods.units
import webhook.review
from core.jobs import schema_check, templated
from core.jobs.contract import Rules
from core.jobs.kinds import ray
from core.jobs.kinds.rayjob import RayJob
from core.jobs.templated import TemplatedKind, parse_integer
from core.model.claimed_devices import name_devices
from core.model.gates import (
    DEVICES,
    DEVICES_ON_NODES,
    MAX_NOT_READY,
    PARTIAL_SLICES,
    REPLACE_MULTIPLE,
    SPREADING,
    WORKLOAD_PODS_READY,
)
from core.model.node_health_rules import HealthRules
from core.model.own_pods_ready import OwnPodsReady
from core.model.pod_resources import compute_pod_requests
from core.model.wire.assignment import TopologyAssignment
from core.names import EVICTED, UNCONSTRAINED_TOPOLOGY
from core.placement.algorithms.ranks import Distribution
from core.placement.algorithms.spreading import SpreadRules
from core.plan.pods import node_health, ungate_steps
from core.plan.steps import ungate
from core.plan.steps import writes as w
from core.plan.steps.actions import to_time
from core.plan.steps.steps import Then
from core.podgroups.devices.node_devices import NodeDevices
from core.queueing.cycle import second_pass
from core.queueing.cycle.cycle import Cycle
from core.resource import Obj
from core.runtime.controller import Done, Result
from core.runtime.http.errors import KubeError
from core.runtime.lease import LeaderElection, LeadershipLost
from core.runtime.watch.store import build_object_key
from core.state.cluster import ClusterState
from core.state.facts import PodFacts, is_condition_true
from core.state.flavor_view import FlavorView
from core.state.owners import is_orphaned
from core.state.usage import UsageTable
from core.state.workloads import Workloads
from reconciler.execute import executor
from reconciler.execute.executor import Executor
from reconciler.jobs import read_jobs
from reconciler.nodes.node_health import NodeHealth
from reconciler.observe.informers import Informers
from reconciler.observe.observed import Observed
from reconciler.pods.orphans import Orphans
from reconciler.schedule.scheduler import Scheduler
from reconciler.schedule.verdicts import Verdicts


class Part(NamedTuple):
    """A method of a class, or a function of a module, and what stands in its place."""

    owner: Any
    attribute: str
    put_back: Any


class Defect(NamedTuple):
    """One defect. `is_listed`: its name is an id of the list of found defects; `gates`: only seeds that have them on are played."""

    name: str
    text: str
    parts: tuple[Part, ...]
    is_listed: bool = True
    gates: tuple[str, ...] = ()


def _one(name: str, text: str, owner: Any, attribute: str, put_back: Any, *, is_listed: bool = True) -> Defect:
    return Defect(name, text, (Part(owner, attribute, put_back),), is_listed)


def _gated(name: str, text: str, owner: Any, attribute: str, put_back: Any, *gates: str) -> Defect:
    return Defect(name, text, (Part(owner, attribute, put_back),), is_listed=False, gates=gates)


async def _return_at_once(*_: Any) -> None:
    """Waits for nothing."""


async def _do_nothing(*_: Any) -> Result:
    return Done()


async def _wait_for_ever(*_: Any) -> None:
    await asyncio.get_running_loop().create_future()


# --- A: one object blinds the reconciler ------------------------------------------------------------------


def _tolerate_without_limit(taint: Any, tolerations: Sequence[Any], now: datetime) -> datetime:
    """A6: `tolerationSeconds` is added to a date however large it is."""
    asked = [one for one in tolerations if node_health._is_tolerated(taint, [one])]
    asked = asked or [one for one in node_health._DEFAULT_TOLERATIONS if node_health._is_tolerated(taint, [one])]
    if not asked:
        return now
    times = [int(one["tolerationSeconds"]) for one in asked if one.get("tolerationSeconds") is not None]
    since = to_time(taint["timeAdded"]) if taint.get("timeAdded") else now
    return since + timedelta(seconds=max(0, min(times))) if times else node_health._FOR_EVER


# --- B: leadership ----------------------------------------------------------------------------------------


async def _renew_or_end(self: LeaderElection) -> None:
    """B5: a leader that cannot reach the API server until its deadline ends."""
    while True:
        await self._clock.sleep(self._retry_period_s)
        ours = self._election.lease
        try:
            async with asyncio.timeout(self._retry_period_s * 2):
                await self._write_or_look(ours)
        except (KubeError, TimeoutError):
            pass
        if not self.leads:
            raise LeadershipLost(f"the lease {self._name} could not be renewed")


# --- C: more than quota -----------------------------------------------------------------------------------

_plan_ungating = vars(ungate_steps)["plan_ungating"]


def _plan_without_others(*arguments: Any, **more: Any) -> Any:
    """C1: ungated pods that name the workload and have lost their owner are not counted."""
    return _plan_ungating(*arguments[:-1], (), **more)


def _drop_judged(errors: Sequence[Any], *_: Any) -> Any:
    """C7: a change is not judged by the rules of a creation."""
    return Rules((*errors,))


def _count_replicas_alone(group: Any) -> int:
    return parse_integer(group.get("replicas"), 1)


# --- D: double booking, lost wake-ups, two leaders --------------------------------------------------------


def _name_by_emitted_levels(self: FlavorView) -> None:
    """D1: assignments are found by the levels that one written now would name."""
    self._name_sets = {}
    self._by_values = {values: (domain,) for domain, values in enumerate(self.capacity.tree.emitted)}


def _count_as_if_alone(self: Workloads, key: str, _uid: str | None) -> bool:
    return self._assumed.get(key) is not None


_do = Executor._write


async def _evict_by_force(self: Executor, write: w.Write) -> Obj:
    """D6: an eviction is applied whatever has been written since."""
    if isinstance(write, w.Apply) and is_condition_true({"status": write.body.get("status")}, EVICTED):
        return await self._apply(write, executor._add_guard(write.body, write.seen, w.Guard.SAME))
    return await _do(self, write)


def _build_by_what_was_seen(write: Any, left: Obj | None) -> w.Write:
    """D6: the eviction after a deactivation is made of the workload as it was before."""
    return write.build(write.seen) if isinstance(write, Then) else _follow(write, left)


_follow = executor._follow


_forget = ClusterState.drop_assumed


def _forget_with_a_change(self: ClusterState, key: str, uid: str | None = None, *, helps: bool = True) -> None:
    """D7: what is taken back counts as a change that may help others."""
    _forget(self, key, uid, helps=True)


def _add_slots_only(self: UsageTable, wanted: int, _asked: Any) -> None:
    """D8: no slot of a node that is gone is given to another."""
    width = self._amounts.shape[1]
    more = width + wanted
    self._unused[:0] = range(width + more - 1, width - 1, -1)
    self._amounts = np.pad(self._amounts, ((0, 0), (0, more)))
    for follower in self._followers:
        follower.places = np.append(follower.places, np.full(more, -1))


def _allow_all_domains(tree: Any, _request: Any, _used: Any) -> Any:
    """D9: a spare stays where its pods have gone to another domain."""
    return np.ones(len(tree), dtype=bool)


# --- E: jobs that are lost, stuck or refused --------------------------------------------------------------

_originals = vars(core.plan.jobs.jobs)["list_originals"]


def _keep_added_annotations(kind: Any, job: Any, workload: Any) -> Any:
    """E1: what the start of a prebuilt job has put on its templates stays there."""
    made = _originals(kind, job, workload)
    for pod_set, original in zip(kind.list_pod_sets(job), made, strict=True):
        notes = (pod_set.template.get("metadata") or {}).get("annotations") or {}
        if UNCONSTRAINED_TOPOLOGY in notes:
            original["template"]["metadata"].setdefault("annotations", {})[UNCONSTRAINED_TOPOLOGY] = notes[UNCONSTRAINED_TOPOLOGY]
    return made


def _find_misshapen_without_spec(spec: Any, obj: Any) -> Any:
    """E2: all of our kinds need a spec."""
    return schema_check.find_mismatches(
        obj, schema_check.Fields({"metadata": schema_check.METADATA, "spec": spec, "status": schema_check._STATUS}, ("metadata", "spec"))
    )


def _asks_for_other_amounts(wanted: Any, workload: Any) -> bool:
    """E3: node selector, affinity and tolerations are not compared."""

    def essence(pod_set: Any) -> tuple[Any, ...]:
        requests = compute_pod_requests(pod_set["template"].get("spec") or {})
        return pod_set["name"], pod_set["count"], requests, pod_set.get("topologyRequest")

    if wanted.queue != workload["spec"].get("queueName"):
        return True
    return [essence(pod_set.to_wire()) for pod_set in wanted.pod_sets] != [essence(pod_set) for pod_set in workload["spec"]["podSets"]]


def _change_nothing(_self: TemplatedKind, _old: Any, new: Any) -> Any:
    """E8: what a start added is not put back into a manifest that is applied again."""
    return deepcopy(new)


def _find_no_names(*_: Any) -> Sequence[Any]:
    return ()


def _observe_orphans_only(self: Observed, change: Any) -> None:
    """E12: pods that name a Workload which never had an owner belong to none."""
    key, now = build_object_key(change.obj), dict[str, str | None]()
    if change.new is not None and is_orphaned(change.new):
        now = {key: None}
    before = {key: self._unowned.pop(key)} if key in self._unowned else {}
    self._unowned |= now
    if now != before:
        self._observe_owners_of(self.pods.store.list_by_index("workload", key))


def _find_no_changes(*_: Any) -> Mapping[str, Any]:
    return {}


# --- without an id ----------------------------------------------------------------------------------------


async def _take_back_at_once(self: Verdicts, judged: Any) -> None:
    self._undo_verdict(judged.verdict, "the answer was lost")


def _find_seen_running(self: Observed, job: Obj) -> list[PodFacts]:
    return [pod for pod in self.find_live_pods(job) if not pod.gated]


_distribute = ungate._assign_pods


def _distribute_backwards(pod_set: Any, given: Any, live: Any, start: int, ended: Counter[Any], surplus: int) -> Distribution:
    found = _distribute(pod_set, given, live, start, ended, surplus)
    names, last = sorted(found.domains), len(found.domains) - 1
    turned = {name: found.domains[names[last - number]] for number, name in enumerate(names)}
    return replace(found, domains=turned)


_update_alone = Workloads._update_alone


def _give_back_at_eviction(self: Workloads, key: str) -> None:
    facts = self.facts.get(key)
    if facts is not None and facts.evicted and facts.admission is not None:
        self.facts[key] = replace(facts, admission=None)
    _update_alone(self, key)


# --- of gates of Kueue 0.20 -------------------------------------------------------------------------------


def _open_all(self: SpreadRules, level: int) -> Any:
    return np.ones(self.tree.levels[level].count, dtype=bool)


def _always_too_much(_self: HealthRules, lost: int, _nodes: int, _threshold: int | None = None) -> str:
    return "nodeReplacement.maxNodes is 0" if lost else ""


def _keep_order(self: TopologyAssignment, *_: Any) -> TopologyAssignment:
    return self


def _count_without_end(self: NodeDevices, *_: Any) -> Counter[str]:
    return Counter(dict.fromkeys(map(name_devices, self._matchers), 1000))


def _take_usual(_self: OwnPodsReady, usual: Any, _workload: Any) -> Any:
    return usual


LISTED = (
    _one("A6", "tolerationSeconds of any size are added to a date", node_health, "_compute_toleration_end", _tolerate_without_limit),
    _one("B5", "a leader ends when the API server is away", LeaderElection, "_renew", _renew_or_end),
    _one("C1", "pods that lost their owner are not counted", ungate_steps, "plan_ungating", _plan_without_others),
    _one("C6", "changes of metadata alone are not judged", webhook.review, "_has_same_marks", lambda *_: True),
    _one("C7", "changes are not judged by the rules of a creation", templated, "with_changes", _drop_judged),
    _one("C8", "Ray's minReplicas are not counted", ray, "_count_replicas", _count_replicas_alone),
    _one("D1", "a node with another's hostname makes assignments unreadable", FlavorView, "__post_init__", _name_by_emitted_levels),
    _one("D2", "a new leader decides on caches that may be old", Informers, "wait_for_watches", _return_at_once),
    _one("D3", "writes are not fenced", LeaderElection, "count_seconds_left", lambda self: 60.0),
    _one("D4", "a verdict on a deleted workload drops the booking of its namesake", Workloads, "is_assumed_for", _count_as_if_alone),
    _one("D5", "a place that is freed wakes no workload", ClusterState, "_on_free", lambda self: None),
    Defect(
        "D6",
        "an eviction undoes what was written since",
        (Part(Executor, "_write", _evict_by_force), Part(executor, "_follow", _build_by_what_was_seen)),
        gates=(WORKLOAD_PODS_READY,),
    ),
    Defect(
        "D7",
        "an assignment too large to write is decided on without end",
        (Part(Scheduler, "refuse", lambda *_: None), Part(ClusterState, "drop_assumed", _forget_with_a_change)),
    ),
    _one("D8", "slots of nodes that are gone are never used again", UsageTable, "_find_unused", _add_slots_only),
    _one("D9", "spares stay in a domain that their pods have left", second_pass, "find_domain", _allow_all_domains),
    _one("E1", "a prebuilt job keeps what its start added", core.plan.jobs.jobs, "list_originals", _keep_added_annotations),
    _one("E2", "cohorts, queues and flavors need a spec", webhook.review, "find_misshapen", _find_misshapen_without_spec),
    _one("E3", "other tolerations of a StatefulSet are not seen", core.plan.pods.units, "has_other_request", _asks_for_other_amounts),
    _one("E6", "names that no Workload can have are accepted", templated, "_validate_names", _find_no_names),
    _one("E8", "a manifest that is applied again is refused", TemplatedKind, "default_change", _change_nothing),
    _one("E9", "a RayJob keeps the submitter that its start wrote", RayJob, "restore", TemplatedKind.restore),
    _one("E12", "pods of a Workload without an owner do not exist", Observed, "_observe_unowned", _observe_orphans_only),
    _one("E13", "a late pod of a lost node is deleted", ungate_steps, "is_pinned", lambda *_: False),
    _one("E19", "pods are ungated onto a node that is not ready", ungate_steps, "_has_ready_node", lambda *_: True),
    _one(
        "E21", "a new priority does not reach the Workloads of a LeaderWorkerSet", core.plan.pods.units, "_find_changes", _find_no_changes
    ),
)
OTHERS = (
    _one("unseen ungated pods", "pods run when they are seen ungated", Observed, "find_running_pods", _find_seen_running, is_listed=False),
    _one(
        "unseen pods",
        "pods that were not observed yet do not run",
        read_jobs,
        "may_have_unseen_pods",
        lambda *_: False,
        is_listed=False,
    ),
    _one("former head", "a former head of a queue keeps its reason", Cycle, "_drop_refusals", lambda *_: None, is_listed=False),
    _one("old reasons", "reasons are not judged anew", Scheduler, "_refresh_reasons", _wait_for_ever, is_listed=False),
    _one("lost answer", "a write whose answer is lost counts as failed", Verdicts, "_find_out", _take_back_at_once, is_listed=False),
    _one(
        "quota at eviction",
        "quota is given back before pods have ended",
        Workloads,
        "_update_alone",
        _give_back_at_eviction,
        is_listed=False,
    ),
    _one("finalizer", "the finalizer of a Workload stays", core.plan.jobs.jobs, "drop_finalizer", lambda _: None, is_listed=False),
    _one("ranks", "ranks are handed out backwards", ungate, "_assign_pods", _distribute_backwards, is_listed=False),
    _one("lost nodes", "pods on lost nodes are not replaced", NodeHealth, "reconcile", _do_nothing, is_listed=False),
    _one("orphans", "Workloads whose job is gone stay", Orphans, "_reconcile", _do_nothing, is_listed=False),
    _one("pods left", "a stopped job is taken to have no pods", read_jobs, "_has_pods", lambda *_: False, is_listed=False),
)
OF_GATES = (
    _gated("spreading", "rules of spreading close no domain", SpreadRules, "find_open", _open_all, SPREADING),
    _gated("order", "preferred rules of spreading order nothing", SpreadRules, "_list_keys", lambda *_: [], SPREADING),
    _gated("threshold", "one lost node is too much for each workload", HealthRules, "is_too_much", _always_too_much, REPLACE_MULTIPLE),
    _gated("rest first", "the rest of partial slices is not last", TopologyAssignment, "move_partial_last", _keep_order, PARTIAL_SLICES),
    _gated("devices", "nodes have devices without end", NodeDevices, "_count_slice", _count_without_end, DEVICES, DEVICES_ON_NODES),
    _gated("not ready", "no pod of a group may be not ready", OwnPodsReady, "count_tolerated", lambda *_: 0, MAX_NOT_READY),
    _gated("own times", "a workload's own times are not read", OwnPodsReady, "choose_rules", _take_usual, WORKLOAD_PODS_READY),
)
DEFECTS = LISTED + OTHERS + OF_GATES
