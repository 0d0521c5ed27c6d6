"""A random life of a cluster: teams, jobs, nodes that fail, administrators; and faults between topogate and the API server.

What is played depends on the seed alone. After each step the audit of objects (`e2e.recount`) must hold. When the faults have ended and
time has passed, everything runs, has finished, or waits with a reason, and nothing is written any more.
"""

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from core.names import TOPOLOGY_GATE
from e2e import manifests
from e2e.nodes import NodePool, node_objects
from sim.models import ENDS_BADLY, RUN_SECONDS, is_over
from sim.server import Refused, Request
from sim.transport import Faults
from sim.world import World

Json = dict[str, Any]
TEAMS = ("red", "blue")
STEPS, QUIET_S = 40, 1800.0
GPUS = 8  # of a node


class Broken(Exception):
    """What must hold does not."""


class Scenario:
    """One life of one cluster."""

    def __init__(self, seed: int, jobs: int = 50) -> None:
        self.seed, self.chance = seed, random.Random(seed)
        self.world = World(seed)
        self.pool = NodePool(blocks=2, racks=2, nodes=self.chance.randint(2, 4))
        self.log: list[str] = []
        self._jobs_left, self._number = jobs, 0
        self._faults = Faults(random.Random(self.chance.random()))
        self._to_die = 0.0
        self._deaths = random.Random(self.chance.random())
        self._removed: list[Json] = []
        self._set_up()

    # --- the cluster --------------------------------------------------------------------------------

    def _set_up(self) -> None:
        world, whole = self.world, 4 * self.pool.nodes * GPUS
        for node in node_objects(self.pool):
            world.apply(_ready(node, "True"))
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
        steps: list[tuple[int, Callable[[], str]]] = [
            (8, self._submit),
            (2, self._delete_job),
            (1, self._scale_job),
            (2, self._fail_node),
            (2, self._restore_nodes),
            (1, self._cordon),
            (1, self._change_quota),
            (2, self._begin_fault),
            (2, self._end_faults),
        ]
        for _ in range(STEPS):
            [step] = self.chance.choices([each for _, each in steps], [weight for weight, _ in steps])
            try:
                told = step()
            except Refused as refused:
                told = f"refused: {refused}"
            self.log.append(f"{self.world.loop.time():8.1f} {step.__name__.strip('_')} {told}")
            self._pass_time(self.chance.choice([0.2, 1.0, 5.0, 30.0]))
        self._end_faults()
        self._restore_nodes()
        self._pass_time(QUIET_S)
        self._check_end()

    def _pass_time(self, seconds: float) -> None:
        while seconds > 0:
            self.world.run_for(min(seconds, 5.0))
            seconds -= 5.0
            broken = self.world.find_broken()
            if broken:
                raise Broken("; ".join(broken))

    def _check_end(self) -> None:
        """Raises Broken where something is left over."""
        before = self.world.server.writes
        self.world.run_for(120)
        problems = [f"{self.world.server.writes - before} writes in two minutes of peace"] if self.world.server.writes > before else []
        workloads = {each["metadata"]["ownerReferences"][0]["uid"]: each for each in self.world.objects("kueue.x-k8s.io", "workloads")}
        jobs = {each["metadata"]["uid"]: each for each in self.world.objects("batch", "jobs")}
        for uid, job in jobs.items():
            problems += self._judge_job(job, workloads.get(uid))
        problems += [f"workload {each['metadata']['name']} has no job" for uid, each in workloads.items() if uid not in jobs]
        for pod in self.world.objects("", "pods"):
            gated = any(gate["name"] == TOPOLOGY_GATE for gate in pod["spec"].get("schedulingGates") or ())
            if gated or pod["metadata"].get("deletionTimestamp"):
                problems.append(f"pod {pod['metadata']['name']} is {'gated' if gated else 'ending'}")
        if problems:
            raise Broken("; ".join(problems))

    def _judge_job(self, job: Json, workload: Json | None) -> list[str]:
        name, status = job["metadata"]["name"], job.get("status") or {}
        if any(c["type"] in ("Complete", "Failed") and c["status"] == "True" for c in status.get("conditions") or ()):
            is_said = workload is not None and _has(workload, "Finished")
            return [] if is_said or workload is None else [f"{name} is over, and its workload does not say so"]
        if workload is None:
            return [f"{name} has no workload"]
        if _has(workload, "Admitted"):
            bound = [pod for pod in self._pods_of(job) if pod["spec"].get("nodeName") and not is_over(pod)]
            wanted = min(job["spec"]["parallelism"], job["spec"]["completions"] - status.get("succeeded", 0))
            return [] if len(bound) == wanted else [f"{name} is admitted, and {len(bound)} of {wanted} pods run"]
        reserved = next((c for c in (workload.get("status") or {}).get("conditions") or () if c["type"] == "QuotaReserved"), None)
        if reserved is None or not reserved["message"]:
            return [f"{name} waits without a reason"]
        return [] if job["spec"].get("suspend") else [f"{name} waits and is not suspended"]

    def _pods_of(self, job: Json) -> list[Json]:
        uid = job["metadata"]["uid"]
        return [pod for pod in self.world.objects("", "pods") if any(o["uid"] == uid for o in pod["metadata"].get("ownerReferences") or ())]

    # --- what users do ------------------------------------------------------------------------------

    def _submit(self) -> str:
        made = []
        for _ in range(min(self._jobs_left, self.chance.randint(1, 4))):
            self._jobs_left -= 1
            self._number += 1
            made.append(self._submit_one(f"job-{self._number}"))
        return ", ".join(made)

    def _submit_one(self, name: str) -> str:
        chance, team = self.chance, self.chance.choice(TEAMS)
        key = chance.choice(["required", "preferred", "unconstrained", ""])
        level = chance.choice([self.pool.rack_label, self.pool.block_label])
        asked: Json = {key: "true" if key == "unconstrained" else level} if key else {}
        labels = {"kueue.x-k8s.io/priority-class": chance.choice(["low", "high"])} if chance.random() < 0.5 else {}
        pods = chance.randint(1, 2 * self.pool.nodes)
        job = manifests.job(name, team, pods=pods, gpus=chance.choice([1, 4, 8]), indexed=chance.random() < 0.5, labels=labels, **asked)
        notes = job["spec"]["template"]["metadata"]["annotations"]
        if chance.random() < 0.8:
            notes[RUN_SECONDS] = str(chance.choice([5, 60, 300]))
            if chance.random() < 0.1:
                notes[ENDS_BADLY] = "true"
                job["spec"]["backoffLimit"] = 1
        self.world.apply(job)
        return f"{team}/{name} {pods} pods {asked or 'anywhere'}"

    def _some_job(self) -> Json | None:
        jobs = self.world.objects("batch", "jobs")
        return self.chance.choice(jobs) if jobs else None

    def _delete_job(self) -> str:
        job = self._some_job()
        if job is None:
            return "none"
        self.world.delete(job, propagationPolicy=self.chance.choice(["Background", "Foreground"]))
        return str(job["metadata"]["name"])

    def _scale_job(self) -> str:
        job = self._some_job()
        if job is None or not job["spec"].get("suspend") or job["spec"].get("completionMode") == "Indexed":
            return "none"
        count = self.chance.randint(1, 2 * self.pool.nodes)
        self._patch("batch", "jobs", job, {"spec": {"parallelism": count}})
        return f"{job['metadata']['name']} to {count}"

    def _patch(self, group: str, plural: str, obj: Json, body: Json, subresource: str = "") -> None:
        kind = next(kind for kind in self.world.server.kinds.values() if kind.resource == (group, plural))
        key = obj["metadata"].get("namespace") or "", obj["metadata"]["name"]
        self.world.server.patch(Request("patch", kind, *key, subresource, {}, body, "application/merge-patch+json", "user"))

    # --- nodes and administrators -------------------------------------------------------------------

    def _some_node(self) -> Json | None:
        nodes = self.world.objects("", "nodes")
        return self.chance.choice(nodes) if nodes else None

    def _fail_node(self) -> str:
        node = self._some_node()
        if node is None:
            return "none"
        name = node["metadata"]["name"]
        if self.chance.random() < 0.4:
            self._removed.append({part: node[part] for part in ("metadata", "spec", "status") if part in node})
            self.world.delete({**node, "apiVersion": "v1", "kind": "Node"})
            return f"{name} is gone"
        self.world.kubelets.down.add(name)
        self._patch("", "nodes", node, {"status": _ready(node, "Unknown")["status"]}, "status")
        taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": self.world.time()}
        self._patch("", "nodes", node, {"spec": {"taints": [taint]}})
        return f"{name} is not ready"

    def _restore_nodes(self) -> str:
        for node in self._removed:
            metadata = {name: node["metadata"][name] for name in ("name", "labels") if name in node["metadata"]}
            fresh = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": node["status"]}
            self.world.apply(_ready(fresh, "True"))
        self._removed = []
        for node in self.world.objects("", "nodes"):
            name = node["metadata"]["name"]
            if name in self.world.kubelets.down or (node.get("spec") or {}).get("unschedulable"):
                self.world.kubelets.down.discard(name)
                self._patch("", "nodes", node, {"status": _ready(node, "True")["status"]}, "status")
                self._patch("", "nodes", node, {"spec": {"taints": None, "unschedulable": None}})
                self.world.kubelets.look_at_node(name)
        return ""

    def _cordon(self) -> str:
        node = self._some_node()
        if node is None:
            return "none"
        self._patch("", "nodes", node, {"spec": {"unschedulable": True}})
        return str(node["metadata"]["name"])

    def _change_quota(self) -> str:
        queue = self.chance.choice(self.world.objects("kueue.x-k8s.io", "clusterqueues"))
        [group] = queue["spec"]["resourceGroups"]
        [flavor] = group["flavors"]
        count = str(self.chance.randint(GPUS, 4 * self.pool.nodes * GPUS))
        before = int(next(each["nominalQuota"] for each in flavor["resources"] if each["name"] == "nvidia.com/gpu"))
        if int(count) < before:
            return "none: what runs beyond a smaller quota runs on"
        resources = [{**each, "nominalQuota": count} if each["name"] == "nvidia.com/gpu" else each for each in flavor["resources"]]
        changed = [{**group, "flavors": [{**flavor, "resources": resources}]}]
        self._patch("kueue.x-k8s.io", "clusterqueues", queue, {"spec": {"resourceGroups": changed}})
        return f"{queue['metadata']['name']} has {count}"

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


def _has(workload: Json, kind: str) -> bool:
    return any(c["type"] == kind and c["status"] == "True" for c in (workload.get("status") or {}).get("conditions") or ())


def _ready(node: Json, status: str) -> Json:
    ready = {"type": "Ready", "status": status, "reason": "Kubelet", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    return {**node, "status": {**(node.get("status") or {}), "conditions": [ready]}}
