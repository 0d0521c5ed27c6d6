"""What goes wrong between replicas and the API server for a time, by name."""

import random
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from math import inf

from sim.replica import Replica
from sim.world import World

Undo = Callable[[], object]
_BY_CHANCE: Mapping[str, tuple[str, tuple[float, ...]]] = {
    "crashes": ("dies", (0.01, 0.05, 0.2)),
    "lost requests": ("lost_request", (0.05, 0.3)),
    "lost answers": ("lost_answer", (0.05, 0.3)),
    "429": ("shed", (0.1, 0.5)),
    "slow": ("is_slow", (0.05, 0.3)),
    "silent watches": ("is_silent", (True,)),
    "cut off": ("is_cut", (True,)),
}
_DELAYS_S = (5.0, 30.0, inf)
_LAGGING = ("pods", "workloads", "jobs", "nodes", "clusterqueues", "localqueues", "topologies", "resourceflavors")
STALE_LEADER = "a stale process takes over"  # played by the scenario: users and administrators take part
KINDS = (*_BY_CHANCE, "lagging watch", "clock jump", "frozen", "killed", "compaction", STALE_LEADER)
LASTS_S = (2.0, 10.0, 30.0, 90.0)


class Troubles:
    """The faults of a world that have begun and not ended."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._undo: list[Undo] = []

    def begin(self, kind: str, chance: random.Random) -> str:
        """Begins a fault of one replica, or of all; returns what it is. It ends by itself."""
        if kind == "compaction":
            self._world.server.compact()
            return kind
        replica, told = chance.choice(self._world.replicas), [kind]
        for each in self._world.replicas:
            each.calm_since = self._world.loop.time() + LASTS_S[-1]  # a fault that lasts as long as any, of all
        lasts = chance.uniform(5, 40) if kind == "frozen" else chance.choice(LASTS_S)
        if kind == "killed":
            replica.kill()
        elif kind == "frozen":
            self._end_later(replica.freeze(), lasts)
        elif kind == "clock jump":
            replica.clock.skew = timedelta(seconds=chance.choice((-3600, -5, 5, 3600)))
            self._end_later(lambda: setattr(replica.clock, "skew", timedelta()), lasts)
        elif kind == "lagging watch":
            plural, late_s = chance.choice(_LAGGING), chance.choice(_DELAYS_S)
            replica.faults.late_s[plural] = late_s
            self._end_later(lambda: replica.faults.late_s.pop(plural, None), lasts)
            told.append(f"of {plural} by {late_s} s")
        else:
            name, values = _BY_CHANCE[kind]
            value = chance.choice(values)
            replicas = self._world.replicas if chance.random() < 0.3 else [replica]
            for each in replicas:
                self._set(each, name, value, lasts)
            told += [str(value), "of all"] if len(replicas) > 1 else [str(value)]
        return f"{' '.join(told)}: {replica.identity}, {lasts:.0f} s"

    def let_stale_process_lead(self, plural: str, after_s: float, lasts: float) -> None:
        """The watch of one resource delivers nothing to all processes but the leader, which is killed while it does not."""
        world = self._world
        leader = next((replica for replica in world.replicas if replica.leads), world.replicas[0])
        for replica in world.replicas:
            replica.calm_since = world.loop.time() + LASTS_S[-1]
            if replica is not leader:
                replica.faults.late_s[plural] = inf
                self._end_later(partial(replica.faults.late_s.pop, plural, None), lasts)
        world.loop.call_later(after_s, leader.kill)

    def _set(self, replica: Replica, name: str, value: object, lasts: float) -> None:
        before = type(value)()
        setattr(replica.faults, name, value)
        self._end_later(lambda: setattr(replica.faults, name, before), lasts)

    def _end_later(self, undo: Undo, lasts: float) -> None:
        def end() -> None:
            if undo in self._undo:
                self._undo.remove(undo)
                undo()

        self._undo.append(undo)
        self._world.loop.call_later(lasts, end)

    def end(self) -> None:
        """Ends all of them."""
        while self._undo:
            self._undo.pop()()
