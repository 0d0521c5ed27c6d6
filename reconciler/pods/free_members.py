"""Pods with the gate of a group where groups are not placed: the feature gate is off, so that what their groups ask for is ignored, and
kube-scheduler places them wherever they fit (KEP-5732: stored constraints stay and are ignored)."""

from core.names import PODGROUP_GATE
from core.plan.steps import writes as w
from core.plan.steps.steps import PASSED_OVER, Log, Step, make_plan
from core.resource import Obj
from core.runtime.clock import Clock
from core.runtime.controller import Done, Result
from core.runtime.watch.store import Change, build_object_key
from core.runtime.workqueue import Item
from reconciler.execute.controllers import build_controller
from reconciler.execute.executor import Executor
from reconciler.observe.observed import Observed


class FreeMembers:
    """Takes the gate off them. Reconciles one pod at a time, by its key."""

    def __init__(self, observed: Observed, executor: Executor, clock: Clock) -> None:
        self._observed, self._executor = observed, executor
        self.controller = build_controller("free-members", self._reconcile, clock)
        observed.pods.add_handler(self._on_pod)

    def _on_pod(self, change: Change) -> None:
        if change.new is not None and _is_waiting(change.new):
            self.controller.queue.add(build_object_key(change.new), "it has the gate of a group")

    async def _reconcile(self, item: Item) -> Result:
        pod = self._observed.pods.store.get(str(item.key))
        if pod is None or not _is_waiting(pod):
            return Done()
        log = Log("pod of a group let go, since groups are not placed", {"pod": str(item.key)})
        return await self._executor.execute(make_plan(Step("let go", w.ungate_to_node(pod, ""), log=log, passes=PASSED_OVER)))


def _is_waiting(pod: Obj) -> bool:
    gates = (pod.get("spec") or {}).get("schedulingGates") or ()
    return any(gate.get("name") == PODGROUP_GATE for gate in gates) and not pod["metadata"].get("deletionTimestamp")
