"""A random life of a cluster: teams, jobs, nodes that fail, administrators; and faults between topogate and the API server.

What is played depends on the seed and the list of steps alone. While it is played the audit of objects (`e2e.audit.recount`) must hold.
When the
faults have ended and time has passed, everything runs, has finished, or waits with a reason, nothing is written any more, and a process
that begins anew has nothing to add.
"""

import logging
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice, takewhile
from typing import Any, NamedTuple

from core.model.configuration import FairSharing
from core.model.gates import DEVICES, DEVICES_ON_NODES, ELASTIC_JOBS, ELASTIC_JOBS_WITH_TOPOLOGY, ChosenGates
from core.model.node_health_rules import StormRules
from core.model.pods_ready_rules import PodsReadyRules, Scope
from core.names import QUOTA_RESERVED
from core.queueing.cycle.queue_resolution import make_stop_check
from core.queueing.ordering.portions import MOST_S
from core.queueing.ordering.waiting_order import WaitingWorkload, list_all_waiting
from e2e import manifests
from e2e.audit.recount_promises import find_misplaced_spares, find_misshapen, find_unnoticed
from e2e.nodes import NodePool
from e2e.standins.pods import has_condition
from sim import administrators, faults, users
from sim.administrators import GPUS, POOL_LABEL, POOLS, Administrators
from sim.apiserver.server import LEASES, Change, Refused
from sim.ending import find_unsettled, list_holding
from sim.gates.chosen import choose_behaviour, choose_gates
from sim.gates.judges import Judges
from sim.gates.opening import Opening
from sim.models.base import NODE, POD
from sim.models.checks import CHECK, make_check
from sim.models.devices import DEVICES_RESOURCE, build_class, build_slice
from sim.order import Room, find_out_of_order
from sim.records import Records
from sim.users import Users
from sim.world import UNAUDITED, Broken, World

Json = dict[str, Any]
_log = logging.getLogger(__name__)
TEAMS = ("red", "blue")
QUIET_S, LONG_QUIET_S, LONGEST_S = 330.0, 1800.0, 7200.0  # containers run for 300 s at most
FRESH_S, LEADER_S = 60.0, 180.0
LOST_S = 120.0  # in peace: what was lost before has been noticed
IDLE_S, MOST_IDLE_TURNS, MOST_IDLE_CHANGES = 100.0, 5_000, 10
MOST_SLOTS = 32
CROWD, EXAMPLE_OF_CROWD = 4, "job-one-rack"
SEEN_AFTER_S, OPENED_AFTER_S = 6.0, 30.0  # by then jobs that wait have been seen, and another process leads
ROOMS, JOBS_OF_ROOM, ROOM_S = 3, 2, 10.0  # jobs that end at last, a few at a time, and how long what waits has to take their place
WAITS_S = (0.2, 1.0, 5.0, 30.0)
SIZES = (1500, 2000, 2500)  # bytes that a Workload may have in some scenarios: many small ones have more
REPLICAS, DEVICES_OF_NODE = 2, 4
KUEUE = "kueue.x-k8s.io"
WORKLOADS = KUEUE, "workloads"


class Size(NamedTuple):
    """How much there is in a scenario."""

    jobs: int
    others: int  # steps of users, nodes and administrators
    faults: int


SMALL = Size(jobs=8, others=8, faults=5)  # what most tests play


def choose_size(seed: int) -> Size:
    """How much there is in the scenario of a seed where nothing else is asked for.

    Some have many steps that meet each other, others few: more scenarios are played in the same time.
    """
    chance = random.Random(f"size of {seed}")
    return Size(jobs=50, others=chance.randint(4, 20), faults=chance.randint(5, 8))


class Step(NamedTuple):
    """What happens at one moment, and how much time passes then. What it chooses depends on its own seed: others may be left out."""

    name: str
    detail: str
    seed: int
    wait_s: float


def plan(seed: int, size: Size) -> list[Step]:
    """The steps of a seed, in their order."""
    chance, jobs = random.Random(f"steps of {seed}"), size.jobs
    begun = [("begin_fault", kind) for kind in chance.sample(faults.KINDS, min(size.faults, len(faults.KINDS)))]
    weights = users.WEIGHTS | administrators.WEIGHTS
    chosen = chance.choices(list(weights), list(weights.values()), k=size.others)
    named = [*begun, *((name, "") for name in chosen)]
    while jobs > 0:
        count = min(jobs, chance.randint(1, 4))
        named.append(("submit", str(count)))
        jobs -= count
    chance.shuffle(named)
    steps = [Step(name, detail, chance.getrandbits(32), chance.choice(WAITS_S)) for name, detail in named]
    elastic = random.Random(f"elastic jobs of {seed}")  # its own, so that all else of a seed stays as it was
    for _ in range(max(4, size.jobs // 3) if elastic.random() < 0.25 else 0):
        name = elastic.choice(users.OF_ELASTIC_JOBS)
        steps.insert(elastic.randint(0, len(steps)), Step(name, "", elastic.getrandbits(32), elastic.choice(WAITS_S)))
    gated = random.Random(f"gated steps of {seed}")
    for _ in range(max(6, size.jobs // 3) if choose_gates(seed).values else 0):
        name = gated.choice([*users.WITH_GATES * 8, *administrators.WITH_GATES])
        steps.insert(gated.randint(0, len(steps)), Step(name, "", gated.getrandbits(32), gated.choice(WAITS_S)))
    return steps


def _choose_options(chance: random.Random) -> dict[str, Any]:
    """Of the configuration of a reconciler what few administrators ask for."""
    options: dict[str, Any] = {}
    if chance.random() < 0.2:
        options["sharing"] = FairSharing()
    if chance.random() < 0.2:
        # With a limit: pods that fail again and again are never ready.
        options["pods_ready"] = PodsReadyRules(
            60.0, 60.0, chance.choice([None, *Scope]), backoff_limit=3, backoff_base_s=5.0, backoff_max_s=60.0
        )
    return options


class Scenario:
    """One life of one cluster."""

    def __init__(self, seed: int, size: Size | None = None, steps: Sequence[Step] | None = None) -> None:
        """`size` and `steps` are those of the seed if none are given."""
        self.seed, self.chance = seed, random.Random(seed)
        self.steps = plan(seed, size or choose_size(seed)) if steps is None else steps
        self.gates = choose_gates(seed)
        self.world = World(seed, gates=self.gates)
        self.pool = NodePool(blocks=2, racks=2, nodes=self.chance.randint(2, 4))
        self._records = Records(self.world.server)
        self.stale_reasons: list[str] = []
        self.excused: list[str] = []  # why what was found is no failure (docs/testing.md)
        self.idle_turns = self.idle_changes = 0
        self._troubles = faults.Troubles(self.world)
        self._options: dict[str, Any] = {}
        self._administrators = Administrators(self.world, self.pool, lowers_quota=self.chance.random() < 0.5)
        self.judges = Judges(self.world, self.pool, self.gates, self._administrators.doubled)
        self._quiet_s = LONG_QUIET_S if self.chance.random() < 0.1 else QUIET_S
        self._has_size_limit = self.chance.random() < 0.1
        if self._has_size_limit:
            self.world.limit_workloads(self.chance.choice(SIZES))
        self._set_up()

    # --- the cluster --------------------------------------------------------------------------------

    def _set_up(self) -> None:
        world, whole = self.world, 4 * self.pool.nodes * GPUS
        self._administrators.make_nodes()
        if self._counts_devices:
            world.apply(build_class())
            for node in world.objects(*NODE):
                world.apply(build_slice(node["metadata"]["name"], DEVICES_OF_NODE if self.gates.is_on(DEVICES_ON_NODES) else 64))
        world.apply(manifests.build_topology("t", self.pool.levels))
        # One flavor of all nodes, or two of which each has its own, or one of all and one of some.
        labels = self.chance.choice([*[("", None)] * 4, *[(POOLS[0], POOLS[1])] * 2, ("", POOLS[1])])
        flavors = {name: {POOL_LABEL: pool} if pool else {} for name, pool in zip("fg", labels, strict=True) if pool is not None}
        for name, of_nodes in flavors.items():
            world.apply(manifests.build_flavor(name, of_nodes, "t"))
        configured = random.Random(f"configuration of {self.seed}")
        has_check = configured.random() < 0.25
        if has_check:
            world.apply(make_check(world.time()))
        for team in TEAMS:
            each: dict[str, str | int] = {"cpu": 1000, "memory": "10Ti", "nvidia.com/gpu": whole // 2 // len(flavors)}
            each |= {DEVICES_RESOURCE: whole // 4 // len(flavors)} if self._counts_devices else {}
            quota = dict.fromkeys(flavors, each)
            strategy = self.chance.choice(["BestEffortFIFO", "StrictFIFO"])
            preemption = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"} if self.chance.random() < 0.5 else {}
            spec: Json = {"cohortName": "all", **({"preemption": preemption} if preemption else {})}
            if has_check:
                spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": CHECK}]}
            world.apply(manifests.build_cluster_queue(team, quota, strategy=strategy, **spec))
            world.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team}})
            for name in ("main", "other"):
                world.apply(manifests.build_local_queue(name, team, team))
        for name, value in (("low", 1), ("high", 100)):
            world.apply(
                {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value}
            )
        world.loop.work_s = 0.75 * MOST_S if random.Random(f"decisions of {self.seed}").random() < 0.2 else 0.0
        is_elastic = any(step.name in users.OF_ELASTIC_JOBS for step in self.steps)
        elastic = {ELASTIC_JOBS: True, ELASTIC_JOBS_WITH_TOPOLOGY: True} if is_elastic else {}
        gates = {"gates": ChosenGates({**elastic, **self.gates.values})} if elastic or self.gates.values else {}
        self._options = {**choose_behaviour(self.seed, self.gates), **_choose_options(configured)}
        self._users = Users(world, TEAMS, 2 * self.pool.nodes, self.gates, is_limited="pods_ready" in self._options)
        world.start_replicas(REPLICAS, **self._options, **gates)

    @property
    def _counts_devices(self) -> bool:
        return bool(self.gates.values) and self.gates.is_on(DEVICES)

    # --- playing ------------------------------------------------------------------------------------

    def play(self) -> None:
        """Plays it. Raises Broken with what is broken."""
        self.play_opening()
        self.judges.has_jumps = any(step.detail == "clock jump" for step in self.steps)
        for step in self.steps:
            self._play(step)
        self._troubles.end()
        self._pass_time(LOST_S)
        self._check_lost()
        self._administrators.restore()
        self._pass_quiet_time()
        self._check_idle()
        self._check_end()
        self._check_with_a_fresh_process()
        self._check_order()

    def play_opening(self) -> None:
        """Plays what comes before the steps of a scenario with gates. Raises Broken."""
        if self.gates.values:
            Opening(self.seed, self.world, self.gates, TEAMS, self._pass_time).play(self._administrators, self.judges)

    def _play(self, step: Step) -> None:
        try:
            told = self._do(step, random.Random(step.seed))
        except Refused as refused:
            told = f"refused: {refused}"
        _log.info("%s %s", step.name, told)
        self._pass_time(step.wait_s)

    def _do(self, step: Step, chance: random.Random) -> str:
        if step.detail == faults.STALE_LEADER:
            return self._let_stale_process_lead(chance)
        if step.name == "begin_fault":
            return self._troubles.begin(step.detail, chance)
        if step.name == "submit":
            return self._users.submit(int(step.detail), chance)
        of_users = (*users.WEIGHTS, *users.OF_ELASTIC_JOBS, *users.WITH_GATES)
        players = self._users if step.name in of_users else self._administrators
        return players.play(step.name, chance)

    def _let_stale_process_lead(self, chance: random.Random) -> str:
        """Jobs wait in queues that are stopped. Others come, and the process that leads next does not see that they are admitted. When it
        leads the queues are opened."""
        self._set_stop_policy("Hold")
        waiting = self._users.submit(CROWD, chance, EXAMPLE_OF_CROWD, "other")
        after, lasts = chance.uniform(1.0, 4.0), chance.uniform(60.0, 90.0)

        def go_on() -> None:
            self._troubles.let_stale_process_lead("workloads", after, lasts)
            with suppress(Refused):
                self._users.submit(CROWD, chance, EXAMPLE_OF_CROWD, "main")
            self.world.loop.call_later(OPENED_AFTER_S, self._set_stop_policy, "None")

        self.world.loop.call_later(SEEN_AFTER_S, go_on)
        return f"{faults.STALE_LEADER}: {waiting} wait; the leader is killed {after:.0f} s after others have come"

    def _set_stop_policy(self, policy: str) -> None:
        for queue in self.world.objects(KUEUE, "localqueues"):
            if queue["metadata"]["name"] == "other":
                self.world.patch(KUEUE, "localqueues", queue, {"spec": {"stopPolicy": policy}})

    def _pass_quiet_time(self) -> None:
        """Until nothing has been written for a while; for a long time in some scenarios. Raises Broken where that does not come."""
        server, loop = self.world.server, self.world.loop
        end, last, writes = loop.time() + LONGEST_S, loop.time(), server.writes
        while loop.time() < last + self._quiet_s:
            self._pass_time(10.0)
            if server.writes > writes:
                last, writes = loop.time(), server.writes
            if last > end:
                latest = islice((each for each in reversed(server.history) if each.resource != LEASES), 200)
                named = Counter(f"{each.resource[1]} {each.last['metadata']['name']}" for each in latest)
                raise Broken(f"writes in peace: {', '.join(f'{name} ({count})' for name, count in named.most_common(5))}")

    def _check_lost(self) -> None:
        """Raises Broken where a workload that runs does not say that a node of it is gone.

        Where so many are gone or not ready that it may be a storm (`StormRules`) they are expected back for half an hour. Of nodes that
        share a hostname with another the Workload names one, and which of them is not judged.
        """
        if len(self.world.lost_since) >= StormRules().min_nodes:
            self.excused.append("a storm")
            return
        gone = {
            name: self.world.loop.time() - since
            for name, since in self.world.lost_since.items()
            if ("", name) not in self.world.server.objects[NODE] and name not in self._administrators.doubled
        }
        lost = {name for name, seconds in gone.items() if seconds > LOST_S / 2}
        problems = list(find_unnoticed(self.world.objects(*WORKLOADS), self.world.objects(*POD), lost))
        if problems:
            raise Broken("; ".join(problems))

    def _check_idle(self) -> None:
        """Raises Broken where processes that have nothing to do work on without a write, or how much they remember has no limit."""
        decided = max(self.world.too_large.values(), default=0)
        if decided > 2 * len(self.steps):
            raise Broken(f"{decided} times a place for one workload was found that is too large to be written")
        began, changes = self.world.loop.turns, self._count_changes()
        self._pass_time(IDLE_S)
        self.idle_turns = self.world.loop.turns - began
        self.idle_changes = self._count_changes() - changes
        if self.idle_changes > MOST_IDLE_CHANGES:
            raise Broken(f"{self.idle_changes} times something is said to have changed in {IDLE_S:.0f} s in which nothing has happened")
        if self.idle_turns > MOST_IDLE_TURNS:
            raise Broken(f"{self.idle_turns} steps of work in {IDLE_S:.0f} s in which nothing has happened")

    def _pass_time(self, seconds: float) -> None:
        while seconds > 0:
            self.world.run_for(min(seconds, 5.0))
            seconds -= 5.0
            self.world.audit()
            if problems := [*self.judges.settle(), *self._records.problems]:
                raise Broken("; ".join(problems))

    def _check_end(self) -> None:
        """Raises Broken where something is left over."""
        problems = [*find_unsettled(self.world), *self._users.find_changed(), *self.judges.find_at_end()]
        problems += [*self._records.find_incomplete(), *self._records.find_excess(len(self.steps))]
        nodes = [node for node in self.world.objects(*NODE) if node["metadata"]["name"] not in self.world.relabelled]
        problems += find_misplaced_spares(self.world.objects(*WORKLOADS), nodes)
        known = [node for node in nodes if node["metadata"]["name"] not in self._administrators.doubled]
        problems += find_misshapen(self.world.objects(*WORKLOADS), known)
        if problems:
            raise Broken("; ".join(problems))

    def _check_with_a_fresh_process(self) -> None:
        """Raises Broken where a reconciler that has seen nothing else decides otherwise, or gives another reason to those that wait."""
        begin = self.world.server.version
        before, spares = self._count_slots(), any(map(_spares_others, self.world.objects(*WORKLOADS)))
        for replica in self.world.replicas:
            replica.kill()
        self._wait_for_leader()
        self.world.run_for(FRESH_S)
        if before > 2 * self._count_slots() + MOST_SLOTS:
            raise Broken(f"there are {before} slots for nodes, and {self._count_slots()} in a process that begins anew")
        written = [change for change in self.world.server.history if change.version > begin and change.resource not in UNAUDITED]
        told = [change for change in written if change.resource == WORKLOADS and _has_another_reason(change)]
        # A place that proves too large to be written counts as taken meanwhile, and the reason with its size is part of that size: whether
        # a Workload fits in so little depends on what it says already.
        told_anew = [] if self._has_size_limit or spares else told
        self.stale_reasons = sorted(f"{change.last['metadata']['name']}: {_get_reason(change.old)}" for change in told_anew)
        others = sorted({f"{change.resource[1]} {change.last['metadata']['name']}" for change in written if change not in told})
        excuses = {"a limit of size": self._has_size_limit, "spared workloads": spares}
        if others:
            self._excuse(f"{len(others)} objects changed by a fresh process: {', '.join(others[:5])}", excuses)
        if self.stale_reasons:
            told_late = f"{len(self.stale_reasons)} reasons are out of date: {'; '.join(self.stale_reasons)}"
            self._excuse(told_late, excuses)

    def _excuse(self, problem: str, excuses: Mapping[str, bool]) -> None:
        """Raises Broken with a problem unless one of the excuses holds; notes those that do."""
        holding = [excuse for excuse, holds in excuses.items() if holds]
        if not holding:
            raise Broken(problem)
        self.excused += holding

    def _check_order(self) -> None:
        """Raises Broken where jobs end, and what waits gets quota in another order than the one that is shown."""
        shown = [each for each in self._list_waiting() if each.cluster_queue]
        if self._has_size_limit:
            self.excused.append("a limit of size")
            return
        if len(shown) < 2:
            return
        chance, rooms, begin = random.Random(f"rooms of {self.seed}"), list[Room](), self.world.server.version
        for _ in range(ROOMS):
            ending = list_holding(self.world)
            for root in chance.sample(ending, min(JOBS_OF_ROOM, len(ending))):
                self.world.delete(root, propagationPolicy="Background")
            self._pass_time(ROOM_S)
            admitted = self._list_admitted_since(begin)
            waiting = {each["metadata"]["uid"] for each in self.world.objects(*WORKLOADS) if _get_reason(each)}
            rooms.append(Room(admitted, frozenset(waiting) - admitted))
        strict = {queue["metadata"]["name"] for queue in self.world.objects(KUEUE, "clusterqueues") if _is_strict(queue)}
        problems = list(find_out_of_order(shown, strict, rooms))
        if problems:
            raise Broken("; ".join(problems[:5]))

    def _list_waiting(self) -> list[WaitingWorkload]:
        """What `topogate queue` shows of what waits, as the process that decides knows it."""
        (deciding,) = (each.reconciler for each in self.world.replicas if each.decides and each.reconciler is not None)
        assert deciding.deciding is not None
        held_back = deciding.deciding.scheduler._is_held_back
        rules, sharing = self._options.get("pods_ready"), self._options.get("sharing")
        state = deciding.observed.state

        async def list_now() -> list[WaitingWorkload]:  # what is held back is looked at again later, by the loop
            return list_all_waiting(state, rules=rules, sharing=sharing, is_held_back=held_back, is_stopped=make_stop_check(state))

        return self.world.loop.run_until_complete(list_now())

    def _list_admitted_since(self, version: int) -> frozenset[str]:
        """Uids of workloads that got quota after a version, also where others have preempted them since."""
        later = takewhile(lambda change: change.version > version, reversed(self.world.server.history))
        of_workloads = (change.new for change in later if change.resource == WORKLOADS and change.new is not None)
        return frozenset(new["metadata"]["uid"] for new in of_workloads if has_condition(new, QUOTA_RESERVED))

    def _count_changes(self) -> int:
        """How often the process that decides has noted a change that may help a workload which waits."""
        return sum(replica.count_changes() for replica in self.world.replicas if replica.decides)

    def _wait_for_leader(self) -> None:
        """Until a process that was started just now leads and decides. Raises Broken where none does for minutes."""
        end = self.world.loop.time() + LEADER_S
        while not any(replica.decides for replica in self.world.replicas):
            if self.world.loop.time() > end:
                raise Broken(f"no process that was begun anew decides after {LEADER_S:.0f} s")
            self.world.run_for(1.0)

    def _count_slots(self) -> int:
        """For how many nodes the process that decides has room in its table of usage."""
        found = [replica.count_slots() for replica in self.world.replicas if replica.decides]
        return max(found, default=0)


def _is_strict(queue: Json) -> bool:
    return bool(queue["spec"].get("queueingStrategy") == "StrictFIFO")


def _get_reason(workload: Json | None) -> str:
    """Why a workload waits, as it says."""
    conditions = ((workload or {}).get("status") or {}).get("conditions") or ()
    return next((c["message"] for c in conditions if c["type"] == QUOTA_RESERVED and c["status"] == "False"), "")


def _spares_others(workload: Json) -> bool:
    """Whether it preempts none for which it was evicted before: a process that begins anew does not know of that (docs/queues.md)."""
    conditions = (workload.get("status") or {}).get("conditions") or ()
    return any("for which it was evicted itself" in each.get("message", "") for each in conditions if each["type"] == QUOTA_RESERVED)


def _has_another_reason(change: Change) -> bool:
    """Whether all that a change did to a workload is that it waits for another reason."""

    def strip(workload: Json | None) -> Json:
        found = workload or {}
        status = found.get("status") or {}
        states = {c["type"]: c["status"] for c in status.get("conditions") or ()}
        return {**found, "metadata": found.get("metadata", {}).get("uid"), "status": {**status, "conditions": states}}

    return bool(_get_reason(change.old) and _get_reason(change.new)) and strip(change.old) == strip(change.new)
