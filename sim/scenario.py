"""A random life of a cluster: teams, jobs, nodes that fail, administrators; and faults between topogate and the API server.

What is played depends on the seed alone. After each step the audit of objects (`e2e.recount`) must hold. When the faults have ended and
time has passed, everything runs, has finished, or waits with a reason, and nothing is written any more.
"""

import random
from datetime import timedelta
from typing import Any

from e2e import manifests
from e2e.nodes import NodePool
from sim.administrators import GPUS, Administrators
from sim.ending import find_unsettled
from sim.server import Refused, Request
from sim.transport import Faults
from sim.users import Users
from sim.world import World

Json = dict[str, Any]
TEAMS = ("red", "blue")
STEPS, QUIET_S = 40, 1800.0

_OF_QUOTA = ("may use", "to share")  # what the audit says of quotas (e2e.recount_quota)


class Broken(Exception):
    """What must hold does not."""


class Scenario:
    """One life of one cluster."""

    def __init__(self, seed: int, jobs: int = 50) -> None:
        self.seed, self.chance = seed, random.Random(seed)
        self.world = World(seed)
        self.pool = NodePool(blocks=2, racks=2, nodes=self.chance.randint(2, 4))
        self.log: list[str] = []
        self._faults = Faults(random.Random(self.chance.random()))
        self._to_die = 0.0
        self._deaths = random.Random(self.chance.random())
        self._users = Users(self.world, self.chance, TEAMS, jobs, 2 * self.pool.nodes)
        self._administrators = Administrators(self.world, self.chance, self.pool)
        self._set_up()

    # --- the cluster --------------------------------------------------------------------------------

    def _set_up(self) -> None:
        world, whole = self.world, 4 * self.pool.nodes * GPUS
        self._administrators.make_nodes()
        world.apply(manifests.topology("t", self.pool.levels))
        world.apply(manifests.flavor("f", {}, "t"))
        for team in TEAMS:
            quota = {"f": {"cpu": 1000, "nvidia.com/gpu": whole // 2}}
            strategy = self.chance.choice(["BestEffortFIFO", "StrictFIFO"])
            preemption = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"} if self.chance.random() < 0.5 else {}
            spec = {"cohortName": "all", **({"preemption": preemption} if preemption else {})}
            world.apply(manifests.cluster_queue(team, quota, strategy=strategy, **spec))
            world.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team}})
            world.apply(manifests.local_queue("main", team, team))
            world.apply(manifests.local_queue("other", team, team))
        for name, value in (("low", 1), ("high", 100)):
            world.apply(
                {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value}
            )
        world.start_reconciler(self._faults, self._dies)

    def _dies(self, _: Request) -> bool:
        return self._deaths.random() < self._to_die

    # --- playing ------------------------------------------------------------------------------------

    def play(self) -> None:
        """Plays it. Raises Broken with what is broken, and what ended a reconciler."""
        steps = [*self._users.steps, *self._administrators.steps, (2, self._begin_fault), (2, self._end_faults)]
        for _ in range(STEPS):
            [step] = self.chance.choices([each for _, each in steps], [weight for weight, _ in steps])
            try:
                told = step()
            except Refused as refused:
                told = f"refused: {refused}"
            self.log.append(f"{self.world.loop.time():8.1f} {step.__name__.strip('_')} {told}")
            self._pass_time(self.chance.choice([0.2, 1.0, 5.0, 30.0]))
        self._end_faults()
        self._administrators.restore()
        self._pass_time(QUIET_S)
        self._check_end()

    def _pass_time(self, seconds: float) -> None:
        while seconds > 0:
            self.world.run_for(min(seconds, 5.0))
            seconds -= 5.0
            broken = self.world.find_broken()
            if self._administrators.has_lowered_quota:
                broken = [told for told in broken if not any(words in told for words in _OF_QUOTA)]
            if broken:
                raise Broken("; ".join(broken))

    def _check_end(self) -> None:
        """Raises Broken where something is left over."""
        before = self.world.server.writes
        self.world.run_for(120)
        problems = [f"{self.world.server.writes - before} writes in two minutes of peace"] if self.world.server.writes > before else []
        problems += find_unsettled(self.world)
        if problems:
            raise Broken("; ".join(problems))

    # --- faults -------------------------------------------------------------------------------------

    def _begin_fault(self) -> str:
        faults, chance = self._faults, self.chance
        kind = chance.choice(["crashes", "lost requests", "lost answers", "shed", "slow", "silent", "cut", "compact", "clock"])
        if kind == "crashes":
            self._to_die = chance.choice([0.01, 0.05, 0.2])
        elif kind == "lost requests":
            faults.lost_request = 0.2
        elif kind == "lost answers":
            faults.lost_answer = 0.2
        elif kind == "shed":
            faults.shed = 0.2
        elif kind == "slow":
            faults.is_slow = 0.1
        elif kind == "silent":
            faults.is_silent = True
        elif kind == "cut":
            faults.is_cut = True
        elif kind == "compact":
            self.world.server.compact()
        else:
            self.world.clock.skew = timedelta(seconds=chance.choice([-3600, -5, 5, 3600]))
        return kind

    def _end_faults(self) -> str:
        faults = self._faults
        faults.lost_request = faults.lost_answer = faults.shed = faults.is_slow = self._to_die = 0.0
        faults.is_silent = faults.is_cut = False
        self.world.clock.skew = timedelta()
        return ""
