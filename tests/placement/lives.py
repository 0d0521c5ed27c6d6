"""Lives of workloads on small clusters, drawn from a seed, and what the engine answers at each turn, as lines of text.

A life: a workload is placed and counted, things happen to nodes, another one is placed beside it; some of its nodes fail,
and its counts change. The answers are in `tests/vectors/lives.txt`, so that a change of the engine that changes an answer
shows which. They are measured, not judged: `python -m tests.placement.lives` writes them anew, but refuses what breaks a promise.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from core.model.pod_traits import HostPort, PodTerm, PodTraits, Requirement
from core.model.podset import Mode, PodSetRequest, SliceLayer, TopologyRequest
from core.names import HOSTNAME_LABEL
from core.placement.algorithms.profile import COMPACT, Profile, read_profile
from core.placement.engine import Decision, OneDomain, place
from core.placement.explain.choice import explain_choice, show_choices
from core.placement.refusals import format_refusal
from core.placement.replace.replacement import replace_failed
from core.placement.replace.resized_pod_sets import resize
from core.placement.topology.free_capacity import FreeCapacity, NodeState
from core.placement.topology.placed_pods import PlacedPodSet
from core.placement.what_if import WhatIf
from tests.builders import Node
from tests.placement.promises import find_broken_promises
from tests.placement.reference import compute_free_amounts
from tests.strategies import TAINTS, TOLERATIONS, Cluster

ANSWERS = Path(__file__).parents[1] / "vectors" / "lives.txt"
LIVES = 2000
_PROFILES: tuple[tuple[str, Profile], ...] = (
    *(("kep", read_profile({})),) * 3,
    ("compact", COMPACT),
    ("compact", COMPACT),
    ("balanced", read_profile({"TASBalancedPlacement": True})),
    ("balanced", read_profile({"TASBalancedPlacement": True})),
    ("best fit", read_profile({"TASProfileBestFit": True})),
    ("least free", read_profile({"TASProfileLeastFreeCapacity": True})),
    ("most free", read_profile({"TASProfileMostFreeCapacity": True})),
    ("affinity", read_profile({"TASRespectNodeAffinityPreferred": True})),
    ("most free, affinity", read_profile({"TASProfileMostFreeCapacity": True, "TASRespectNodeAffinityPreferred": True})),
)


class Life:
    """One workload, and the cluster it is on."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._random = random = Random(seed)
        self.profile_name, self.profile = random.choice(_PROFILES)
        self.cluster = _cluster(random)
        self._shares = {node.name: {"cpu": random.choice([500, 1000])} for node in self.cluster.nodes if random.random() < 0.2}
        self.requests = _workload(random, self.cluster.levels, "main")
        self.together = self._tie() if random.random() < 0.15 else None
        self.broken: list[str] = []

    def answers(self) -> Iterator[str]:
        """A line for each turn."""
        random, view = self._random, self._view()
        decision = place(view, self.requests, self.profile, together=self.together)
        self._judge(self.requests, decision, {}, compute_free_amounts(self.cluster))
        yield self._told("placed", decision, view, self.requests)
        if decision.refusal is not None:
            self._disturb(view)
            yield self._told("again", place(view, self.requests, self.profile, together=self.together), view, self.requests)
            return
        view = self._view()
        _count(view, self.requests, decision, 1)
        self._disturb(view)
        others = _workload(random, self.cluster.levels, "other")
        yield self._told("beside it", place(view, others, self.profile), view, others)
        yield self._replaced(decision)
        yield self._resized(self._view(), decision)

    def _view(self, *gone: str) -> FreeCapacity:
        """The cluster, in some lives with a share of some nodes kept for DaemonSets."""
        view = replace(self.cluster, nodes=tuple(node for node in self.cluster.nodes if node.name not in gone)).view()
        if self.seed % 4 == 0:
            view.daemon_shares = {name: share for name, share in self._shares.items() if name not in gone}
            for name, share in view.daemon_shares.items():
                view.use_node(name, share)
        return view

    def _tie(self) -> OneDomain:
        return OneDomain(self._random.choice(self.cluster.levels), self._random.random() < 0.6, "it is asked for")

    def _disturb(self, view: FreeCapacity) -> None:
        """What was counted before must be mended."""
        for node in self._random.sample(self.cluster.nodes, min(2, len(self.cluster.nodes))):
            change = self._random.randrange(4)
            state = node.state
            if change == 0:
                view.use_node(node.name, {"cpu": 1000, "pods": 1}, self._random.choice([1, 2, -1]))
            elif change == 1:
                view.observe_node(node.name, NodeState(state.allocatable, state.taints, not state.ready, state.unschedulable))
            elif change == 2:
                view.observe_node(node.name, NodeState({**state.allocatable, "cpu": 3000}, (), state.ready, not state.unschedulable))
            else:
                view.observe_node(node.name, NodeState({"cpu": 6000, "pods": 9, "gpu": 2}, (self._random.choice(TAINTS),), True, False))

    def _replaced(self, decision: Decision) -> str:
        """Some nodes fail, and in some lives are deleted."""
        held = [
            PlacedPodSet(request, placement.assignment, tuple(placement.nodes))
            for request, placement in zip(self.requests, decision.placements, strict=True)
        ]
        used = sorted({name for placement in decision.placements for name, _ in placement.nodes})
        failed = sorted(self._random.sample(used, min(len(used), self._random.choice([1, 1, 2, 3]))))
        gone = failed if self._random.random() < 0.3 else []
        stay = {each.request.name: {name: count for name, count in each.nodes or () if name not in failed} for each in held}
        view = self._view(*gone)
        _count(view, self.requests, decision, 1)
        answer = replace_failed(view, held, failed, self.profile)
        self._judge(self.requests, answer, stay, self._free_beside(stay), failed)
        return f"without {' '.join(failed)}{', deleted' * bool(gone)}: {_show(answer)}"

    def _resized(self, view: FreeCapacity, decision: Decision) -> str:
        wanted, previous = [], {}
        for request, placement in zip(self.requests, decision.placements, strict=True):
            unit = max((layer.size for layer in _slices(request)), default=1)
            units = max(1, request.count // unit + self._random.choice([-2, -1, 0, 1, 2, 3]))
            wanted.append(request if request.name.endswith("leader") else replace(request, count=units * unit))
            previous[placement.pod_set] = placement.assignment
        answer = resize(view, wanted, previous, self.profile, free=WhatIf(view).free)
        return f"as {' '.join(str(request.count) for request in wanted)}: {_show(answer)}"

    def _free_beside(self, stay: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
        usage = [(name, {**each.requests, "pods": 1}, count) for each in self.requests for name, count in stay[each.name].items()]
        return compute_free_amounts(replace(self.cluster, used=(*self.cluster.used, *usage)))

    def _judge(
        self,
        requests: Sequence[PodSetRequest],
        decision: Decision,
        stay: dict[str, dict[str, int]],
        free: dict[str, dict[str, int]],
        failed: Sequence[str] = (),
    ) -> None:
        """`auto` asks for whatever level has room, which no promise names."""
        if decision.refusal is None and not any(each.topology and each.topology.level == "auto" for each in requests):
            self.broken += find_broken_promises(self.cluster, requests, decision, stay, free, failed)

    def _told(self, turn: str, decision: Decision, view: FreeCapacity, requests: Sequence[PodSetRequest]) -> str:
        why = f" | {show_choices(explain_choice(view, requests, decision))}" if decision.refusal is None else ""
        return f"{turn}: {_show(decision)}{why}"


def tell(life: Life) -> str:
    """A life as one line: its profile, then what was answered."""
    return f"{life.seed} {life.profile_name} || " + " || ".join(life.answers())


def _show(decision: Decision) -> str:
    parts = []
    for placement in decision.placements:
        nodes = " ".join(f"{name}={count}" for name, count in placement.nodes)
        gap = "" if placement.search is None else f" {placement.search}"
        parts.append(f"{placement.pod_set}@{placement.level} {nodes}{gap}")
    if decision.refusal is not None:
        parts.append(f"{decision.refusal.kind.name} {decision.refusal.pod_set}: {format_refusal('t', decision.refusal)}")
    return "; ".join(parts) + (" (looked ahead)" if decision.looked_ahead else "")


def _count(view: FreeCapacity, requests: Sequence[PodSetRequest], decision: Decision, times: int) -> None:
    for request, placement in zip(requests, decision.placements, strict=True):
        for name, count in placement.nodes:
            view.use_node(name, {**request.requests, "pods": 1}, count * times)


def _slices(request: PodSetRequest) -> tuple[SliceLayer, ...]:
    return request.topology.slices if request.topology is not None else ()


# --- what is drawn ------------------------------------------------------------------------------------


def _cluster(random: Random) -> Cluster:
    """Two to four levels, the lowest of them the hostname in most; up to 18 nodes, of which a few cannot be had."""
    upper = random.randint(1, 3)
    by_host = random.random() < 0.8
    levels = tuple(f"level-{i}" for i in range(upper)) + ((HOSTNAME_LABEL,) if by_host else ())
    plain = random.random() < 0.5
    most = random.choice([3, 5, 9])
    nodes = []
    for i in range(random.randint(3, 18)):
        labels = {level: random.choice("abc" if number else "ab") for number, level in enumerate(levels[:upper])}
        labels |= {HOSTNAME_LABEL: f"h{i * 7 % 19:02}"} | ({} if plain else {"pool": random.choice("12")})
        allocatable = {"cpu": random.randint(0, most) * 1000, "pods": random.choice([3, 20, 20])}
        if random.random() < 0.3:
            allocatable["gpu"] = random.randint(0, 4)
        out = not plain and random.random() < 0.15
        taints = (random.choice(TAINTS),) if not plain and random.random() < 0.15 else ()
        nodes.append(Node(f"n{i:02}", labels, allocatable, taints, not out or random.random() < 0.5, out and random.random() < 0.7))
    busy = random.choice([0, 4, 4, len(nodes) * 2])  # of the last kind are clusters where little fits before something is freed
    used = tuple((random.choice(nodes).name, {"cpu": 500, "pods": 1}, random.randint(1, 5)) for _ in range(random.randint(0, busy)))
    return Cluster(levels, tuple(nodes), used)


def _workload(random: Random, levels: Sequence[str], name: str) -> list[PodSetRequest]:
    """One pod set, a leader with its workers, or up to four of them."""
    kind = random.choice(["one"] * 5 + ["group"] * 3 + ["several"] * 2 + ["group of three"])
    first = _build_pod_set(random, levels, name)
    if kind == "one" or first.topology is None:
        return [first]
    others = [_build_pod_set(random, levels, f"{name}-{i}") for i in range(random.randint(1, 3))]
    if kind == "several":
        return [first, *others]
    shared = replace(first.topology, group="g")
    leader = replace(_build_pod_set(random, levels, f"{name}-leader"), count=1, topology=replace(shared, slices=()))
    members = [replace(first, topology=shared), leader]
    if kind == "group of three":
        members.append(replace(others[0], topology=replace(shared, slices=()), count=random.randint(1, 3)))
    random.shuffle(members)
    return members


def _build_pod_set(random: Random, levels: Sequence[str], name: str) -> PodSetRequest:
    mode = random.choice([Mode.REQUIRED, Mode.REQUIRED, Mode.PREFERRED, Mode.PREFERRED, Mode.UNCONSTRAINED, Mode.IMPLIED])
    asked = mode in (Mode.REQUIRED, Mode.PREFERRED)
    level = random.choice(levels) if asked else None
    count = random.randint(1, 14)
    slices: tuple[SliceLayer, ...] = ()
    if mode is not Mode.IMPLIED and random.random() < 0.45:
        below = range(levels.index(level) if level is not None else 0, len(levels))
        at = sorted(random.sample(below, min(len(below), random.randint(1, 3))))
        sizes = {1: [random.randint(2, 4)], 2: [4, 2], 3: [8, 4, 2]}[len(at)]
        slices = tuple(SliceLayer(levels[each], size) for each, size in zip(at, sizes, strict=True))
        count = max(1, count // sizes[0]) * sizes[0]
    if asked and not slices and random.random() < 0.1:
        level = "auto"
    if random.random() < 0.02:
        level = "level-9" if asked else None
    requests = {"cpu": random.choice([500, 1000, 1000, 2000])} | ({"gpu": 1} if random.random() < 0.12 else {})
    return PodSetRequest(
        name,
        count,
        requests,
        TopologyRequest(mode, level, slices),
        {"pool": random.choice("12")} if random.random() < 0.12 else {},
        _preferring(random) if random.random() < 0.3 else None,
        tuple(random.sample(TOLERATIONS, random.choice([0, 0, 1]))),
        _traits(random, levels) if random.random() < 0.08 else PodTraits(),
    )


def _preferring(random: Random) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": "pool", "operator": "In", "values": [random.choice("12")]}]}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": random.randint(1, 9), "preference": term}]}}


def _traits(random: Random, levels: Sequence[str]) -> PodTraits:
    labels, mine = {"app": "x"}, (Requirement("app", "In", frozenset("x")),)
    term = PodTerm(random.choice(levels), frozenset({"ns"}), None, mine)
    return random.choice(
        [
            PodTraits("ns", labels, host_ports=(HostPort(80),)),
            PodTraits("ns", labels, anti_affinity=(term,)),
            PodTraits("ns", labels, affinity=(term,)),
        ]
    )


def write() -> int:
    """Writes all answers, unless one breaks a promise; returns how many lives do."""
    lines, wrong = [], 0
    for seed in range(LIVES):
        life = Life(seed)
        lines.append(tell(life))
        if life.broken:
            wrong += 1
            print(seed, *life.broken, sep="\n    ", file=sys.stderr)
    if not wrong:
        ANSWERS.write_text("\n".join(lines) + "\n")
        turns = Counter(part.split(":")[0].split()[0] for line in lines for part in line.split(" || ")[1:])
        print(f"{LIVES} lives: {dict(turns)}")
    return wrong


if __name__ == "__main__":
    sys.exit(1 if write() else 0)
