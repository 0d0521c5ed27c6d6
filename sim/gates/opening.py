"""The first minutes of a scenario with gates of Kueue 0.20, before anything goes wrong: jobs that use the gates meet in a cluster in which
little is free, nodes fail, and whatever the jobs are waited for comes or does not. Then all of it is deleted.

What comes later, among faults, leaves the judges much to doubt. Here they have no doubts.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from core.model.gates import PARTIAL_SLICES, REPLACE_MULTIPLE, SPREADING, WORKLOAD_PODS_READY, ChosenGates
from core.names import HOSTNAME_LABEL, LOST_NODES_THRESHOLD
from e2e.audit.recount_places import read_domains
from e2e.audit.recount_promises import find_misshapen
from e2e.standins.pods import has_condition
from sim.administrators import Administrators
from sim.apiserver.server import Refused
from sim.ending import list_holding
from sim.gates.jobs import MADE, Order, make_filler, make_rest, make_served, make_stuck
from sim.gates.judges import LATE_S, Judges
from sim.models.base import NODE
from sim.replica import CALM_S
from sim.world import WORKLOADS, Broken, World

Json = dict[str, Any]
_MOST = 4  # pods of a kind in a job: each write takes 3 ms of CPU
_IN_TURN = 4  # Workloads of one service, one after the other
_BETWEEN_S = 7.0  # so that what came before has been written
_PATIENCE_S, _EVICTION_S = 20, 5.0  # a process gives up a write long before its lease ends
_ROOM_S, _LOST_S, _GONE_S = 30.0, 60.0, 45.0


class Opening:
    """`pass_time` lets some seconds pass, and raises Broken where the audit or a judge finds something meanwhile."""

    def __init__(self, seed: int, world: World, gates: ChosenGates, teams: Sequence[str], pass_time: Callable[[float], None]) -> None:
        self._chance, self._world, self._gates, self._teams = random.Random(f"opening of {seed}"), world, gates, teams
        self._pass_time = pass_time
        self._made: list[list[Json]] = []

    def play(self, administrators: Administrators, judges: Judges) -> None:
        """Plays it. Raises Broken."""
        self._pass_time(_BETWEEN_S)
        self._play_rest()
        fillers = self._fill()
        for name in self._list_kinds():
            objects = self._submit(MADE[name][0](self._order()), name)
            self._pass_time(self._chance.choice([2.0, _BETWEEN_S]))
            if objects[-1]["metadata"]["name"] not in {root["metadata"]["name"] for root in list_holding(self._world)}:
                self._delete(objects)  # all that comes behind it in a StrictFIFO queue would wait
        late = 0.0
        if self._gates.is_on(WORKLOAD_PODS_READY):
            self._submit(make_stuck(self._order(), timeout_s := self._chance.choice([20, 120])), "times")
            late = self._world.loop.time() + timeout_s + LATE_S
        self._pass_until(CALM_S + _BETWEEN_S)
        self._play_service()
        for job in self._chance.sample(fillers, len(fillers) // 2):
            self._delete([job])
        self._pass_time(_ROOM_S)
        self._fail_nodes(administrators)
        self._meet_eviction(administrators)
        self._pass_time(_ROOM_S)
        self._pass_until(late)
        problems = [*judges.find_at_end(), *find_misshapen(self._world.objects(*WORKLOADS), self._world.objects(*NODE))]
        if problems:
            raise Broken("; ".join(problems))
        for objects in self._made:
            self._delete(objects)
        self._pass_time(_GONE_S)
        for workload in self._world.objects(*WORKLOADS):
            if not workload["metadata"].get("ownerReferences"):  # of a group that was evicted: its pods may come again
                self._world.delete(workload)
        self._pass_time(_BETWEEN_S)

    def _pass_until(self, time: float) -> None:
        self._pass_time(max(0.0, time - self._world.loop.time()))

    def _list_kinds(self) -> list[str]:
        """Those that use a gate, those of groups, which are small, three times."""
        used = [name for name, (_, needed) in MADE.items() if needed and all(map(self._gates.is_on, needed))]
        found = [name for name in used for _ in range(3 if name == "group" else 1)]
        self._chance.shuffle(found)
        return found

    def _order(self, team: str = "") -> Order:
        name = f"opening-{len(self._made) + 1}"
        return Order(name, team or self._chance.choice(self._teams), self._chance, _MOST, is_limited=True)

    def _submit(self, objects: list[Json], what: str) -> list[Json]:
        """Raises Broken where it is refused."""
        try:
            for obj in objects:
                self._world.apply(obj)
        except Refused as refused:
            raise Broken(f"a job with {what} is refused: {refused}") from refused
        self._made.append(objects)
        return objects

    def _fill(self) -> list[Json]:
        """Jobs that take a part of some nodes each."""
        hosts, found = [node["metadata"]["labels"][HOSTNAME_LABEL] for node in self._world.objects(*NODE)], list[Json]()
        for number, host in enumerate(self._chance.sample(hosts, len(hosts) // 2)):
            found += self._submit(make_filler(self._order(self._teams[number % len(self._teams)]), host), "a node")
        return found

    def _play_rest(self) -> None:
        """What is left over of partial slices has its place before the others, by the names of hosts."""
        if self._gates.is_on(PARTIAL_SLICES):
            team, host = self._chance.choice(self._teams), self._world.objects(*NODE)[0]["metadata"]["labels"][HOSTNAME_LABEL]
            filler = self._submit(make_filler(self._order(team), host, 4), "a node")
            self._pass_time(_BETWEEN_S)
            job = self._submit(make_rest(self._order(team)), "partial slices")
            self._pass_time(_BETWEEN_S)
            self._delete([*filler, *job])
            self._pass_time(_BETWEEN_S)

    def _play_service(self) -> None:
        """Workloads that are spread by one label, one after the other."""
        if self._gates.is_on(SPREADING):
            team, seed = self._chance.choice(self._teams), self._chance.getrandbits(32)
            for _ in range(_IN_TURN):
                self._submit(make_served(self._order(team), random.Random(seed)), "spreading")
                self._pass_time(_BETWEEN_S)

    def _fail_nodes(self, administrators: Administrators) -> None:
        """As many nodes of a tolerant job as it accepts, or one more, go, and a while later they are back. Pods leave a node that is there
        and not ready after 300 s only: that is played among the steps."""
        if not self._gates.is_on(REPLACE_MULTIPLE):
            return
        tolerant = [(each, hosts) for each in self._world.objects(*WORKLOADS) if (hosts := _list_hosts(each))]
        if tolerant:
            workload, hosts = self._chance.choice(tolerant)
            count = int(workload["metadata"]["annotations"][LOST_NODES_THRESHOLD]) + self._chance.choice([0, 0, 1])
            for host in hosts[:count]:
                administrators.remove_node(host)
                self._pass_time(self._chance.choice([0.2, _BETWEEN_S]))
            self._pass_time(_LOST_S)
            administrators.restore()

    def _meet_eviction(self, administrators: Administrators) -> None:
        """A job whose pod is never ready is evicted, and what says so is late: meanwhile its node has gone, and its pod got another one."""
        if not self._gates.is_on(WORKLOAD_PODS_READY):
            return
        [job] = self._submit(make_stuck(self._order(), _PATIENCE_S), "times")
        for _ in range(_PATIENCE_S):
            self._pass_time(1.0)
            mine = [each for each in self._world.objects(*WORKLOADS) if f"-{job['metadata']['name']}-" in each["metadata"]["name"]]
            hosts = [host for each in mine if has_condition(each, "Admitted") for host in _find_hosts(each)]
            if hosts:
                break
        else:
            return
        self._pass_time(_PATIENCE_S - self._chance.uniform(2.0, 4.5))
        administrators.remove_node(hosts[0])
        self._set_eviction_time(_EVICTION_S)
        self._pass_time(3 * _EVICTION_S)
        self._set_eviction_time(0.0)
        administrators.restore()

    def _set_eviction_time(self, seconds: float) -> None:
        for replica in self._world.replicas:
            replica.faults.eviction_s = seconds

    def _delete(self, objects: Sequence[Json]) -> None:
        """Deletes what is still there of a job."""
        for obj in reversed(objects):
            key = obj["metadata"].get("namespace") or "", obj["metadata"]["name"]
            if key in self._world.server.objects[self._world.resource_of(obj)]:
                self._world.delete(obj, propagationPolicy="Background")


def _list_hosts(workload: Json) -> list[str]:
    """Hosts of a workload that says how many of them it can lose, and runs."""
    notes = workload["metadata"].get("annotations") or {}
    return list(_find_hosts(workload)) if LOST_NODES_THRESHOLD in notes and has_condition(workload, "Admitted") else []


def _find_hosts(workload: Json) -> Iterator[str]:
    for given in workload["status"]["admission"]["podSetAssignments"]:
        yield from (values[-1] for values, _ in read_domains(given.get("topologyAssignment") or {}))
