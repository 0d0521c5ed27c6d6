"""The cluster's state under any sequence of events: usage is exact, never depends on the order, and no pod counts twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from core.model.admission import Admission, PodSetAdmission, encode_admission
from core.model.configuration import ResourceRules
from core.model.spare_nodes import show_held_spares
from core.model.wire.assignment import DomainCount, TopologyAssignment
from core.names import ADMITTED, FINISHED, HOSTNAME_LABEL, QUOTA_RESERVED, SPARE_NODES, SPARES
from core.state.cluster import ClusterState
from core.state.facts import FlavorFacts, NodeFacts, PodFacts, TopologyFacts, WorkloadFacts
from core.state.promises import find_missing
from tests.builders import (
    NAMESPACE,
    RACK,
    Node,
    build_condition_json,
    build_flavor_json,
    build_node_json,
    build_pod_json,
    build_pod_set_json,
    build_topology_json,
    build_workload_json,
)

NODES = [f"n{i}" for i in range(5)]
WORKLOADS = ["w0", "w1", "w2"]
FLAVORS = {"all": {}, "a": {"pool": "a"}, "b": {"pool": "b"}}  # all overlaps with the others
UNCOUNTED = ResourceRules(counts_spares=False)  # what spares use of quota is shown in tests/queueing/cycle/test_spares.py
Usage = dict[str, Counter[str]]


class Objects:
    """What the API server holds: the plain model. Everything expected is counted from here."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, dict[str, Any]] = {}
        self.workloads: dict[str, dict[str, Any]] = {}
        self.assumed: dict[str, tuple[Admission, int | None]] = {}

    def holding(self, name: str) -> tuple[str, int, tuple[DomainCount, ...], tuple[str, ...]] | None:
        """Flavor, milli-CPU of one pod, domains and spare nodes that a workload holds now."""
        workload = self.workloads.get(name)
        if workload is None:
            return None
        cpu = int(workload["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"]) * 1000
        if name in self.assumed:
            given = self.assumed[name][0].pod_sets[0]
            assert given.assignment is not None
            return given.flavors["cpu"], cpu, given.assignment.domains, given.spares
        wire = workload["status"].get("admission")
        if wire is None or any(condition["type"] == FINISHED for condition in workload["status"]["conditions"]):
            return None
        given = workload["x-admission"].pod_sets[0]
        comes_no_more = sum(entry["count"] for entry in workload["status"].get("reclaimablePods", ()))
        spares = given.spares if comes_no_more < int(workload["spec"]["podSets"][0]["count"]) else ()
        return given.flavors["cpu"], cpu, given.assignment.domains, spares

    def expected_usage(self) -> Usage:
        """Per node: pods that are bound and alive, and for each admission what of it is not bound yet."""
        usage: Usage = {}
        for pod in self.pods.values():
            if _alive(pod):
                usage.setdefault(pod["spec"]["nodeName"], Counter()).update({"cpu": _cpu(pod), "pods": 1})
        for name in self.workloads:
            held = self.holding(name)
            if held is None:
                continue
            flavor, cpu, domains, spares = held
            here = {d.values[-1]: d.count for d in domains if (n := self.nodes.get(d.values[-1])) is not None and self.matches(flavor, n)}
            for node_name, missing in self.missing(name, here).items():  # a domain that is not there (any more) takes nothing
                usage.setdefault(node_name, Counter()).update({"cpu": cpu * missing, "pods": missing})
            most = max(domain.count for domain in domains)
            for spare in spares:
                if spare in self.nodes and self.matches(flavor, self.nodes[spare]):
                    usage.setdefault(spare, Counter()).update({"cpu": cpu * most, "pods": most})
        return {node: +amounts for node, amounts in usage.items() if +amounts}

    def missing(self, name: str, given: Mapping[str, int]) -> dict[str, int]:
        """Pods per node that are still to come: what was given less what is bound, less what comes no more, one place at a time."""
        workload, bound, succeeded = self.workloads[name], Counter[str](), []
        for pod in self.pods.values():
            if pod["spec"].get("nodeName") and _is_of(pod, name, workload):
                bound[pod["spec"]["nodeName"]] += _alive(pod)
                if pod["status"]["phase"] == "Succeeded":
                    succeeded.append((pod["metadata"]["creationTimestamp"], pod["spec"]["nodeName"]))
        left = {node: max(0, count - bound[node]) for node, count in given.items()}
        reclaimed = sum(entry["count"] for entry in workload["status"].get("reclaimablePods", ()))
        surplus = max(0, sum(given.values()) - (4 - reclaimed)) if reclaimed else 0
        ended = Counter(node for _, node in sorted(succeeded)[max(0, reclaimed - surplus) :])  # the others ended before
        for _ in range(surplus):
            done = [node for node in left if left[node] and ended[node]]
            if done:
                left[done[0]] -= 1
                ended[done[0]] -= 1
        return left

    @staticmethod
    def matches(flavor: str, node: Node) -> bool:
        return all(node.labels.get(key) == value for key, value in FLAVORS[flavor].items()) and RACK in node.labels


def _made(second: int, pod: dict[str, Any]) -> dict[str, Any]:
    return pod | {"metadata": {**pod["metadata"], "creationTimestamp": f"2026-01-01T00:00:0{second}Z"}}


def _alive(pod: Mapping[str, Any]) -> bool:
    return bool(pod["spec"].get("nodeName")) and pod["status"]["phase"] not in ("Succeeded", "Failed")


def _cpu(pod: Mapping[str, Any]) -> int:
    return int(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]) * 1000


def _is_of(pod: Mapping[str, Any], name: str, workload: Mapping[str, Any]) -> bool:
    owner = workload["metadata"]["ownerReferences"][0]["uid"]
    return (pod["metadata"].get("annotations") or {}).get("kueue.x-k8s.io/workload") == name and (
        pod["metadata"].get("ownerReferences") or [{}]
    )[0].get("uid") == owner


def _plain(usage: Mapping[str, Mapping[str, int]]) -> Usage:
    return {node: +Counter(amounts) for node, amounts in usage.items() if +Counter(amounts)}


@settings(stateful_step_count=40)
class ClusterMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.objects = Objects()
        self.state = ClusterState(resource_rules=UNCOUNTED)
        self.audit = self.state.ledger.audit()  # under way while all else happens
        self.version = 1  # that of a new workload

    @initialize(data=st.data())
    def a_cluster_at_work(self, data: st.DataObject) -> None:
        """Events alone would take most runs to get anywhere."""
        observe_fixed(self.state)
        for i, name in enumerate(NODES):
            self.node_comes_or_changes(name, "ab"[i % 2], 8, "r1", True, False)
        for name in WORKLOADS:
            self.workload_comes(name, 0, data.draw(st.integers(1, 3)))
            fate = data.draw(st.sampled_from(["admitted", "assumed", "pending"]))
            if fate == "admitted":
                self.see_workload(self.admitted(name, data.draw(admissions())))
            elif fate == "assumed":
                self.assume(name, data.draw(admissions()))

    # --- nodes ------------------------------------------------------------------------------------

    @rule(
        name=st.sampled_from(NODES),
        pool=st.sampled_from("ab"),
        cpu=st.integers(1, 8),
        rack=st.sampled_from(["r1", "r2", None]),
        ready=st.booleans(),
        tainted=st.booleans(),
    )
    def node_comes_or_changes(self, name: str, pool: str, cpu: int, rack: str | None, ready: bool, tainted: bool) -> None:
        labels = {"pool": pool, HOSTNAME_LABEL: name} | ({RACK: rack} if rack else {})
        taints = (("k", "", "NoSchedule"),) if tainted else ()
        self.objects.nodes[name] = node = Node(name, labels, {"cpu": cpu * 1000, "pods": 20}, taints, ready)
        self.state.observe_node(name, NodeFacts.read(build_node_json(node)))

    @rule(data=st.data())
    @precondition(lambda self: self.objects.nodes)
    def node_goes(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.objects.nodes)))
        del self.objects.nodes[name]
        self.state.observe_node(name, None)

    # --- pods -------------------------------------------------------------------------------------

    @rule(
        number=st.integers(0, 7),
        workload=st.sampled_from([*WORKLOADS, None]),
        generation=st.integers(0, 1),
        cpu=st.integers(1, 3),
        gated=st.booleans(),
    )
    def pod_is_created(self, number: int, workload: str | None, generation: int, cpu: int, gated: bool) -> None:
        name = f"p{number}"
        if name not in self.objects.pods:
            owner = f"owner-{workload}-{generation}" if workload else None
            self.see_pod(_made(generation, build_pod_json(name, workload=workload, owner=owner, cpu=str(cpu), gated=gated)))

    @rule(data=st.data(), number=st.integers(0, 7), cpu=st.integers(1, 3), second=st.integers(0, 9))
    @precondition(lambda self: any(self.objects.holding(name) for name in self.objects.workloads))
    def pod_runs_where_it_was_assigned(self, data: st.DataObject, number: int, cpu: int, second: int) -> None:
        """The usual way of pods, which chance alone takes too rarely."""
        workload = data.draw(st.sampled_from([name for name in sorted(self.objects.workloads) if self.objects.holding(name)]))
        held = self.objects.holding(workload)
        assert held is not None
        node = data.draw(st.sampled_from([domain.values[-1] for domain in held[2]]))
        owner = self.objects.workloads[workload]["metadata"]["ownerReferences"][0]["uid"]
        if f"p{number}" not in self.objects.pods:
            pod = build_pod_json(f"p{number}", workload=workload, owner=owner, cpu=str(cpu), node=node, phase="Running")
            self.see_pod(_made(second, pod))

    @rule(data=st.data(), node=st.sampled_from(NODES))
    @precondition(lambda self: self.objects.pods)
    def pod_is_bound(self, data: st.DataObject, node: str) -> None:
        pod = self.draw_pod(data)
        if not pod["spec"].get("nodeName"):
            self.see_pod(pod | {"spec": {**pod["spec"], "nodeName": node, "schedulingGates": []}})

    @rule(data=st.data(), phase=st.sampled_from(["Running", "Succeeded", "Failed"]))
    @precondition(lambda self: self.objects.pods)
    def pod_goes_on(self, data: st.DataObject, phase: str) -> None:
        pod = self.draw_pod(data)
        self.see_pod(pod | {"status": {"phase": phase}})

    @rule(data=st.data())
    @precondition(lambda self: self.objects.pods)
    def pod_terminates(self, data: st.DataObject) -> None:
        pod = self.draw_pod(data)
        self.see_pod(pod | {"metadata": {**pod["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}})

    @rule(data=st.data())
    @precondition(lambda self: self.objects.pods)
    def pod_is_gone(self, data: st.DataObject) -> None:
        name = self.draw_pod(data)["metadata"]["name"]
        del self.objects.pods[name]
        self.state.observe_pod(f"{NAMESPACE}/{name}", None)

    def draw_pod(self, data: st.DataObject) -> dict[str, Any]:
        return self.objects.pods[data.draw(st.sampled_from(sorted(self.objects.pods)))]

    def see_pod(self, pod: dict[str, Any]) -> None:
        self.objects.pods[pod["metadata"]["name"]] = pod
        self.state.observe_pod(f"{NAMESPACE}/{pod['metadata']['name']}", PodFacts.read(pod))

    # --- workloads ----------------------------------------------------------------------------------

    @rule(name=st.sampled_from(WORKLOADS), generation=st.integers(0, 1), cpu=st.integers(1, 3))
    def workload_comes(self, name: str, generation: int, cpu: int) -> None:
        """A second generation is another workload of that name: the delete was missed."""
        known = self.objects.workloads.get(name)
        owner = f"owner-{name}-{generation}"
        if known is not None and known["metadata"]["ownerReferences"][0]["uid"] == owner:
            return
        self.objects.assumed.pop(name, None)
        pod_set = build_pod_set_json(count=4, cpu=str(cpu))
        pod_set["template"]["metadata"] = {"annotations": {SPARE_NODES: "2"}}
        self.see_workload(build_workload_json(name, [pod_set], owner=owner, uid=f"uid-{owner}"))

    @rule(data=st.data())
    @precondition(lambda self: self.objects.workloads)
    def workload_is_assumed(self, data: st.DataObject) -> None:
        name = self.draw_workload(data)
        if self.objects.holding(name) is None and name not in self.objects.assumed:
            self.assume(name, data.draw(admissions()))

    @rule(data=st.data(), seen_first=st.booleans())
    @precondition(lambda self: self.objects.assumed)
    def write_succeeds(self, data: st.DataObject, seen_first: bool) -> None:
        """The event and the reply to the write come in either order."""
        name = data.draw(st.sampled_from(sorted(self.objects.assumed)))
        admission, _ = self.objects.assumed[name]
        self.see_write(name, self.admitted(name, admission), seen_first)

    @rule(data=st.data(), fails=st.booleans(), seen_first=st.booleans(), done_meanwhile=st.booleans())
    @precondition(lambda self: self.objects.workloads.keys() > self.objects.assumed.keys())
    def other_nodes_are_spare(self, data: st.DataObject, fails: bool, seen_first: bool, done_meanwhile: bool) -> None:
        """Counted from the moment of the decision until the event of its write is folded, or until the write fails.

        With `done_meanwhile` all pods become reclaimable while the write is on its way; `list_kept_spares` decides none once they are.
        """
        name = data.draw(st.sampled_from(sorted(set(self.objects.workloads) - set(self.objects.assumed))))
        if self.objects.holding(name) is None:
            return
        before: Admission = self.objects.workloads[name]["x-admission"]
        admission = replace(before, pod_sets=(with_other_spares(data.draw, before.pod_sets[0]),))
        self.objects.assumed[name] = (admission, None)
        self.state.assume_spares(f"{NAMESPACE}/{name}", admission)
        self.check()
        if done_meanwhile:
            self.see_reclaimable(name, 4)
            self.check()
        if fails:
            del self.objects.assumed[name]
            self.state.drop_assumed(f"{NAMESPACE}/{name}")
            return
        self.see_write(name, self.noted(self.objects.workloads[name], admission) | {"x-admission": admission}, seen_first)

    @rule(data=st.data(), cpu=st.integers(1, 3))
    @precondition(lambda self: self.objects.assumed)
    def assumed_workload_turns_out_to_be_another(self, data: st.DataObject, cpu: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.objects.assumed)))
        generation = int(self.objects.workloads[name]["metadata"]["uid"][-1])
        self.workload_comes(name, 1 - generation, cpu)

    @rule(data=st.data())
    @precondition(lambda self: self.objects.assumed)
    def write_fails(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.objects.assumed)))
        del self.objects.assumed[name]
        self.state.drop_assumed(f"{NAMESPACE}/{name}")

    @rule(data=st.data())
    @precondition(lambda self: self.objects.workloads)
    def workload_is_admitted_by_another_process(self, data: st.DataObject) -> None:
        name = self.draw_workload(data)
        if name not in self.objects.assumed:
            self.see_workload(self.admitted(name, data.draw(admissions())))

    @rule(data=st.data())
    @precondition(lambda self: self.objects.workloads)
    def workload_finishes(self, data: st.DataObject) -> None:
        name = self.draw_workload(data)
        if name in self.objects.assumed:
            return
        workload = self.objects.workloads[name]
        conditions = [*workload["status"]["conditions"], build_condition_json(FINISHED)]
        self.see_workload(self.next_version(workload) | {"status": {**workload["status"], "conditions": conditions}})

    @rule(data=st.data(), more=st.integers(1, 3))
    @precondition(lambda self: self.objects.workloads)
    def pods_come_no_more(self, data: st.DataObject, more: int) -> None:
        name = self.draw_workload(data)
        before = sum(entry["count"] for entry in self.objects.workloads[name]["status"].get("reclaimablePods", ()))
        self.see_reclaimable(name, min(4, before + more))

    @rule(data=st.data())
    @precondition(lambda self: self.objects.workloads)
    def workload_is_evicted(self, data: st.DataObject) -> None:
        name = self.draw_workload(data)
        workload = self.objects.workloads[name]
        if name not in self.objects.assumed:
            status = {key: value for key, value in workload["status"].items() if key != "admission"}
            self.see_workload(self.next_version(workload) | {"status": status})

    @rule(data=st.data())
    @precondition(lambda self: self.objects.workloads)
    def workload_is_deleted(self, data: st.DataObject) -> None:
        name = self.draw_workload(data)
        del self.objects.workloads[name]
        self.objects.assumed.pop(name, None)
        self.state.observe_workload(f"{NAMESPACE}/{name}", None)

    def see_write(self, name: str, written: dict[str, Any], seen_first: bool) -> None:
        """The reply to the write of an assumed decision, and its event; what is assumed counts until both are there."""
        version = int(written["metadata"]["resourceVersion"])
        if seen_first:
            self.see_workload(written)
            self.check()
            self.state.confirm(f"{NAMESPACE}/{name}", version)
        else:
            self.state.confirm(f"{NAMESPACE}/{name}", version)
            self.check()
            self.see_workload(written)
        del self.objects.assumed[name]

    def see_reclaimable(self, name: str, count: int) -> None:
        workload = self.next_version(self.objects.workloads[name])
        self.see_workload(workload | {"status": {**workload["status"], "reclaimablePods": [{"name": "main", "count": count}]}})

    def assume(self, name: str, admission: Admission) -> None:
        self.objects.assumed[name] = (admission, None)
        self.state.assume(f"{NAMESPACE}/{name}", admission, {})

    def draw_workload(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.objects.workloads)))

    def admitted(self, name: str, admission: Admission) -> dict[str, Any]:
        workload = self.objects.workloads[name]
        status = {
            "admission": encode_admission(admission),
            "conditions": [build_condition_json(QUOTA_RESERVED), build_condition_json(ADMITTED)],
        }
        return self.noted(workload, admission) | {"status": status, "x-admission": admission}

    def noted(self, workload: dict[str, Any], admission: Admission) -> dict[str, Any]:
        """With the names of its spares written on it."""
        workload, text = self.next_version(workload), show_held_spares(admission)
        return workload | {"metadata": {**workload["metadata"], "annotations": {SPARES: text} if text else {}}}

    def next_version(self, workload: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        return workload | {"metadata": {**workload["metadata"], "resourceVersion": str(self.version)}}

    def see_workload(self, workload: dict[str, Any]) -> None:
        name = workload["metadata"]["name"]
        self.objects.workloads[name] = workload
        self.state.observe_workload(f"{NAMESPACE}/{name}", WorkloadFacts.read(workload))

    # --- what must hold after every step --------------------------------------------------------------

    @invariant()
    def check(self) -> None:
        self.state.refresh()
        assert self.state.ledger.find_drift() == {}
        assert [missing for missing in find_missing(self.state) if missing] == []
        found = next(self.audit)
        assert not found
        if found is not None:
            self.audit = self.state.ledger.audit()
        expected = self.objects.expected_usage()
        assert _plain(self.state.ledger.usage) == expected
        quota: Counter[tuple[str, str]] = Counter()
        for name in self.objects.workloads:
            held, status = self.objects.holding(name), self.objects.workloads[name]["status"]
            if held is not None:
                quota[held[0], "cpu"] += 1000 * (4 - sum(entry["count"] for entry in status.get("reclaimablePods", ())))
        assert +Counter(self.state.workloads.get_usage("cq")) == +quota
        for flavor in FLAVORS if self.state.flavors else ():
            self.check_matrix(flavor, expected)

    def check_matrix(self, flavor: str, usage: Usage) -> None:
        view = self.state.get_view(flavor)
        assert view is not None
        mine = {name: node for name, node in self.objects.nodes.items() if self.objects.matches(flavor, node)}
        assert set(view.capacity.tree.names) == set(mine)
        for name, node in mine.items():
            column = view.capacity.tree.index[name]
            for resource, row in view.capacity.axis.items():
                left = node.allocatable.get(resource, 0) - usage.get(name, Counter())[resource]
                assert view.capacity.free[row, column] == left, (flavor, name, resource)
            assert view.capacity.ready[column] == node.ready

    @rule(random=st.randoms(use_true_random=False))
    def everything_is_observed_anew_in_another_order(self, random: Any) -> None:
        """As after a restart: the same objects give the same usage."""
        fresh = ClusterState(resource_rules=UNCOUNTED)
        events: list[Any] = [(fresh.observe_node, name, NodeFacts.read(build_node_json(node))) for name, node in self.objects.nodes.items()]
        events += [(fresh.observe_pod, f"{NAMESPACE}/{name}", PodFacts.read(pod)) for name, pod in self.objects.pods.items()]
        events += [
            (fresh.observe_workload, f"{NAMESPACE}/{name}", WorkloadFacts.read(workload))
            for name, workload in self.objects.workloads.items()
        ]
        events += fixed_events(fresh)
        random.shuffle(events)
        for observe, key, facts in events:
            observe(key, facts)
            fresh.refresh()
            assert fresh.ledger.find_drift() == {}
        for name, (admission, _) in self.objects.assumed.items():
            fresh.assume(f"{NAMESPACE}/{name}", admission, {})
        fresh.refresh()
        assert _plain(fresh.ledger.usage) == _plain(self.state.ledger.usage)


@st.composite
def admissions(draw: st.DrawFn) -> Admission:
    """Four pods on some of the nodes, by whatever flavor: the state does not judge, it counts."""
    names = sorted(draw(st.lists(st.sampled_from(NODES), min_size=1, max_size=3, unique=True)))
    counts = [1] * (len(names) - 1) + [5 - len(names)]
    domains = tuple(DomainCount((name,), count) for name, count in zip(names, counts, strict=True))
    assignment = TopologyAssignment((HOSTNAME_LABEL,), domains)
    flavor = draw(st.sampled_from(sorted(FLAVORS)))
    given = PodSetAdmission("main", {"cpu": flavor}, {"cpu": 4000}, 4, assignment)
    return Admission("cq", (with_other_spares(draw, given),))


def with_other_spares(draw: st.DrawFn | Callable[..., Any], given: PodSetAdmission) -> PodSetAdmission:
    assert given.assignment is not None
    used = {domain.values[-1] for domain in given.assignment.domains}
    spares = draw(st.lists(st.sampled_from([name for name in NODES if name not in used]), max_size=2, unique=True))
    return given.with_spares(tuple(sorted(spares)))


def fixed_events(state: ClusterState) -> list[Any]:
    topology = TopologyFacts.read(build_topology_json("t", [RACK, HOSTNAME_LABEL]))
    flavors = [
        (state.observe_flavor, name, FlavorFacts.read(build_flavor_json(name, "t", nodeLabels=labels))) for name, labels in FLAVORS.items()
    ]
    return [(state.observe_topology, "t", topology), *flavors]


def observe_fixed(state: ClusterState) -> None:
    for observe, key, facts in fixed_events(state):
        observe(key, facts)


class Draws:
    """Stands in for `st.data()` where a test runs rules by hand: returns its values one after the other."""

    def __init__(self, *values: Any) -> None:
        self._values = iter(values)

    def draw(self, strategy: st.SearchStrategy[Any]) -> Any:
        return next(self._values)


@pytest.mark.parametrize("seen_first", [False, True])
@pytest.mark.parametrize("done_meanwhile", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_spares_decided_as_the_last_pods_become_reclaimable_count_until_the_event(
    fails: bool, done_meanwhile: bool, seen_first: bool
) -> None:
    """Found by chance: the model counted no spares from the reply on, `ClusterState` counts them until the event of the write."""
    machine = ClusterMachine()
    observe_fixed(machine.state)
    for name in NODES:
        machine.node_comes_or_changes(name, "a", 8, "r1", True, False)
    machine.workload_comes("w0", 0, 1)
    assignment = TopologyAssignment((HOSTNAME_LABEL,), (DomainCount(("n0",), 1), DomainCount(("n1",), 3)))
    given = PodSetAdmission("main", {"cpu": "all"}, {"cpu": 4000}, 4, assignment)
    machine.see_workload(machine.admitted("w0", Admission("cq", (given.with_spares(("n2",)),))))
    machine.check()
    machine.pods_come_no_more(Draws("w0"), more=2)
    machine.check()
    if not done_meanwhile:
        machine.pods_come_no_more(Draws("w0"), more=2)
        machine.check()
    machine.other_nodes_are_spare(Draws("w0", ["n3"]), fails=fails, seen_first=seen_first, done_meanwhile=done_meanwhile)
    machine.check()
    assert "n2" not in machine.state.ledger.usage
    assert "n3" not in machine.state.ledger.usage


TestClusterMachine = ClusterMachine.TestCase
