"""The node lifecycle controller: taints that say what a node's conditions say, at the rate that a zone lets it."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sim.apiserver.server import Change, Refused, Server
from sim.models.base import NODE, POD, Json, Key, Model, get_key, get_node_key

NO_SCHEDULE, NO_EXECUTE = "NoSchedule", "NoExecute"
_KEY = "node.kubernetes.io/{}".format
NOT_READY, UNREACHABLE, UNSCHEDULABLE = map(_KEY, ("not-ready", "unreachable", "unschedulable"))
_OF_READY = {"False": NOT_READY, "Unknown": UNREACHABLE}
_PRESSURES = {  # conditions that are a taint while they are True
    "MemoryPressure": _KEY("memory-pressure"),
    "DiskPressure": _KEY("disk-pressure"),
    "NetworkUnavailable": _KEY("network-unavailable"),
    "PIDPressure": _KEY("pid-pressure"),
}
_OF_CONDITIONS = (NOT_READY, UNREACHABLE, UNSCHEDULABLE, *_PRESSURES.values())
# Defaults of kube-controller-manager: --node-eviction-rate and --secondary-node-eviction-rate (nodes in a second),
# --large-cluster-size-threshold, --unhealthy-zone-threshold.
_RATE, _SECONDARY_RATE, _LARGE, _UNHEALTHY = 0.1, 0.01, 50, 0.55
_NORMAL, _PARTIAL, _FULL = "Normal", "PartialDisruption", "FullDisruption"
_ZONE_LABELS = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")


@dataclass
class _Zone:
    """Nodes of a zone that wait for their NoExecute taint, and how fast they get it."""

    state: str = _NORMAL
    rate: float = _RATE  # nodes in a second; none where it is 0
    next_at: float = 0.0
    queued: dict[str, None] = field(default_factory=dict)

    def change_rate(self, rate: float, now: float) -> None:
        """The one token of the new bucket is used where that of the old one was."""
        if rate == self.rate:
            return
        is_waiting = self.rate == 0 or now < self.next_at
        self.rate, self.next_at = rate, now + 1 / rate if rate and is_waiting else now

    def take_token(self, now: float) -> bool:
        """Whether a node may be tainted now."""
        if self.rate == 0 or now < self.next_at:
            return False
        self.next_at = now + 1 / self.rate
        return True


class NodeLifecycle(Model):
    """NoSchedule taints at once. NoExecute taints by a pass over all nodes: one node of a zone in ten seconds, none in a small zone of
    which most nodes are not ready, none where no node of the cluster is ready. Pods of a node that stops are not ready."""

    user = "system:serviceaccount:kube-system:node-controller"
    resources = (NODE,)
    pass_after_s = 0.5

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop, now: Callable[[], datetime]) -> None:
        super().__init__(server, loop, now)
        self._zones: dict[str, _Zone] = {}
        self._ready: dict[str, str] = {}  # status of the condition Ready at the pass before, by node
        self._pass_at = float("inf")

    def find_due(self, change: Change) -> Iterator[tuple[tuple[str, str], Key]]:
        self._plan_pass(self.pass_after_s)
        yield NODE, get_key(change.last)

    def look(self, resource: tuple[str, str], key: Key) -> None:
        node = self.find(NODE, key)
        if node is None:
            return
        taints = _get_taints(node)
        wanted = list(_find_taints(node))
        ours = [taint["key"] for taint in taints if taint["effect"] == NO_SCHEDULE and taint["key"] in _OF_CONDITIONS]
        if sorted(ours) != sorted(wanted):
            kept = [taint for taint in taints if taint["effect"] != NO_SCHEDULE or taint["key"] not in ours or taint["key"] in wanted]
            self._set_taints(node, [*kept, *({"key": name, "effect": NO_SCHEDULE} for name in wanted if name not in ours)])

    # --- a pass over all nodes ----------------------------------------------------------------------

    def _plan_pass(self, after_s: float) -> None:
        at = self.loop.time() + after_s
        if at < self._pass_at:
            self._pass_at = at
            self.loop.call_at(at, self._run_pass, at)

    def _run_pass(self, at: float) -> None:
        if at != self._pass_at or self.is_stopped:
            return
        self._pass_at = float("inf")
        try:
            self._look_at_all()
        except Refused:
            self._plan_pass(self.pass_after_s)

    def _look_at_all(self) -> None:
        by_zone: dict[str, list[Json]] = {}
        for _, stored in sorted(self.server.objects[NODE].items()):
            by_zone.setdefault(_get_zone(stored.obj), []).append(stored.obj)
        self._zones = {name: self._zones.get(name) or _Zone() for name in by_zone}
        before, self._ready = self._ready, {}
        for name, nodes in by_zone.items():
            for node in nodes:
                self._look_at_ready(node, self._zones[name], before.get(node["metadata"]["name"], ""))
        self._judge_zones(by_zone)
        for zone in self._zones.values():
            self._taint_queued(zone)

    def _look_at_ready(self, node: Json, zone: _Zone, before: str) -> None:
        name, ready = node["metadata"]["name"], _read_condition(node, "Ready")
        self._ready[name] = ready
        if ready == "True":
            self._mark_reachable(node, zone)
        elif ready:
            wanted, other = (NOT_READY, UNREACHABLE) if ready == "False" else (UNREACHABLE, NOT_READY)
            known = {taint["key"] for taint in _get_taints(node) if taint["effect"] == NO_EXECUTE}
            if other in known:
                self._swap(node, wanted, other)
            elif wanted not in known:
                zone.queued[name] = None
        if ready == "Unknown" and before == "True":
            self._mark_pods(name)

    def _mark_reachable(self, node: Json, zone: _Zone) -> None:
        zone.queued.pop(node["metadata"]["name"], None)
        kept = [taint for taint in _get_taints(node) if taint["effect"] != NO_EXECUTE or taint["key"] not in _OF_READY.values()]
        if len(kept) < len(_get_taints(node)):
            self._set_taints(node, kept)

    def _judge_zones(self, by_zone: dict[str, list[Json]]) -> None:
        now, states = self.loop.time(), {name: _judge_zone(nodes) for name, nodes in by_zone.items()}
        was_full = all(zone.state == _FULL for zone in self._zones.values())
        is_full = all(state == _FULL for state in states.values())
        if is_full and was_full:
            return
        for name, zone in self._zones.items():
            if is_full:
                for node in by_zone[name]:
                    self._mark_reachable(self.find(NODE, get_key(node)) or node, zone)
                zone.change_rate(0, now)
            elif was_full or zone.state != states[name]:
                partial = _SECONDARY_RATE if len(by_zone[name]) > _LARGE else 0
                zone.change_rate(partial if states[name] == _PARTIAL else _RATE, now)
            zone.state = states[name]

    def _taint_queued(self, zone: _Zone) -> None:
        while zone.queued:
            if not zone.take_token(self.loop.time()):
                if zone.rate:
                    self._plan_pass(zone.next_at - self.loop.time())
                return
            name = next(iter(zone.queued))
            del zone.queued[name]
            node = self.find(NODE, get_node_key(name))
            wanted = _OF_READY.get(_read_condition(node, "Ready")) if node is not None else None
            if node is not None and wanted is not None:
                self._swap(node, wanted, next(other for other in _OF_READY.values() if other != wanted))

    def _swap(self, node: Json, wanted: str, other: str) -> None:
        kept = [taint for taint in _get_taints(node) if taint["effect"] != NO_EXECUTE or taint["key"] not in (wanted, other)]
        self._set_taints(node, [*kept, {"key": wanted, "effect": NO_EXECUTE, "timeAdded": self.time()}])

    def _mark_pods(self, node: str) -> None:
        for key, stored in sorted(self.server.objects[POD].items()):
            if stored.obj["spec"].get("nodeName") == node:
                conditions = [dict(condition) for condition in (stored.obj.get("status") or {}).get("conditions") or ()]
                marked = [each for each in conditions if each["type"] == "Ready" and each["status"] != "False"]
                for condition in marked:
                    condition |= {"status": "False", "lastTransitionTime": self.time()}
                if marked:
                    self.patch(POD, key, {"status": {"conditions": conditions}}, "status")

    def _set_taints(self, node: Json, taints: Sequence[Json]) -> None:
        dated = [{"timeAdded": self.time(), **taint} if taint["key"] in _OF_CONDITIONS else taint for taint in taints]
        self.patch(NODE, get_key(node), {"spec": {"taints": dated or None}})


def _get_taints(node: Json) -> list[Json]:
    return list((node.get("spec") or {}).get("taints") or ())


def _read_condition(node: Json, kind: str) -> str:
    conditions: Iterable[dict[str, Any]] = (node.get("status") or {}).get("conditions") or ()
    return next((str(condition["status"]) for condition in conditions if condition["type"] == kind), "")


def _find_taints(node: Json) -> Iterator[str]:
    """Keys of the NoSchedule taints of a node. Without a condition it is not ready yet: a new node has that taint from the API server."""
    ready = _read_condition(node, "Ready") or "False"
    if ready in _OF_READY:
        yield _OF_READY[ready]
    yield from (name for kind, name in _PRESSURES.items() if _read_condition(node, kind) == "True")
    if (node.get("spec") or {}).get("unschedulable"):
        yield UNSCHEDULABLE


def _get_zone(node: Json) -> str:
    labels = node["metadata"].get("labels") or {}
    return ":".join(labels.get(name, "") for name in _ZONE_LABELS)


def _judge_zone(nodes: Sequence[Json]) -> str:
    lost = sum(_read_condition(node, "Ready") != "True" for node in nodes)
    if lost == len(nodes):
        return _FULL
    return _PARTIAL if lost > 2 and lost / len(nodes) >= _UNHEALTHY else _NORMAL
