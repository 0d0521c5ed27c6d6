"""Random cohorts from seeds: two flavors over the same racks, fungibility, partial admission, fair sharing, StrictFIFO and all policies.

A hypothesis strategy would draw such scenes, too, but seldom those in which evictions go on: they were found among tens of thousands.
"""

from __future__ import annotations

import random
from typing import Any

from core.model.configuration import FairSharing
from core.names import HOSTNAME_LABEL
from core.state.queue_facts import ClusterQueueFacts
from tests.builders import RACK, Node, build_pod_set_json, build_workload_json
from tests.queueing.shared import Shared

QUEUES = "abcd"
TOPOLOGIES = ({"required": RACK}, {"preferred": RACK}, {"unconstrained": True})


def build_cohort(chance: random.Random) -> Shared:
    """A cohort without workloads. Its queues are among `QUEUES`."""
    scene = Shared(sharing=FairSharing() if chance.random() < 0.35 else None)
    flavors = ["tas"]
    if chance.random() < 0.6:
        flavors = ["f1", "f2"]
        for flavor, kind in (("f1", "x"), ("f2", "y")):
            scene.flavor(flavor, "t", nodeLabels={"kind": kind})
    if chance.random() < 0.15:
        flavors = ["p1", "p2"]
        for flavor in flavors:
            scene.flavor(flavor)
    for i in range(chance.randint(1, 4)):
        for j in range(chance.randint(1, 2)):
            name = f"r{i}-n{j}"
            labels = {RACK: f"r{i}", HOSTNAME_LABEL: name, "kind": chance.choice("xy")}
            scene.node(Node(name, labels, {"cpu": 4000, "pods": 20}))
    cohorts = ["cohort"]
    if chance.random() < 0.4:
        for name in ("left", "right"):
            scene.cohort(name, "cohort", weight=chance.choice("0113"))
            cohorts.append(name)
    for name in QUEUES[: chance.randint(2, 4)]:
        _add_queue(scene, name, flavors, cohorts, chance)
    return scene


def _add_queue(scene: Shared, name: str, flavors: list[str], cohorts: list[str], chance: random.Random) -> None:
    has = flavors[:] if chance.random() < 0.7 else chance.sample(flavors, 1)
    if chance.random() < 0.3:
        has.reverse()
    limits: list[dict[str, str]] = [{}, {}, {"borrowingLimit": "2"}, {"lendingLimit": "1"}, {"borrowingLimit": "3"}]
    quotas = [
        {"name": flavor, "resources": [{"name": "cpu", "nominalQuota": str(chance.randint(0, 8)), **chance.choice(limits)}]}
        for flavor in has
    ]
    preemption: dict[str, Any] = {
        "withinClusterQueue": chance.choice(["Never", "LowerPriority", "LowerPriority", "LowerOrNewerEqualPriority"]),
        "reclaimWithinCohort": chance.choice(["Never", "LowerPriority", "Any", "Any"]),
    }
    if chance.random() < 0.6:
        threshold = {"maxPriorityThreshold": chance.randint(0, 3)} if chance.random() < 0.3 else {}
        preemption["borrowWithinCohort"] = {"policy": "LowerPriority", **threshold}
    fungibility = {name: chance.choice(["MayStopSearch", "TryNextFlavor"]) for name in ("whenCanBorrow", "whenCanPreempt")}
    if chance.random() < 0.3:
        fungibility["preference"] = "PreemptionOverBorrowing"
    spec = {
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": quotas}],
        "cohortName": chance.choice(cohorts),
        "preemption": preemption,
        "queueingStrategy": chance.choice(["BestEffortFIFO"] * 3 + ["StrictFIFO"]),
        "fairSharing": {"weight": chance.choice("0113")},
        "flavorFungibility": fungibility,
    }
    scene.state.observe_cluster_queue(name, ClusterQueueFacts.read({"metadata": {"name": name}, "spec": spec}))
    scene.local_queue(name, name)


def submit_job(scene: Shared, name: str, chance: random.Random) -> None:
    """A workload of up to 5 pods in any of the queues, one third with fewer pods that would do."""
    count = chance.randint(1, 5)
    pod_sets = [build_pod_set_json(count=count, cpu=str(chance.randint(1, 3)), topology=chance.choice(TOPOLOGIES))]
    if chance.random() < 0.3 and count > 1:
        pod_sets[0]["minCount"] = chance.randint(1, count - 1)
    if chance.random() < 0.2:
        pod_sets.append(build_pod_set_json("second", count=chance.randint(1, 2), cpu="1", topology=chance.choice(TOPOLOGIES)))
    queue = chance.choice(sorted(scene.state.cluster_queues.keys() & set(QUEUES)))
    scene.clock += 1
    scene.workload(build_workload_json(name, pod_sets, queue=queue, priority=chance.randint(0, 3), created=scene.now))
