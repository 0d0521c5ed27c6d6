"""What users do in a scenario: they submit, change and delete jobs."""

import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from core.model.gates import NO_GATES, ChosenGates
from core.names import ELASTIC_JOB, MAX_EXEC_TIME_LABEL, PRIORITY_CLASS_LABEL, QUEUE_NAME_LABEL
from e2e.standins.pods import has_condition
from sim.apiserver.server import Refused
from sim.catalogue import make_elastic_job, make_job
from sim.ending import has_ended, is_suspended, list_roots, strip_suspension
from sim.gates.jobs import MADE, Order, choose_made, is_refused
from sim.models.base import get_controller, is_over
from sim.world import Broken, World

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
    "release_pod": 1,
    "apply_again": 1,
    "sync_manifest": 1,
    "ask_for_what_is_refused": 1,
}
OF_ELASTIC_JOBS = ("submit_elastic_job", "scale_elastic_job", "scale_elastic_job")  # steps of some scenarios
WITH_GATES = ("submit_gated_job",)  # of scenarios in which gates of Kueue 0.20 are on
_WORKLOADS = ("kueue.x-k8s.io", "workloads")


class Users:
    """Users of some teams, who submit jobs of at most so many pods each."""

    def __init__(self, world: World, teams: Sequence[str], most: int, gates: ChosenGates = NO_GATES, *, is_limited: bool = False) -> None:
        """`gates` are on or off in a scenario that has any; `is_limited`: whether what is never ready is evicted only a few times."""
        self._world, self._teams, self._most, self._gates, self._is_limited = world, teams, most, gates, is_limited
        self._chance = random.Random(0)
        self._number = 0
        self._made: dict[tuple[str, str], list[Json]] = {}  # what was submitted, by namespace and name of the job
        self._written: dict[str, Json] = {}  # uids of jobs that no user has changed since -> their spec as it was stored first
        self._refused: list[str] = []  # sentences about manifests that were refused when they were applied again

    def play(self, name: str, chance: random.Random) -> str:
        """Takes a step of `WEIGHTS`; returns what was done. Raises Refused."""
        self._chance = chance
        done: str = getattr(self, f"_{name}")()
        return done

    # --- jobs ---------------------------------------------------------------------------------------

    def submit(self, count: int, chance: random.Random, example: str = "", queue: str = "") -> str:
        """Submits jobs, all like an example and to a queue if these are named; returns which. Raises Refused."""
        self._chance, made = chance, []
        for _ in range(count):
            self._number += 1
            made.append(self._submit_one(f"job-{self._number}", example, queue))
        return ", ".join(made)

    def _submit_one(self, name: str, example: str, queue: str) -> str:
        team = self._chance.choice(self._teams)
        objects = make_job(name, team, self._chance, self._most, example)
        if queue:
            objects[-1]["metadata"]["labels"][QUEUE_NAME_LABEL] = queue
        for obj in objects:
            stored = self._world.apply(obj)
        self._written[stored["metadata"]["uid"]] = stored.get("spec") or {}
        self._made[team, objects[-1]["metadata"]["name"]] = objects
        if objects[0]["kind"] == "Workload" and objects[-1]["kind"] == "Pod" and self._chance.random() < 0.5:
            for _ in range(4):
                self._world.loop.call_later(self._chance.uniform(0.0, 12.0), self._make_workload_anew, objects)
        return f"{objects[-1]['kind']} {team}/{name}"

    def _submit_elastic_job(self) -> str:
        self._number += 1
        name, team = f"job-{self._number}", self._chance.choice(self._teams)
        job = make_elastic_job(name, team, self._chance, self._most)
        stored = self._world.apply(job)
        self._written[stored["metadata"]["uid"]] = stored["spec"]
        self._made[team, name] = [job]
        return f"{job['kind']} {team}/{name}"

    def _submit_gated_job(self) -> str:
        """A job that uses gates of Kueue 0.20. Raises Broken where it is refused and should not be, or the other way round."""
        self._number += 1
        name, team, made = f"job-{self._number}", self._chance.choice(self._teams), choose_made(self._gates, self._chance)
        objects, is_wrong = MADE[made][0](Order(name, team, self._chance, self._most, self._is_limited)), is_refused(made, self._gates)
        try:
            for obj in objects:
                stored = self._world.apply(obj)
        except Refused as refused:
            if not is_wrong:
                raise Broken(f"a job with {made} is refused: {refused}") from refused
            return f"{made} {refused}"
        if is_wrong:
            raise Broken(f"{objects[-1]['kind']} {name} with {made} is accepted without the gate")
        self._written[stored["metadata"]["uid"]] = stored.get("spec") or {}
        self._made[team, objects[-1]["metadata"]["name"]] = objects
        return f"{objects[-1]['kind']} {team}/{name} with {made}"

    def _scale_elastic_job(self) -> str:
        """A RayJob or RayService by its RayCluster, as an autoscaler does."""
        jobs = [job for job in list_roots(self._world) if ELASTIC_JOB in (job["metadata"].get("annotations") or {}) and not has_ended(job)]
        if not jobs:
            return "none"
        job = self._chance.choice(jobs)
        if job["kind"] == "Job":
            return self._patch(job, {"spec": {"parallelism": self._chance.randint(1, self._most)}})
        below = self._world.objects("ray.io", "rayclusters")
        mine = [each for each in below if job["metadata"]["uid"] in (each["metadata"]["uid"], (get_controller(each) or {}).get("uid"))]
        if not mine:
            return "none"
        groups = [{**group, "replicas": self._chance.randint(0, self._most)} for group in mine[0]["spec"]["workerGroupSpecs"]]
        return self._patch(mine[0], {"spec": {"workerGroupSpecs": groups}})

    def _choose(self, *, is_waiting: bool = False, kinds: Sequence[str] = ()) -> Json | None:
        """A job that is not over, of one of some kinds if these are named, or None."""
        roots = [root for root in list_roots(self._world) if not has_ended(root) and not (is_waiting and not is_suspended(root))]
        roots = [root for root in roots if not kinds or root["kind"] in kinds]
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
        known = [(root, made) for root in list_roots(self._world) if (made := self._made.get(_get_key(root))) and len(made) == 1]
        if not known:
            return "none"
        job, made = self._chance.choice(known)
        self._world.delete(job, propagationPolicy="Background")
        stored = self._world.apply(made[0])
        self._written[stored["metadata"]["uid"]] = stored["spec"]
        return f"{job['kind']} {job['metadata']['name']}"

    def _make_workload_anew(self, objects: Sequence[Json]) -> None:
        """A tool begins anew with a Workload and its pods, under the same names."""
        there = {obj["metadata"]["name"] for obj in self._world.objects(*_WORKLOADS)}
        with suppress(Refused):
            if objects[0]["metadata"]["name"] in there:
                for obj in reversed(objects):
                    self._world.delete(obj)
                for obj in objects:
                    self._world.apply(obj)

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
        job = self._choose(kinds=("Job", "Deployment", "StatefulSet"))
        if job is None or is_suspended(job) is False:
            return "none"
        notes = {"example.com/edit": str(self._chance.randint(1, 3))}
        template: Json = {"metadata": {"annotations": notes}}
        if job["kind"] != "Job" and self._chance.random() < 0.5:
            template["spec"] = {"tolerations": [{"key": "example.com/edit", "operator": "Exists", "effect": "NoSchedule"}]}
        return self._patch(job, {"spec": {"template": template}})

    def _apply_again(self) -> str:
        """Applies the manifest of a running job, which no user has changed, once more. Raises Broken where it is refused."""
        known = [root for root in list_roots(self._world) if root["metadata"]["uid"] in self._written and is_suspended(root) is False]
        known = [root for root in known if not has_ended(root) and not root["metadata"].get("deletionTimestamp")]
        # Tolerations of the manifest alone replace those that the start added, which is refused (open: seed 125 of small ones).
        known = [root for root in known if "tolerations" not in str(self._made[_get_key(root)][-1])]
        if not known:
            return "none"
        job = self._chance.choice(known)
        manifest = self._made[_get_key(job)][-1]
        body = {"metadata": {"labels": manifest["metadata"]["labels"]}, "spec": manifest["spec"]}
        try:
            self._world.patch(*self._world.resource_of(job), job, body)
        except Refused as refused:
            raise Broken(f"a manifest that is applied again is refused: {refused}") from refused
        return f"{job['kind']} {job['metadata']['name']}"

    def _sync_manifest(self) -> str:
        """A tool applies the manifest of a job again and again, whatever has become of the job meanwhile."""
        known = [root for root in list_roots(self._world) if len(self._made.get(_get_key(root), ())) == 1 and not has_ended(root)]
        known = [root for root in known if "tolerations" not in str(self._made[_get_key(root)][-1])]
        if not known:
            return "none"
        job, times = self._chance.choice(known), self._chance.choice([3, 8])
        for number in range(times):
            self._world.loop.call_later(number * self._chance.uniform(1.0, 20.0), self._apply_manifest, job)
        return f"{job['kind']} {job['metadata']['name']} {times} times"

    def _apply_manifest(self, job: Json) -> None:
        """Applies the manifest of a job that is still there. A user may have changed the job so that it is refused."""
        uid, resource = job["metadata"]["uid"], self._world.resource_of(job)
        stored = self._world.server.objects[resource].get(_get_key(job))
        if stored is None or stored.obj["metadata"]["uid"] != uid or stored.obj["metadata"].get("deletionTimestamp"):
            return
        manifest = self._made[_get_key(job)][-1]
        body = {"metadata": {"labels": manifest["metadata"]["labels"]}, "spec": manifest["spec"]}
        try:
            self._world.patch(*resource, job, body)
        except Refused as refused:
            if uid in self._written:
                self._refused.append(f"the manifest of {job['kind']} {job['metadata']['name']} that is applied again is refused: {refused}")

    def _ask_for_what_is_refused(self) -> str:
        """Raises Broken where it is accepted."""
        jobs = [root for root in list_roots(self._world) if not has_ended(root) and is_suspended(root) is not None]
        if not jobs:
            return "none"
        job = self._chance.choice(jobs)
        path = {"RayCluster": (), "RayJob": ("rayClusterSpec",), "RayService": ("rayClusterConfig",)}.get(job["kind"])
        body: Json = {"metadata": {"labels": {MAX_EXEC_TIME_LABEL: "never"}}}
        is_elastic = ELASTIC_JOB in (job["metadata"].get("annotations") or {})
        if path is not None and self._chance.random() < 0.5 and not is_elastic:
            body = {"enableInTreeAutoscaling": True}
            for name in (*path, "spec"):
                body = {name: body}
        try:
            self._world.patch(*self._world.resource_of(job), job, body)
        except Refused as refused:
            return f"{job['kind']} {job['metadata']['name']} {refused}"
        if job["metadata"].get("deletionTimestamp"):
            return "accepted of what is being deleted"
        raise Broken(f"{job['kind']} {job['metadata']['name']} is changed by what is to be refused: {body}")

    def _change_priority(self) -> str:
        job, name = self._choose(), self._chance.choice(["low", "high"])
        return self._patch(job, {"metadata": {"labels": {PRIORITY_CLASS_LABEL: name}}}) if job is not None else "none"

    def _change_queue(self) -> str:
        job, name = self._choose(is_waiting=True), self._chance.choice(["main", "other"])
        return self._patch(job, {"metadata": {"labels": {QUEUE_NAME_LABEL: name}}}) if job is not None else "none"

    def _patch(self, obj: Json, body: Json) -> str:
        self._world.patch(*self._world.resource_of(obj), obj, body)
        self._written.pop(obj["metadata"]["uid"], None)
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

    def _release_pod(self) -> str:
        """Takes the owner off a running pod of a Job, whose controller makes another one; some time later the pod is deleted."""
        pods = [
            pod
            for pod in self._world.objects("", "pods")
            if pod["spec"].get("nodeName")
            and not (is_over(pod) or pod["metadata"].get("deletionTimestamp"))
            and (get_controller(pod) or {}).get("kind") == "Job"
        ]
        if not pods:
            return "none"
        pod = self._chance.choice(pods)
        self._world.released.add(pod["metadata"]["uid"])
        self._patch(pod, {"metadata": {"ownerReferences": None, "finalizers": None}})
        self._world.loop.call_later(self._chance.choice([10.0, 60.0]), self._delete_released, pod)
        return str(pod["metadata"]["name"])

    def _delete_released(self, pod: Json) -> None:
        with suppress(Refused):
            self._world.delete(pod)

    # --- at the end ---------------------------------------------------------------------------------

    def find_changed(self) -> Iterator[str]:
        """Sentences about jobs that no user has changed and that wait otherwise than they were submitted, or whose manifest is refused."""
        yield from self._refused
        workloads = self._world.objects(*_WORKLOADS)
        for root in list_roots(self._world):
            before, uid = self._written.get(root["metadata"]["uid"]), root["metadata"]["uid"]
            if before is None or not is_suspended(root):
                continue
            owned = [each for each in workloads if any(owner["uid"] == uid for owner in each["metadata"].get("ownerReferences") or ())]
            shown = f"{root['kind']} {root['metadata']['name']}"
            for each in owned:
                for condition in (each.get("status") or {}).get("conditions") or ():
                    if condition["type"] == "Finished" and condition.get("reason") == "OutOfSync":
                        yield f"{shown} does not run, and no user has changed it: {condition['message']}"
            if not any(has_condition(each, "Admitted") for each in owned) and (paths := list(_compare(before, root["spec"]))):
                yield f"{shown} waits and is not as its user wrote it: {', '.join(paths[:3])}"


def _compare(before: Any, now: Any, path: str = "spec") -> Iterator[str]:
    """Paths of what differs, but for suspension, what is empty, and gates: a start adds them, and a manifest has none."""
    if isinstance(before, dict) and isinstance(now, dict):
        one, two = strip_suspension(before), strip_suspension(now)
        for name in sorted((one.keys() | two.keys()) - {"schedulingGates"}):
            yield from _compare(one.get(name), two.get(name), f"{path}.{name}")
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for number, (one, two) in enumerate(zip(before, now, strict=True)):
            yield from _compare(one, two, f"{path}[{number}]")
    elif before != now:
        yield path


def _get_key(obj: Json) -> tuple[str, str]:
    return obj["metadata"]["namespace"], obj["metadata"]["name"]
