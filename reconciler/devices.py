"""Devices and claims on them (DRA), as informers keep them up to date: what groups of pods with constraints on devices are placed by.

Kubernetes serves these itself, unless it is older or told not to; no definition tells, so that the API server is asked what it has.
"""

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

from core.podgroups.devices import read_claim, read_claim_spec, read_class, read_slice
from core.podgroups.inventory import Inventory
from core.runtime.client import Client
from core.runtime.clock import Clock
from core.runtime.errors import KubeError, NotFound
from core.runtime.informer import Informer
from core.runtime.resource import Obj, Resource
from core.runtime.tasks import eternal
from reconciler import resources as r
from reconciler.slim import without_managed_fields

logger = logging.getLogger(__name__)
DISCOVERY_S = 30.0  # an API server is updated once in months, but may be away when it is asked first
Transform = Callable[[Obj], Obj]
_Fold = tuple[Informer, Callable[[Any], Any], Callable[[str, Any], None]]


class Devices:
    """Informers of all that DRA has, and what is folded from them."""

    def __init__(self, client: Client, clock: Clock, make: Callable[[Resource, Transform], Informer]) -> None:
        self._client, self._clock = client, clock
        self.inventory = Inventory()
        self.are_missing = False
        self.classes = make(r.DEVICE_CLASSES, without_managed_fields)
        self.templates = make(r.RESOURCE_CLAIM_TEMPLATES, without_managed_fields)
        self.slices = make(r.RESOURCE_SLICES, _slim_slice)
        self.claims = make(r.RESOURCE_CLAIMS, without_managed_fields)
        self.informers = (self.classes, self.templates, self.slices, self.claims)
        # How each of them is read, and who is told.
        self.folds: tuple[_Fold, ...] = (
            (self.classes, read_class, self.inventory.observe_class),
            (self.templates, lambda template: read_claim_spec(template["spec"].get("spec") or {}), self.inventory.observe_template),
            (self.slices, read_slice, self.inventory.observe_slice),
            (self.claims, read_claim, self.inventory.observe_claim),
        )

    async def is_served(self) -> bool:
        """Whether the API server has all of them, as far as it says so."""
        try:
            found = json.loads(await self._client.raw("GET", f"/apis/{r.RESOURCE_SLICES.api_version}"))
        except NotFound:
            found = {}
        except KubeError as error:
            logger.warning("it is not known whether devices are served", extra={"error": repr(error)})
            found = {}
        plurals = {one["name"] for one in found.get("resources") or ()}
        self.are_missing = not all(informer.resource.plural in plurals for informer in self.informers)
        return not self.are_missing

    async def start(self, group: asyncio.TaskGroup) -> None:
        """Starts the informers and returns when all have been listed once; where they are not served, they are started once they are."""
        if await self.is_served():
            self._run(group)
            for informer in self.informers:
                await informer.wait_synced()
        else:
            eternal(group, "devices to come", self._wait(group))

    async def _wait(self, group: asyncio.TaskGroup) -> None:
        while not await self.is_served():
            await self._clock.sleep(DISCOVERY_S)
        self._run(group)
        await asyncio.Event().wait()

    def _run(self, group: asyncio.TaskGroup) -> None:
        for informer in self.informers:
            eternal(group, f"informer {informer.resource}", informer.run())


def _slim_slice(found: Obj) -> Obj:
    """A ResourceSlice without the metadata that is of no use here."""
    metadata = found["metadata"]
    return {"metadata": {name: metadata[name] for name in ("name", "uid", "resourceVersion") if name in metadata}, "spec": found["spec"]}
