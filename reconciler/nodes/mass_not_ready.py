"""Storms: so many nodes of a topology turned not ready at once that the network is the likelier cause than the nodes.

While a storm lasts no node in it is treated as lost, no pod on it is replaced and no workload is evicted for it: the
pods very likely run. A storm is derived from the transition times of the nodes, so that a new leader detects it as well
(`core.model.node_health_rules.StormRules`).
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from core.model.node_health_rules import StormRules
from core.plan.steps import pacing
from core.plan.steps.actions import from_time
from core.resource import Obj
from core.runtime.clock import Clock
from core.runtime.watch.store import Change
from core.state.facts import WorkloadFacts, find_condition
from reconciler.execute.tracing import parse_time
from reconciler.observe.observed import Observed

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Storm:
    """In one topology: how many of its nodes, and until when it counts if they stay away."""

    nodes: int
    of: int
    until: datetime

    def __str__(self) -> str:
        return (
            f"{self.nodes} of {self.of} nodes turned not ready at about the same time, more likely for the network than by themselves: "
            f"no node is replaced and no workload is evicted for it until they are ready again, or until {from_time(self.until)}"
        )


class Storms:
    """The present storms, by topology; `on_change` is called when one begins or ends."""

    def __init__(self, observed: Observed, clock: Clock, rules: StormRules) -> None:
        self._observed, self._clock, self._rules = observed, clock, rules
        self._since: dict[str, datetime] = {}  # of nodes that are not ready
        self._found: dict[str, Storm] = {}
        self._in: dict[str, frozenset[str]] = {}  # nodes that it took, by topology
        self._begun: set[str] = set()  # topologies in which one was found and is not yet reported as over
        self._is_stale, self._next_look = True, float("-inf")
        self._changed = asyncio.Event()
        self.on_change: list[Callable[[], None]] = []
        observed.nodes.add_handler(self._on_node)

    def _on_node(self, change: Change) -> None:
        name, before = change.obj["metadata"]["name"], self._since.get(change.obj["metadata"]["name"])
        since = _find_not_ready_time(change.new) if change.new is not None else None
        if since is not None and since > self._clock.now():  # by a clock that is ahead
            since = before or self._clock.now()
        if since is None:
            self._since.pop(name, None)
        else:
            self._since[name] = since
        if since != before:
            self._is_stale = True
            self._changed.set()

    def find(self, topology: str) -> Storm | None:
        """Returns the storm in the topology of a name: so many of its nodes turned not ready at once that the network is the likelier
        cause. It lasts until all nodes that it took are ready again, or its time is over. None where there is none now, or no such
        topology. Looks again only after a node's readiness has changed, at most once in `pacing.STORMS_EVERY_S` seconds."""
        self._refresh_if_stale()
        found = self._found.get(topology)
        return found if found is not None and self._clock.now() < found.until else None

    def is_affected(self, workload: WorkloadFacts) -> bool:
        """Whether a workload has pods in a topology with a storm: by the flavors of its pod sets with a topology assignment. False for a
        workload without an admission."""
        given = workload.admission.pod_sets if workload.admission is not None else ()
        names = {flavor for pod_set in given if pod_set.assignment is not None for flavor in pod_set.flavors.values()}
        flavors = self._observed.state.flavors
        return any(flavors[name].topology and self.find(flavors[name].topology or "") for name in names if name in flavors)

    async def run(self) -> None:
        """Looks as soon as it may when a node's readiness changes, and every `pacing.STORMS_LOOK_S` seconds; calls `on_change` for storms
        that begin and end, also where one has done both meanwhile. An error in that is logged, and the next look tries again. Never
        returns."""
        reported: set[str] = set()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pacing.STORMS_EVERY_S if self._is_stale else pacing.STORMS_LOOK_S):
                    await self._changed.wait()
            self._changed.clear()
            try:
                reported = self._compare(reported)
            except Exception:  # the next look is another try
                logger.exception("storms could not be judged")

    def _compare(self, before: set[str]) -> set[str]:
        self._refresh_if_stale()
        now = {topology for topology in list(self._found) if self.find(topology) is not None}
        over = (before | self._begun) - now
        for topology in sorted(over):
            logger.info("the storm is over", extra={"topology": topology})
        if over or now != before:
            for handler in self.on_change:
                handler()
        self._begun -= over
        return now

    def _list_topologies(self) -> set[str]:
        return {facts.topology for facts in self._observed.state.flavors.values() if facts.topology}

    def _refresh_if_stale(self) -> None:
        if self._is_stale and self._clock.monotonic() >= self._next_look:
            self._refresh()

    def _refresh(self) -> None:
        self._is_stale, self._next_look = False, self._clock.monotonic() + pacing.STORMS_EVERY_S
        if len(self._since) < self._rules.min_nodes and not self._found:
            return
        for topology in self._list_topologies() | self._found.keys():
            now = self._clock.now()
            racks = self._list_racks(topology)
            away = {name: since for name, since in self._since.items() if name in racks}
            known = self._found.get(topology)
            if known is not None and now < known.until and away.keys() & self._in.get(topology, frozenset()):
                continue  # it is over when all that it took are back
            self._found.pop(topology, None)
            self._in.pop(topology, None)
            found = self._rules.find(list(away.values()), len(racks), now) if len(away) >= self._rules.min_nodes else None
            # Nodes of one rack that go together are a rack that has gone.
            if found is not None and len({racks[name] for name in away}) > 1:
                self._found[topology] = Storm(found[0], len(racks), found[1])
                self._in[topology] = frozenset(away)
                self._begun.add(topology)
                logger.warning("storm", extra={"topology": topology, "why": str(self._found[topology])})

    def _list_racks(self, topology: str) -> Mapping[str, tuple[str, ...]]:
        """Of each of its nodes the domain above the lowest level; where there is no level above, every node is by itself."""
        state, facts = self._observed.state, self._observed.state.topologies.get(topology)
        views = [state.get_view(name) for name, flavor in state.flavors.items() if flavor.topology == topology]
        above = facts.levels[:-1] if facts is not None else ()
        names = {name for view in views if view is not None for name in view.capacity.tree.names} & state.nodes.keys()
        return {name: tuple(state.nodes[name].labels.get(level, "") for level in above) or (name,) for name in names}


def _find_not_ready_time(node: Obj) -> datetime | None:
    ready = find_condition(node, "Ready")
    return parse_time(ready.get("lastTransitionTime")) if ready is not None and ready.get("status") != "True" else None
