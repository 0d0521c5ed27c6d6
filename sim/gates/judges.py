"""Rules of Kueue 0.20 that hold when something happens, or at the end: spreading, thresholds of lost nodes, times to be ready."""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from datetime import timedelta
from typing import NamedTuple

from core.model.gates import MAX_NOT_READY, REPLACE_MULTIPLE, SPREADING, WORKLOAD_PODS_READY, ChosenGates
from core.names import (
    HOSTNAME_LABEL,
    LOST_NODES_THRESHOLD,
    MAX_NOT_READY_COUNT,
    POD_GROUP_NAME,
    REASON_WAITING_FOR_PREEMPTED,
    SPARES,
    TOPOLOGY_SPREADING,
    WAIT_FOR_PODS_READY,
)
from core.plan.steps.actions import from_time
from e2e.audit.recount_places import is_well, read_domains
from e2e.audit.recount_promises import count_free
from e2e.audit.recount_spread import Crowd
from e2e.nodes import NodePool
from e2e.standins.pods import has_condition
from sim.apiserver.server import Change
from sim.models.base import NODE, POD, Json, get_key, get_phase
from sim.replica import CALM_S
from sim.world import DOUBTED_S, WORKLOADS, World

_WRITTEN_S = 5.0  # all that was decided on together is written
LATE_S = 120.0  # in peace: what is overdue has been evicted
_TOPOLOGIES, _FLAVORS = ("kueue.x-k8s.io", "topologies"), ("kueue.x-k8s.io", "resourceflavors")


class _Spread(NamedTuple):
    """A place as it was given, and the others as they were then."""

    at: float
    crowd: Crowd
    workload: Json
    present: list[Json]
    doubtful: list[Json]
    nodes: list[Json]
    pods: list[Json]
    flavors: Mapping[str, Mapping[str, str]]  # by name: the labels of their nodes
    just_now: Collection[str]  # uids of workloads that have got their place with this one, or shortly before
    is_sure: bool  # a rule orders domains, all that was decided on has been written, and no workload was promised what evicted ones have


class Judges:
    """Notes what breaks a rule while a scenario is played. `doubled` has names of nodes with a hostname that another has, too."""

    def __init__(self, world: World, pool: NodePool, gates: ChosenGates, doubled: Collection[str]) -> None:
        self._world, self._pool, self._gates, self._doubled = world, pool, gates, doubled
        self.has_jumps = False  # whether clocks are wrong now and then
        self.problems: list[str] = []
        self.counts = Counter[str]()  # how often each rule was judged
        self._spread: list[_Spread] = []  # places that are to be judged
        self._left: dict[str, tuple[float, Json]] = {}  # by uid: workloads that have given up their place, and when
        self._placed: dict[str, float] = {}  # by uid: when a workload got its place
        self._since: defaultdict[tuple[str, str], float] = defaultdict(float)  # by uid and condition: when it changed
        self._troubled: dict[str, float] = {}  # by hostname: when its node was not as it should be, last
        self._relevelled_at = float("-inf")
        if gates.values:
            world.server.on_change_of[NODE].append(self._note_node)
            world.server.on_change_of[_TOPOLOGIES].append(self._note_levels)
            world.server.on_change_of[WORKLOADS].append(self._judge)

    # --- while it is played -------------------------------------------------------------------------

    def _note_node(self, change: Change) -> None:
        if not self._world.loop.time():
            return  # the cluster is made
        spec = change.last.get("spec") or {}
        labels = {name: value for obj in (change.old, change.last) if obj for name, value in (obj["metadata"].get("labels") or {}).items()}
        is_well = change.new is not None and has_condition(change.new, "Ready") and not spec.get("unschedulable") and not spec.get("taints")
        is_same = change.old is None or (change.old["metadata"].get("labels") == change.last["metadata"].get("labels"))
        if not is_well or not is_same or change.old is None or not has_condition(change.old, "Ready"):
            self._troubled[labels.get(HOSTNAME_LABEL, change.last["metadata"]["name"])] = self._world.loop.time()
        if not is_well:
            self._troubled[change.last["metadata"]["name"]] = float("inf")  # until it is seen to be well
        elif self._troubled.get(change.last["metadata"]["name"]) == float("inf"):
            self._troubled[change.last["metadata"]["name"]] = self._world.loop.time()

    def _note_levels(self, change: Change) -> None:
        is_same = change.old is not None and change.new is not None and change.old["spec"] == change.new["spec"]
        if self._world.loop.time() and not is_same:  # at first it is made; the product adds a finalizer
            self._relevelled_at = self._world.loop.time()

    def _judge(self, change: Change) -> None:
        now, old, new = self._world.loop.time(), change.old or {}, change.new or {}
        uid = change.last["metadata"]["uid"]
        for kind in ("Admitted", "PodsReady"):
            if has_condition(old, kind) != has_condition(new, kind):
                self._since[uid, kind] = now
        if _is_present(old) and not _is_present(new):
            self._left[uid] = now, old
        if _has_places(new) and not _has_places(old):
            self._placed[uid] = now
            if self._gates.is_on(SPREADING) and (modes := _list_modes(new)):
                self._note_place(new, is_ordered="Preferred" in modes)
        if new and has_condition(new, "Evicted") and not has_condition(old, "Evicted"):
            reason = next(each["reason"] for each in new["status"]["conditions"] if each["type"] == "Evicted")
            if reason == "NodeFailures" and self._gates.is_on(REPLACE_MULTIPLE):
                self._judge_threshold(old, new)
            if reason == "PodsReadyTimeout" and self._gates.is_on(WORKLOAD_PODS_READY) and not self.has_jumps:
                self._judge_times(new)
            if reason == "PodsReadyTimeout" and self._gates.is_on(MAX_NOT_READY) and self._is_calm():
                self._judge_patience(new)

    def _list(self, resource: tuple[str, str]) -> list[Json]:
        """All objects of a resource, as they are stored: none is changed there, so that what is listed may be kept."""
        return [stored.obj for stored in self._world.server.objects[resource].values()]

    def _note_place(self, workload: Json, *, is_ordered: bool) -> None:
        """Keeps what a place is judged by later; `is_ordered`: a rule orders the domains."""
        now, workloads = self._world.loop.time(), self._list(WORKLOADS)
        levels = [each["nodeLabel"] for topology in self._list(_TOPOLOGIES) for each in topology["spec"]["levels"]]
        if levels != self._pool.levels or now < self._relevelled_at + DOUBTED_S:
            return
        doubted = self._world.relabelled | self._world.unlabelled | self._world.moved | {*self._doubled}
        nodes = [node for node in self._list(NODE) if node["metadata"]["name"] not in doubted]
        present = [each for each in workloads if _is_present(each)]
        doubtful = [each for each in workloads if _has_places(each) and not _is_present(each)]
        known = {each["metadata"]["uid"] for each in (*present, *doubtful)}
        doubtful += [each for uid, (at, each) in self._left.items() if now < at + DOUBTED_S and uid not in known]
        is_calm = self._is_calm()
        if not is_calm:  # some may have been decided on, and not written
            doubtful += [each for each in workloads if not _has_places(each)]
        self.counts["spread"] += 1
        is_sure = is_ordered and is_calm and not any(map(_waits_for_evicted, workloads))
        flavors = {each["metadata"]["name"]: each["spec"].get("nodeLabels") or {} for each in self._list(_FLAVORS)} if is_sure else {}
        just_now = {uid for uid, at in self._placed.items() if now < at + _WRITTEN_S}
        crowd, pods = Crowd(levels, nodes), self._list(POD) if is_sure else []
        self._spread.append(_Spread(now, crowd, workload, present, doubtful, nodes, pods, flavors, just_now, is_sure))

    def settle(self) -> list[str]:
        """What is broken until now. Of Workloads that are decided on together the last may be written first: a place is judged seconds
        later, with those that came meanwhile."""
        now = self._world.loop.time()
        while self._spread and now >= self._spread[0].at + _WRITTEN_S:
            found = self._spread.pop(0)
            known = {each["metadata"]["uid"] for each in (*found.present, *found.doubtful) if _has_places(each)}
            came = [each for each in self._list(WORKLOADS) if _has_places(each) and each["metadata"]["uid"] not in known]
            come = {each["metadata"]["uid"] for each in came}
            doubtful = [*came, *(each for each in found.doubtful if each["metadata"]["uid"] not in come)]
            self.problems += found.crowd.find_crowded(found.workload, found.present, doubtful)
            self._judge_order(found, doubtful)
        return self.problems

    def _judge_order(self, found: _Spread, doubtful: list[Json]) -> None:
        """It is where `Preferred` rules would rather have it, as far as there was room beyond doubt. What is decided on together is not
        judged: which of it was first is not known."""
        others = [each for each in found.present if each["metadata"]["uid"] != found.workload["metadata"]["uid"]]
        unsure = [*doubtful, *(each for each in others if each["metadata"]["uid"] in found.just_now)]
        if found.is_sure:
            self.counts["order"] += 1
            spares = set[str]().union(*map(_list_spares, (*others, *self._list(WORKLOADS))))
            nodes = [each for each in found.nodes if _takes_pods(each) and each["metadata"]["name"] not in spares]
            free = count_free([*others, *doubtful], found.pods, nodes)
            self.problems += found.crowd.find_worse(found.workload, others, unsure, free, found.flavors)

    def _is_calm(self) -> bool:
        """Whether nothing goes wrong between processes and the API server, nor did a short while ago."""
        return all(self._world.loop.time() >= replica.calm_since + CALM_S for replica in self._world.replicas)

    def _judge_threshold(self, old: Json, new: Json) -> None:
        """It is evicted for lost nodes only if more of them than it says may be lost."""
        text, now = (new["metadata"].get("annotations") or {}).get(LOST_NODES_THRESHOLD), self._world.loop.time()
        if text is None or now < self._relevelled_at + DOUBTED_S:
            return
        self.counts["tolerant"] += 1
        hosts = {
            values[-1]
            for given in ((old.get("status") or {}).get("admission") or {}).get("podSetAssignments") or ()
            for values, _ in read_domains(given.get("topologyAssignment") or {})
        }
        elsewhere = self._world.moved | self._world.relabelled | {*self._doubled}
        lost = {host for host in hosts if host in elsewhere or now < self._troubled.get(host, -DOUBTED_S) + DOUBTED_S}
        named = {each["name"] for workload in (old, new) for each in (workload.get("status") or {}).get("unhealthyNodes") or ()}
        if len(lost | named) <= int(text):
            self.problems.append(f"workload {_show(new)} is evicted for {len(lost | named)} lost nodes, and accepts {text}")

    def _judge_times(self, workload: Json) -> None:
        """It is evicted after one of its times, not before."""
        times = _read_times(workload)
        if times:
            self.counts["hurried"] += 1
            uid, now = workload["metadata"]["uid"], self._world.loop.time()
            waited = now - min(self._since[uid, "Admitted"], self._since[uid, "PodsReady"])
            if waited < min(times.values()) - 2.0:
                self.problems.append(f"workload {_show(workload)} is evicted after {waited:.0f} s, and its times are {times}")

    def _judge_patience(self, workload: Json) -> None:
        """A group is not evicted for pods that are not ready while enough of them are."""
        mine = self._list_group(workload)
        if mine:
            total, tolerated = _count_tolerated(workload, mine)
            seen_by = from_time(self._world.clock.now() - timedelta(seconds=_WRITTEN_S))
            ready = sum(get_phase(pod) == "Succeeded" or _get_ready_time(pod) < seen_by for pod in mine)
            self.counts["patience"] += 1
            if total - ready <= tolerated:
                self.problems.append(f"group {_show(workload)} is evicted with {ready} of {total} pods ready, and may lack {tolerated}")

    def _list_group(self, workload: Json) -> list[Json]:
        """The pods of a group that says how many of them may be not ready."""
        key = get_key(workload)
        mine = [pod for pod in self._list(POD) if (pod["metadata"]["namespace"], _get_group(pod)) == key]
        return mine if any(MAX_NOT_READY_COUNT in (pod["metadata"].get("annotations") or {}) for pod in mine) else []

    # --- at the end ---------------------------------------------------------------------------------

    def find_at_end(self) -> Iterator[str]:
        """Sentences about workloads that should have been evicted, and groups that are said to be ready and are not, or the other way
        round."""
        workloads, now = self._list(WORKLOADS), self._world.loop.time()
        running = [each for each in workloads if has_condition(each, "Admitted") and not has_condition(each, "Finished")]
        for each in running if self._gates.is_on(WORKLOAD_PODS_READY) else ():
            times = _read_times(each)
            if times and not has_condition(each, "PodsReady"):
                uid = each["metadata"]["uid"]
                waited = now - max(self._since[uid, "Admitted"], self._since[uid, "PodsReady"])
                if waited > max(times.values()) + LATE_S:
                    yield f"workload {each['metadata']['name']} is not ready for {waited:.0f} s, and its times are {times}"
        for each in running if self._gates.is_on(MAX_NOT_READY) else ():
            if mine := self._list_group(each):
                self.counts["groups"] += 1
                yield from _judge_group(each, mine)


def _count_tolerated(workload: Json, pods: list[Json]) -> tuple[int, int]:
    """How many pods a group has, and how many of them may be not ready."""
    total = sum(pod_set["count"] for pod_set in workload["spec"]["podSets"])
    texts = [(pod["metadata"].get("annotations") or {}).get(MAX_NOT_READY_COUNT) or "" for pod in pods]
    return total, min(int(text) if text.isdecimal() and int(text) < total else 0 for text in texts)


def _judge_group(workload: Json, pods: list[Json]) -> Iterator[str]:
    total, tolerated = _count_tolerated(workload, pods)
    ready = sum(has_condition(pod, "Ready") or get_phase(pod) == "Succeeded" for pod in pods)
    if has_condition(workload, "PodsReady") != (total - ready <= tolerated):
        yield f"group {workload['metadata']['name']} has {ready} of {total} pods ready, may lack {tolerated}, and says otherwise"


def _list_modes(workload: Json) -> set[str]:
    """How rules of spreading are enforced that pod sets of a workload have."""
    templates = (pod_set["template"].get("metadata") or {} for pod_set in workload["spec"]["podSets"])
    asked = (json.loads((each.get("annotations") or {}).get(TOPOLOGY_SPREADING) or "{}") for each in templates)
    return {rule.get("enforcementMode", "Required") for each in asked for rule in each.get("rules", ())}


def _takes_pods(node: Json) -> bool:
    return is_well(node) and not (node.get("spec") or {}).keys() & {"unschedulable", "taints"}


def _list_spares(workload: Json) -> set[str]:
    """Nodes that are kept free for a workload."""
    found = json.loads((workload["metadata"].get("annotations") or {}).get(SPARES) or "{}")
    return {name for names in found.values() for name in names}


def _waits_for_evicted(workload: Json) -> bool:
    conditions = (workload.get("status") or {}).get("conditions") or ()
    return any(each.get("reason") == REASON_WAITING_FOR_PREEMPTED for each in conditions)


def _get_ready_time(pod: Json) -> str:
    """Since when a pod is ready, as the API has it; later than any time where it is not."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return next((each["lastTransitionTime"] for each in conditions if (each["type"], each["status"]) == ("Ready", "True")), "~")


def _show(workload: Json) -> str:
    return "/".join(get_key(workload))


def _get_group(pod: Json) -> str:
    return str((pod["metadata"].get("labels") or {}).get(POD_GROUP_NAME) or "")


def _read_times(workload: Json) -> Mapping[str, int]:
    found: dict[str, int] = json.loads((workload["metadata"].get("annotations") or {}).get(WAIT_FOR_PODS_READY) or "{}")
    return found


def _has_places(workload: Json) -> bool:
    given = ((workload.get("status") or {}).get("admission") or {}).get("podSetAssignments") or ()
    return any(each.get("topologyAssignment") for each in given)


def _is_present(workload: Json) -> bool:
    """Whether it holds its places, and neither ends nor gives them up."""
    is_ending = any(has_condition(workload, kind) for kind in ("Evicted", "Finished"))
    return _has_places(workload) and not is_ending and not workload["metadata"].get("deletionTimestamp")
