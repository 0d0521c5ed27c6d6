"""What is done to pods that wait, and to no pod that has been bound meanwhile: their watch may be behind, and other pods come first."""

from collections.abc import Callable

from core.plan import resources as r
from core.plan.writes import Write
from core.resource import Obj
from core.runtime.errors import BadRequest, Conflict, Forbidden, Invalid, NotFound
from core.state.facts import PodFacts
from reconciler.execute import Executor
from reconciler.observed import Observed

REFUSALS = BadRequest, Forbidden, Invalid  # by a policy or an admission webhook: time heals none of them
ATTEMPTS = 4  # at a pod that others change at the same time


async def change_waiting(observed: Observed, executor: Executor, pod: PodFacts, change: Callable[[Obj], Write]) -> Obj:
    """Does something to a pod as it is now, if it still waits; returns it as it was. `change` is guarded by all of the pod. Raises Conflict
    where it is bound or is changed again and again, and NotFound where it is gone."""
    namespace, _, name = pod.key.partition("/")
    found = observed.pods.store.get(pod.key)
    for attempt in range(1, ATTEMPTS + 1):
        if found is None or found["metadata"]["uid"] != pod.uid:
            raise NotFound(404, "NotFound", f"pod {pod.key} is gone")
        if found["spec"].get("nodeName"):
            raise Conflict(409, "Conflict", f"pod {pod.key} is bound by now")
        try:
            await executor.write(change(found))
            return found
        except Conflict:
            if attempt == ATTEMPTS:
                raise
            found = await executor.read(r.PODS, namespace, name)
    raise AssertionError("the last attempt returns or raises")
