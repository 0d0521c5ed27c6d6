"""The catalogue of sentences, topology spreading: what rules close, what opens a domain, and what of an annotation is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from core.model.gates import SPREADING
from core.names import REQUIRED_TOPOLOGY
from core.queueing.flavors.outcome import Admissible
from tests.builders import build_pod_set_json
from tests.queueing.spreading import RACK, ZONE, SpreadScene, annotate, build_text, rule
from tests.webhook.asking import Webhook, get_causes
from tests.webhook.reviews.test_topology_spreading_reviews import build_job, build_jobset

THIRD = build_text(rule(ZONE, "0.34"))


def decide(*zones: str, text: str = THIRD, placed: int = 0, **asked: Any) -> str:
    """The message on a workload after others with the same rules were placed in zones with 16 CPUs in two racks."""
    scene = SpreadScene()
    for name in zones:
        scene.zone(name, racks=2, nodes=2)
    for i in range(placed):
        scene.place(f"w{i}", text, required=asked.get("required", ZONE))
    scene.ask("asked", text, **asked)
    return show(scene)


def show(scene: SpreadScene) -> str:
    outcome = scene.decide()["asked"]
    return str(outcome.choices[0]) if isinstance(outcome, Admissible) else outcome.message


def decide_mixed_group() -> str:
    scene, topology = SpreadScene(), {"required": ZONE, "podSetGroupName": "g"}
    scene.zone("a")
    scene.ask_for("asked", [annotate(build_pod_set_json(name, topology=topology), text) for name, text in (("l", THIRD), ("w", None))])
    return show(scene)


def decide_blocked() -> str:
    scene, text = SpreadScene(), build_text(rule(ZONE, "0.5"), rule(RACK, "0.5"))
    scene.zone("a", racks=1)
    scene.zone("b", racks=2, cpu=1)
    scene.place("w0", text, required=RACK, count=2)
    scene.ask("asked", text, required=RACK, count=2)
    return show(scene)


DECISIONS: dict[str, tuple[Callable[[], str], str]] = {
    "all zones are closed": (
        lambda: decide("a", "b", placed=2),
        "couldn't assign flavors to pod set main: topology spreading excludes all topology domains at level: "
        "cloud/zone. Topology spreading (cloud/zone, at most 0.34) closes 2 of 2: a has 1 of 2 Workloads, b has 1 of 2 "
        "Workloads. a has room for 1 pod, and opens with 3 Workloads in all or 1 fewer in a.",
    ),
    "all zones are closed, with no room in any": (
        lambda: decide("a", placed=1, count=17),
        "couldn't assign flavors to pod set main: topology spreading excludes all topology domains at level: "
        "cloud/zone. Topology spreading (cloud/zone, at most 0.34) closes 1 of 1: a has 1 of 1 Workload. None of them "
        "has room for 17 pods either.",
    ),
    "one zone is closed": (
        lambda: decide("a", "b", placed=1, count=17),
        'couldn\'t assign flavors to pod set main: topology "t" allows to fit only 16 out of 17 pod(s). Total nodes: 8; '
        "excluded: topology spreading: 4. Topology spreading (cloud/zone, at most 0.34) closes 1 of 2: a has 1 of 1 "
        "Workload. It would fit with 16 pods. Best cloud/zone b: 16 of 17 pods, short of 1 cpu.",
    ),
    "one rack is closed, and has the only room": (
        decide_blocked,
        'couldn\'t assign flavors to pod set main: topology "t" allows to fit only 1 out of 2 pod(s). Total nodes: 3; '
        "excluded: topology spreading: 1. Topology spreading (cloud/zone, at most 0.5) closes 1 of 2: a has 1 of 1 "
        "Workload. Topology spreading (cloud/rack, at most 0.5) closes 1 of 3: a/a0 has 1 of 1 Workload. a/a0 has room "
        "for 2 pods, and opens with 2 Workloads in all or 1 fewer in a and, by the other rule, 2 Workloads in a or 1 "
        "fewer in a/a0. It would fit with 1 pod. Best cloud/rack b/b0: 1 of 2 pods, short of 1 cpu; best cloud/zone b: "
        "all 2 pods.",
    ),
    "an open zone": (
        lambda: decide("a", "b", placed=1),
        "pod set main: cloud/zone b, the only one of 2 that holds its pod; topology spreading: cloud/zone b has 0 of 1 "
        "Workload (at most 0.34); 1 of 2 closed",
    ),
    "a preferred zone": (
        lambda: decide("a", text=build_text(rule(ZONE, "0.5", "Preferred"), rule(RACK, "0.9")), placed=1, required=RACK),
        "pod set main: cloud/rack a/a1, the only one of 2 that holds its pod; topology spreading: cloud/zone a has 1 of"
        " 1 Workload (0.5 preferred, exceeded), cloud/rack a/a1 has 0 of 1 Workload (at most 0.9); 1 of 2 closed",
    ),
    "a rule below the level": (
        lambda: decide("a", text=build_text(rule(RACK, "0.5"))),
        "couldn't assign flavors to pod set main: topology spreading level cloud/rack is below the podset topology cloud/zone",
    ),
    "a level that is not there": (
        lambda: decide("a", text=build_text(rule("cloud/region", "0.5"))),
        'couldn\'t assign flavors to pod set main: topology "t" has no level cloud/region of required topology '
        "spreading; it has cloud/zone, cloud/rack, kubernetes.io/hostname",
    ),
    "a value that cannot be read": (
        lambda: decide("a", text=build_text(rule(ZONE, "2"))),
        "couldn't assign flavors to pod set main: kueue.x-k8s.io/podset-topology-spreading: "
        "rules[0].maxShareAllowingPlacement must be greater than 0 and less than 1",
    ),
    "no required level": (
        lambda: decide_preferred(),
        "couldn't assign flavors to pod set main: kueue.x-k8s.io/podset-topology-spreading: the pod set has no required topology level",
    ),
    "a group that disagrees": (
        decide_mixed_group,
        "couldn't assign flavors to pod set l, w: pod set l: kueue.x-k8s.io/podset-topology-spreading: the pod sets of "
        "group g do not have the same rules",
    ),
}


def decide_preferred() -> str:
    scene = SpreadScene()
    scene.zone("a")
    scene.ask_for("asked", [annotate(build_pod_set_json(topology={"preferred": ZONE}), THIRD)])
    return show(scene)


@pytest.mark.parametrize(("build", "sentence"), DECISIONS.values(), ids=DECISIONS)
def test_decision_with_rules_has_its_sentence(build: Callable[[], str], sentence: str):
    assert build() == sentence


def refuse(text: str, **notes: str | None) -> str:
    return refuse_object(build_job(text, **notes))


def refuse_object(job: dict[str, Any]) -> str:
    return next(iter(get_causes(Webhook(**{SPREADING: True}).validate(job)).values()))


def select(**selector: Any) -> str:
    return f'{{"rules": [{{"topologyKey": "z", "maxShareAllowingPlacement": 0.5}}], "workloadLabelSelectors": [{selector}]}}'.replace(
        "'", '"'
    )


REFUSALS: dict[str, tuple[Callable[[], str], str]] = {
    "no object": (lambda: refuse("[]"), "must be a valid JSON object: an object is expected, not a list"),
    "no JSON": (lambda: refuse("{"), "must be a valid JSON object: line 1, column 2: Expecting property name enclosed in double quotes"),
    "no rules": (lambda: refuse("{}"), "topology spreading rules must contain between 1 and 2 entries; here are 0"),
    "a share": (lambda: refuse(build_text(rule(ZONE, "1"))), '"1": must be greater than 0 and less than 1'),
    "no number": (
        lambda: refuse(build_text(rule(ZONE, "a"))),
        'must be a valid JSON object: rules[0].maxShareAllowingPlacement: a share such as 0.34 or 340m is expected, not "a"',
    ),
    "a key": (lambda: refuse(build_text(rule("a b", "0.5"))), '"a b": a node label name such as topology.kubernetes.io/zone is expected'),
    "a key twice": (lambda: refuse(build_text(rule(ZONE, "0.5"), rule(ZONE, "0.6"))), '"cloud/zone": each rule names another level'),
    "a mode": (lambda: refuse(build_text(rule(ZONE, "0.5", "Never"))), '"Never": "Required" or "Preferred" is expected'),
    "an operator": (lambda: refuse(select(key="team", operator="Exists", values=["a"])), '"Exists": only "In" is supported'),
    "no values": (lambda: refuse(select(key="team", operator="In", values=[])), "at least one value is expected"),
    "a label": (lambda: refuse(select(key="-", operator="In", values=["a"])), '"-": the name of a label is expected'),
    "no required level": (
        lambda: refuse(THIRD, **{REQUIRED_TOPOLOGY: None}),
        "may not stand without kueue.x-k8s.io/podset-required-topology, which names the level of the one domain that the pods share",
    ),
    "a group that disagrees": (
        lambda: refuse_object(build_jobset(THIRD, None)),
        "all pod templates of group 'g' must have the same rules of topology spreading, or none of them",
    ),
}


@pytest.mark.parametrize(("build", "sentence"), REFUSALS.values(), ids=REFUSALS)
def test_refused_annotation_has_its_sentence(build: Callable[[], str], sentence: str):
    assert build() == sentence
