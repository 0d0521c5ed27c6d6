"""Devices and claims on them (DRA), as informers keep them up to date: what groups of pods with constraints on devices are placed by, and
what claims of queued pods are counted by."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from core.plan.steps import api_resources as r
from core.plan.steps import pacing
from core.podgroups.devices.claims import Matcher, NotServed, ResourceSlice, read_claim, read_class, read_slice, read_template
from core.podgroups.devices.inventory import Inventory
from core.resource import Obj, Resource
from core.runtime.clock import Clock
from core.runtime.http.client import Client
from core.runtime.watch.informer import Informer
from reconciler.observe.served import Served
from reconciler.observe.slim import remove_managed_fields

Transform = Callable[[Obj], Obj]
_Fold = tuple[Informer, Callable[[Any], Any], Callable[[str, Any], None]]


class Devices(Served):
    """Informers of all that DRA has, and what is folded from them."""

    def __init__(self, client: Client, clock: Clock, make: Callable[[Resource, Transform], Informer], *, reads_slices: bool = True) -> None:
        """`reads_slices`: whether ResourceSlices are watched; quota alone needs none."""
        self.inventory = Inventory()
        self.classes = make(r.DEVICE_CLASSES, remove_managed_fields)
        self.templates = make(r.RESOURCE_CLAIM_TEMPLATES, remove_managed_fields)
        self.slices = make(r.RESOURCE_SLICES, _slim_slice) if reads_slices else None
        self.claims = make(r.RESOURCE_CLAIMS, remove_managed_fields)
        of_slices = (self.slices,) if self.slices is not None else ()
        super().__init__(client, clock, (self.classes, self.templates, *of_slices, self.claims))
        self._budgets: dict[Matcher, _Budget] = {}
        self.on_listed: list[Callable[[], None]] = []  # called once `may_count`
        # For each informer, how its objects are read, and the method that gets them.
        self.folds: tuple[_Fold, ...] = (
            (self.classes, read_class, self.inventory.observe_class),
            (self.templates, read_template, self.inventory.observe_template),
            *((one, read_slice, self.inventory.observe_slice) for one in of_slices),
            (self.claims, read_claim, self.inventory.observe_claim),
        )

    def _run(self, group: asyncio.TaskGroup) -> None:
        super()._run(group)
        group.create_task(self._wait_listed())

    @property
    def may_count(self) -> bool:
        """Returns whether all classes and templates have been listed, by which claims are counted."""
        return not self.are_missing and self.classes.synced and self.templates.synced

    async def _wait_listed(self) -> None:
        for informer in (self.classes, self.templates):
            await informer.wait_synced()
        for notify in self.on_listed:
            notify()

    async def judge(self, namespace: str, templates: Sequence[str]) -> None:
        """Evaluates the expressions of a group's claim `templates` (names in `namespace`) for all devices (`evaluate`). Unknown templates
        are passed over."""
        await self.evaluate(self.inventory.list_unevaluated(namespace, templates))

    async def evaluate(self, slices: Iterable[tuple[ResourceSlice, Sequence[Matcher]]]) -> list[tuple[ResourceSlice, Matcher]]:
        """Evaluates selectors for the devices of slices, each with those that have no answer yet, and stores the answers in the slices. The
        event loop has its turns meanwhile. Returns those that were refused for the time that they take.

        Expressions may take too long for the devices of one slice, or for those of all slices within `pacing.DEVICES_BUDGET_S` seconds.
        Refusals are stored then for that slice and all that follow in this time. 5,000 slices that each stay below their limit would take
        20 minutes."""
        now = self._clock.monotonic()
        self._budgets = {matcher: budget for matcher, budget in self._budgets.items() if now < budget.until}
        turn, refused = _Turn(self._clock), list[tuple[ResourceSlice, Matcher]]()
        for one, missing in slices:
            for matcher in missing:
                budget = self._budgets.setdefault(matcher, _Budget(now + pacing.DEVICES_BUDGET_S))
                if budget.refusal:
                    one.refuse(matcher, budget.refusal)
                    refused.append((one, matcher))
                    continue
                spent, judging = 0.0, one.evaluate_in_pieces(matcher)
                for _ in judging:
                    latest = turn.note_time()
                    spent, budget.spent = spent + latest, budget.spent + latest
                    if spent > pacing.DEVICES_CPU_S or budget.spent > pacing.DEVICES_CPU_OF_ALL_S:
                        budget.refusal = self._explain(matcher, one, is_slice=spent > pacing.DEVICES_CPU_S)
                        with contextlib.suppress(StopIteration):
                            judging.throw(NotServed(budget.refusal))
                        refused.append((one, matcher))
                        break
                    await turn.end_if_long()
            turn.note_time()
            await turn.end_if_long()
        return refused

    def _explain(self, matcher: Matcher, one: ResourceSlice, *, is_slice: bool) -> str:
        texts = " and ".join(map(repr, matcher.expressions))
        if is_slice:
            return f"{texts} takes more than {pacing.DEVICES_CPU_S:g} s for the {len(one.devices)} devices of a slice of pool {one.pool}"
        slices = sum(len(pool.slices) for pool in self.inventory.pools.values())
        limit = f"at most {pacing.DEVICES_CPU_OF_ALL_S:g} s within {pacing.DEVICES_BUDGET_S / 60:g} minutes are accepted"
        return f"{texts} takes more than {pacing.DEVICES_CPU_OF_ALL_S:g} s of CPU time for the devices of all {slices} slices; {limit}"


@dataclass(slots=True)
class _Budget:
    """The CPU time that a matcher has used for the devices of all slices, in s; `refusal` is empty until it has used up too much."""

    until: float
    spent: float = 0.0
    refusal: str = ""


class _Turn:
    """The processor time since the others were served."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._began, self._spent = clock, time.thread_time(), 0.0

    def note_time(self) -> float:
        """The time since the last call, in s."""
        before, self._began = self._began, time.thread_time()
        self._spent += self._began - before
        return self._began - before

    async def end_if_long(self) -> None:
        if self._spent > pacing.DEVICES_TURN_S:
            await self._clock.sleep(0)
            self._began, self._spent = time.thread_time(), 0.0


def _slim_slice(found: Obj) -> Obj:
    """A ResourceSlice without the metadata that is of no use here."""
    metadata = found["metadata"]
    return {"metadata": {name: metadata[name] for name in ("name", "uid", "resourceVersion") if name in metadata}, "spec": found["spec"]}
