"""What is done to pods that wait, and to no pod that has been bound meanwhile: their watch may be behind, and other pods come first."""

from collections.abc import Awaitable, Callable

from core.resource import Obj
from core.runtime.errors import BadRequest, Conflict, Forbidden, Invalid, NotFound
from core.state.facts import PodFacts
from reconciler.apply import Writer
from reconciler.observed import Observed

REFUSALS = BadRequest, Forbidden, Invalid  # by a policy or an admission webhook: time heals none of them
ATTEMPTS = 4  # at a pod that others change at the same time


async def change_waiting(observed: Observed, writer: Writer, pod: PodFacts, change: Callable[[Obj], Awaitable[object]]) -> Obj:
    """Does something to a pod as it is now, if it still waits; returns it as it was. `change` raises Conflict where the pod is another than
    it is given. Raises Conflict where it is bound or is changed again and again, and NotFound where it is gone."""
    namespace, _, name = pod.key.partition("/")
    found = observed.pods.store.get(pod.key)
    for attempt in range(1, ATTEMPTS + 1):
        if found is None or found["metadata"]["uid"] != pod.uid:
            raise NotFound(404, "NotFound", f"pod {pod.key} is gone")
        if found["spec"].get("nodeName"):
            raise Conflict(409, "Conflict", f"pod {pod.key} is bound by now")
        try:
            await change(found)
            return found
        except Conflict:
            if attempt == ATTEMPTS:
                raise
            found = await writer.read_pod(namespace, name)
    raise AssertionError("the last attempt returns or raises")
