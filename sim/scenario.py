"""A random life of a cluster: teams, jobs, nodes that fail, administrators; and faults between topogate and the API server.

What is played depends on the seed and the list of steps alone. While it is played the audit of objects (`e2e.recount`) must hold. When the
faults have ended and time has passed, everything runs, has finished, or waits with a reason, nothing is written any more, and a process
that begins anew has nothing to add.
"""

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

from core.names import TOPOLOGY_GATE
from e2e import manifests
from e2e.nodes import NodePool, node_objects
from sim import faults
from sim.models import ENDS_BADLY, RUN_SECONDS, is_over
from sim.server import LEASES, Change, Refused, Request
from sim.world import UNAUDITED, Broken, World

Json = dict[str, Any]
TEAMS = ("red", "blue")
QUIET_S, LONG_QUIET_S, LONGEST_S = 330.0, 1800.0, 7200.0  # containers run for 300 s at most
FRESH_S = 60.0
GPUS = 8  # of a node
REPLICAS = 2
WORKLOADS = "kueue.x-k8s.io", "workloads"
_OTHER_STEPS = {"delete_job": 4, "scale_job": 2, "fail_node": 4, "restore_nodes": 4, "cordon": 2, "change_quota": 2}  # weights


class Size(NamedTuple):
    """How much there is in a scenario."""

    jobs: int = 50
    others: int = 25  # steps of users, nodes and administrators
    faults: int = 8


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
    chosen = chance.choices(list(_OTHER_STEPS), list(_OTHER_STEPS.values()), k=size.others)
    named = [*begun, *((name, "") for name in chosen)]
    while jobs > 0:
        count = min(jobs, chance.randint(1, 4))
        named.append(("submit", str(count)))
        jobs -= count
    chance.shuffle(named)
    return [Step(name, detail, chance.getrandbits(32), chance.choice([0.2, 1.0, 5.0, 30.0])) for name, detail in named]


class Scenario:
    """One life of one cluster."""

    def __init__(self, seed: int, size: Size = Size(), steps: Sequence[Step] | None = None) -> None:  # noqa: B008, a frozen value
        """`steps` are those of the seed if none are given."""
        self.seed, self.chance = seed, random.Random(seed)
        self.steps = plan(seed, size) if steps is None else steps
        self.world = World(seed)
        self.pool = NodePool(blocks=2, racks=2, nodes=self.chance.randint(2, 4))
        self.log: list[str] = []
        self.stale_reasons: list[str] = []
        self._number = 0
        self._troubles = faults.Troubles(self.world)
        self._removed: list[Json] = []
        self._quiet_s = LONG_QUIET_S if self.chance.random() < 0.1 else QUIET_S
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
        world.start_replicas(REPLICAS)

    # --- playing ------------------------------------------------------------------------------------

    def play(self) -> None:
        """Plays it. Raises Broken with what is broken."""
        for step in self.steps:
            self._play(step)
        self._troubles.end()
        self._restore_nodes()
        self._pass_quiet_time()
        self._check_end()
        self._check_with_a_fresh_process()

    def _play(self, step: Step) -> None:
        self.chance = random.Random(step.seed)
        try:
            told = self._begin_fault(step.detail) if step.name == "begin_fault" else self._do(step)
        except Refused as refused:
            told = f"refused: {refused}"
        self.log.append(f"{self.world.loop.time():8.1f} {step.name} {told}")
        self._pass_time(step.wait_s)

    def _do(self, step: Step) -> str:
        if step.name == "submit":
            return self._submit(int(step.detail))
        done: str = getattr(self, f"_{step.name}")()
        return done

    def _begin_fault(self, kind: str) -> str:
        return self._troubles.begin(kind, self.chance)

    def _pass_quiet_time(self) -> None:
        """Until nothing has been written for a while; for a long time in some scenarios. Raises Broken where that does not come."""
        server, loop = self.world.server, self.world.loop
        end, last, writes = loop.time() + LONGEST_S, loop.time(), server.writes
        while loop.time() < last + self._quiet_s:
            self._pass_time(10.0)
            if server.writes > writes:
                last, writes = loop.time(), server.writes
            if last > end:
                named = sorted(
                    {f"{each.resource[1]} {each.last['metadata']['name']}" for each in server.history if each.resource != LEASES}
                )
                raise Broken(f"writes in peace: {', '.join(named[-5:])}")

    def _pass_time(self, seconds: float) -> None:
        while seconds > 0:
            self.world.run_for(min(seconds, 5.0))
            seconds -= 5.0
            self.world.audit()

    def _check_end(self) -> None:
        """Raises Broken where something is left over."""
        problems = list[str]()
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

    def _check_with_a_fresh_process(self) -> None:
        """Raises Broken where a reconciler that has seen nothing else decides otherwise. Notes the waiting workloads for which it has
        another reason than they say."""
        begin = self.world.server.version
        for replica in self.world.replicas:
            replica.kill()
        self.world.run_for(FRESH_S)
        written = [change for change in self.world.server.history if change.version > begin and change.resource not in UNAUDITED]
        told = [change for change in written if change.resource == WORKLOADS and _has_another_reason(change)]
        self.stale_reasons = sorted(f"{change.last['metadata']['name']}: {_reason_of(change.old)}" for change in told)
        others = sorted({f"{change.resource[1]} {change.last['metadata']['name']}" for change in written if change not in told})
        if others:
            raise Broken(f"{len(others)} objects changed by a fresh process: {', '.join(others[:5])}")

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

    def _submit(self, count: int) -> str:
        made = []
        for _ in range(count):
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


def _reason_of(workload: Json | None) -> str:
    """Why a workload waits, as it says."""
    conditions = ((workload or {}).get("status") or {}).get("conditions") or ()
    return next((c["message"] for c in conditions if c["type"] == "QuotaReserved" and c["status"] == "False"), "")


def _has_another_reason(change: Change) -> bool:
    """Whether all that a change did to a workload is that it waits for another reason."""

    def strip(workload: Json | None) -> Json:
        found = workload or {}
        status = found.get("status") or {}
        states = {c["type"]: c["status"] for c in status.get("conditions") or ()}
        return {**found, "metadata": found.get("metadata", {}).get("uid"), "status": {**status, "conditions": states}}

    return bool(_reason_of(change.old) and _reason_of(change.new)) and strip(change.old) == strip(change.new)


def _has(workload: Json, kind: str) -> bool:
    return any(c["type"] == kind and c["status"] == "True" for c in (workload.get("status") or {}).get("conditions") or ())


def _ready(node: Json, status: str) -> Json:
    ready = {"type": "Ready", "status": status, "reason": "Kubelet", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    return {**node, "status": {**(node.get("status") or {}), "conditions": [ready]}}
