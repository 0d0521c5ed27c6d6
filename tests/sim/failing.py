"""Random lives of nodes that fail under their pods, and of Jobs whose pods fail, on two clusters, which rest after each operation."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from core.names import TOPOLOGY_GATE
from e2e.api import STRATEGIC_PATCH, Api
from e2e.manifests import RUN_SECONDS
from e2e.nodes import NodePool, build_node
from sim.models import kubelets
from sim.models.job_failures import FAILURES, INDEX
from tests.sim import lives

Json = dict[str, Any]
NODES, PODS, JOBS = "/api/v1/nodes", "/api/v1/namespaces/{}/pods", "/apis/batch/v1/namespaces/{}/jobs"
ZONE, TAINT, KEPT = "topology.kubernetes.io/zone", "example.com/repair", "example.com/kept"
CLOCK = NodePool(blocks=1, racks=1, nodes=1, prefix="clock-", labels={ZONE: "clock"}, taints=({"key": "clock", "effect": "NoExecute"},))
CLOCK_NODE = "clock-b1-r1-n1"
SOON_S = 2  # how long some pods tolerate a taint; others do for 300 s, or for ever
COLLECTED_S = 70  # after which the pods of a node that is gone are gone
LOOKED_S = 21  # after which the garbage collector of pods has looked


class Side(Protocol):
    """One of the two clusters."""

    @property
    def api(self) -> Api:
        """A client."""

    def time(self) -> str:
        """Now, as the API has it."""

    def add_node(self, node: Json) -> None:
        """Another node, which is ready soon."""

    def stop_node(self, name: str) -> None:
        """The kubelet of a node says nothing more, which is seen when its lease is too old."""


class Op(NamedTuple):
    """What happens to an object. After it the real cluster rests for at least `rest_s`, the other for `virtual_s` of its own: so long that
    each of four nodes has its taint, which one node of a zone gets in ten seconds."""

    verb: str
    name: str = ""
    value: Any = None
    rest_s: int = SOON_S + 2
    virtual_s: int = 33


class Life(ABC):
    """Operations that depend on the seed alone."""

    def __init__(self, kind: str, seed: int) -> None:
        self.chance, self.name = random.Random(f"{kind} {seed}"), f"{kind}-{seed}"
        self.ops: list[Op] = []

    @abstractmethod
    def carry_out(self, side: Side, namespace: str, op: Op) -> None:
        """Makes the requests of one operation. Raises ApiError."""

    @abstractmethod
    def read(self, api: Api, namespace: str) -> list[str]:
        """All objects that it is about, one a line, without what differs from server to server."""

    @abstractmethod
    def make_alarm(self, api: Api, namespace: str, name: str, after_s: int) -> None:
        """Makes an object that the controllers which are judged here end after so many seconds, so that it is seen when these are over."""

    @abstractmethod
    def has_rung(self, api: Api, namespace: str, name: str) -> bool:
        """Whether they have ended it."""


# --- nodes -------------------------------------------------------------------------------------------------


class NodeLife(Life):
    """A zone of some nodes, and pods on them that tolerate what may come for different times. A long one deletes nodes, too: the
    garbage collector of pods needs a minute then."""

    is_managed = True  # by kwok

    def __init__(self, seed: int, *, is_long: bool = False) -> None:
        super().__init__("long-node" if is_long else "node", seed)
        chance, self._pods, self._is_long = self.chance, 0, is_long
        self.nodes = [f"{self.name}-b1-r1-n{number}" for number in range(1, chance.choice([2, 4]) + 1)]
        self._reported = dict.fromkeys(self.nodes, "True")
        self._gone = set[str]()
        self._tainted, self._cordoned = set[str](), set[str]()
        self.ops = [Op("create pod", f"pod-{self._count()}", self._make_pod(name)) for name in self.nodes for _ in range(3)]
        self.ops.append(Op("create pod", f"pod-{self._count()}", self._make_pod("")))
        self.ops = [Op("all", value=self.ops)]
        self.ops += [self._choose() for _ in range(5 if is_long else 4)]
        if is_long and not self._gone:
            self.ops.append(self._delete_node())
        # kube-controller-manager says of pods that they are not ready where it sees itself that a node stops, not where a test says so.
        self._is_known = all(op.value != "Unknown" for op in self.ops)

    def _count(self) -> int:
        self._pods += 1
        return self._pods

    def _make_pod(self, node: str) -> Json:
        chance, notes = self.chance, dict[str, str]()
        if chance.random() < 0.2:
            notes |= {lives.COMPLETE: "true", RUN_SECONDS: "1s", kubelets.RUN_SECONDS: "1"}
        tolerations: list[Json] = []
        for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", TAINT):
            time = chance.choice(
                [None, None, {}, {}, {"tolerationSeconds": 0}, {"tolerationSeconds": SOON_S}, {"tolerationSeconds": SOON_S}]
            )
            if time is not None:
                tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", **time})
        if chance.random() < 0.2:  # the first of two holds
            tolerations.insert(chance.randint(0, len(tolerations)), {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1})
        pod: Json = {
            "tolerations": tolerations,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "c", "image": "i:1"}],
            **({"nodeName": node} if node else {"schedulingGates": [{"name": TOPOLOGY_GATE}]}),
        }
        metadata: Json = {"annotations": notes}
        if chance.random() < 0.6 or not node:
            metadata["finalizers"] = [KEPT]
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod}

    def _choose(self) -> Op:
        chance = self.chance
        there = [name for name in self.nodes if name not in self._gone]
        node = chance.choice(there)
        verbs = ["report", "report", "report", "taint", "cordon", "create pod", "delete pod", "press"]
        verb = chance.choice([*verbs, "delete node"] if self._is_long else verbs)
        if verb == "delete node" and len(there) > 1:
            return self._delete_node()
        if verb == "taint":
            (self._tainted.remove if node in self._tainted else self._tainted.add)(node)
            effect = chance.choice(["NoExecute", "NoExecute", "NoSchedule"])
            return Op("taint", node, [{"key": TAINT, "value": "v", "effect": effect}] if node in self._tainted else [])
        if verb == "cordon":
            (self._cordoned.remove if node in self._cordoned else self._cordoned.add)(node)
            return Op("cordon", node, node in self._cordoned)
        if verb == "create pod":
            name = f"pod-{self._count()}"
            return Op(verb, name, self._make_pod(node))
        if verb == "delete pod":  # one that waits: the garbage collector ends it, which looks every 20 s
            return Op(verb, f"pod-{3 * len(self.nodes) + 1}", rest_s=LOOKED_S)
        if verb == "press":
            return Op("press", node, chance.choice(["True", "False"]))
        statuses = [status for status in ("True", "False", "Unknown") if status != self._reported[node]]
        self._reported[node] = chance.choice(statuses)
        return Op("report", node, self._reported[node])

    def _delete_node(self) -> Op:
        node = self.chance.choice([name for name in self.nodes if name not in self._gone])
        self._gone.add(node)
        return Op("delete node", node, rest_s=COLLECTED_S, virtual_s=COLLECTED_S)

    def list_nodes(self) -> list[Json]:
        """The nodes as they are at first."""
        pool = NodePool(1, 1, len(self.nodes), prefix=f"{self.name}-", labels={ZONE: self.name})
        made = [build_node(pool, 1, 1, number) for number in range(1, len(self.nodes) + 1)]
        return made if self.is_managed else [{**node, "metadata": {**node["metadata"], "annotations": {}}} for node in made]

    def carry_out(self, side: Side, namespace: str, op: Op) -> None:
        api, pods = side.api, PODS.format(namespace)
        if op.verb == "all":
            for each in op.value:
                self.carry_out(side, namespace, each)
        elif op.verb == "create pod":
            api.create(pods, {**op.value, "metadata": {**op.value["metadata"], "name": op.name}})
        elif op.verb == "delete pod":
            api.delete(f"{pods}/{op.name}")
        elif op.verb == "delete node":
            api.delete(f"{NODES}/{op.name}")
        elif op.verb == "add node":
            side.add_node(op.value)
        elif op.verb == "report":
            report(side, op.name, "Ready", op.value)
        elif op.verb == "press":
            report(side, op.name, "DiskPressure", op.value)
        elif op.verb == "cordon":
            api.patch(f"{NODES}/{op.name}", {"spec": {"unschedulable": op.value or None}})
        elif op.verb == "taint":
            known = [taint for taint in api.get(f"{NODES}/{op.name}")["spec"].get("taints") or () if taint["key"] != TAINT]
            api.patch(f"{NODES}/{op.name}", {"spec": {"taints": [*known, *op.value] or None}})
        elif op.verb == "end pod":
            api.request(
                "PATCH", f"{pods}/{op.name}/status", {"status": _end(side.time(), "Succeeded", 0, is_target=False)}, STRATEGIC_PATCH
            )
        elif op.verb == "run pods":
            for pod in api.list(pods):
                status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": side.time()}]}
                api.request("PATCH", f"{pods}/{pod['metadata']['name']}/status", {"status": status}, STRATEGIC_PATCH)
        elif op.verb == "stop":
            side.stop_node(op.name)

    def read(self, api: Api, namespace: str) -> list[str]:
        shown = [self._show_node(node) for node in api.list(NODES) if node["metadata"]["name"] in self.nodes]
        pods = [pod for pod in api.list(PODS.format(namespace)) if not pod["metadata"]["name"].startswith("alarm")]
        return sorted([*shown, *map(self._show_pod, pods)])

    @staticmethod
    def _show_node(node: Json) -> str:
        taints = sorted((taint["key"], taint["effect"]) for taint in node["spec"].get("taints") or ())
        known = {each["type"]: each["status"] for each in node["status"]["conditions"]}
        conditions = [("Ready", known["Ready"]), ("DiskPressure", str(known.get("DiskPressure") == "True"))]
        found = {"name": node["metadata"]["name"], "taints": taints, "unschedulable": node["spec"].get("unschedulable")}
        return lives.show({**found, "conditions": sorted(map(list, conditions))})

    def _show_pod(self, pod: Json) -> str:
        metadata, status = pod["metadata"], pod["status"]
        conditions = {each["type"]: (each["status"], each.get("reason")) for each in status.get("conditions") or ()}
        shown = {"name": metadata["name"], "node": pod["spec"].get("nodeName"), "finalizers": metadata.get("finalizers")}
        shown |= {"phase": status["phase"], "is ending": "deletionTimestamp" in metadata, "target": conditions.get("DisruptionTarget")}
        return lives.show({**shown, "ready": conditions.get("Ready", ("",))[0] if self._is_known else ""})

    def make_alarm(self, api: Api, namespace: str, name: str, after_s: int) -> None:
        tolerations = [{"key": "clock", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": after_s}]
        spec: Json = {"nodeName": CLOCK_NODE, "tolerations": tolerations, "containers": [{"name": "c", "image": "i:1"}]}
        spec |= {"automountServiceAccountToken": False, "terminationGracePeriodSeconds": 0}
        api.create(PODS.format(namespace), {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})

    def has_rung(self, api: Api, namespace: str, name: str) -> bool:
        found = api.find(f"{PODS.format(namespace)}/{name}")
        return found is None or "deletionTimestamp" in found["metadata"]


def report(side: Side, node: str, kind: str, status: str) -> None:
    """What a kubelet says of its node."""
    reason = "E2EReady" if status == "True" else "E2EFailed"
    condition = {"type": kind, "status": status, "reason": reason, "lastTransitionTime": side.time()}
    side.api.request("PATCH", f"{NODES}/{node}/status", {"status": {"conditions": [condition]}}, STRATEGIC_PATCH)


class ScriptedLife(NodeLife):
    """What random lives do not come to."""

    def __init__(self, name: str, count: int, pods: Sequence[tuple[int, int | None]], taint: str = "not-ready") -> None:
        """Each pod is on the node of that number, and tolerates a taint for so many seconds, for ever where that is None."""
        super().__init__(0)
        self.name, self._is_known = name, True
        self.nodes = [f"{self.name}-b1-r1-n{number + 1}" for number in range(count)]
        made = [Op("create pod", f"pod-{number}", self._make_tolerant_pod(*pod, taint)) for number, pod in enumerate(pods)]
        self.ops = [Op("all", value=made, virtual_s=5)]

    def _make_tolerant_pod(self, node: int, time_s: int | None, taint: str) -> Json:
        time = {} if time_s is None else {"tolerationSeconds": time_s}
        tolerations = [{"key": f"node.kubernetes.io/{taint}", "operator": "Exists", "effect": "NoExecute", **time}]
        spec: Json = {"nodeName": self.nodes[node], "tolerations": tolerations, "containers": [{"name": "c", "image": "i:1"}]}
        spec |= {"automountServiceAccountToken": False, "terminationGracePeriodSeconds": 1}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"finalizers": [KEPT]}, "spec": spec}


def _make_returning_life() -> ScriptedLife:
    """A node that is ready again before the time of its pods is over: they stay."""
    life = ScriptedLife("returning", 2, [(node, time) for node in (0, 1) for time in (SOON_S, 20)])
    life.ops += [
        Op("report", life.nodes[0], "False", virtual_s=6),
        Op("report", life.nodes[0], "True", rest_s=24, virtual_s=30),
        Op("report", life.nodes[1], "False", rest_s=24, virtual_s=30),
    ]
    return life


def _make_replaced_life() -> ScriptedLife:
    """A node that is there again before the garbage collector has waited for it: its pods stay. Those of another go, also one that had
    ended."""
    life = ScriptedLife("replaced", 2, [(node, None) for node in (0, 0, 1, 1)])
    life.ops += [
        Op("end pod", "pod-3"),
        Op("delete node", life.nodes[0], rest_s=LOOKED_S, virtual_s=LOOKED_S),
        Op("add node", value=life.list_nodes()[0], rest_s=COLLECTED_S, virtual_s=COLLECTED_S),
        Op("delete node", life.nodes[1], rest_s=COLLECTED_S, virtual_s=COLLECTED_S),
    ]
    return life


def _make_disrupted_life() -> ScriptedLife:
    """Most nodes of a small zone are lost: only the first has the taint that evicts. When all are lost each gets it, one in ten seconds."""
    life = ScriptedLife("disrupted", 4, [(node, time) for node in range(4) for time in (0, None)])
    life.ops += [
        Op("report", life.nodes[0], "False", rest_s=0, virtual_s=3),
        Op("all", value=[Op("report", life.nodes[1], "False"), Op("report", life.nodes[2], "False")], rest_s=14),
        Op("report", life.nodes[3], "False", virtual_s=50),
        Op("all", value=[Op("report", node, "True") for node in life.nodes]),
    ]
    return life


def _make_stopping_life() -> ScriptedLife:
    """A node whose kubelet says nothing more, so that kube-controller-manager says it of node and pods; then it is deleted. It is none of
    kwok's, which would renew its lease: from the beginning nothing does."""
    life = ScriptedLife("stopping", 1, [(0, None), (0, 0), (0, SOON_S)], "unreachable")
    life.is_managed = False
    life.ops += [Op("run pods"), Op("stop", life.nodes[0])]
    life.ops.append(Op("delete node", life.nodes[0], rest_s=COLLECTED_S, virtual_s=COLLECTED_S))
    return life


def make_waiting_life() -> ScriptedLife:
    """A pod that waits for its scheduling gate when it is deleted: the garbage collector, which looks every 20 s, says that it failed."""
    life = ScriptedLife("waiting", 1, [(0, None)])
    gated = life._make_tolerant_pod(0, None, "not-ready")
    del gated["spec"]["nodeName"]
    gated["spec"]["schedulingGates"] = [{"name": TOPOLOGY_GATE}]
    life.ops = [Op("create pod", "pod-1", gated, rest_s=0), Op("delete pod", "pod-1", rest_s=LOOKED_S)]
    return life


def make_scripted_lives() -> list[NodeLife]:
    """All that take long."""
    return [_make_returning_life(), _make_replaced_life(), _make_disrupted_life(), _make_stopping_life()]


# --- jobs --------------------------------------------------------------------------------------------------

_POLICIES: Sequence[Sequence[Json]] = (
    [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}],
    [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        # 143: whether a Job judges a pod that it has deleted itself depends on which it sees first, the pod's end or that it is gone.
        {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [1, 42, 143]}},
    ],
    [{"action": "Ignore", "onExitCodes": {"containerName": "c", "operator": "In", "values": [42]}}],
    [
        {"action": "Count", "onExitCodes": {"operator": "In", "values": [42]}},
        {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]},
    ],
)
_FAILS_INDEX: Sequence[Json] = [{"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [42]}}]


class JobLife(Life):
    """A Job whose pods end as it is said, one after the other. A long one fails more often, after which the Job waits longer each time."""

    def __init__(self, seed: int, *, is_long: bool = False) -> None:
        super().__init__("long-job" if is_long else "job", seed)
        self._is_suspended, self._waits_for_end = self.chance.random() < 0.2, False
        self.ops = [Op("create", self.name, self._make())]
        self.ops += [self._choose() for _ in range(5 if is_long else 3)]
        waits = {"delete pod"} if self._waits_for_end else set()
        self.ops = [op._replace(rest_s=LOOKED_S if op.verb in waits else 0, virtual_s=120) for op in self.ops]
        self.ops.append(Op("none", rest_s=12))

    def _make(self) -> Json:
        chance, pod = self.chance, dict[str, Any]()
        pod = {
            "restartPolicy": "Never",
            "nodeSelector": {lives.POOL_LABEL: "yes"},
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "c", "image": "i:1"}],
        }
        if chance.random() < 0.15:
            pod["schedulingGates"] = [{"name": TOPOLOGY_GATE}]
        count, spec = chance.randint(1, 3), dict[str, Any]()
        spec = {"parallelism": count, "suspend": self._is_suspended, "template": {"spec": pod}}
        if chance.random() < 0.85:
            spec |= {"completions": count + chance.randint(0, 1), "completionMode": chance.choice(["Indexed", "Indexed", "NonIndexed"])}
        is_indexed = spec.get("completionMode") == "Indexed"
        if is_indexed and chance.random() < 0.6:
            spec["backoffLimitPerIndex"] = chance.choice([0, 0, 1])
            spec |= {"maxFailedIndexes": chance.randint(0, count)} if chance.random() < 0.4 else {}
        if chance.random() < (0.2 if "backoffLimitPerIndex" in spec else 0.7):
            spec["backoffLimit"] = chance.choice([0, 1, 1, 2])
        if chance.random() < 0.5:
            choices = [*_POLICIES, *([_FAILS_INDEX] * 3 if "backoffLimitPerIndex" in spec else ())]
            spec["podFailurePolicy"] = {"rules": chance.choice(choices)}
        elif chance.random() < 0.3:
            spec["podReplacementPolicy"] = "Failed"
        self._waits_for_end = "podFailurePolicy" in spec or "podReplacementPolicy" in spec
        if chance.random() < 0.1:
            spec["activeDeadlineSeconds"] = chance.choice([2, 4])
        self._is_gated, self._is_indexed = "schedulingGates" in pod, is_indexed
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": self.name}, "spec": spec}

    def _choose(self) -> Op:
        chance = self.chance
        if self._is_suspended or chance.random() < 0.15:
            self._is_suspended = not self._is_suspended
            return Op("patch", self.name, {"suspend": self._is_suspended})
        if chance.random() < 0.1:
            # Which of the pods of several indexes goes is left to chance where these have become ready in the same second.
            return Op("patch", self.name, {"parallelism": chance.choice([0, 3] if self._is_indexed else [0, 1, 2, 3])})
        if chance.random() < 0.2 and (self._is_gated or not self._waits_for_end):
            return Op("delete pod", "first")
        end: Json = {"phase": "Failed", "code": chance.choice([1, 42, 42, 7]), "is_target": chance.random() < 0.3}
        if chance.random() < 0.3:
            end = {"phase": "Succeeded", "code": 0, "is_target": False}
        return Op("end pod", "last" if chance.random() < 0.3 else "first", end)

    def carry_out(self, side: Side, namespace: str, op: Op) -> None:
        api, path = side.api, JOBS.format(namespace)
        if op.verb == "create":
            api.create(path, op.value)
        elif op.verb == "patch" and not _is_finished(api.get(f"{path}/{op.name}")):
            api.patch(f"{path}/{op.name}", {"spec": op.value})
        elif op.verb in ("end pod", "delete pod"):
            active = [pod for pod in _list_pods(api, namespace, self.name) if pod["status"]["phase"] in ("Pending", "Running")]
            for pod in sorted(active, key=_rank)[-1 if op.name == "last" else 0 :][:1]:
                at = f"{PODS.format(namespace)}/{pod['metadata']['name']}"
                if op.verb == "delete pod":
                    api.delete(at)
                else:
                    api.request("PATCH", f"{at}/status", {"status": _end(side.time(), **op.value)}, STRATEGIC_PATCH)

    def read(self, api: Api, namespace: str) -> list[str]:
        return [line for line in lives.read_state(api, namespace) if '"alarm' not in line]

    def make_alarm(self, api: Api, namespace: str, name: str, after_s: int) -> None:
        pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}], "schedulingGates": [{"name": TOPOLOGY_GATE}]}
        spec = {"activeDeadlineSeconds": after_s, "parallelism": 0, "template": {"spec": pod}}
        api.create(JOBS.format(namespace), {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec})

    def has_rung(self, api: Api, namespace: str, name: str) -> bool:
        return _is_finished(api.get(f"{JOBS.format(namespace)}/{name}"))


def _list_pods(api: Api, namespace: str, job: str) -> list[Json]:
    pods = api.list(PODS.format(namespace))
    return [pod for pod in pods if pod["metadata"]["labels"].get("job-name") == job and "deletionTimestamp" not in pod["metadata"]]


def _rank(pod: Json) -> tuple[int, int, str]:
    notes = pod["metadata"].get("annotations") or {}
    return int(notes.get(INDEX, 0)), int(notes.get(FAILURES, 0)), str(pod["metadata"]["name"])


def _end(time: str, phase: str, code: int, is_target: bool) -> Json:
    """The status of a pod that has ended as its kubelet says it."""
    conditions = [{"type": kind, "status": "False", "lastTransitionTime": time} for kind in ("Ready", "ContainersReady")]
    if is_target:
        conditions.append({"type": "DisruptionTarget", "status": "True", "reason": "Test", "lastTransitionTime": time})
    state = {"terminated": {"exitCode": code, "reason": "Ended", "finishedAt": time}}
    container = {"name": "c", "image": "i:1", "imageID": "", "ready": False, "started": False, "restartCount": 0, "state": state}
    return {"phase": phase, "conditions": conditions, "containerStatuses": [container]}


def _is_finished(job: Json) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(each["type"] in ("Complete", "Failed") and each["status"] == "True" for each in conditions)


def list_lives(first: int, count: int, *, is_long: bool = False) -> Iterator[Life]:
    """So many lives of nodes and of Jobs."""
    for seed in range(first, first + count):
        yield NodeLife(seed, is_long=is_long)
        yield JobLife(seed, is_long=is_long)
