"""A cluster in memory whose nodes fail, with the real reconciler: what must hold is read off the objects after every second."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from core.model.node_health_rules import HealthRules, StormRules
from core.names import HOSTNAME_LABEL, PODSET_LABEL, SPARES, WORKLOAD_ANNOTATION
from core.queueing.cycle.second_pass import NodeReplacement
from e2e import manifests
from e2e.audit.recount_places import read_domains
from e2e.audit.recount_promises import find_misplaced_spares, find_misshapen
from e2e.standins.pods import has_condition
from sim.administrators import make_ready
from sim.apiserver.server import Request
from sim.ending import is_backing_off
from sim.models.base import JOB, NODE, POD, is_over
from sim.models.scheduler import Scheduler, is_feasible
from sim.replica import USER
from sim.world import WORKLOADS, World
from tests.builders import NAMESPACE, THREE_LEVELS

Json = dict[str, Any]
REST_S = 70.0  # longer than any delay after which a node counts as lost
_QUIET_S, _MOST_ROUNDS = 8, 40  # longer than a node that is gone may be back


class FailingNodes:
    """JobSets run on nodes that fail; a pod that is deleted ends some seconds later."""

    def __init__(self, *, fails_fast: bool = True) -> None:
        self.world = World(1)
        self.known: dict[str, Json] = {}  # nodes as they were first
        self.placed: set[str] = set()  # jobs that ever had a place
        self.evicted: set[str] = set()  # Workloads
        self._problems: list[str] = []
        self._given_up: set[tuple[str, str]] = set()  # Workloads with nodes, not back since, for which topogate ended pods
        self._hung: set[str] = set()  # uids of pods that no kubelet was there to end: others may have followed them
        self._admit = self.world.server._admit
        self.world.server._admit = self._judge_write
        self.world.kubelets.ends_after_s = 2.5
        for model in self.world.models:
            if isinstance(model, Scheduler):
                # The ungater deletes a pod 1 s after its place has moved. A pod that is bound sooner stays (PlacementKept, docs/nodes.md).
                model.backs_off_s = 2.7
        self.world.apply(manifests.build_topology("t", THREE_LEVELS))
        self.world.apply(manifests.build_flavor("f", {}, "t"))
        self.world.apply(manifests.build_cluster_queue("cq", {"f": {"cpu": 1000}}))
        self.world.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        self.world.apply(manifests.build_local_queue("main", NAMESPACE, "cq"))
        never = HealthRules(storm=StormRules(share=1.0))
        self.world.start_reconciler(replacement=NodeReplacement(fails_fast=fails_fast), node_health=never)

    # --- what is there ------------------------------------------------------------------------------

    def add_node(self, name: str, labels: Mapping[str, str], cpu: int) -> None:
        """A node joins."""
        amounts = {"cpu": str(cpu), "pods": "20"}
        status = {"allocatable": amounts, "capacity": amounts}
        metadata = {"name": name, "labels": {**labels, HOSTNAME_LABEL: name}}
        self.known[name] = make_ready({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}, "True")
        self.world.apply(self.known[name])

    def submit(self, name: str, pod_sets: Sequence[Mapping[str, Any]]) -> None:
        """A JobSet with a Job for each pod set: name, count, cpu and annotations."""
        jobs = [
            {
                "name": each["name"],
                "template": {
                    "spec": {
                        "parallelism": each["count"],
                        "completions": each["count"],
                        "backoffLimit": 10_000,
                        "template": {
                            "metadata": {"annotations": each["annotations"]},
                            "spec": {
                                "restartPolicy": "Never",
                                "containers": [{"name": "c", "image": "i:1", "resources": {"requests": {"cpu": each["cpu"]}}}],
                            },
                        },
                    }
                },
            }
            for each in pod_sets
        ]
        metadata = {"name": name, "namespace": NAMESPACE, "labels": {"kueue.x-k8s.io/queue-name": "main"}}
        self.world.apply(
            {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": {"replicatedJobs": jobs}}
        )

    @property
    def nodes(self) -> dict[str, Json]:
        """Those that are there."""
        return {node["metadata"]["name"]: node for node in self.world.objects(*NODE)}

    @property
    def workloads(self) -> dict[str, Json]:
        """By the name of their job."""
        return {each["metadata"]["ownerReferences"][0]["name"]: each for each in self.world.objects(*WORKLOADS)}

    @property
    def pods(self) -> list[Json]:
        """Those that have not ended, on their way out or not."""
        return [pod for pod in self.world.objects(*POD) if not is_over(pod)]

    def list_bound(self, node: str = "") -> dict[str, str]:
        """The nodes of pods, by name; those of one node, or all; not of pods on their way out."""
        there = (pod for pod in self.pods if not pod["metadata"].get("deletionTimestamp"))
        found = {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in there}
        return {name: host for name, host in found.items() if host and node in ("", host)}

    # --- what happens -------------------------------------------------------------------------------

    def happen(self, node: str, deed: str) -> None:
        """Pods end by themselves only where a taint is not tolerated, where their node is drained, and with their node."""
        if deed == "comes back":
            self._bring_back(node)
        elif node not in self.nodes:
            return
        elif deed == "is deleted":
            self.world.delete(self.nodes[node])
        elif deed in ("fails", "is lost", "hangs"):
            self.world.kubelets.down.add(node)
            self.world.patch(*NODE, self.nodes[node], {"status": make_ready(self.nodes[node], "Unknown")["status"]}, "status")
            if deed != "fails":
                self.end(node, at_once=deed == "is lost")
        elif deed in ("is cordoned", "is drained"):
            self.world.patch(*NODE, self.nodes[node], {"spec": {"unschedulable": True}})
            if deed == "is drained":
                self.end(node)
        elif deed == "loses its label":
            self.world.relabelled.add(node)
            self.world.patch(*NODE, self.nodes[node], {"metadata": {"labels": {THREE_LEVELS[1]: None}}})
        elif deed in ("loses a pod", "ends a pod"):
            self.end(node, 1, at_once=deed == "loses a pod")
        else:
            self.world.patch(*NODE, self.nodes[node], {"spec": {"taints": [{"key": "maintenance", "effect": deed}]}})

    def _bring_back(self, node: str) -> None:
        """The node is as it was first."""
        self.world.kubelets.down.discard(node)
        self._given_up = {each for each in self._given_up if each[1] != node}
        if node in self.nodes:
            labels = {"labels": self._read_labels(node)}
            self.world.patch(*NODE, self.nodes[node], {"metadata": labels, "spec": {"taints": None, "unschedulable": None}})
            self.world.patch(*NODE, self.nodes[node], {"status": self.known[node]["status"]}, "status")
        else:
            self.world.apply(self.known[node])
        self.world.kubelets.look_at_node(node)

    def end(self, node: str, most: int | None = None, *, at_once: bool = False) -> None:
        """Pods on a node are deleted, or some of them; at once, or when the kubelet says that they have ended."""
        names = sorted(self.list_bound(node))[:most]
        for pod in self.pods:
            if pod["metadata"]["name"] in names:
                self.world.delete(pod, gracePeriodSeconds=0 if at_once else None)

    def finish(self, job: str) -> None:
        """A JobSet is deleted, with all that it has."""
        [found] = [each for each in self.world.objects("jobset.x-k8s.io", "jobsets") if each["metadata"]["name"] == job]
        self.world.delete(found, propagationPolicy="Background")

    def settle(self, rest_s: float = 0.0, *, until_jobs_make_pods: bool = False) -> None:
        """Lets time pass until nothing is written any more; what must hold is checked after each second in which something was written.

        The Job controller may be silent for ten minutes after pods have failed; only `until_jobs_make_pods` waits for it.
        """
        for _ in range(_MOST_ROUNDS):
            writes = self.world.server.writes
            waits = until_jobs_make_pods and any(is_backing_off(self.world, job) for job in self.world.objects(*JOB))
            for _ in range(max(_QUIET_S, int(rest_s))):
                before = self.world.server.writes
                self.world.run_for(1.0)
                if self.world.server.writes != before:
                    self._check()
            if self.world.server.writes == writes and not waits:
                break
        else:
            raise AssertionError("it never comes to rest")
        self._check()
        nodes = [{**each, "metadata": {**each["metadata"], "labels": self._read_labels(name)}} for name, each in self.nodes.items()]
        found = [*find_misplaced_spares(self.workloads.values(), nodes), *self._find_overfull(with_spares=True)]
        assert not found, "; ".join(found)

    def _read_labels(self, node: str) -> dict[str, str]:
        """Returns the labels that a node had first: pods were placed by these."""
        return dict(self.known[node]["metadata"]["labels"])

    # --- what holds at any moment -------------------------------------------------------------------

    def _check(self) -> None:
        self.world.audit()
        [replica] = self.world.replicas
        assert replica.reconciler is not None
        found = [*self._problems, *find_misshapen(self.workloads.values(), self.known.values()), *self._find_overfull()]
        for job, workload in self.workloads.items():
            if is_admitted(workload):
                self.placed.add(job)
                found += self._find_wrong_pods(workload)
        found += [f"the ledger is wrong: {told}" for told in replica.reconciler.observed.state.ledger.find_drift().items()]
        assert not found, "; ".join(found)

    def _find_wrong_pods(self, workload: Json) -> Iterator[str]:
        """None runs where it has no place, and none is sent elsewhere before the one that it follows has ended on a node that is up.

        Pods of a node that was deleted are left out: the garbage collector of pods lets up to a minute pass, and the node may be back.
        """
        for pod_set, count, given in list_assigned(workload):
            pods = [pod for pod in self.pods if _is_part_of(pod, workload, pod_set) and pod["metadata"]["uid"] not in self.world.left]
            going = [pod for pod in pods if pod["metadata"].get("deletionTimestamp")]
            sent = [pod for pod in pods if pod not in going and not pod["spec"].get("schedulingGates")]
            runs = Counter(pod["spec"]["nodeName"] for pod in sent if pod["spec"].get("nodeName"))
            if runs - given:
                yield f"pods of {pod_set} run where they have no place any more: {dict(runs - given)}"
            self._hung |= {pod["metadata"]["uid"] for pod in going if not _is_up(self.nodes.get(pod["spec"]["nodeName"]))}
            leave = [pod for pod in going if not given[pod["spec"]["nodeName"]] and pod["metadata"]["uid"] not in self._hung]
            if len(sent) + len(leave) > count:
                yield f"pods of {pod_set} follow others that are still there"

    def _find_overfull(self, *, with_spares: bool = False) -> Iterator[str]:
        """Nodes, down or not, that are used or promised beyond what they have."""
        taken: Counter[str] = Counter()
        for workload in self.workloads.values():
            spares = json.loads((workload["metadata"].get("annotations") or {}).get(SPARES) or "{}") if with_spares else {}
            for pod_set, _, given in list_assigned(workload):
                [cpu] = [_get_cpu(each["template"]) for each in workload["spec"]["podSets"] if each["name"] == pod_set]
                there = Counter(pod["spec"].get("nodeName") for pod in self.pods if _is_part_of(pod, workload, pod_set))
                for node, count in (there | given).items():
                    taken[node or ""] += count * cpu
                for node in set(spares.get(pod_set, ())) & self.nodes.keys():
                    taken[node] += max(given.values()) * cpu
        has = {name: int(node["status"]["allocatable"]["cpu"]) for name, node in self.known.items()}
        for node, amount in taken.items():
            if node and amount > has[node]:
                yield f"node {node} has {has[node]} CPUs, and {amount} are used or promised"

    def _judge_write(self, request: Request, old: Json | None, new: Json | None) -> Json | None:
        if request.kind.resource == WORKLOADS and new is not None:
            if has_condition(new, "Evicted"):
                self.evicted.add(new["metadata"]["name"])
            for node in _list_unhealthy(new) - _list_unhealthy(old):
                runs = [pod for pod in self.pods if _is_part_of(pod, new) and not pod["metadata"].get("deletionTimestamp")]
                if node in self.nodes and any(pod["spec"].get("nodeName") == node for pod in runs):
                    self._problems.append(f"{node} is called lost while pods of {new['metadata']['name']} run there")
        if request.kind.resource == POD and request.user == USER and old is not None and not old["metadata"].get("deletionTimestamp"):
            self._problems += self._judge_pod(old, new)
        return self._admit(request, old, new)

    def _judge_pod(self, old: Json, new: Json | None) -> Iterator[str]:
        workload = next((each for each in self.world.objects(*WORKLOADS) if _is_part_of(old, each)), {})
        host = ((new or old)["spec"].get("nodeSelector") or {}).get(HOSTNAME_LABEL)
        if not is_admitted(workload) or host is None:
            return
        [given] = [given for pod_set, _, given in list_assigned(workload) if _is_part_of(old, workload, pod_set)]
        node, wanted = self.nodes.get(host), (workload["metadata"]["name"], host)
        if (new is None or is_over(new)) and not is_over(old):
            self._given_up.add(wanted)
            if old["spec"].get("nodeName"):
                yield f"pod {old['metadata']['name']} runs, and is ended"
            elif new is not None and node is not None and _is_up(node) and is_feasible(node, old, {}) and given[host]:
                yield f"pod {old['metadata']['name']} is ended, and could have run on {host}"
        elif old["spec"].get("schedulingGates") and new is not None and not new["spec"].get("schedulingGates"):
            [replica] = self.world.replicas
            assert replica.reconciler is not None
            seen = replica.reconciler.observed.workloads.store.get(f"{NAMESPACE}/{workload['metadata']['name']}")
            if host in _list_unhealthy(seen):
                yield f"pod {old['metadata']['name']} is sent to {host}, which its Workload calls lost"
            if wanted in self._given_up:
                yield f"pod {old['metadata']['name']} is sent to {host}, and others that waited for it were ended"


def is_admitted(workload: Json) -> bool:
    """Whether its pods may run."""
    return has_condition(workload, "Admitted") and not has_condition(workload, "Evicted")


def list_assigned(workload: Json) -> Iterator[tuple[str, int, Counter[str]]]:
    """Pod sets with their count of pods, and their pods by node."""
    for given in ((workload.get("status") or {}).get("admission") or {}).get("podSetAssignments") or ():
        yield given["name"], given["count"], Counter({values[-1]: count for values, count in read_domains(given["topologyAssignment"])})


def _list_unhealthy(workload: Json | None) -> set[str]:
    return {each["name"] for each in ((workload or {}).get("status") or {}).get("unhealthyNodes") or ()}


def _is_part_of(pod: Json, workload: Json, pod_set: str | None = None) -> bool:
    notes, labels = pod["metadata"].get("annotations") or {}, pod["metadata"].get("labels") or {}
    return notes.get(WORKLOAD_ANNOTATION) == workload["metadata"]["name"] and pod_set in (None, labels.get(PODSET_LABEL))


def _get_cpu(pod: Json) -> int:
    return int(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])


def _is_up(node: Json | None) -> bool:
    return node is not None and has_condition(node, "Ready")
