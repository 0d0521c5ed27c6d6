"""A whole cluster in one process: the API server, the models, the webhook's real code, and the real reconciler, in virtual time."""

import asyncio
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import reconciler.schedule.verdicts
from core.model.gates import DEVICES_ON_NODES, NO_GATES, ChosenGates
from core.names import HOSTNAME_LABEL, JOB_UID_LABEL, PLACEMENT_KEPT, RANK_ORDER_KEPT, SLICE_REPLACES, WORKLOAD_ANNOTATION
from core.plan.steps.actions import from_time
from core.plan.workloads import verdict_steps
from core.plan.workloads.admission_status import MAX_ETCD_BYTES
from core.resource import Resource
from e2e.audit.recount import Objects, find_broken
from e2e.audit.recount_devices import add_claimed, add_offered
from e2e.audit.recount_places import find_misplaced, find_split, find_unordered, get_family, get_named_family, is_well
from e2e.audit.recount_promises import find_overbooked
from e2e.standins.pods import has_condition
from sim.apiserver.files import read_yaml
from sim.apiserver.kinds import build_in, read_definitions
from sim.apiserver.routes import find_kind
from sim.apiserver.server import LEASES, MERGE, Change, Request, Server
from sim.apiserver.webhooks import USER, Admission
from sim.loop import VirtualClock, VirtualLoop
from sim.lowered import LoweredQuotas
from sim.models import define_kinds, start_models
from sim.models.base import NODE, POD
from sim.models.devices import CLAIM, DEVICE_CLASS, DEVICES_RESOURCE, SLICE, TEMPLATE
from sim.models.kubelets import Kubelets
from sim.replica import Replica
from sim.reports import Reports
from sim.transport import Faults
from webhook.review import Reviews

Json = dict[str, Any]
CRDS = Path(__file__).parent.parent / "charts" / "topogate" / "files" / "crds"
_refuse_too_large = verdict_steps.refuse_too_large
DOUBTED_S = 200.0  # after a node was lost: its pods have been replaced, perhaps, and are on their way out
WORKLOADS = "kueue.x-k8s.io", "workloads"
UNAUDITED = (LEASES, ("", "events"))


def _list_assigned(workload: Json | None) -> list[Any]:
    admission = ((workload or {}).get("status") or {}).get("admission") or {}
    return [(each.get("count"), each.get("topologyAssignment")) for each in admission.get("podSetAssignments") or ()]


def _is_orphaned(workload: Mapping[str, Any]) -> bool:
    """Whether its job is gone: nobody ends what runs in a place that was replaced."""
    metadata = workload["metadata"]
    return JOB_UID_LABEL in (metadata.get("labels") or {}) and not metadata.get("ownerReferences")


def _says(workload: Mapping[str, Any], kind: str) -> bool:
    """Whether a workload says that something is not kept."""
    conditions = (workload.get("status") or {}).get("conditions") or ()
    return any(each["type"] == kind and each["status"] == "False" for each in conditions)


class Broken(Exception):
    """What must hold does not."""


class World:
    """Begins empty but for the namespaces that every cluster has. `gates` are the webhook's."""

    unclosed: ClassVar[list["World"]] = []

    def __init__(self, seed: int, definitions: Iterable[Mapping[str, Any]] = (), gates: ChosenGates = NO_GATES) -> None:
        self.unclosed.append(self)
        self.chance, self._bounds_devices = random.Random(seed), gates.is_on(DEVICES_ON_NODES)
        random.seed(self.chance.random())  # which the product draws from
        self.loop = VirtualLoop()
        self.clock = VirtualClock(self.loop)
        self._written_time = -1.0, ""
        ours = [read_yaml(path) for path in sorted(CRDS.glob("*.yaml"))]
        definitions = [*ours, *define_kinds(), *definitions]
        kinds = [*build_in(), *read_definitions(definitions)]
        self.server = Server(kinds, now=self.time, chance=random.Random(self.chance.random()))
        self.ask_webhook(gates=gates)
        self.models = start_models(self.server, self.loop, self.clock.now)
        self.replicas: list[Replica] = []
        self.version = 0  # of the last change of what is audited: neither leases nor events
        self._audited = 0  # version
        self._reports = Reports()
        self._reports.begin()
        self._lost_at: dict[str, float] = {}  # nodes that were gone or not well, and when they were so last
        self.lost_since: dict[str, float] = {}  # nodes that are gone or not ready, and since when
        self.left: set[str] = set()  # uids of pods whose node was gone while they ran there
        self._placed_anew: set[str] = set()  # uids of workloads
        self.server.on_change.append(self._note_lost)
        self.released: set[str] = set()  # uids of pods that users have taken the owner off
        self.too_large = Counter[str]()  # by uid: how often a place for a workload was found that cannot be written
        self.relabelled: set[str] = set()  # nodes: what runs there was placed by other labels
        self.moved: set[str] = set()  # nodes that have left a flavor: what was promised there to pods to come is free to others
        self.unlabelled: set[str] = set()  # nodes that lack a label for a while
        self.lowered = LoweredQuotas(self.server, self.replicas, self.loop.time)
        for name in ("default", "kube-system", "topogate-system"):
            self.apply(
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}}}
            )
        for definition in definitions:
            established = {"conditions": [{"type": kind, "status": "True"} for kind in ("Established", "NamesAccepted")]}
            self.apply({**definition, "status": established})

    def time(self) -> str:
        """Now, as the API has it."""
        at = self.loop.time()
        if at != self._written_time[0]:
            self._written_time = at, from_time(self.clock.now())
        return self._written_time[1]

    # --- what the webhook looks up ------------------------------------------------------------------

    async def _has_default_queue(self, namespace: str) -> bool:
        return (namespace, "default") in self.server.objects["kueue.x-k8s.io", "localqueues"]

    async def _find(self, resource: Resource, name: str, namespace: str) -> Json | None:
        stored = self.server.objects.get((resource.group, resource.plural), {}).get((namespace if resource.namespaced else "", name))
        return stored.obj if stored is not None else None

    # --- what users do ------------------------------------------------------------------------------

    def apply(self, obj: Json, user: str = USER) -> Json:
        """Creates an object, with its status if it has one. Raises Refused."""
        kind = find_kind(self.server, obj)
        namespace = obj["metadata"].get("namespace", "") if kind.namespaced else ""
        body = {name: value for name, value in obj.items() if name != "status"}
        made = self.server.create(Request("create", kind, namespace, "", "", {}, body, user=user))
        if "status" in obj:
            name = made["metadata"]["name"]
            patch = Request("patch", kind, namespace, name, "status", {}, {"status": obj["status"]}, MERGE, user)
            made = self.server.patch(patch)
        return made

    def delete(self, obj: Json, user: str = USER, **options: Any) -> None:
        """Deletes an object, as it is by now. Raises Refused."""
        namespace = obj["metadata"].get("namespace", "")
        self.server.delete(Request("delete", find_kind(self.server, obj), namespace, obj["metadata"]["name"], "", {}, options, user=user))

    def patch(self, group: str, plural: str, obj: Json, body: Json, subresource: str = "", user: str = USER) -> None:
        """Merge patch by a user. Raises Refused."""
        key = obj["metadata"].get("namespace") or "", obj["metadata"]["name"]
        self.server.patch(Request("patch", self.server.kind_of[group, plural], *key, subresource, {}, body, MERGE, user))

    def resource_of(self, obj: Json) -> tuple[str, str]:
        """What an object is stored under."""
        return find_kind(self.server, obj).resource

    def objects(self, group: str, plural: str) -> list[Json]:
        """All objects of a resource, by namespace and name."""
        kind = self.server.kind_of[group, plural]
        head = {"apiVersion": kind.api_version, "kind": kind.kind}
        return [{**head, **stored.obj} for _, stored in sorted(self.server.objects[group, plural].items())]

    def find_broken(self) -> list[str]:
        """What the audit of objects finds now (`e2e.audit.recount`); nothing if no object has changed since it last found nothing."""
        version = self.version
        if version == self._audited:
            return []
        broken = self._audit()
        self._audited = version if not broken else 0
        return broken

    def audit(self) -> None:
        """Raises Broken with what the audit finds."""
        broken = self.find_broken()
        if broken:
            raise Broken("; ".join(broken))

    def _note_lost(self, change: Change) -> None:
        """Notes nodes that are lost, and workloads of which another place was chosen for some pods."""
        if change.resource not in UNAUDITED:
            self.version = change.version
        if change.resource == WORKLOADS and change.new is not None:
            before, now = (_list_assigned(each) for each in (change.old, change.new))
            if before and now and before != now:
                self._placed_anew.add(change.new["metadata"]["uid"])
        if change.resource == NODE and (change.new is None or not is_well(change.new)):
            metadata = change.last["metadata"]  # what was promised on it is looked for on another node that has its hostname
            for name in {metadata["name"], (metadata.get("labels") or {}).get(HOSTNAME_LABEL, "")}:
                self._lost_at[name] = self.loop.time()
        if change.resource == NODE:
            name = change.last["metadata"]["name"]
            if change.new is not None and has_condition(change.new, "Ready"):
                self.lost_since.pop(name, None)
            else:
                self.lost_since.setdefault(name, self.loop.time())
        if change.resource == NODE and change.new is None:
            there = (stored.obj for stored in self.server.objects[POD].values())
            self.left |= {pod["metadata"]["uid"] for pod in there if pod["spec"].get("nodeName") == change.last["metadata"]["name"]}

    def _list_judged(self, pods: Iterable[Mapping[str, Any]], workloads: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Pods that are to run where they were placed. A node that comes back before the garbage collector has deleted its pods has them
        still, and another place was chosen for them when it was gone: nobody ends them, and their workload says so (docs/nodes.md).
        Pods without the owner that they had run on, whatever place those get that the job makes in their stead."""
        told = {(each["metadata"]["namespace"], get_family(each)) for each in workloads if _says(each, PLACEMENT_KEPT)}
        return [
            pod
            for pod in pods
            if pod["metadata"]["uid"] not in self.released
            if pod["metadata"]["uid"] not in self.left or (pod["metadata"]["namespace"], get_named_family(pod)) not in told
        ]

    def _audit(self) -> list[str]:
        found = {name: self.objects("", name) for name in ("nodes", "pods", "namespaces")}
        named = {"workloads": "workloads", "cluster_queues": "clusterqueues", "cohorts": "cohorts", "local_queues": "localqueues"}
        named["resource_flavors"] = "resourceflavors"
        objects = Objects(**found, **{name: self.objects("kueue.x-k8s.io", plural) for name, plural in named.items()})
        offered = list(objects.nodes)
        if self.objects(*SLICE):
            claimed = add_claimed(objects.pods, self.objects(*TEMPLATE), {DEVICE_CLASS: DEVICES_RESOURCE}, self.objects(*CLAIM))
            objects = replace(objects, pods=claimed, nodes=add_offered(objects.nodes, self.objects(*SLICE), DEVICES_RESOURCE))
            offered = list(objects.nodes) if self._bounds_devices else offered
        now = self.loop.time()
        doubted = self.relabelled | self.unlabelled | {name for name, at in self._lost_at.items() if now < at + DOUBTED_S}
        judged = [node for node in objects.nodes if node["metadata"]["name"] not in doubted]
        counted = replace(objects, pods=[pod for pod in objects.pods if not self._is_let_go(pod)])
        broken = self.lowered.remove_allowed(find_broken(counted), counted)
        owned = [each for each in objects.workloads if not _is_orphaned(each)]
        placed_once = [each for each in owned if not self._is_placed_anew(each) and not _says(each, RANK_ORDER_KEPT)]
        overbooked = find_overbooked(owned, objects.pods, offered, doubted | self.moved)
        pods = self._list_judged(objects.pods, owned)
        split = find_split(placed_once, pods, judged)
        return [*broken, *find_misplaced(owned, pods, judged), *find_unordered(placed_once, objects.pods), *split, *overbooked]

    def _is_placed_anew(self, workload: Mapping[str, Any]) -> bool:
        """Whether pods were added next to others that stay where they run: ranks share a domain with those next to them, in any order of
        domains."""
        return workload["metadata"]["uid"] in self._placed_anew or SLICE_REPLACES in (workload["metadata"].get("annotations") or {})

    def _is_let_go(self, pod: Mapping[str, Any]) -> bool:
        """Whether a pod that has lost its owner names a Workload that does not run: it is its user's then, as a pod without a queue."""
        if pod["metadata"]["uid"] not in self.released:
            return False
        named = pod["metadata"].get("namespace"), (pod["metadata"].get("annotations") or {}).get(WORKLOAD_ANNOTATION, "")
        stored = self.server.objects[WORKLOADS].get(named)
        return (
            stored is None
            or not has_condition(stored.obj, "Admitted")
            or any(has_condition(stored.obj, s) for s in ("Evicted", "Finished"))
        )

    @property
    def kubelets(self) -> Kubelets:
        """Of all nodes."""
        return next(model for model in self.models if isinstance(model, Kubelets))

    # --- topogate -----------------------------------------------------------------------------------

    def limit_workloads(self, size: int) -> None:
        """How many bytes a Workload may have with its assignment, until the world is closed: so small ones stand for large ones. How often
        a place is found that cannot be written is counted."""
        vars(verdict_steps).update(MAX_ETCD_BYTES=size)
        vars(reconciler.schedule.verdicts).update(refuse_too_large=self._count_too_large)

    def _count_too_large(self, workload: Json, outcome: Any) -> Any:
        refusal = _refuse_too_large(workload, outcome)
        if refusal is not None:
            self.too_large[workload["metadata"]["uid"]] += 1
        return refusal

    def ask_webhook(self, **options: Any) -> None:
        """From now on a webhook is asked at each write. `options` are those of its `Reviews`."""
        self.server._admit = Admission(self.server, Reviews(self._has_default_queue, find=self._find, **options).answer)

    def start_replicas(self, count: int, **options: Any) -> None:
        """Starts replicas of the reconciler that elect a leader; one alone leads without an election. `options` are those of their
        `Reconciler`."""
        for name in "abc"[:count]:
            replica = Replica(self.server, self.loop, name, random.Random(self.chance.random()), is_elected=count > 1, **options)
            replica.lost_at = self.lost_since
            self.replicas.append(replica)

    def start_reconciler(self, faults: Faults | None = None, **options: Any) -> Replica:
        """Starts a replica alone, which leads without an election, and returns it. `options` are those of its `Behaviour`."""
        chance = random.Random(self.chance.random())
        self.replicas.append(Replica(self.server, self.loop, "a", chance, is_elected=False, faults=faults, **options))
        return self.replicas[-1]

    def run_for(self, seconds: float) -> None:
        """Lets time pass. Raises Broken where a replica ends by itself, reports an unexpected error, or writes what it must not."""
        self.loop.run_until_complete(asyncio.sleep(seconds))
        problems = [*self._reports.problems, *(problem for replica in self.replicas for problem in replica.problems)]
        if problems:
            raise Broken("; ".join(problems))

    def close(self) -> None:
        """Ends all, once."""
        if self not in self.unclosed:
            return
        self.unclosed.remove(self)
        self._reports.end()
        vars(verdict_steps).update(MAX_ETCD_BYTES=MAX_ETCD_BYTES)
        vars(reconciler.schedule.verdicts).update(refuse_too_large=_refuse_too_large)
        ending = [task for replica in self.replicas for task in replica.end()]
        if ending:
            self.loop.run_until_complete(asyncio.gather(*ending, return_exceptions=True))
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()
