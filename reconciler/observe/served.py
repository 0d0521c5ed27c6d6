"""Built-in APIs that an API server may lack: it serves them unless it is older, or they are disabled. No
CustomResourceDefinition shows that."""

import asyncio
import contextlib
import json
import logging
from collections.abc import Sequence

from core.plan.steps import pacing
from core.runtime.clock import Clock
from core.runtime.http.client import Client
from core.runtime.http.errors import KubeError, NotFound
from core.runtime.tasks import start_eternal
from core.runtime.watch.informer import Informer

logger = logging.getLogger(__name__)


class Served:
    """Informers of one group and version, which are run once the API server has all of them; it is asked what it has."""

    def __init__(self, client: Client, clock: Clock, informers: Sequence[Informer]) -> None:
        self._client, self._clock, self.informers = client, clock, tuple(informers)
        self._api_version = informers[0].resource.api_version
        self._names = f"{', '.join(one.resource.plural for one in informers)} of {self._api_version}"
        self.are_missing = False

    async def is_served(self) -> bool:
        """Asks whether the API server has all resources of these informers, and sets `are_missing`. Returns False, logs a warning and
        leaves `are_missing` where it cannot be asked."""
        try:
            found = json.loads(await self._client.request_raw("GET", f"/apis/{self._api_version}"))
        except NotFound:
            found = {}
        except KubeError as error:  # which does not show what it has
            logger.warning("it is not known what is served", extra={"api": self._api_version, "error": repr(error)})
            return False
        plurals = {one["name"] for one in found.get("resources") or ()}
        self.are_missing = not all(informer.resource.plural in plurals for informer in self.informers)
        return not self.are_missing

    @property
    def lack(self) -> str:
        """Returns why the objects cannot be used, as text; empty where all have been listed. With `are_missing` it stays until the API
        server serves them; otherwise they have not been listed yet."""
        if self.are_missing:
            return f"the API server does not serve {self._names}"
        return "" if all(informer.synced for informer in self.informers) else f"{self._names} have not been listed yet"

    async def start(self, group: asyncio.TaskGroup) -> None:
        """Starts the informers and returns when all have been listed once, or after `pacing.LISTED_S` seconds: rights may be missing that
        nothing else needs. Where they are not served, or that is not known, it returns at once, and they are started once they are."""
        if await self.is_served():
            self._run(group)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pacing.LISTED_S):
                    for informer in self.informers:
                        await informer.wait_synced()
        else:
            start_eternal(group, f"{self._api_version} to come", self._wait(group))

    async def _wait(self, group: asyncio.TaskGroup) -> None:
        while not await self.is_served():
            await self._clock.sleep(pacing.DISCOVERY_S if self.are_missing else pacing.AWAY_S)
        self._run(group)
        await asyncio.Event().wait()

    def _run(self, group: asyncio.TaskGroup) -> None:
        for informer in self.informers:
            start_eternal(group, f"informer {informer.resource}", informer.run())
