"""The catalogue of sentences, placement: why a pod set has no place, and why it has the one that it has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from core.model.pod_traits import HostPort
from core.model.podset import Mode, PodSetRequest
from core.model.topology_spreading import CountedRule
from core.model.wire.assignment import DomainCount, TopologyAssignment
from core.names import HOSTNAME_LABEL
from core.placement.algorithms.decision import Decision
from core.placement.algorithms.profile import COMPACT, MIXED
from core.placement.engine import OneDomain, place
from core.placement.explain.choice import explain_choice, explain_together, show_choices
from core.placement.refusals import NotFit, RefusalKind, format_refusal
from core.placement.replace.replacement import replace_failed
from core.placement.replace.resized_pod_sets import resize
from core.placement.topology.placed_pods import PlacedPodSet
from tests.builders import BLOCK, RACK, THREE_LEVELS, Node, build_grid, build_view, request
from tests.placement.algorithms.test_balanced import build_cluster
from tests.placement.algorithms.test_spares import build_rack
from tests.placement.algorithms.test_topology_spreading import Asked, count_rules
from tests.placement.explain.test_choice import get_choice, group
from tests.placement.replace.test_replacement import build_placed_pod_set, fail, with_usage
from tests.placement.replace.test_resize import LEFT, change_beside_left, on
from tests.placement.topology.test_pod_affinity import build_pod_set, build_term

TAINTED = {"taints": (("team", "a", "NoSchedule"),)}
TIE = OneDomain(RACK, True, "annotation topogate.dev/workload-required-topology")


def refuse(*asked: PodSetRequest, nodes: Sequence[Node] | None = None, levels: Sequence[str] = THREE_LEVELS, **options: Any) -> NotFit:
    """The refusal of pod sets on nodes that no pod uses; by default on 2 racks with 2 nodes of 4 CPUs each."""
    return get_refusal(place(build_view(levels, build_grid(1, 2, 2) if nodes is None else nodes), asked, MIXED, **options))


def limit_racks(share: int) -> tuple[CountedRule, ...]:
    """A rule of topology spreading where each of the racks of `refuse` has a Workload."""
    return count_rules([[[4, 4], [4, 4]]], [frozenset({(0, 0)}), frozenset({(0, 1)})], [Asked(RACK, share, True)])


def get_refusal(decision: Decision) -> NotFit:
    assert decision.refusal is not None
    return decision.refusal


def build_selecting(*expressions: dict[str, Any]) -> PodSetRequest:
    terms = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}}
    return request(1, affinity={"nodeAffinity": terms})


def change_nodes(changed: dict[str, dict[str, Any]], count: int = 2) -> list[Node]:
    """One rack of nodes of 4 CPUs, some of them changed."""
    return [replace(node, **changed.get(node.name, {})) for node in build_grid(1, 1, count)]


def fill(asked: PodSetRequest, **used: int) -> NotFit:
    """The refusal of a pod set where CPUs of nodes of one rack are in use."""
    view = build_view(THREE_LEVELS, build_grid(1, 1, 5))
    for name, cpus in used.items():
        view.use_node(name.replace("_", "-"), {"cpu": cpus * 1000, "pods": 1})
    return get_refusal(place(view, [asked], MIXED))


def lose_domain_pods() -> NotFit:
    """A pod set by racks, of which a node failed and the live ones are too small."""
    nodes = [Node(f"r0-n{i}", {BLOCK: "b", RACK: "r0"}) for i in range(2)]
    held = TopologyAssignment((BLOCK, RACK), (DomainCount(("b", "r0"), 8),))
    job = PlacedPodSet(request(8, Mode.REQUIRED, BLOCK), held, (("r0-n0", 4), ("r0-n1", 4)))
    view = build_view((BLOCK, RACK), nodes)
    for name, count in job.nodes or ():
        view.use_node(name, {"cpu": 1000, "pods": 1}, count)
    return get_refusal(replace_failed(view, [job], ["r0-n0"], MIXED))


def leave_rack() -> NotFit:
    """A pod of a required rack is lost, and the other runs in a rack that no node of the tree is in."""
    placed = build_placed_pod_set(request(2, Mode.REQUIRED, RACK), left=1, b0_r0_n1=1)
    return get_refusal(fail(build_grid(1, 2, 2), replace(placed, outside={("left",): {BLOCK: "b0", RACK: "another"}}), failed=["b0-r0-n1"]))


def share_hostname() -> NotFit:
    nodes = [
        replace(node, labels={**node.labels, HOSTNAME_LABEL: "same" if i else node.name}) for i, node in enumerate(build_grid(1, 3, 1))
    ]
    return get_refusal(fail(nodes, build_placed_pod_set(request(2, Mode.REQUIRED, RACK), b0_r0_n0=1, same=1), failed=["b0-r0-n0"]))


def rename_levels() -> NotFit:
    nodes = [Node(name, {BLOCK: block, RACK: "r", HOSTNAME_LABEL: "same"}) for name, block in (("x", "b0"), ("y", "b1"))]
    return get_refusal(change_beside_left(request(4), LEFT, nodes, left=2))


APART: dict[str, Any] = {"anti_affinity": (build_term("x", RACK),)}
SLICED = request(4, Mode.REQUIRED, BLOCK, slices=[(RACK, 2)])
REFUSALS: dict[str, tuple[Callable[[], NotFit], str]] = {
    "some fit": (
        lambda: refuse(request(10, Mode.REQUIRED, RACK)),
        'topology "default" allows to fit only 8 out of 10 pod(s). It would fit in one cloud/block, or with 8 pods. Best '
        "cloud/rack b0/b0-r0: 8 of 10 pods, short of 2 cpu; best cloud/block b0: all 10 pods.",
    ),
    "none fits": (
        lambda: refuse(request(1, cpu=5000)),
        'topology "default" doesn\'t allow to fit any of 1 pod(s). Total nodes: 4; excluded: resource "cpu": 4. One pod is '
        "larger than any eligible node: b0-r0-n0 comes nearest and lacks 1 cpu. No kubernetes.io/hostname holds any pod.",
    ),
    "slices": (
        lambda: refuse(request(12, Mode.REQUIRED, RACK, slices=[(RACK, 6)])),
        'topology "default" allows to fit only 1 out of 2 slice(s). It would fit in one cloud/block, or with 6 pods. Best '
        "cloud/rack b0/b0-r0: 1 of 2 slices, short of 4 cpu; best cloud/block b0: all 2 slices.",
    ),
    "slices are larger than any domain of theirs": (
        lambda: refuse(request(9, Mode.REQUIRED, BLOCK, slices=[(RACK, 9)])),
        'topology "default" doesn\'t allow to fit any of 1 slice(s). A slice is 9 pods in one cloud/rack; the best has room for 8. '
        "It would fit with each slice in one cloud/block. No cloud/block holds any slice.",
    ),
    "amounts are in use": (
        lambda: fill(request(20, Mode.REQUIRED, RACK), b0_r0_n0=4, b0_r0_n1=4),
        'topology "default" allows to fit only 12 out of 20 pod(s). Total nodes: 5; excluded: resource "cpu": 2. It would fit '
        "if 4 cpu were freed on each of b0-r0-n0 and b0-r0-n1, or with 12 pods. Best cloud/rack b0/b0-r0: 12 of 20 pods, short "
        "of 8 cpu.",
    ),
    "amounts are in use on many nodes": (
        lambda: fill(request(5, Mode.REQUIRED, RACK, cpu=4000), b0_r0_n0=2, b0_r0_n1=2, b0_r0_n2=2, b0_r0_n3=2, b0_r0_n4=2),
        'topology "default" doesn\'t allow to fit any of 5 pod(s). Total nodes: 5; excluded: resource "cpu": 5. It would fit if '
        "2 cpu were freed on each of b0-r0-n0, b0-r0-n1, b0-r0-n2 and 2 more. No cloud/rack holds any pod.",
    ),
    "nodes are not ready, cordoned, tainted": (
        lambda: refuse(
            request(16), nodes=change_nodes({"b0-r0-n0": {"ready": False}, "b0-r0-n1": {"unschedulable": True}, "b0-r0-n2": TAINTED}, 4)
        ),
        'topology "default" allows to fit only 4 out of 16 pod(s). Total nodes: 4; excluded: NotReady: 1 (b0-r0-n0), taint '
        '"team=a:NoSchedule": 1 (b0-r0-n2), unschedulable: 1 (b0-r0-n1). It would fit if taint team=a:NoSchedule were tolerated '
        "or removed from b0-r0-n2 and b0-r0-n0 were ready and b0-r0-n1 were uncordoned, or with 4 pods. Best kubernetes.io/hostname "
        "b0/b0-r0/b0-r0-n3: 4 of 16 pods, short of 12 cpu.",
    ),
    "no node has a label": (
        lambda: refuse(request(1, node_selector={"pool": "gpu"})),
        'topology "default" doesn\'t allow to fit any of 1 pod(s). Total nodes: 4; excluded: nodeSelector: 4. No node has '
        "pool=gpu. No kubernetes.io/hostname holds any pod.",
    ),
    "no node has both labels": (
        lambda: refuse(request(1, node_selector={RACK: "b0-r0", HOSTNAME_LABEL: "b0-r1-n0"})),
        'topology "default" doesn\'t allow to fit any of 1 pod(s). Total nodes: 4; excluded: nodeSelector: 4. No node has all '
        "of cloud/rack=b0-r0, kubernetes.io/hostname=b0-r1-n0. No kubernetes.io/hostname holds any pod.",
    ),
    "a selector of many values": (
        lambda: refuse(build_selecting({"key": "pool", "operator": "In", "values": [f"p{i}" for i in range(500)]})),
        'topology "default" doesn\'t allow to fit any of 1 pod(s). Total nodes: 4; excluded: affinity: 4. No node has pool In '
        "(p0, p1, p2, p3, p4, p5, p6, p7 and 492 more). No kubernetes.io/hostname holds any pod.",
    ),
    "more than all nodes": (
        lambda: refuse(request(17, Mode.PREFERRED, RACK)),
        'topology "default" allows to fit only 16 out of 17 pod(s). It would fit with 16 pods. Best cloud/rack b0/b0-r0: 8 of '
        "17 pods, short of 9 cpu; best cloud/block b0: 16 of 17 pods, short of 1 cpu.",
    ),
    "pod sets in one domain": (
        lambda: refuse(request(5, name="a"), request(5, name="b"), together=TIE),
        'topology "default" allows to fit only 3 out of 5 pod(s). Total nodes: 4; excluded: resource "cpu": 1, '
        "topologyDomain: 2. All pod sets (a, b) must be in one cloud/rack (annotation topogate.dev/workload-required-topology). "
        "It would fit with 3 pods. Best kubernetes.io/hostname b0/b0-r1/b0-r1-n1: 3 of 5 pods, short of 2 cpu.",
    ),
    "no node for the leader": (
        lambda: refuse(*group(request(1, Mode.REQUIRED, RACK, name="leader", cpu=5000), request(2, Mode.REQUIRED, RACK, name="workers"))),
        'topology "default" doesn\'t allow to fit any of 2 pod(s). No node can take the leader. No cloud/rack holds any pod.',
    ),
    "no node for the leader of slices": (
        lambda: refuse(
            *group(
                request(1, Mode.REQUIRED, RACK, name="leader", node_selector={"pool": "gpu"}),
                request(2, Mode.REQUIRED, RACK, name="workers", slices=[(RACK, 2)]),
            )
        ),
        'topology "default" doesn\'t allow to fit any of 1 slice(s). No node can take the leader; excluded for it: '
        "nodeSelector: 4. No cloud/rack holds any slice.",
    ),
    "no room for the leader beside slices": (
        lambda: refuse(
            *group(
                request(1, Mode.REQUIRED, RACK, name="leader", cpu=2000),
                request(8, Mode.REQUIRED, RACK, name="workers", slices=[(RACK, 4)]),
            )
        ),
        'topology "default" allows to fit only 1 out of 2 slice(s). Without the leader all 2 slices would fit in cloud/rack '
        "b0/b0-r0. It would fit in one cloud/block, or with 4 pods. Best cloud/rack b0/b0-r0: 1 of 2 slices; best cloud/block b0: "
        "all 2 slices.",
    ),
    "apart by anti-affinity": (
        lambda: refuse(build_pod_set("x", 3, **APART)),
        'topology "default" allows to fit only 2 out of 3 pod(s). Its pods go one to each cloud/rack, by their own '
        "anti-affinity. It would fit with 2 pods. Best kubernetes.io/hostname b0/b0-r0/b0-r0-n0: 1 of 3 pods; all domains "
        "together: 2 of 3 pods.",
    ),
    "apart by host port": (
        lambda: refuse(build_pod_set("x", 5, host_ports=(HostPort(80),))),
        'topology "default" allows to fit only 4 out of 5 pod(s). Its pods go one to a node, by host port 80/TCP. It would fit '
        "with 4 pods. Best kubernetes.io/hostname b0/b0-r0/b0-r0-n0: 1 of 5 pods, short of 1 cpu; best cloud/rack b0/b0-r0: 2 "
        "of 5 pods; best cloud/block b0: 4 of 5 pods.",
    ),
    "near to their own kind": (
        lambda: refuse(build_pod_set("x", 9, affinity=(build_term("x", RACK),))),
        'topology "default" allows to fit only 8 out of 9 pod(s). Pods with affinity to their own kind follow the first: one '
        "domain is chosen per pod set, not for all of the workload. It would fit with 8 pods. Best kubernetes.io/hostname "
        "b0/b0-r0/b0-r0-n0: 4 of 9 pods, short of 5 cpu; best cloud/rack b0/b0-r0: 8 of 9 pods, short of 1 cpu.",
    ),
    "a group that is kept apart": (
        lambda: refuse(
            build_pod_set("leader", 1, Mode.REQUIRED, RACK, group="g"),
            build_pod_set("worker", 1, Mode.REQUIRED, RACK, group="g", anti_affinity=(build_term("leader", RACK),)),
        ),
        'topology "default" doesn\'t allow to fit any of 1 pod(s). leader and worker are kept apart by pod anti-affinity by '
        "cloud/rack; a place for pod sets of one group is not searched for by that.",
    ),
    "an unknown level": (
        lambda: refuse(request(1, Mode.REQUIRED, "zone")),
        "pod set main: no topology level 'zone'; the topology has cloud/block, cloud/rack, kubernetes.io/hostname",
    ),
    "an unknown level for pod sets in one domain": (
        lambda: refuse(request(1), request(1), together=replace(TIE, level="zone")),
        "no topology level 'zone' (annotation topogate.dev/workload-required-topology); the topology has cloud/block, "
        "cloud/rack, kubernetes.io/hostname",
    ),
    "an unknown level of slices": (
        lambda: refuse(request(2, slices=[("zone", 2)])),
        "pod set main: no slice level 'zone'; the topology has cloud/block, cloud/rack, kubernetes.io/hostname",
    ),
    "no domain": (
        lambda: refuse(request(1, Mode.REQUIRED, RACK), nodes=[], levels=[RACK]),
        "pod set main: no topology domains at level cloud/rack; no node of the flavor has it",
    ),
    "no domain, since nodes have no label": (
        lambda: refuse(request(1, Mode.REQUIRED, RACK), nodes=[Node("n0", {BLOCK: "b"})]),
        "pod set main: no topology domains at level cloud/rack; 1 node without label cloud/rack (e.g. n0), 1 node without "
        "label kubernetes.io/hostname (e.g. n0)",
    ),
    "no domain, since no node can be used": (
        lambda: refuse(request(1), nodes=change_nodes({"b0-r0-n0": {"ready": False}, "b0-r0-n1": {"ready": False}})),
        "pod set main: no topology domains at level kubernetes.io/hostname; none of the flavor's 2 nodes can be used "
        "(NotReady: 2 (e.g. b0-r0-n0)). It would fit if b0-r0-n0 were ready.",
    ),
    "no level": (
        lambda: refuse(replace(request(1), topology=None)),
        "pod set main: the topology request names none of required, preferred and unconstrained",
    ),
    "a slice size of 0": (lambda: refuse(request(2, slices=[(RACK, 0)])), "pod set main: slice size 0 at cloud/rack; at least 1 is needed"),
    "uneven slices": (
        lambda: refuse(request(7, Mode.REQUIRED, BLOCK, slices=[(RACK, 2)])),
        "pod set main: slice size 2 does not evenly divide the 7 pods; "
        "with feature gate TASPartialSlices the last slice may have fewer pods",
    ),
    "slices above their pod set": (
        lambda: refuse(request(2, Mode.REQUIRED, RACK, slices=[(BLOCK, 2)])),
        "pod set main: slice level cloud/block is above cloud/rack; it must be that level or a lower one",
    ),
    "layers in another order": (
        lambda: refuse(request(4, Mode.REQUIRED, BLOCK, slices=[(RACK, 4), (BLOCK, 2)])),
        "pod set main: slice layers must go from coarse to fine; cloud/block does not",
    ),
    "layers that do not divide": (
        lambda: refuse(request(8, Mode.REQUIRED, BLOCK, slices=[(BLOCK, 4), (RACK, 3)])),
        "pod set main: slice size 3 at cloud/rack does not divide the 4 above it",
    ),
    "an unknown operator": (
        lambda: refuse(build_selecting({"key": "a", "operator": "Near"})),
        "pod set main: operator 'Near' is none of In, NotIn, Exists, DoesNotExist, Gt, Lt",
    ),
    "an operator without its number": (
        lambda: refuse(build_selecting({"key": "a", "operator": "Gt", "values": ["new"]})),
        "pod set main: operator Gt needs one integer, not ['new']",
    ),
    "a group of several levels": (
        lambda: refuse(*group(request(1, Mode.REQUIRED, RACK, name="a"), request(1, Mode.REQUIRED, BLOCK, name="b"), request(1, name="c"))),
        "pod set group g: all its pod sets must have the same required or preferred level, not a required cloud/rack, b "
        "required cloud/block, c implied",
    ),
    "spares without hostnames": (
        lambda: refuse(request(4, Mode.REQUIRED, RACK, spares=1), levels=(BLOCK, RACK)),
        "pod set main: nodes are kept free (topogate.dev/spare-nodes) only in topologies with the lowest level "
        "kubernetes.io/hostname; this one has cloud/block, cloud/rack",
    ),
    "too few spares": (
        lambda: refuse(request(8, Mode.REQUIRED, RACK, spares=2), nodes=[*build_rack("r0", 4, 4), *build_rack("r1", 4, 4, 4)]),
        "pod set main: its 8 pods would fit, but not with 2 spare nodes beside them: cloud/rack b0/r1 has room for the pods "
        "and 1 of the 2 spare nodes. It would fit with fewer spare nodes, or with more nodes free",
    ),
    "no spare": (
        lambda: refuse(request(8, Mode.REQUIRED, RACK, spares=2), nodes=build_rack("r0", 4, 4)),
        "pod set main: its 8 pods would fit, but not with 2 spare nodes beside them: no cloud/rack has room for both. It would "
        "fit with fewer spare nodes, or with more nodes free",
    ),
    "a replacement in a slice": (
        lambda: get_refusal(
            fail(
                build_grid(1, 3, 2),
                build_placed_pod_set(replace(SLICED, requests={"cpu": 3000}), b0_r0_n0=1, b0_r0_n1=1, b0_r1_n0=1, b0_r1_n1=1),
                failed=["b0-r0-n0"],
            )
        ),
        'topology "default" doesn\'t allow to fit any of 1 pod(s). Total nodes: 6; excluded: resource "cpu": 4. 1 more pod must '
        "complete slices of 2 in cloud/rack b0/b0-r0. No eligible node could hold one more pod beside those of it that stay: "
        "b0-r0-n1 comes nearest and lacks 2 cpu. No cloud/rack holds any pod.",
    ),
    "a replacement in a domain without room": (
        lose_domain_pods,
        'topology "default" doesn\'t allow to fit any of 4 pod(s). Total nodes: 2; excluded: resource "cpu": 2. its live nodes '
        "do not hold the pods of the failed ones. No eligible node could hold one more pod beside those of it that stay: r0-n1 "
        "comes nearest and lacks 1 cpu. No cloud/rack holds any pod.",
    ),
    "a replacement beside pods elsewhere": (
        leave_rack,
        'topology "default" doesn\'t allow to fit any of 1 pod(s). Total nodes: 4; excluded: resource "cpu": 1. The other pods '
        "of the workload run on nodes outside of the topology. No cloud/rack holds any pod.",
    ),
    "a replacement in the rack of other pods": (
        lambda: get_refusal(
            fail(build_grid(1, 2, 2), build_placed_pod_set(request(8, Mode.REQUIRED, RACK), b0_r0_n0=4, b0_r0_n1=4), failed=["b0-r0-n0"])
        ),
        'topology "default" doesn\'t allow to fit any of 4 pod(s). Total nodes: 4; excluded: resource "cpu": 2. The other pods '
        "of the workload keep it in cloud/rack b0/b0-r0. No eligible node could hold one more pod beside those of it that "
        "stay: b0-r0-n1 comes nearest and lacks 1 cpu. No cloud/rack holds any pod.",
    ),
    "an assignment with a hostname of several nodes": (
        share_hostname,
        "pod set main: same is the hostname of several nodes (b0-r1-n0, b0-r2-n0), and the assignment does not say of which; "
        "give the others another one",
    ),
    "an assignment in several racks": (
        lambda: get_refusal(
            fail(
                build_grid(1, 3, 2),
                build_placed_pod_set(request(3, Mode.REQUIRED, RACK), b0_r0_n0=1, b0_r1_n0=1, b0_r2_n0=1),
                failed=["b0-r2-n0"],
            )
        ),
        "pod set main: its pods are in several domains of level cloud/rack, though one is required",
    ),
    "an assignment in broken slices": (
        lambda: get_refusal(
            fail(build_grid(1, 3, 3), build_placed_pod_set(SLICED, b0_r0_n0=1, b0_r1_n0=1, b0_r2_n0=1, b0_r2_n1=1), failed=["b0-r2-n1"])
        ),
        "pod set main: its pods are not in whole slices of 2 at level cloud/rack",
    ),
    "slices beside a node that left": (
        lambda: get_refusal(change_beside_left(request(4, Mode.REQUIRED, RACK, slices=[(RACK, 2)]), LEFT, build_grid(1, 1, 2), left=2)),
        "pod set main: pods run outside of the topology, in left; whether its slices are whole is not known",
    ),
    "a place by other levels": (
        rename_levels,
        "pod set main: pods run outside of the topology, in left; their place is named by other levels than those of the topology now",
    ),
    "a job that grows": (
        lambda: get_refusal(
            resize(
                with_usage(build_view(THREE_LEVELS, build_grid(1, 2, 2)), build_placed_pod_set(request(4), b0_r0_n0=4)),
                [request(10, Mode.REQUIRED, RACK)],
                {"main": on(b0_r0_n0=4)},
                MIXED,
            )
        ),
        'topology "default" allows to fit only 8 out of 10 pod(s). Total nodes: 4; excluded: resource "cpu": 1. It would fit '
        "in one cloud/block, or with 8 pods. Best cloud/rack b0/b0-r1: 8 of 10 pods, short of 2 cpu; best cloud/block b0: all "
        "10 pods.",
    ),
    "racks that are all closed": (
        lambda: refuse(request(1, Mode.REQUIRED, RACK, spreading=limit_racks(400))),
        "topology spreading excludes all topology domains at level: cloud/rack. Topology spreading (cloud/rack, at most"
        " 0.4) closes 2 of 2: b0/b0-r0 has 1 of 2 Workloads, b0/b0-r1 has 1 of 2 Workloads. b0/b0-r0 has room for 1 "
        "pod, and opens with 3 Workloads in b0 or 1 fewer in b0/b0-r0.",
    ),
    "a rule below the level": (
        lambda: refuse(request(1, Mode.REQUIRED, BLOCK, spreading=limit_racks(400))),
        "pod set main: topology spreading level cloud/rack is below the podset topology cloud/block",
    ),
}


@pytest.mark.parametrize(("build", "sentence"), REFUSALS.values(), ids=REFUSALS)
def test_placement_refusal_has_its_sentence(build: Callable[[], NotFit], sentence: str):
    assert format_refusal("default", build()) == sentence


def test_placement_refusals_of_the_catalogue_cover_every_kind():
    assert {build().kind for build, _ in REFUSALS.values()} == set(RefusalKind)


# --- choices ----------------------------------------------------------------------------------------------


def choose_beside(*asked: PodSetRequest, blocks: list[list[list[int]]]) -> str:
    return show_choices(get_choice(build_cluster(blocks), *asked))


def choose_together(tie: OneDomain, *asked: PodSetRequest) -> str:
    view = build_view(THREE_LEVELS, build_grid(2, 1, 1))
    decision = place(view, asked, MIXED, together=tie)
    assert decision.refusal is None
    return explain_together(view, decision, tie)


def choose_looking_ahead() -> str:
    view, asked = build_cluster([[[4], [5]]]).view(), [request(4, Mode.UNCONSTRAINED, name="any"), request(4, Mode.REQUIRED, RACK)]
    return str(explain_choice(view, asked, replace(place(view, asked, MIXED), looked_ahead=True))[1])


def choose_later(blocks: list[list[list[int]]], used: dict[str, int]) -> str:
    """A choice that is explained after nodes have filled up."""
    view, asked = build_cluster(blocks).view(), [request(4, Mode.REQUIRED, RACK)]
    decision = place(view, asked, MIXED)
    for name, cpus in used.items():
        view.use_node(name, {"cpu": cpus * 1000, "pods": 1})
    return show_choices(explain_choice(view, asked, decision))


PREFERRED = OneDomain(RACK, False, "annotation topogate.dev/workload-preferred-topology")
CHOICES: dict[str, tuple[Callable[[], str], str]] = {
    "the tightest": (
        lambda: choose_beside(request(4, Mode.REQUIRED, RACK), blocks=[[[8], [4], [2]]]),
        "pod set main: cloud/rack b0/b0-r01 with room for 4, the tightest of 2 that hold all 4 pods; next b0/b0-r00 with room for 8",
    ),
    "the only one that fits": (
        lambda: choose_beside(request(5, Mode.REQUIRED, RACK), blocks=[[[8], [4]]]),
        "pod set main: cloud/rack b0/b0-r00, the only one of 2 that holds all 5 pods",
    ),
    "the only one": (lambda: choose_beside(request(5, Mode.REQUIRED, BLOCK), blocks=[[[8]]]), "pod set main: cloud/block b0, the only one"),
    "one pod": (
        lambda: choose_beside(request(1, Mode.REQUIRED, RACK), blocks=[[[8], [4]]]),
        "pod set main: cloud/rack b0/b0-r01 with room for 4, the tightest of 2 that hold its pod; next b0/b0-r00 with room for 8",
    ),
    "slices": (
        lambda: choose_beside(request(6, Mode.PREFERRED, RACK, slices=[(RACK, 3)]), blocks=[[[4], [3]], [[9, 9, 9]]]),
        "pod set main: cloud/rack b1/b1-r00, the only one of 3 that holds all 2 slices",
    ),
    "a higher level": (
        lambda: choose_beside(request(6, Mode.PREFERRED, RACK), blocks=[[[4], [3]]]),
        "pod set main: no cloud/rack holds all 6 pods, the best holds 4; cloud/block b0, the only one",
    ),
    "several": (
        lambda: choose_beside(request(8, Mode.PREFERRED, BLOCK), blocks=[[[4], [3]], [[1], [1]]]),
        "pod set main: 2 of 2 cloud/blocks (b0, b1); none holds all 8 pods alone",
    ),
    "many": (
        lambda: choose_beside(request(16), blocks=[[[1, 2, 3, 1, 9]]]),
        "pod set main: 5 of 5 kubernetes.io/hostnames (n000, n001, n002 and 2 more); none holds all 16 pods alone",
    ),
    "a leader and its workers": (
        lambda: choose_beside(
            *group(request(1, Mode.REQUIRED, RACK, name="leader"), request(4, Mode.REQUIRED, RACK, name="workers")),
            blocks=[[[4], [5], [9]]],
        ),
        "pod set workers and leader: cloud/rack b0/b0-r01 with room for 4, the tightest of 2 that hold all 4 pods; next "
        "b0/b0-r02 with room for 8",
    ),
    "a joint search": (
        choose_looking_ahead,
        "pod set main: cloud/rack b0/b0-r01, the only one of 2 that holds all 4 pods; placed together with the other pod sets, "
        "since one after the other they would not fit",
    ),
    "a compact one": (
        lambda: str(*get_choice(build_cluster([[[4], [5]]]), request(4), profile=COMPACT)),
        "pod set main: kubernetes.io/hostname n000 with room for 4, the tightest of 2 that hold all 4 pods; next n001 with "
        "room for 5; no answer is more compact",
    ),
    "one that has filled up": (
        lambda: choose_later([[[4], [8]]], {"n000": 3}),
        "pod set main: cloud/rack b0/b0-r00 with room for 1 of 4 pods now; b0/b0-r01 with room for 8 would hold all 4",
    ),
    "all have filled up": (
        lambda: choose_later([[[4], [4]]], {"n000": 3, "n001": 2}),
        "pod set main: cloud/rack b0/b0-r00 with room for 1; none holds all 4 pods now; next b0/b0-r01 with room for 2",
    ),
    "one domain for all pod sets": (
        lambda: choose_together(TIE, request(2, name="a"), request(2, name="b")),
        "all pods in cloud/rack b0/b0-r0 (annotation topogate.dev/workload-required-topology)",
    ),
    "no shared domain": (
        lambda: choose_together(PREFERRED, request(4, name="a"), request(4, name="b")),
        "no cloud/rack holds all pods, they are in 2 (annotation topogate.dev/workload-preferred-topology)",
    ),
}


@pytest.mark.parametrize(("build", "sentence"), CHOICES.values(), ids=CHOICES)
def test_placement_choice_has_its_sentence(build: Callable[[], str], sentence: str):
    assert build() == sentence
