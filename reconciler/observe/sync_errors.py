"""Why not everything can be seen: what an administrator has to mend, in one line of the log instead of one for each try of each watch."""

import logging
from collections.abc import Sequence
from typing import Never

from core.names import GROUP
from core.plan.steps import pacing
from core.runtime.clock import Clock
from core.runtime.http.client import Client
from core.runtime.http.errors import Forbidden, KubeError, NotFound, Unauthorized, Unreachable
from core.runtime.watch.informer import Informer
from reconciler.observe.observed import Observed

logger = logging.getLogger(__name__)
# These do not go away by themselves. A watch that continues in silence may still have another error that is over.
_LASTING = (Forbidden, NotFound, Unauthorized)
_WORST_FIRST = (Unreachable, Unauthorized, NotFound, Forbidden, KubeError)


class Troubles:
    """Checks the watches now and then. An error that ends between two checks is not reported."""

    def __init__(self, observed: Observed, clock: Clock, client: Client) -> None:
        self._observed = observed
        self._clock = clock
        self._client = client
        self._seen = self._logged = ""
        self._logged_at = float("-inf")

    async def run(self) -> Never:
        """Looks at the watches every `pacing.TROUBLES_LOOK_S` seconds. Never returns."""
        while True:
            self.check()
            await self._clock.sleep(pacing.TROUBLES_LOOK_S)

    def check(self) -> None:
        """Logs once what is wrong now and was at the last look, and again every `pacing.TROUBLES_REMIND_S` seconds; and once that it is
        over.
        """
        why, before = self.describe_errors(), self._seen
        self._seen = why
        now = self._clock.monotonic()
        if why and why == before and (why != self._logged or now >= self._logged_at + pacing.TROUBLES_REMIND_S):
            logger.warning("the cluster cannot be seen", extra={"why": why})
            self._logged, self._logged_at = why, now
        elif self._logged and not why and not before:
            logger.info("the cluster can be seen")
            self._logged = ""

    def describe_errors(self) -> str:
        """Returns a text on what keeps the watches of `awaited` from receiving anything now, and what would correct it; empty where nothing
        does. Of a kind that has been listed only Forbidden, NotFound and Unauthorized count. Only the most severe error is named, see
        `describe`."""
        troubles = [
            (informer, error)
            for informer in self._observed.awaited
            if (error := informer.watcher.trouble) is not None and (not informer.synced or isinstance(error, _LASTING))
        ]
        return describe(troubles, self._client.address) if troubles else ""


def describe(troubles: Sequence[tuple[Informer, KubeError]], address: str) -> str:
    """Returns a text on the most severe errors only; empty where there are none. The order is: the server at `address` cannot be reached,
    does not accept the credentials, lacks a resource, refuses for missing rights, any other error."""
    worst = next((kind for kind in _WORST_FIRST if any(isinstance(error, kind) for _, error in troubles)), None)
    if worst is None:
        return ""
    informers = [informer for informer, error in troubles if isinstance(error, worst)]
    first = next(error for _, error in troubles if isinstance(error, worst))
    if worst is Unreachable:
        return f"the API server {address} cannot be reached: {first.message}"
    if worst is Unauthorized:
        return f"the API server {address} does not accept our credentials: {first.message}"
    if worst is NotFound:
        return _describe_unserved(informers)
    if worst is Forbidden:
        return f"no right to list and watch {_format_names(informers)} (the chart's ClusterRole has it): {first.message}"
    return f"{_format_names(informers)} cannot be listed: {first}"


def _describe_unserved(informers: Sequence[Informer]) -> str:
    versions = ", ".join(sorted({informer.resource.api_version for informer in informers}))
    ours = any(informer.resource.group == GROUP for informer in informers)
    mend = "; install their CustomResourceDefinitions: the chart does (crds.install: true)" if ours else ""
    return f"the API server does not serve {_format_names(informers)} in {versions}{mend}"


def _format_names(informers: Sequence[Informer]) -> str:
    return ", ".join(sorted(str(informer.resource) for informer in informers))
