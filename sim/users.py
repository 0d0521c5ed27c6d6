"""What users do in a scenario: they submit, change and delete jobs."""

import random
from collections.abc import Callable, Sequence
from typing import Any

from e2e import manifests
from e2e.nodes import NodePool
from sim.models.kubelets import ENDS_BADLY, RUN_SECONDS
from sim.world import World

Json = dict[str, Any]
Steps = Sequence[tuple[int, Callable[[], str]]]  # how often, and what: each returns what it did


class Users:
    """Users of some teams, who submit no more than so many jobs."""

    def __init__(self, world: World, chance: random.Random, pool: NodePool, teams: Sequence[str], jobs: int) -> None:
        self._world, self._chance, self._pool, self._teams = world, chance, pool, teams
        self._left, self._number = jobs, 0
        self.steps: Steps = [(8, self._submit), (2, self._delete_job), (1, self._scale_job)]

    def _submit(self) -> str:
        made = []
        for _ in range(min(self._left, self._chance.randint(1, 4))):
            self._left -= 1
            self._number += 1
            made.append(self._submit_one(f"job-{self._number}"))
        return ", ".join(made)

    def _submit_one(self, name: str) -> str:
        chance, team = self._chance, self._chance.choice(self._teams)
        key = chance.choice(["required", "preferred", "unconstrained", ""])
        level = chance.choice([self._pool.rack_label, self._pool.block_label])
        asked: Json = {key: "true" if key == "unconstrained" else level} if key else {}
        labels = {"kueue.x-k8s.io/priority-class": chance.choice(["low", "high"])} if chance.random() < 0.5 else {}
        pods = chance.randint(1, 2 * self._pool.nodes)
        job = manifests.job(name, team, pods=pods, gpus=chance.choice([1, 4, 8]), indexed=chance.random() < 0.5, labels=labels, **asked)
        notes = job["spec"]["template"]["metadata"]["annotations"]
        if chance.random() < 0.8:
            notes[RUN_SECONDS] = str(chance.choice([5, 60, 300]))
            if chance.random() < 0.1:
                notes[ENDS_BADLY] = "true"
                job["spec"]["backoffLimit"] = 1
        self._world.apply(job)
        return f"{team}/{name} {pods} pods {asked or 'anywhere'}"

    def _some_job(self) -> Json | None:
        jobs = self._world.objects("batch", "jobs")
        return self._chance.choice(jobs) if jobs else None

    def _delete_job(self) -> str:
        job = self._some_job()
        if job is None:
            return "none"
        self._world.delete(job, propagationPolicy=self._chance.choice(["Background", "Foreground"]))
        return str(job["metadata"]["name"])

    def _scale_job(self) -> str:
        job = self._some_job()
        if job is None or not job["spec"].get("suspend") or job["spec"].get("completionMode") == "Indexed":
            return "none"
        count = self._chance.randint(1, 2 * self._pool.nodes)
        self._world.patch("batch", "jobs", job, {"spec": {"parallelism": count}})
        return f"{job['metadata']['name']} to {count}"
