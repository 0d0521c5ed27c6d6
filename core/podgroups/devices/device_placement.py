"""Devices that lie together, for pods that claim them (KEP-5732, "Scheduler Plugins": DRATestPlugin): one placement for each pool that
the pods of a group could have their devices from.

A claim is made for each pod of a template, or there is one for all. kube-scheduler allocates; here it is only seen to that it can.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from core.model.plugin_choice import GroupEvent
from core.placement.topology.tree import Flags, TopologyTree
from core.podgroups.devices.claims import NotServed, PodClaim, PoolId
from core.podgroups.devices.device_limits import Cells, DesiredDevices, DeviceLimits, Source, build_limits
from core.podgroups.devices.inventory import Inventory
from core.podgroups.framework import Limits, PlacementCycle
from core.podgroups.group import PodGroupInfo
from core.podgroups.placements import Placement, Placements, join

_SHOWN = 3  # of pools, and of what is left out, that a sentence names


class DevicePlacement:
    """Generator and state for one group, where the claim `templates` ask for devices of one pool; valid for one
    decision.

    `placed`: the claims that the placed pods of the group name. Of a pool only its allocated devices are known. Which
    devices of which pool a pod gets that is placed and not bound yet is decided by kube-scheduler; until then it counts
    in every pool that could serve it.
    """

    name = "DevicePlacement"
    events = frozenset({GroupEvent.NODE_CHANGED, GroupEvent.DEVICES_CHANGED, GroupEvent.CLAIM_CHANGED})

    def __init__(self, inventory: Inventory, namespace: str, templates: Sequence[str], placed: Sequence[tuple[PodClaim, ...]]) -> None:
        self._inventory, self._namespace, self._placed = inventory, namespace, placed
        self._templates = tuple(dict.fromkeys(templates))
        self._wanted: tuple[DesiredDevices, ...] = ()
        self._sources: dict[str, tuple[Source, ...]] = {}  # by name of a placement, one for each that is wanted
        self._cells = Cells(inventory)
        self._before: list[Limits | None] = []

    # --- generator --------------------------------------------------------------------------------------

    def generate(self, cycle: PlacementCycle, group: PodGroupInfo, parents: Sequence[Placements]) -> Sequence[Placements]:
        """Returns the parts of the parents in reach of each pool that has devices of each kind wanted; see `PlacementGenerator.generate`.
        Where placed pods have devices only their pool counts; while those are not allocated yet, or lie in several pools, there is none.
        Remembers for `assume` from which pools each has its devices. Sets `cycle.why` where devices are left out, or no part remains.

        Raises NotServed where a template cannot be served or an expression cannot be evaluated, InvalidSelector where a node selector
        cannot be.
        """
        self._inventory.check_kinds(self._namespace, self._templates)
        wanted_of_all = (self._find_wanted(group, template) for template in self._templates)
        self._wanted = tuple(one for one in wanted_of_all if not one.is_allocated)  # the others only confine it
        inside = self._find_inside(cycle.view.tree, group)
        found = [_confine_placements(one, inside) for one in parents]
        self._sources = {placement.name: () for placements in found for placement in placements}
        for wanted in self._wanted:
            sources = self._find_sources(cycle, wanted)
            there = any(map(len, found))
            made: dict[str, tuple[Source, ...]] = {}
            found = [self._cut(placements, sources, made) for placements in found]
            self._sources = made
            if there and not any(map(len, found)) and not cycle.why:
                cycle.why = f"no node that it may use is in reach of devices that claim template {wanted.template} asks for."
        return found

    def _find_wanted(self, group: PodGroupInfo, template: str) -> DesiredDevices:
        """What the group's pods want of a template. A claim that is there for many counts as one of a template that asks for the same."""
        need = self._inventory.compute_template_need(self._namespace, template)
        named = [claim for claims in (*group.claims, *self._placed) for claim in claims]
        if any(claim.template == template for claim in named):
            return DesiredDevices(template, need)
        for name in sorted({claim.name for claim in named if not claim.template}):
            claim = self._inventory.find_claim(self._namespace, name)
            if claim is not None and self._inventory.is_equivalent(claim, self._namespace, template):
                return DesiredDevices(template, need, claim)
        raise NotServed(f"no pod of it has a claim made from ResourceClaimTemplate {template}, or names one that asks for the same")

    def _find_inside(self, tree: TopologyTree, group: PodGroupInfo) -> Flags:
        """Nodes that reach what is allocated already of the claims that pods share."""
        inside = np.ones(len(tree), dtype=bool)
        for name in sorted({claim.name for claims in group.claims for claim in claims if not claim.template}):
            claim = self._inventory.find_claim(self._namespace, name)
            if claim is not None and claim.is_allocated:
                inside &= self._cells.find_nodes(tree, claim.selector)
        return inside

    def _find_sources(self, cycle: PlacementCycle, wanted: DesiredDevices) -> list[Source]:
        """Returns pools that have devices of each wanted kind. Records what it leaves out."""
        allowed = self._count_allowed(cycle, wanted)
        if allowed is None:
            return []
        found: list[Source] = []
        left_out: Counter[str] = Counter()
        for pool in self._inventory.pools.values():
            takes = [matcher for matcher in wanted.need if any("" in one.judge(matcher) for one in pool.slices)]
            for matcher in wanted.need:
                reasons = (why for one in pool.slices for why in one.judge(matcher) if why)
                left_out.update(f"{why} of devices in pool {pool.id}" for why in reasons)
            if len(takes) < len(wanted.need) or (allowed and pool.id not in allowed):
                continue
            if pool.problem:
                left_out[f"pool {pool.id} {pool.problem}"] += 1
                continue
            found += self._cells.list_sources(cycle.view.tree, pool, wanted)
        _explain_left_out(cycle, wanted, found, left_out)
        return found

    def _count_allowed(self, cycle: PlacementCycle, wanted: DesiredDevices) -> Counter[PoolId] | None:
        """The pool that its placed pods have devices of; empty where there are none, None where there is none for the others."""
        pools, waiting = count_devices(self._inventory, self._namespace, wanted.template, self._placed)
        if len(pools) > 1:
            cycle.why = f"{_describe_apart(wanted.template, pools)}, so that there is none for the others."
        elif not pools and waiting:
            cycle.why = (
                f"the devices of claim template {wanted.template} of its placed pods are not allocated yet: the others wait for that."
            )
        else:
            return pools
        return None

    def _cut(self, parents: Placements, sources: Sequence[Source], made: dict[str, tuple[Source, ...]]) -> Placements:
        """Returns the parts of placements that can reach the devices of each pool, and adds their sources to `made`."""
        found = []
        for parent in parents:
            before = self._sources[parent.name]
            for source in sources:
                nodes = parent.nodes[source.reach[parent.nodes]]
                if len(nodes):
                    name = parent.name if any(one.name == source.name for one in before) else f"{parent.name} {source.name}".strip()
                    made[name] = (*before, source)
                    found.append(Placement(name, nodes, parent=parent if parent.name else parent.parent))
        return join(sorted(found, key=lambda one: one.name), parents.rank)

    # --- state ------------------------------------------------------------------------------------------

    def assume(self, cycle: PlacementCycle, group: PodGroupInfo, placement: Placement) -> None:
        """Sets the limits of `cycle` so that the pods can have free devices of the placement's pools, and of no others. The placement must
        be one of `generate`. Raises NotServed and InvalidSelector as `build_limits` does."""
        self._before.append(cycle.limits)
        cycle.limits = self._build_limits(cycle, group, placement)

    def restore_state(self, cycle: PlacementCycle, group: PodGroupInfo, placement: Placement) -> None:
        """Sets the limits of `cycle` as they were before the last `assume` that is not reverted yet. Raises IndexError where there is
        none."""
        cycle.limits = self._before.pop()

    def _build_limits(self, cycle: PlacementCycle, group: PodGroupInfo, placement: Placement) -> DeviceLimits:
        return build_limits(cycle.view, group, placement.nodes, self._wanted, self._sources[placement.name], self._cells)


def count_devices(
    inventory: Inventory, namespace: str, template: str, placed: Sequence[tuple[PodClaim, ...]]
) -> tuple[Counter[PoolId], int]:
    """Returns the number of devices of a template that placed pods have, by pool, and the number of its claims not allocated or made yet. A
    claim for many pods counts once, and only if it asks for the same as the template."""
    pools: Counter[PoolId] = Counter()
    waiting = 0
    for one in sorted({claim for claims in placed for claim in claims if claim.name}):
        claim = inventory.find_claim(namespace, one.name)
        if one.template == template or (not one.template and claim is not None and inventory.is_equivalent(claim, namespace, template)):
            pools.update(claim.pools if claim is not None else {})
            waiting += claim is None or not claim.is_allocated
    return pools, waiting + sum(claim.template == template and not claim.name for claims in placed for claim in claims)


def find_apart(inventory: Inventory, namespace: str, templates: Sequence[str], placed: Sequence[tuple[PodClaim, ...]]) -> str:
    """Returns a text about the first of the `templates` with devices of placed pods in several pools: the numbers by pool, of three pools
    at most. Empty where there is none."""
    for template in templates:
        pools, _ = count_devices(inventory, namespace, template, placed)
        if len(pools) > 1:
            return _describe_apart(template, pools)
    return ""


def _describe_apart(template: str, pools: Counter[PoolId]) -> str:
    shown = ", ".join(f"{pool} ({pools[pool]})" for pool in sorted(pools)[:_SHOWN])
    more = f" and {len(pools) - _SHOWN} more" if len(pools) > _SHOWN else ""
    return f"its devices of claim template {template} do not lie together, but in pools {shown}{more}"


def _explain_left_out(cycle: PlacementCycle, wanted: DesiredDevices, found: Sequence[Source], left_out: Counter[str]) -> None:
    """What users should know where the group finds no place."""
    text = "" if found else f"no pool has all devices that a claim made from ResourceClaimTemplate {wanted.template} asks for"
    if left_out:
        shown = "; ".join(f"{what} ({count})" for what, count in sorted(left_out.items())[:_SHOWN])
        text += f"{'; ' if text else ''}left out, since topogate does not serve it or kube-scheduler would not allocate it: {shown}"
    if text:
        cycle.why = f"{cycle.why} {text}." if cycle.why else f"{text}."


def _confine_placements(placements: Placements, inside: Flags) -> Placements:
    """The parts of placements that lie inside."""
    if inside.all():
        return placements
    kept = [(one, one.nodes[inside[one.nodes]]) for one in placements]
    return join([Placement(one.name, nodes, parent=one.parent) for one, nodes in kept if len(nodes)], placements.rank)
