"""Jobs that use gates of Kueue 0.20, each with what is random about it."""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from core.model.gates import (
    DEVICES,
    GROUPED_SLICES,
    MAX_NOT_READY,
    PARTIAL_SLICES,
    REJECT_FALSE_UNCONSTRAINED,
    REPLACE_MULTIPLE,
    SPREADING,
    WORKLOAD_PODS_READY,
    ChosenGates,
)
from core.names import (
    HOSTNAME_LABEL,
    JOB_COMPLETION_INDEX_LABEL,
    LOST_NODES_THRESHOLD,
    MAX_NOT_READY_COUNT,
    POD_GROUP_NAME,
    POD_GROUP_TOTAL_COUNT,
    PODSET_GROUP_NAME,
    PREBUILT_WORKLOAD,
    PREFERRED_TOPOLOGY,
    PRIORITY_CLASS_LABEL,
    QUEUE_NAME_LABEL,
    REQUIRED_TOPOLOGY,
    SLICE_REQUIRED_TOPOLOGY,
    SLICE_SIZE,
    TOPOLOGY_SPREADING,
    UNCONSTRAINED_TOPOLOGY,
    WAIT_FOR_PODS_READY,
)
from e2e.nodes import BLOCK_LABEL, RACK_LABEL
from sim.catalogue import build_tool_workload
from sim.models.devices import build_template
from sim.models.kubelets import NEVER_READY, RUN_SECONDS

Json = dict[str, Any]
SERVICE_LABEL = "example.com/service"  # by which Workloads that users write are spread
_GPU = "nvidia.com/gpu"
_IGNORES_DISRUPTIONS = {
    "rules": [{"action": "Ignore", "onPodConditions": [{"type": kind} for kind in ("DisruptionTarget", "TerminatedByKueue")]}]
}


class Order(NamedTuple):
    """What a user orders: a job of this name, with at most so many pods of each kind."""

    name: str
    namespace: str
    chance: random.Random
    most: int
    is_limited: bool = False  # what is never ready is evicted so often only

    @property
    def metadata(self) -> Json:
        """Of the job."""
        labels = {QUEUE_NAME_LABEL: "main"}
        if self.chance.random() < 0.5:
            labels[PRIORITY_CLASS_LABEL] = self.chance.choice(["low", "high"])
        return {"name": self.name, "namespace": self.namespace, "labels": labels, "annotations": {}}


def _build_template(gpus: int, notes: Mapping[str, str], **spec: Any) -> Json:
    amounts = {"requests": {"cpu": "1", _GPU: str(gpus)}, "limits": {_GPU: str(gpus)}}
    container = {"name": "worker", "image": "registry.example/worker:1", "resources": amounts}
    return {"metadata": {"annotations": dict(notes)}, "spec": {"containers": [container], **spec}}


def _choose_end(order: Order) -> dict[str, str]:
    return {RUN_SECONDS: str(order.chance.choice([5, 60, 300]))} if order.chance.random() < 0.7 else {}


def _build_job(order: Order, count: int, gpus: int, notes: Mapping[str, str], **spec: Any) -> Json:
    """An Indexed Job."""
    template = _build_template(gpus, notes, restartPolicy="Never", **spec)
    job_spec = {"parallelism": count, "completions": count, "completionMode": "Indexed", "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": order.metadata, "spec": job_spec}


def _build_set(order: Order, replicas: int, size: int, leader: Json | None, workers: Json) -> Json:
    """A LeaderWorkerSet."""
    template = {"size": size, "workerTemplate": workers, **({"leaderTemplate": leader} if leader is not None else {})}
    spec = {"replicas": replicas, "leaderWorkerTemplate": template}
    return {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": order.metadata, "spec": spec}


def _choose_uneven(chance: random.Random, most: int) -> tuple[int, int]:
    """A number of pods, and of those of a slice, which does not divide it."""
    count = chance.randint(3, max(most, 3))
    return count, chance.choice([size for size in range(2, count) if count % size])


def make_partial(order: Order) -> list[Json]:
    """Slices that leave pods over, of a Job or of a JobSet."""
    chance = order.chance
    count, size = _choose_uneven(chance, order.most)
    whole = {chance.choice([REQUIRED_TOPOLOGY, PREFERRED_TOPOLOGY]): chance.choice([BLOCK_LABEL, RACK_LABEL])}
    notes = {**whole, SLICE_REQUIRED_TOPOLOGY: chance.choice([RACK_LABEL, RACK_LABEL, HOSTNAME_LABEL]), SLICE_SIZE: str(size)}
    gpus, ends = chance.choice([1, 4, 8]), _choose_end(order)
    if chance.random() < 0.7:
        job = _build_job(order, count, gpus, {**notes, **ends})
        if chance.random() < 0.5:
            job["spec"]["podFailurePolicy"] = _IGNORES_DISRUPTIONS
        return [job]
    of_job = {"parallelism": count, "completions": count, "completionMode": "Indexed"}
    of_job["template"] = _build_template(gpus, {**notes, **ends}, restartPolicy="Never")
    replicas = chance.choice([1, 2])
    jobs = [{"name": "workers", "replicas": replicas if replicas * count % size else 1, "template": {"spec": of_job}}]
    return [{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": order.metadata, "spec": {"replicatedJobs": jobs}}]


def make_grouped(order: Order) -> list[Json]:
    """A leader and workers in one domain, the workers in slices that divide them evenly. Some leaders can run on one pool of nodes only."""
    chance = order.chance
    size = chance.choice([1, 2, 3])
    workers = size * chance.randint(1, max(1, min(order.most, 6) // size))
    return [_build_grouped(order, workers, size)]


def make_grouped_partial(order: Order) -> list[Json]:
    """The same with slices that leave workers over."""
    return [_build_grouped(order, *_choose_uneven(order.chance, min(order.most, 6)))]


def _build_grouped(order: Order, workers: int, size: int) -> Json:
    chance = order.chance
    shared = {PODSET_GROUP_NAME: "g", REQUIRED_TOPOLOGY: chance.choice([BLOCK_LABEL, BLOCK_LABEL, RACK_LABEL])}
    sliced = {**shared, SLICE_REQUIRED_TOPOLOGY: chance.choice([RACK_LABEL, HOSTNAME_LABEL]), SLICE_SIZE: str(size)}
    gpus, picky = chance.choice([1, 2, 4]), chance.random() < 0.4
    only: Json = {"nodeSelector": {"example.com/pool": chance.choice("ab")}} if picky else {}
    if chance.random() < 0.6:
        leader, worker = _build_template(chance.choice([1, 8]), shared, **only), _build_template(gpus, sliced)
        return _build_set(order, chance.randint(1, 2), workers + 1, leader, worker)
    ends = _choose_end(order)
    templates = (
        _build_template(1, {**shared, **ends}, restartPolicy="Never", **only),
        _build_template(gpus, {**sliced, **ends}, restartPolicy="Never"),
    )
    jobs = [
        {
            "name": name,
            "replicas": 1,
            "template": {"spec": {"parallelism": count, "completions": count, "completionMode": "Indexed", "template": template}},
        }
        for name, count, template in zip(("leader", "workers"), (1, workers), templates, strict=True)
    ]
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": order.metadata, "spec": {"replicatedJobs": jobs}}


def _choose_rules(chance: random.Random, level: str) -> Json:
    shares = ["0.34", "0.5", 0.6, "750m"]
    rules = [{"topologyKey": level, "maxShareAllowingPlacement": chance.choice(shares)}]
    if level == RACK_LABEL and chance.random() < 0.4:
        rules.insert(0, {"topologyKey": BLOCK_LABEL, "maxShareAllowingPlacement": chance.choice(shares)})
    for rule in rules:
        if chance.random() < 0.3:
            rule["enforcementMode"] = chance.choice(["Required", "Preferred"])
    return {"rules": rules}


def make_spread(order: Order) -> list[Json]:
    """Replicas that are spread over domains: of a LeaderWorkerSet or of a Deployment, or Jobs of Workloads that have one label."""
    chance = order.chance
    level = chance.choice([RACK_LABEL, RACK_LABEL, BLOCK_LABEL])
    rules, shape, gpus = _choose_rules(chance, level), chance.choice(["set", "set", "deployment", "prebuilt"]), chance.choice([1, 1, 4])
    if shape == "prebuilt":
        return _build_served(order, chance.choice(["one", "two"]), level, rules, gpus)
    notes = {REQUIRED_TOPOLOGY: level, TOPOLOGY_SPREADING: json.dumps(rules)}
    replicas = chance.randint(2, 4)
    if shape == "set":
        return [_build_set(order, replicas, chance.randint(1, 2), None, _build_template(gpus, notes))]
    template = _build_template(gpus, notes)
    template["metadata"]["labels"] = {"app": order.name}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": order.name}}, "template": template}
    return [{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": order.metadata, "spec": spec}]


def make_served(order: Order, of_service: random.Random) -> list[Json]:
    """A Job that is spread with the others of its service, all of which have what comes of `of_service`."""
    level = of_service.choice([RACK_LABEL, RACK_LABEL, BLOCK_LABEL])
    rules = _choose_rules(of_service, level)
    if of_service.random() < 0.5:
        rules["rules"][-1]["enforcementMode"] = "Preferred"
    return _build_served(order, "three", level, rules, 1)


def _build_served(order: Order, service: str, level: str, rules: Json, gpus: int) -> list[Json]:
    """A Job and its Workload, which is spread with others that have the label of a service."""
    rules = {**rules, "workloadLabelSelectors": [{"key": SERVICE_LABEL, "operator": "In", "values": [service]}]}
    job = _build_job(order, order.chance.randint(1, 2), gpus, {TOPOLOGY_SPREADING: json.dumps(rules), **_choose_end(order)})
    job["metadata"]["labels"] |= {PREBUILT_WORKLOAD: f"{order.name}-own"}
    request = {"required": level, "podIndexLabel": JOB_COMPLETION_INDEX_LABEL}
    pod_set = {"name": "main", "count": job["spec"]["completions"], "template": job["spec"]["template"], "topologyRequest": request}
    job["spec"]["template"]["metadata"]["annotations"][REQUIRED_TOPOLOGY] = level
    metadata = {"name": f"{order.name}-own", "namespace": order.namespace, "labels": {SERVICE_LABEL: service}}
    head = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": metadata}
    return [{**head, "spec": {"queueName": "main", "podSets": [pod_set]}}, job]


def make_tolerant(order: Order) -> list[Json]:
    """A Job that is evicted only for more lost nodes than it says."""
    chance = order.chance
    level = chance.choice([{REQUIRED_TOPOLOGY: RACK_LABEL}, {REQUIRED_TOPOLOGY: BLOCK_LABEL}, {PREFERRED_TOPOLOGY: RACK_LABEL}])
    job = _build_job(order, chance.randint(2, max(order.most, 2)), chance.choice([4, 8]), {**level, **_choose_end(order)})
    job["metadata"]["annotations"][LOST_NODES_THRESHOLD] = chance.choice("1123")
    job["spec"] |= {"podFailurePolicy": _IGNORES_DISRUPTIONS, "backoffLimitPerIndex": 5}
    return [job]


def make_hurried(order: Order) -> list[Json]:
    """A Job that says in which time its pods must be ready. Some never are where that has an end."""
    chance = order.chance
    job = _build_job(order, chance.randint(1, order.most), chance.choice([1, 4]), {REQUIRED_TOPOLOGY: RACK_LABEL, **_choose_end(order)})
    times = {"timeoutSeconds": chance.choice([20, 60, 300])}
    if chance.random() < 0.5:
        times["recoveryTimeoutSeconds"] = chance.choice([10, 60])
    if order.is_limited and chance.random() < 0.3:
        job["spec"]["template"]["metadata"]["annotations"][NEVER_READY] = "true"
    job["metadata"]["annotations"][WAIT_FOR_PODS_READY] = json.dumps(times)
    return [job]


def make_stuck(order: Order, timeout_s: int) -> list[Json]:
    """A Job whose pods are never ready, and which says how long they are waited for."""
    job = _build_job(order, 1, 1, {REQUIRED_TOPOLOGY: BLOCK_LABEL, NEVER_READY: "true"})
    job["metadata"]["annotations"][WAIT_FOR_PODS_READY] = json.dumps({"timeoutSeconds": timeout_s})
    return [job]


def make_filler(order: Order, host: str, gpus: int = 0) -> list[Json]:
    """A Job of one pod that takes a part of a host, and stays there."""
    gpus = gpus or order.chance.randint(1, 7)
    return [_build_job(order, 1, gpus, {UNCONSTRAINED_TOPOLOGY: "true"}, nodeSelector={HOSTNAME_LABEL: host})]


def make_rest(order: Order) -> list[Json]:
    """A Job of a slice that takes a whole node, and a pod more, for which half of one is the best place."""
    notes = {REQUIRED_TOPOLOGY: BLOCK_LABEL, SLICE_REQUIRED_TOPOLOGY: HOSTNAME_LABEL, SLICE_SIZE: "2"}
    return [_build_job(order, 3, 4, notes)]


def make_group(order: Order) -> list[Json]:
    """A group of pods of which some are never ready, and as many, more or fewer may be so."""
    chance = order.chance
    count = chance.randint(2, max(2, min(order.most, 5)))
    lazy, labels, ends = chance.choice([0, 1, 1, 2]), order.metadata["labels"], _choose_end(order)
    tolerated = [str(chance.choice([0, 1, 1, 2]))] * count
    if chance.random() < 0.3:
        tolerated[chance.randrange(count)] = chance.choice(["0", "1", "many", str(count)])
    pods = []
    for number in range(count):
        notes = {POD_GROUP_TOTAL_COUNT: str(count), REQUIRED_TOPOLOGY: RACK_LABEL, MAX_NOT_READY_COUNT: tolerated[number], **ends}
        if number < lazy:
            notes[NEVER_READY] = "true"
        pod = _build_template(1, notes, restartPolicy="Never")
        metadata = {"name": f"{order.name}-{number}", "namespace": order.namespace, **pod["metadata"]}
        metadata["labels"] = {**labels, POD_GROUP_NAME: order.name}
        pods.append({"apiVersion": "v1", "kind": "Pod", **pod, "metadata": metadata})
    return pods


def make_false_unconstrained(order: Order) -> list[Json]:
    """A Job with an annotation that says nothing."""
    return [_build_job(order, order.chance.randint(1, order.most), 1, {UNCONSTRAINED_TOPOLOGY: "false", **_choose_end(order)})]


def make_claiming(order: Order) -> list[Json]:
    """A Job whose pods claim devices, beside GPUs."""
    chance, name = order.chance, f"{order.name}-devices"
    placed: Sequence[Json] = [{REQUIRED_TOPOLOGY: RACK_LABEL}, {PREFERRED_TOPOLOGY: RACK_LABEL}, {UNCONSTRAINED_TOPOLOGY: "true"}, {}]
    claims = [{"name": "devices", "resourceClaimTemplateName": name}]
    count, notes = chance.randint(1, order.most), {**chance.choice(placed), **_choose_end(order)}
    job = _build_job(order, count, 1, notes, resourceClaims=claims)
    job["spec"]["template"]["spec"]["containers"][0]["resources"]["claims"] = [{"name": "devices"}]
    return [build_template(name, order.namespace, chance.randint(1, 3)), job]


def make_dispensable(order: Order) -> list[Json]:
    """A Workload of a tool, with pods that it can do without (`minCount: 0`)."""
    chance = order.chance
    counts = {"main": chance.randint(1, 2), "extra": chance.randint(1, order.most)}
    return build_tool_workload(order.name, order.namespace, counts, chance.choice(["1", "4"]), least={"extra": 0})


MADE: Mapping[str, tuple[Callable[[Order], list[Json]], tuple[str, ...]]] = {
    "partial slices": (make_partial, (PARTIAL_SLICES,)),
    "slices in a group": (make_grouped, (GROUPED_SLICES,)),
    "partial slices in a group": (make_grouped_partial, (GROUPED_SLICES, PARTIAL_SLICES)),
    "spread": (make_spread, (SPREADING,)),
    "tolerant": (make_tolerant, (REPLACE_MULTIPLE,)),
    "hurried": (make_hurried, (WORKLOAD_PODS_READY,)),
    "group": (make_group, (MAX_NOT_READY,)),
    "false": (make_false_unconstrained, ()),
    "claims devices": (make_claiming, (DEVICES,)),
    "dispensable": (make_dispensable, ()),
}
"""What a job that uses gates is made by, and the gates that are on where it is accepted, or has its effect."""
_REFUSED_WITHOUT = ("partial slices", "slices in a group", "partial slices in a group", "claims devices")


def is_refused(made: str, gates: ChosenGates) -> bool:
    """Whether a job of `MADE` is refused when it is created."""
    if made == "false":
        return gates.is_on(REJECT_FALSE_UNCONSTRAINED)
    return made in _REFUSED_WITHOUT and not all(gates.is_on(gate) for gate in MADE[made][1])


def choose_made(gates: ChosenGates, chance: random.Random) -> str:
    """One of `MADE`; seldom one whose gates are off."""
    used = [name for name, (_, needed) in MADE.items() if all(gates.is_on(gate) for gate in needed)]
    return chance.choice(used if chance.random() < 0.9 else list(MADE))
