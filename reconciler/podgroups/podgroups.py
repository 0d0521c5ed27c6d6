"""Groups of pods (KEP-5732), placed from outside kube-scheduler by gate and pin: a place is kept for each pod by its
nominated node, then the pods are ungated, each pinned to its node. kube-scheduler binds them; topogate never does.

The pods record what is known of a group, and each step is planned from them (`core.podgroups.acting`): a process that
ends between any two writes leaves nothing that another one could not continue.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from core.metric_names import GROUP_PLACED, GROUP_WAITS
from core.model.configuration import PodGroupRules
from core.model.pause_state import ADMISSIONS
from core.model.plugin_choice import GroupEvent
from core.plan.pods.group_plans import DecidedGroup, is_native, plan_bound, plan_group, plan_return
from core.plan.steps import api_resources as r
from core.plan.steps import pacing
from core.plan.steps.steps import Plan
from core.podgroups.acting import SCHEDULED, WAITING, GroupStep
from core.podgroups.devices.claims import read_claim
from core.podgroups.members import GroupKey, Member, group_of, read_member
from core.podgroups.native import build_native_name
from core.podgroups.outside import Answers, Unanswered
from core.podgroups.podgroup_facts import find_template, read_pod_group
from core.resource import Obj
from core.runtime.clock import Clock
from core.runtime.controller import Done, RequeueAfter, Result
from core.runtime.http.errors import Conflict, Forbidden, Invalid, KubeError, NotFound, ServerError, Unreachable
from core.runtime.report.telemetry import build_context
from core.runtime.watch.store import Change
from core.runtime.workqueue import Item
from reconciler.execute.controllers import build_controller
from reconciler.execute.executor import Executor, Left, Paused
from reconciler.execute.recorder import UNRECORDED, Recorder
from reconciler.execute.tracing import find_traceparent
from reconciler.nodes.node_memory import place_of
from reconciler.observe.observed import Observed
from reconciler.podgroups.group_conditions import GroupConditions
from reconciler.podgroups.group_plugins import GroupPlugins
from reconciler.podgroups.group_steps import (
    HANDED_OVER,
    drop_place,
    find_lost,
    hold_place,
    list_members,
    plan_next_step,
    read_once,
)
from reconciler.podgroups.group_tracing import begin_trace

logger = logging.getLogger(__name__)
WORKERS = 4
ALL = GroupKey("", "")  # as a key: all groups that wait
REFUSED, PAUSED = "Refused", "AdmissionsPaused"
_NO_REFUSALS = (SCHEDULED, WAITING, HANDED_OVER)  # its pods are on their way, or kube-scheduler's part is


class _Wait(NamedTuple):
    """How often each of the `events` that may help a group had happened, and how often room was given back, when it was judged."""

    changes: int
    counts: tuple[int, ...]
    events: Set[GroupEvent]

    @classmethod
    def build(cls, changes: int, happened: Mapping[GroupEvent, int], events: Set[GroupEvent]) -> "_Wait":
        return cls(changes, tuple(happened.get(event, 0) for event in sorted(events)), events)


_ANEW = _Wait(-1, (), frozenset())  # whatever has changed


@dataclass(frozen=True, slots=True)
class _Seen:
    """A live pod of a group: since when it is observed, and its place in the order of groups that wait."""

    at_s: float
    priority: int
    created: str


class PodGroups:
    """Reconciles one replica of a group at a time, by its key."""

    def __init__(
        self,
        observed: Observed,
        executor: Executor,
        clock: Clock,
        plugins: GroupPlugins,
        rules: PodGroupRules = PodGroupRules(),  # noqa: B008  # frozen
        recorder: Recorder = UNRECORDED,
    ) -> None:
        self._recorder = recorder
        self._is_placed: dict[GroupKey, bool] = {}  # of replicas that have pods: whether their condition is True
        self._observed, self._executor, self._clock, self.plugins, self._rules = observed, executor, clock, plugins, rules
        self._conditions = GroupConditions(executor, clock, plugins.describe_missed)
        self._seen: dict[GroupKey, dict[str, _Seen]] = {}  # its pods by uid
        self._decided: dict[str, str] = {}  # by uid of pods that are not bound: where they were decided to go
        self._waiting: dict[GroupKey, _Wait] = {}  # and what had changed when they were last judged
        self._events: Counter[GroupEvent] = Counter()
        self._rests_until = 0.0
        self._refused_until: dict[GroupKey, float] = {}  # until when gangs wait after the API server refused their places
        self._unsure: dict[GroupKey, set[str]] = {}  # pods with a write of unknown result, by key: to be read again
        self._ungated: dict[GroupKey, datetime] = {}  # when the first pods of a replica were ungated, until all are bound
        self.controller = build_controller("podgroups", self._reconcile, clock, workers=WORKERS)
        self._queue = self.controller.queue
        observed.pods.add_handler(self._on_pod)
        observed.pod_groups.add_handler(self._on_group)
        observed.node_topologies.add_handler(lambda change: self._queue_again(GroupEvent.NODE_TOPOLOGY_CHANGED))
        observed.nodes.add_handler(self._on_node)
        if observed.native is not None:
            observed.native.pod_groups.add_handler(self._on_native)
            observed.native.workloads.add_handler(self._on_workload)
        if observed.devices is not None:
            for informer in observed.devices.informers:
                informer.add_handler(self._on_claim if informer is observed.devices.claims else self._on_devices)

    # --- what is seen ---------------------------------------------------------------------------------------------

    def _on_pod(self, change: Change) -> None:
        group = group_of(change.new) if change.new is not None else None
        before = group_of(change.old) if change.old is not None else None
        uid = change.obj["metadata"]["uid"]
        if before is not None and before != group:
            self._drop_pod(before, uid)
        if group is None or change.new is None:
            if self._waiting and (change.new is None or (change.new.get("status") or {}).get("phase") in ("Succeeded", "Failed")):
                self._queue_again(GroupEvent.POD_GONE)
            return
        member = read_once(self._observed, change.new)
        assert member is not None  # it names a group
        if not member.is_live or member.node:
            self._decided.pop(uid, None)
        self._fold(member)
        if member.is_live:
            self._conditions.add_replica(group)
            seen = self._seen.setdefault(group, {})
            seen.setdefault(uid, _Seen(self._clock.monotonic(), member.priority, member.created))
            self._is_due(group)
        else:
            self._drop_pod(group, uid)

    def _drop_pod(self, group: GroupKey, uid: str) -> None:
        """Drops a pod that is gone, is over, or belongs to the group no more: other pods may use the place that was
        kept for it."""
        self._decided.pop(uid, None)
        drop_place(self._observed, group, uid)
        seen = self._seen.get(group, {})
        seen.pop(uid, None)
        if not seen:
            self._seen.pop(group, None)
            self._conditions.remove_replica(group)
            self._is_placed.pop(group, None)
            self._refused_until.pop(group, None)
            self._ungated.pop(group, None)
            self.plugins.drop_missed(group)
        self._is_due(group)
        self._queue_again(GroupEvent.POD_GONE)

    def _is_due(self, group: GroupKey) -> None:
        if group in self._waiting:
            self._waiting[group] = _ANEW
        self._queue.add_after(group, pacing.GROUPS_BATCH_S, "its pods changed")

    def _fold(self, member: Member) -> None:
        whole = self._observed.state.whole
        before = whole.find_kept_node(str(member.group), member.uid)
        hold_place(self._observed, member, self._add_known_place(member).place)
        if before is not None and not member.node and whole.find_kept_node(str(member.group), member.uid) is None:
            self._queue_again(GroupEvent.PLACE_RETURNED)

    def _add_known_place(self, member: Member) -> Member:
        """Returns the member with the place that was decided on, where the pod does not have it yet, or kube-scheduler
        has removed its nomination."""
        decided = self._decided.get(member.uid)
        if not decided or member.node or member.kept or not (member.gated or member.sent == decided):
            return member
        return replace(member, kept=decided)

    def _on_group(self, change: Change) -> None:
        if change.old is not None and change.new is not None and change.old.get("spec") == change.new.get("spec"):
            return
        metadata = change.obj["metadata"]
        named = metadata.get("namespace") or "", metadata["name"]
        if change.new is None:
            self._conditions.remove_group(*named)
        for key in {GroupKey(*named), *self._conditions.list_replicas(*named)}:
            if key in self._waiting:
                self._waiting[key] = _ANEW
            self._queue.add_after(key, pacing.GROUPS_BATCH_S, "the group changed")

    def _on_native(self, change: Change) -> None:
        """One of kube-scheduler's own came or went: that of its own pods, and of ours that was handed over."""
        if change.old is not None and change.new is not None:
            return
        namespace, name = change.obj["metadata"]["namespace"], change.obj["metadata"]["name"]
        if change.new is None:
            self._conditions.remove_group(namespace, name)
        for key in [key for key in self._seen if key.namespace == namespace and name in (key.name, build_native_name(key))]:
            self._is_due(key)

    def _on_workload(self, change: Change) -> None:
        """Of kube-scheduler's own: from its templates PodGroups are made, or were."""
        assert self._observed.native is not None
        namespace, name = change.obj["metadata"]["namespace"], change.obj["metadata"]["name"]
        for group in self._observed.native.pod_groups.store.list():
            named = find_template(group)
            if named is not None and (group["metadata"]["namespace"], named[0]) == (namespace, name):
                for key in self._conditions.list_replicas(namespace, group["metadata"]["name"]):
                    self._is_due(key)

    def _on_node(self, change: Change) -> None:
        if self._waiting and (change.old is None or change.new is None or place_of(change.old) != place_of(change.new)):
            self._queue_again(GroupEvent.NODE_CHANGED)

    def _on_devices(self, change: Change) -> None:
        if self._waiting and not _has_same_spec(change):
            self._queue_again(GroupEvent.DEVICES_CHANGED)

    def _on_claim(self, change: Change) -> None:
        """Queues the groups that a change of a ResourceClaim affects: waiting groups may use devices that are free now,
        and the group of the claim's pods may have devices in several pools."""
        users = read_claim(change.obj).users
        if _get_allocation(change.old) == _get_allocation(change.new) and (users or (change.old and change.new)):
            return  # of those that are made for pods there are as many as pods, and none is of any use to others
        for pod in users:
            member = self._observed.pods.store.get(pod)
            group = group_of(member) if member is not None else None
            if group is not None:
                self._is_due(group)
        if self._waiting:
            self._queue_again(GroupEvent.CLAIM_CHANGED)

    def _queue_again(self, event: GroupEvent) -> None:
        """Groups that wait and depend on an event are judged again, once for all events of a moment."""
        self._events[event] += 1
        if self._waiting:
            self._queue.add_after(ALL, pacing.GROUPS_BATCH_S, event.value)

    def _wake(self) -> None:
        """Those that an event may help, by priority and then by age."""
        changes = self._observed.state.changes
        due = [key for key, wait in self._waiting.items() if wait != _Wait.build(changes, self._events, wait.events)]
        for key in sorted(due, key=self._compute_turn):
            self._queue.add(key, "what it waits for may be there")

    def _compute_turn(self, key: GroupKey) -> tuple[int, str, GroupKey]:
        seen = self._seen.get(key, {}).values()
        return -max((one.priority for one in seen), default=0), min((one.created for one in seen), default=""), key

    def count_states(self) -> dict[str, int]:
        """Returns how many replicas of groups that have pods are placed and how many wait, by the values of the metric's label `state`.
        Placed are those with `is_scheduled` in their last step. Replicas without a step yet are not counted."""
        placed = sum(self._is_placed.values())
        return {GROUP_PLACED: placed, GROUP_WAITS: len(self._is_placed) - placed}

    # --- one replica of a group -----------------------------------------------------------------------------------

    async def _reconcile(self, item: Item) -> Result:
        key = item.key
        assert isinstance(key, GroupKey)
        return await self.reconcile(key)

    async def reconcile(self, key: GroupKey) -> Result:
        """Plans and writes the next step of one replica of a group, or queues all that wait and that an event may help (`ALL`). While
        admissions are paused no pod gets a place. Plugins of other packages are asked, and waited for. Returns RequeueAfter with the
        seconds until it is to be judged again, else Done. Raises KubeError where a write fails, but not for pods that are gone or were
        changed; a refusal (Invalid, Forbidden) is reported in the condition."""
        if key == ALL:
            self._wake()
            return Done()
        answers, group = self.plugins.start_answers(), self._observed.find_pod_group(f"{key.namespace}/{key.name}")
        if group is not None and self._observed.devices is not None and (templates := read_pod_group(group).claim_templates):
            await self._observed.devices.judge(key.namespace, templates)
        while True:
            try:
                return await self._judge(key, answers)
            except Unanswered as open_question:
                await self.plugins.answer(open_question.question, answers)  # and all is read again: it may have changed meanwhile

    async def _judge(self, key: GroupKey, answers: Answers) -> Result:
        group = self._observed.find_pod_group(f"{key.namespace}/{key.name}")
        is_free = group is not None and self._is_free(group)
        if is_free and not any(member.gated for member in list_members(self._observed, key).values()):
            self._is_placed.pop(key, None)
            return Done()  # it is none of topogate's business
        changes, happened = self._observed.state.changes, self._events.copy()
        if (rest := self._find_rest(key, changes, happened)) > 0:
            return RequeueAfter(rest)
        await self._find_out(key)
        group = await begin_trace(self._executor, group) if group is not None and not is_native(group) else group
        members, began = [self._add_known_place(member) for member in list_members(self._observed, key).values()], self._clock.now()
        begun_s = self._clock.monotonic()
        step = self._hold_step(self._plan(key, group, members, answers))
        ended_s = self._clock.monotonic()
        self._rests_until = 2 * ended_s - begun_s
        self.plugins.record_missed(key, answers)
        refused = await self._execute_step(key, group, step, began)
        if refused is not None:
            if group is not None:
                await self._give_up(key, group, members, step)
            step = refused
        elif step.keep:
            if any(member.uid not in self._decided for member, _ in step.keep):
                return RequeueAfter(pacing.GROUPS_AGAIN_S)  # of a pod that is gone, or was changed: its event is on the way
            self._record_placement(key, [member for member, _ in step.keep])
            self._queue.add(key, "its places are kept")
            return Done()
        if group is None:
            self._is_placed.pop(key, None)
            self._waiting.pop(key, None)
            if refused is not None:
                logger.warning("a place is not given back", extra={"group": str(key), "error": refused.message})
                return RequeueAfter(pacing.GROUP_REFUSED_S)
            return Done()  # its pods wait until there is one
        if key in self._seen:
            self._is_placed[key] = step.is_scheduled
        if not step.is_scheduled and step.reason not in _NO_REFUSALS:
            self._recorder.count_group_refusal(step.reason)
        await self._conditions.report(group, key, step, has_pods=bool(members))
        since = self._ungated.get(key)
        if since is not None and not any(member.is_live and not member.node for member in members):
            await self._executor.execute(plan_bound(group, key, sum(member.is_live for member in members), since))
            self._ungated.pop(key, None)  # unless the last pod has gone meanwhile
        if step.waits:
            events = self.plugins.list_events(read_pod_group(group))
            self._waiting[key] = _ANEW if self.plugins.is_missed(key) else _Wait.build(changes, happened, events)
            return RequeueAfter(pacing.GROUPS_LOOK_S)
        self._waiting.pop(key, None)
        return RequeueAfter(step.retry_s) if step.retry_s is not None else Done()

    def _find_rest(self, key: GroupKey, changes: int, happened: Mapping[GroupEvent, int]) -> float:
        """In how many seconds to look at a group again; 0 where it is to be judged now."""
        now = self._clock.monotonic()
        if (rest := self._refused_until.get(key, now) - now) > 0:
            return rest
        self._refused_until.pop(key, None)
        waiting = self._waiting.get(key)
        if waiting is not None and waiting == _Wait.build(changes, happened, waiting.events):
            return pacing.GROUPS_LOOK_S  # nothing has come or gone since it was judged
        # Half of the loop's time at most is for groups that were refused before.
        return pacing.GROUPS_BATCH_S if waiting is not None and now < self._rests_until else 0.0

    def _record_placement(self, key: GroupKey, members: Sequence[Member]) -> None:
        seen = self._seen.get(key, {})
        since = [seen[member.uid].at_s for member in members if member.uid in seen]
        if since:
            self._recorder.record_group_placement(self._clock.monotonic() - max(since))

    def _is_free(self, group: Obj) -> bool:
        """Whether it is one of kube-scheduler's own that has no constraint, and is to have none."""
        return is_native(group) and not read_pod_group(group).is_constrained and not find_lost(self._observed, group)

    async def _find_out(self, key: GroupKey) -> None:
        """Reads the pods with a write of unknown result, so that they are observed as they are: until then their places stay kept. Raises
        KubeError; those that were read before are not read again."""
        unsure = self._unsure.get(key, set())
        for pod in sorted(unsure):
            namespace, _, name = pod.partition("/")
            try:
                member = read_member(await self._executor.read(r.PODS, namespace, name))
            except NotFound:
                member = None  # its event is on the way
            if member is not None and not member.kept and not member.sent:  # it was not written
                self._drop_decision(member)
            unsure.discard(pod)
        self._unsure.pop(key, None)

    def _drop_decision(self, member: Member) -> None:
        """Drops a place that was decided on and is not written, unless the pod of that name has it, or is another pod by now."""
        self._decided.pop(member.uid, None)
        pod = self._observed.pods.store.get(member.key)
        present = read_member(pod) if pod is not None else None
        if present is not None and present.uid == member.uid:
            self._fold(present)
        else:
            drop_place(self._observed, member.group, member.uid)
            self._queue_again(GroupEvent.PLACE_RETURNED)

    def _plan(self, key: GroupKey, group: Obj | None, members: Sequence[Member], answers: Answers) -> GroupStep:
        """Raises Unanswered."""
        since = max((one.at_s for one in self._seen.get(key, {}).values()), default=0.0)
        plugins, waited_s = self.plugins.list_plugins(answers), self._clock.monotonic() - since
        return plan_next_step(self._observed, plugins, self._rules, key, group, members, waited_s)

    def _hold_step(self, step: GroupStep) -> GroupStep:
        """Returns the step without places while admissions are paused: no group gets places, and no pod is ungated."""
        stop = self._observed.state.pause.find_stop(ADMISSIONS)
        if stop is None or not (step.keep or step.let_go or step.hand_over):
            return step
        return GroupStep(False, PAUSED, stop.sentence, give_back=step.give_back, waits=True)

    # --- writes ---------------------------------------------------------------------------------------------------

    async def _execute_step(self, key: GroupKey, group: Obj | None, step: GroupStep, began: datetime) -> GroupStep | None:
        """Executes the writes of a step. Where the API server refuses one, returns another step that reports it. Raises
        other errors, once all other pods have been tried."""
        ended, pods = self._clock.now(), self._observed.pods.store.objects
        traceparent = find_traceparent(group) if group is not None else None
        traceparent = traceparent if build_context(traceparent) is not None else None  # any user may have written anything there
        let_go = {member.key: pods[member.key] for member, _ in step.let_go}
        plan = plan_group(DecidedGroup(key, group, step, let_go, began, ended, traceparent))
        if let_go:
            self._ungated.setdefault(key, ended)
        for member, node in step.keep:
            self._decided[member.uid] = node
            hold_place(self._observed, member, node)
        for member in step.give_back:
            self._decided.pop(member.uid, None)
        try:
            failed = await self._execute(key, plan, [*step.give_back, *(member for member, _ in (*step.keep, *step.let_go))])
        except (Invalid, Forbidden) as refused:
            return GroupStep(False, REFUSED, f"the API server does not take kube-scheduler's PodGroup: {refused}", waits=True)
        others = [error for _, error in failed if not isinstance(error, Invalid | Forbidden)]
        if others:
            raise others[0]
        if not failed:
            return None
        member, error = failed[0]
        return GroupStep(False, REFUSED, f"the API server does not take what is written of pod {member.key}: {error}", waits=True)

    async def _give_up(self, key: GroupKey, group: Obj, members: Sequence[Member], step: GroupStep) -> None:
        """Gives up the places of a gang after the API server refused that of a pod, so that other pods can use them;
        the gang is tried again later. Raises KubeError."""
        kept = [member for member, _ in step.keep if member.uid in self._decided]
        placed = [member for member in members if member.is_live and member.place]
        if len(kept) + len(placed) >= (read_pod_group(group).min_count or 1) or not all(member.gated for member in placed):
            return
        for member in kept:
            self._decided.pop(member.uid)
        self._refused_until[key] = self._clock.monotonic() + pacing.GROUP_REFUSED_S
        failed = await self._execute(key, plan_return(kept), kept)
        if failed:
            raise failed[0][1]

    async def _execute(self, key: GroupKey, plan: Plan, members: Sequence[Member]) -> list[tuple[Member, KubeError | Paused]]:
        """Executes a plan of writes to pods, none waited for by another. A place that was not written is given back; where the answer is
        lost that is found out first. Returns the pods of failed writes, in the order of `members`, but for those that are gone or were
        changed: their events are on the way. Raises what keeps the pods from being written: which of them were is found out, too."""
        left = Left()
        try:
            await self._executor.execute(plan, left)
        except Exception as fault:
            if not isinstance(fault, KubeError) or not left.failed:
                self._unsure.setdefault(key, set()).update(member.key for member in members)
                raise
        failed = [(member, left.failed[at]) for member in members if (at := (r.PODS, member.key)) in left.failed]
        for member, error in failed:
            if isinstance(error, Unreachable | ServerError):
                self._unsure.setdefault(key, set()).add(member.key)
            else:
                self._drop_decision(member)
        return [(member, error) for member, error in failed if not isinstance(error, NotFound | Conflict)]


def _has_same_spec(change: Change) -> bool:
    return change.old is not None and change.new is not None and change.old.get("spec") == change.new.get("spec")


def _get_allocation(claim: Obj | None) -> object:
    return ((claim or {}).get("status") or {}).get("allocation")
