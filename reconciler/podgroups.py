"""Groups of pods (KEP-5732), placed from outside kube-scheduler by gate and pin: a place is kept for each pod by its nominated node, then
they are let go, each to its node alone. kube-scheduler binds them; topogate never does.

What is known of a group stands on its pods, and what is to be done is planned from that anew each time (`core.podgroups.acting`): a process
that ends between any two writes leaves nothing that another could not go on with.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from core.names import POD_GROUP_SCHEDULED
from core.placement.feasibility import InvalidSelector
from core.plan.conditions import Condition, says, set_conditions
from core.podgroups.acting import Place, Step, plan_step
from core.podgroups.algorithm import default_plugins
from core.podgroups.facts import UnknownAlias, read_aliases, read_pod_group, resolve
from core.podgroups.members import GroupKey, Member, group_of, read_member
from core.runtime.clock import Clock
from core.runtime.controller import Done, RequeueAfter, Result
from core.runtime.errors import Conflict, KubeError, NotFound, ServerError, TooManyRequests, Unreachable
from core.runtime.expectations import Expectations
from core.runtime.resource import Obj
from core.runtime.store import Change
from core.runtime.throttle import Throttle
from core.runtime.workqueue import Item
from reconciler import resources as r
from reconciler.apply import Writer
from reconciler.controllers import build_controller
from reconciler.observed import Observed

logger = logging.getLogger(__name__)
BATCH_S = 0.2  # pods of a group come one by one
RETRY_S = 5.0  # what helps is told by events; this is for what nobody tells
MOST_SHED = 20  # times in a row that one write may be refused with 429
_DRA = "spec.schedulingConstraints.draConstraints"


class PodGroups:
    """Reconciles one replica of a group at a time, by its key."""

    def __init__(self, observed: Observed, writer: Writer, clock: Clock) -> None:
        self._observed, self._writer, self._clock = observed, writer, clock
        self._plugins = default_plugins()
        self._expectations = Expectations()
        self._throttle = Throttle(clock)
        self._came: dict[GroupKey, dict[str, float]] = {}  # when each of its pods was first seen, by uid
        self._waiting: set[GroupKey] = set()
        self._unsure: dict[GroupKey, set[str]] = {}  # pods of which it is not known what was written, by key
        self.controller = build_controller("podgroups", self._reconcile, clock)
        self._queue = self.controller.queue
        observed.pods.add_handler(self._on_pod)
        observed.pod_groups.add_handler(self._on_group)
        observed.node_topologies.add_handler(lambda change: self._look_again("a NodeTopology changed"))
        observed.nodes.add_handler(lambda change: self._look_again("a node changed"))

    # --- what is seen ---------------------------------------------------------------------------------------------

    def _on_pod(self, change: Change) -> None:
        group = group_of(change.obj)
        if group is None:
            if change.new is None or (change.new.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
                self._look_again("a pod is gone")
            return
        uid = change.obj["metadata"]["uid"]
        member = read_member(change.new) if change.new is not None else None
        self._expectations.observe(group, uid)
        self._keep(group, uid, member)
        came = self._came.setdefault(group, {})
        if member is None or not member.is_live:
            came.pop(uid, None)
            if not came:
                del self._came[group]
            self._look_again("a pod is gone")
        else:
            came.setdefault(uid, self._clock.monotonic())
        self._queue.add_after(group, BATCH_S, "its pods changed")

    def _keep(self, group: GroupKey, uid: str, member: Member | None) -> None:
        """What is kept for a pod until it is bound; from then on the pod itself counts."""
        waits = member is not None and member.is_live and not member.node
        if member is not None and waits and member.place:
            self._observed.state.whole.keep(str(group), uid, member.place, member.request.requests, member.request.traits)
        else:
            self._observed.state.whole.keep(str(group), uid, None, {})

    def _on_group(self, change: Change) -> None:
        metadata = change.obj["metadata"]
        replicas = int((change.obj.get("spec") or {}).get("replicas") or 1)
        for replica in range(replicas):
            key = GroupKey(metadata.get("namespace") or "", metadata["name"], replica)
            if replica == 0 or key in self._came:
                self._queue.add_after(key, BATCH_S, "the group changed")

    def _look_again(self, why: str) -> None:
        for key in self._waiting:
            self._queue.add_after(key, BATCH_S, why)

    # --- one replica of a group -----------------------------------------------------------------------------------

    async def _reconcile(self, item: Item) -> Result:
        key = item.key
        assert isinstance(key, GroupKey)
        group = self._observed.pod_groups.store.get(f"{key.namespace}/{key.name}")
        if group is None:
            self._waiting.discard(key)
            return Done()  # its pods wait until there is one
        now = self._clock.monotonic()
        if not self._expectations.satisfied(key, now):
            return RequeueAfter(max(BATCH_S, self._expectations.retry_in(key, now) or BATCH_S))
        members = [*self._members(key, await self._find_out(key)).values()]
        try:
            step = self._plan(key, group, members)
        except (UnknownAlias, InvalidSelector) as error:
            step = Step(False, "Invalid", str(error))
        await self._do(key, step)
        if step.keep:
            self._queue.add(key, "its places are kept")
            return Done()
        (self._waiting.discard if step.is_scheduled else self._waiting.add)(key)
        await self._tell(group, key, step)
        if step.retry_s is not None:
            return RequeueAfter(step.retry_s)
        return Done() if step.is_scheduled else RequeueAfter(RETRY_S)

    def _members(self, key: GroupKey, found_out: dict[str, Member]) -> dict[str, Member]:
        seen = (read_member(pod) for pod in self._observed.pods.store.by_index("podgroup", str(key)))
        return {member.key: member for member in seen if member is not None} | found_out

    async def _find_out(self, key: GroupKey) -> dict[str, Member]:
        """What was written where the answer was lost: until that is known the place stays kept. Raises KubeError."""
        found: dict[str, Member] = {}
        for pod in sorted(self._unsure.get(key, ())):
            namespace, _, name = pod.partition("/")
            try:
                member = read_member(await self._writer.read_pod(namespace, name))
            except NotFound:
                member = None  # its event is on the way
            if member is not None:
                self._keep(key, member.uid, member)
                found[member.key] = member
            self._unsure[key].discard(pod)
        self._unsure.pop(key, None)
        return found

    def _plan(self, key: GroupKey, group: Obj, members: Sequence[Member]) -> Step:
        """Raises UnknownAlias and InvalidSelector."""
        facts = read_pod_group(group)
        if facts.claim_templates:
            return Step(False, "Invalid", f"{_DRA}: constraints on devices are not served yet; topologyConstraints are")
        if not facts.is_constrained:
            free = tuple((member, "") for member in members if member.is_live and member.gated)
            return Step(True, "NoConstraint", "the group has no constraint: kube-scheduler places its pods", let_go=free)
        levels = resolve(facts.levels, read_aliases(self._observed.node_topologies.store.list()))
        since = max(self._came.get(key, {}).values(), default=0.0)
        view = self._observed.state.whole.capacity
        return plan_step(facts, levels, key, members, view, self._plugins, self._clock.monotonic() - since)

    async def _do(self, key: GroupKey, step: Step) -> None:
        """The writes of a step; raises the first error, once all others have been tried."""
        whole = self._observed.state.whole
        for member, node in step.keep:
            whole.keep(str(key), member.uid, node, member.request.requests, member.request.traits)
        given_back = [(member, "") for member in step.give_back]
        await self._write(key, given_back, lambda place: self._writer.keep_place(*place))
        await self._write(key, step.keep, lambda place: self._writer.keep_place(*place))
        await self._write(key, step.let_go, lambda place: self._writer.let_go(*self._as_seen(place)))
        if step.let_go:
            logger.info("pods of a group let go", extra={"group": str(key), "count": len(step.let_go)})

    def _as_seen(self, place: Place) -> tuple[Obj, str]:
        member, node = place
        pod = self._observed.pods.store.get(member.key)
        if pod is None or pod["metadata"]["uid"] != member.uid:
            raise NotFound(404, "NotFound", f"pod {member.key} is gone")
        return pod, node

    async def _write(self, key: GroupKey, places: Sequence[Place], write: Callable[[Place], Awaitable[Obj]]) -> None:
        """One write per pod, none waited for by another; what is seen of it is waited for before the group is judged again."""
        if not places:
            return
        self._expectations.expect(key, [member.uid for member, _ in places], self._clock.monotonic())
        results = await asyncio.gather(*(self._write_one(key, place, write) for place in places))
        failed = [error for error in results if error is not None]
        if failed:
            raise failed[0]

    async def _write_one(self, key: GroupKey, place: Place, write: Callable[[Place], Awaitable[Obj]]) -> KubeError | None:
        member, _ = place
        before = self._observed.pods.store.get(member.key)
        try:
            written = await self._throttled(lambda: write(place))
        except (Unreachable, ServerError) as error:
            self._expectations.observe(key, member.uid)
            self._unsure.setdefault(key, set()).add(member.key)
            return error
        except KubeError as error:
            self._expectations.observe(key, member.uid)
            self._keep(key, member.uid, read_member(before) if before is not None else None)
            return None if isinstance(error, NotFound | Conflict) else error  # gone, or another of this name: its event is on the way
        if before is not None and written["metadata"].get("resourceVersion") == before["metadata"].get("resourceVersion"):
            self._expectations.observe(key, member.uid)
        return None

    async def _throttled(self, write: Callable[[], Awaitable[Obj]]) -> Obj:
        for _ in range(MOST_SHED):
            async with self._throttle:
                try:
                    written = await write()
                except TooManyRequests as error:
                    self._throttle.shed(error.retry_after)
                    continue
                self._throttle.succeeded()
                return written
        return await write()

    async def _tell(self, group: Obj, key: GroupKey, step: Step) -> None:
        """The condition of the group; of one with replicas it says which one it speaks of."""
        replicas = int(group["spec"].get("replicas") or 1)
        message = f"replica {key.replica}: {step.message}" if replicas > 1 else step.message
        condition = Condition(POD_GROUP_SCHEDULED, step.is_scheduled, step.reason, message)
        before = (group.get("status") or {}).get("conditions") or []
        if says(before, condition):
            return
        generation = int(group["metadata"].get("generation") or 0)
        wire = set_conditions(before, [condition], now=self._writer.now(), generation=generation)
        try:
            await self._writer.patch_status(r.POD_GROUPS, group, {"conditions": wire})
        except NotFound:
            return
        logger.info("group judged", extra={"group": str(key), "scheduled": step.is_scheduled, "why": message})
        await self._writer.event(r.POD_GROUPS, group, step.reason, message, warning=not step.is_scheduled)
