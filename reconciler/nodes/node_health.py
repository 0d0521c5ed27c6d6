"""Reports which nodes are lost for which workloads (`status.unhealthyNodes`), and deletes pods that wait for a node
which accepts none.

Level-triggered, a workload at a time, so that all the nodes it has lost are named in one write and replaced in one
decision by the second pass (`core.queueing.cycle.second_pass`). `reconciler.nodes.read_nodes` reads nodes and pods,
`core.plan.pods.node_health` decides; a storm holds it all back (`reconciler.nodes.mass_not_ready`).
"""

from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from functools import partial

from core.model.node_health_rules import HealthRules
from core.plan.pods.node_health import NodeShare, NodeVerdict, Place, find_placed, is_pinned, judge_node, may_move
from core.plan.pods.node_steps import REPORT_LOST, NodesFacts, plan_leftovers, plan_nodes
from core.plan.steps import api_resources as r
from core.plan.steps import pacing
from core.resource import Obj
from core.runtime.apart import FEW, run_apart
from core.runtime.clock import Clock
from core.runtime.controller import Done, RequeueAfter, Result
from core.runtime.http.errors import Conflict
from core.runtime.watch.store import Change, build_object_key
from core.runtime.workqueue import Item
from core.state.facts import PodFacts, WorkloadFacts, find_family
from reconciler.execute.controllers import build_controller
from reconciler.execute.executor import Executor, Left
from reconciler.nodes.node_memory import Names, NodeMemory, NodeUsers, read_state_and_labels
from reconciler.nodes.read_nodes import NodesOfWorkload
from reconciler.nodes.stuck_pods import StuckPods
from reconciler.observe.indexes import get_hostname, list_workloads_of_pod
from reconciler.observe.observed import Observed


class NodeHealth:
    """Reconciles one workload at a time by namespace/name. `is_held`: whether the workload is in a storm."""

    def __init__(
        self,
        observed: Observed,
        executor: Executor,
        clock: Clock,
        rules: HealthRules,
        is_held: Callable[[WorkloadFacts], bool] = lambda workload: False,
    ) -> None:
        self._observed, self._executor, self._clock, self._rules = observed, executor, clock, rules
        self._is_held = is_held
        self._users = NodeUsers()
        self._memory = NodeMemory(observed, clock, self._users)
        self._nodes = NodesOfWorkload(observed, clock, rules, self._memory, self._users)
        self.stuck = StuckPods(observed)
        self.controller = build_controller("node health", self._reconcile, clock, workers=4)
        self._queue = self.controller.queue
        observed.workloads.add_handler(self._on_workload)
        observed.pods.add_handler(self._on_pod)
        observed.nodes.add_handler(self._on_node)
        observed.flavors.add_handler(self._on_definition)
        observed.topologies.add_handler(self._on_definition)

    # --- keys to look at ----------------------------------------------------------------------------------------

    def _on_workload(self, change: Change) -> None:
        key = build_object_key(change.obj)
        facts = self._observed.state.workloads.facts.get(key) if change.new is not None else None
        before, hosts = self._users.put(key, facts)
        for host in before - hosts:
            if host not in self._users.by_host:
                self._memory.remove_host(host)
        if hosts and (hosts != before or (facts is not None and facts.unhealthy_nodes)):
            self._queue.add_after(key, pacing.NODES_BATCH_S, "workload changed")

    def _on_node(self, change: Change) -> None:
        if change.old is not None and change.new is not None and read_state_and_labels(change.old) == read_state_and_labels(change.new):
            return
        name = change.obj["metadata"]["name"]
        hosts = {name, *(get_hostname(each) for each in (change.old, change.new) if each is not None)}
        self._memory.note_node(change, hosts)
        for host in hosts:
            for key in self._users.by_host.get(host, ()):
                if any(host == left for _, left in self._users.outside.get(key, ())):  # it may be back: no pod moves before that is known
                    self._observed.state.observe_stuck(key, None)
                self._queue.add_after(key, pacing.NODES_BATCH_S if change.new is not None else pacing.NODE_GONE_S, f"node {name} changed")

    def _on_definition(self, change: Change) -> None:
        """A flavor or a topology: other nodes may belong to it now."""
        if change.old is not None and (change.new is None or change.old.get("spec") != change.new.get("spec")):
            for key in self._users.hosts:
                self._queue.add_after(key, pacing.NODES_BATCH_S, f"{change.obj['metadata']['name']} changed")

    def _on_pod(self, change: Change) -> None:
        key = build_object_key(change.obj)
        facts = self._observed.pod_facts.get(key) if change.new is not None else None
        self._memory.note_pod(key, facts)
        if facts is not None and facts.gated:
            if self._users.outside:
                for workload in self._list_named(change.obj):
                    if workload in self._users.outside:
                        self._queue.add_after(workload, pacing.NODES_BATCH_S, "pod waits")
            return
        runs = facts is not None and bool(facts.node) and not facts.terminal and not facts.terminating
        for workload in self._list_named(change.obj):
            if facts is not None and facts.node:
                self._users.used.setdefault(workload, set()).add(facts.node)
            if not runs and (workload in self._users.hosts or (facts is not None and is_pinned(facts, (facts.pod_set or "",)))):
                self._queue.add_after(workload, pacing.NODES_BATCH_S, "pod changed")

    def _list_named(self, pod: Obj) -> list[str]:
        """Key of the workload that holds a pod's place, if it names any."""
        return self._observed.list_present_of_pod(pod) if list_workloads_of_pod(pod) else []

    # --- one workload -------------------------------------------------------------------------------------------

    async def _reconcile(self, item: Item) -> Result:
        return await self.reconcile(str(item.key))

    async def reconcile(self, key: str) -> Result:
        """Judges all nodes of an admitted workload: deletes pods that wait for lost nodes, writes which nodes are lost
        (`status.unhealthyNodes`) or evicts it, and reports pods that their node rejects. Does nothing while it is in a storm and would lose
        more nodes. Of a workload without an admission it deletes pods that still wait for its former nodes; of any that does not run it
        ends the report of rejected pods. Returns RequeueAfter with the seconds until it is to be judged again, else Done. Raises KubeError
        where a write fails but for a Conflict, and Paused while evictions are paused."""
        workload = self._observed.workloads.store.get(key)
        facts = self._observed.state.workloads.facts.get(key)
        if workload is None or facts is None or not facts.runs or facts.admission is None:
            self.stuck.note(key, {})
            return await self._execute_leftovers(workload, facts) if workload is not None else Done()
        f = await self._read(workload, facts)
        if f is None:
            return RequeueAfter(pacing.NODES_BATCH_S)
        planned, left = plan_nodes(f, self._rules), Left()
        try:
            result = await self._executor.execute(planned.plan, left)
            if planned.stuck is not None:
                self.stuck.note(key, planned.stuck)
            return result
        except Conflict as error:
            if error in left.failed.values():  # a pod is bound to a node that seemed to be lost
                return RequeueAfter(pacing.NODES_BATCH_S)
            raise
        finally:
            if REPORT_LOST in left.done and key in self._users.hosts:  # it may be gone by now
                named = left[r.WORKLOADS, key]["status"].get("unhealthyNodes") or ()
                self._users.reported[key] = facts.admission, {node["name"] for node in named}, self._clock.monotonic()

    async def _execute_leftovers(self, workload: Obj, facts: WorkloadFacts | None) -> Result:
        left: list[PodFacts] = []
        if facts is not None and facts.admission is None and not facts.finished:
            placed, pods = find_placed(facts), self._observed.list_pods(find_family(workload))
            left = [pod for pod in self._nodes.list_own(workload, facts, pods, {}) if is_pinned(pod, placed)]
        return await self._executor.execute(plan_leftovers(workload, left, self._observed.pods.store.objects, self._clock.now()))

    async def _read(self, workload: Obj, facts: WorkloadFacts) -> NodesFacts | None:
        """What is judged of its nodes. None where these are being replaced, or it has changed meanwhile."""
        if self._observed.state.workloads.is_assumed(facts.key):
            return None
        pods = self._observed.list_pods(find_family(workload))
        names = await self._nodes.name_nodes(facts, pods)
        outside = self._nodes.find_outside(facts, names)
        shares, nodes = await run_apart(len(pods), partial(self._nodes.read_shares, workload, facts, pods, outside, names))
        if self._observed.workloads.store.get(facts.key) is not workload or self._observed.state.workloads.is_assumed(facts.key):
            return None
        if len(pods) > FEW and self._nodes.find_outside(facts, names) != outside:
            return None
        now = self._clock.now()
        verdicts = {place: self._judge(place[0], share, now) for place, share in shares.items()}
        is_movable = may_move(facts, self._nodes.list_own(workload, facts, pods, names))
        lost = self._name_lost((place for place, verdict in verdicts.items() if verdict.lost and is_movable), names)
        in_storm = any(verdict.lost or verdict.stuck for verdict in verdicts.values()) and self._is_held(facts)
        reported, rest_s = self._find_reported(facts)
        objects = self._observed.pods.store.objects
        return NodesFacts(workload, facts, nodes, shares, verdicts, lost, objects, now, in_storm, reported, rest_s)

    def _name_lost(self, lost: Iterable[Place], names: Names) -> dict[Place, str]:
        """Lost nodes as the assignment names them: by its hostname one that is gone, or with a name that is the hostname of another."""
        hosts = {values[-1] for _, values in names}
        hosts_by_node = {
            node: values[-1]
            for (_, values), node in names.items()
            if self._observed.nodes.store.get(node) is None or (node in hosts and node != values[-1])
        }
        return {(name, host): host or hosts_by_node.get(name, name) for name, host in lost}

    def _find_reported(self, facts: WorkloadFacts) -> tuple[Collection[str], float]:
        """Returns the lost nodes that were reported last, while the place is the same, and for how many seconds they are not again. Where
        this controller and what finds places disagree on what a node is neither would ever rest."""
        admission, reported, at = self._users.reported.get(facts.key, (None, (), 0.0))
        return (reported, at + pacing.LOST_AGAIN_S - self._clock.monotonic()) if admission == facts.admission else ((), 0.0)

    def _judge(self, name: str, share: NodeShare, now: datetime) -> NodeVerdict:
        """One node; one that cannot be judged is set aside, and the workload's other nodes are judged all the same."""
        node, rest_s = self._memory.read_node(name), self._memory.find_rest(name)
        if node is None and rest_s > 0:
            return NodeVerdict(look_again_s=rest_s)
        try:
            return judge_node(node, share, self._rules, now)
        except Exception as error:
            if node is None:
                raise
            self._observed.set_aside.add(self._observed.nodes.resource, name, node, error)
            return NodeVerdict()
