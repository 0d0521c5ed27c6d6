"""What users do in a scenario: they submit, change and delete jobs."""

import random
from collections.abc import Sequence
from typing import Any

from core.names import PRIORITY_CLASS_LABEL, QUEUE_NAME_LABEL
from sim.catalogue import make_job
from sim.ending import has_ended, is_suspended, list_roots
from sim.world import World

Json = dict[str, Any]
WEIGHTS = {  # how often each step is taken
    "delete_job": 3,
    "make_job_anew": 2,
    "scale_job": 2,
    "suspend_job": 1,
    "resume_job": 1,
    "change_template": 1,
    "change_priority": 1,
    "change_queue": 1,
    "deactivate": 1,
    "activate": 2,
    "delete_pod": 1,
}
_WORKLOADS = ("kueue.x-k8s.io", "workloads")


class Users:
    """Users of some teams, who submit jobs of at most so many pods each."""

    def __init__(self, world: World, teams: Sequence[str], most: int) -> None:
        self._world, self._teams, self._most = world, teams, most
        self._chance = random.Random(0)
        self._number = 0
        self._made: dict[tuple[str, str], list[Json]] = {}  # what was submitted, by namespace and name of the job

    def play(self, name: str, chance: random.Random) -> str:
        """Takes a step of `WEIGHTS`; returns what was done. Raises Refused."""
        self._chance = chance
        done: str = getattr(self, f"_{name}")()
        return done

    # --- jobs ---------------------------------------------------------------------------------------

    def submit(self, count: int, chance: random.Random) -> str:
        """Submits jobs; returns which. Raises Refused."""
        self._chance, made = chance, []
        for _ in range(count):
            self._number += 1
            made.append(self._submit_one(f"job-{self._number}"))
        return ", ".join(made)

    def _submit_one(self, name: str) -> str:
        team = self._chance.choice(self._teams)
        objects = make_job(name, team, self._chance, self._most)
        for obj in objects:
            self._world.apply(obj)
        self._made[team, objects[-1]["metadata"]["name"]] = objects
        return f"{objects[-1]['kind']} {team}/{name}"

    def _choose(self, *, is_waiting: bool = False) -> Json | None:
        """A job that is not over, or None."""
        roots = [root for root in list_roots(self._world) if not has_ended(root) and not (is_waiting and not is_suspended(root))]
        return self._chance.choice(roots) if roots else None

    def _delete_job(self) -> str:
        roots = list_roots(self._world)
        if not roots:
            return "none"
        job, policy = self._chance.choice(roots), self._chance.choice(["Background", "Foreground", "Orphan"])
        self._world.delete(job, propagationPolicy=policy)
        return f"{job['kind']} {job['metadata']['name']} ({policy})"

    def _make_job_anew(self) -> str:
        """Deletes a job and submits it under the same name at once."""
        known = [(root, made) for root in list_roots(self._world) if (made := self._made.get(_key_of(root))) and len(made) == 1]
        if not known:
            return "none"
        job, made = self._chance.choice(known)
        self._world.delete(job, propagationPolicy="Background")
        self._world.apply(made[0])
        return f"{job['kind']} {job['metadata']['name']}"

    def _scale_job(self) -> str:
        job = self._choose()
        count = self._chance.randint(0, self._most)
        if job is None:
            return "none"
        if job["kind"] in ("Deployment", "StatefulSet", "LeaderWorkerSet"):
            spec: Json = {"replicas": count}
        elif job["kind"] == "Job" and is_suspended(job) and job["spec"]["completionMode"] != "Indexed":
            spec = {"parallelism": max(1, count)}
        elif job["kind"] == "RayCluster":
            [group] = job["spec"]["workerGroupSpecs"]
            least = self._chance.choice([0, count])
            wanted = self._chance.randint(0, count)
            spec = {"workerGroupSpecs": [{**group, "minReplicas": least, "replicas": wanted, "maxReplicas": max(count, 1)}]}
        else:
            return "none"
        return self._patch(job, {"spec": spec})

    def _suspend_job(self) -> str:
        return self._set_suspend(value=True)

    def _resume_job(self) -> str:
        return self._set_suspend(value=False)

    def _set_suspend(self, *, value: bool) -> str:
        job = self._choose()
        if job is None or is_suspended(job) is None:
            return "none"
        spec: Json = {"suspend": value}
        if "runPolicy" in job["spec"]:
            spec = {"runPolicy": spec}
        elif job["kind"] == "RayService":
            spec = {"rayClusterConfig": spec}
        return self._patch(job, {"spec": spec})

    def _change_template(self) -> str:
        """What may be changed while a job waits; a Deployment is rolled out."""
        job = self._choose()
        if job is None or job["kind"] not in ("Job", "Deployment", "StatefulSet") or is_suspended(job) is False:
            return "none"
        notes = {"example.com/edit": str(self._chance.randint(1, 3))}
        return self._patch(job, {"spec": {"template": {"metadata": {"annotations": notes}}}})

    def _change_priority(self) -> str:
        job, name = self._choose(), self._chance.choice(["low", "high"])
        return self._patch(job, {"metadata": {"labels": {PRIORITY_CLASS_LABEL: name}}}) if job is not None else "none"

    def _change_queue(self) -> str:
        job, name = self._choose(is_waiting=True), self._chance.choice(["main", "other"])
        return self._patch(job, {"metadata": {"labels": {QUEUE_NAME_LABEL: name}}}) if job is not None else "none"

    def _patch(self, obj: Json, body: Json) -> str:
        self._world.patch(*self._world.resource_of(obj), obj, body)
        return f"{obj['kind']} {obj['metadata']['name']} {body}"

    # --- workloads and pods -------------------------------------------------------------------------

    def _deactivate(self) -> str:
        workloads = self._world.objects(*_WORKLOADS)
        return self._patch(self._chance.choice(workloads), {"spec": {"active": False}}) if workloads else "none"

    def _activate(self) -> str:
        """Whatever is not active becomes so."""
        idle = [each for each in self._world.objects(*_WORKLOADS) if each["spec"].get("active") is False]
        return ", ".join(self._patch(each, {"spec": {"active": True}}) for each in idle)

    def _delete_pod(self) -> str:
        pods = [pod for pod in self._world.objects("", "pods") if not pod["metadata"].get("deletionTimestamp")]
        if not pods:
            return "none"
        pod = self._chance.choice(pods)
        self._world.delete(pod)
        return str(pod["metadata"]["name"])


def _key_of(obj: Json) -> tuple[str, str]:
    return obj["metadata"]["namespace"], obj["metadata"]["name"]
