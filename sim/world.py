"""A whole cluster in one process: the API server, the models, the webhook's real code, and the real reconciler, in virtual time."""

import asyncio
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from core.jobs.kinds import KINDS
from core.placement.profile import profiles_from_gates
from core.runtime.client import Client
from core.runtime.resource import Resource
from e2e.recount import Objects, find_broken
from reconciler.app import Reconciler
from sim.admission import Admission
from sim.files import read_yaml
from sim.kinds import build_in, read_definitions
from sim.loop import VirtualClock, VirtualLoop
from sim.models import define_kinds, start_models
from sim.models.kubelets import Kubelets
from sim.routes import find_kind
from sim.server import MERGE, Request, Server
from sim.transport import Dies, Faults, SimTransport
from webhook.review import Reviews

Json = dict[str, Any]
CRDS = Path(__file__).parent.parent / "charts" / "topogate" / "files" / "crds"
RECONCILER = "system:serviceaccount:topogate-system:topogate-reconciler"


class World:
    """Begins empty but for the namespaces that every cluster has."""

    def __init__(self, seed: int, definitions: Iterable[Mapping[str, Any]] = ()) -> None:
        self.chance = random.Random(seed)
        random.seed(self.chance.random())  # which the product draws from
        self.loop = VirtualLoop()
        self.clock = VirtualClock(self.loop)
        ours = [read_yaml(path) for path in sorted(CRDS.glob("*.yaml"))]
        definitions = [*ours, *define_kinds(), *definitions]
        kinds = [*build_in(), *read_definitions(definitions)]
        self.server = Server(kinds, now=self.time, chance=random.Random(self.chance.random()))
        self.server._admit = Admission(self.server, Reviews(self._has_default_queue, find=self._find).answer)
        self.models = start_models(self.server, self.loop, self.clock.now)
        self.reconcilers: list[asyncio.Task[None]] = []
        self._ended: list[asyncio.Task[None]] = []
        self.leader: Reconciler | None = None  # the one that was started last
        self.crashes = 0
        for name in ("default", "kube-system", "topogate-system"):
            self.apply(
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}}}
            )
        for definition in definitions:
            established = {"conditions": [{"type": kind, "status": "True"} for kind in ("Established", "NamesAccepted")]}
            self.apply({**definition, "status": established})

    def time(self) -> str:
        """Now, as the API has it."""
        return self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")

    # --- what the webhook looks up ------------------------------------------------------------------

    async def _has_default_queue(self, namespace: str) -> bool:
        return (namespace, "default") in self.server.objects["kueue.x-k8s.io", "localqueues"]

    async def _find(self, resource: Resource, name: str, namespace: str) -> Json | None:
        stored = self.server.objects.get((resource.group, resource.plural), {}).get((namespace if resource.namespaced else "", name))
        return stored.obj if stored is not None else None

    # --- what users do ------------------------------------------------------------------------------

    def apply(self, obj: Json, user: str = "user") -> Json:
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

    def delete(self, obj: Json, user: str = "user", **options: Any) -> None:
        """Deletes an object, as it is by now. Raises Refused."""
        namespace = obj["metadata"].get("namespace", "")
        self.server.delete(Request("delete", find_kind(self.server, obj), namespace, obj["metadata"]["name"], "", {}, options, user=user))

    def patch(self, group: str, plural: str, obj: Json, body: Json, subresource: str = "") -> None:
        """Merge patch by a user. Raises Refused."""
        kind = next(kind for kind in self.server.kinds.values() if kind.resource == (group, plural))
        key = obj["metadata"].get("namespace") or "", obj["metadata"]["name"]
        self.server.patch(Request("patch", kind, *key, subresource, {}, body, MERGE, "user"))

    def resource_of(self, obj: Json) -> tuple[str, str]:
        """What an object is stored under."""
        return find_kind(self.server, obj).resource

    def objects(self, group: str, plural: str) -> list[Json]:
        """All objects of a resource, by namespace and name."""
        kind = next(kind for kind in self.server.kinds.values() if kind.resource == (group, plural))
        head = {"apiVersion": kind.api_version, "kind": kind.kind}
        return [{**head, **stored.obj} for _, stored in sorted(self.server.objects[group, plural].items())]

    def find_broken(self) -> list[str]:
        """What the audit of objects finds now (`e2e.recount`)."""
        found = {name: self.objects("", name) for name in ("nodes", "pods", "namespaces")}
        named = {"workloads": "workloads", "cluster_queues": "clusterqueues", "cohorts": "cohorts", "local_queues": "localqueues"}
        named["resource_flavors"] = "resourceflavors"
        return list(find_broken(Objects(**found, **{name: self.objects("kueue.x-k8s.io", plural) for name, plural in named.items()})))

    @property
    def kubelets(self) -> Kubelets:
        """Of all nodes."""
        return next(model for model in self.models if isinstance(model, Kubelets))

    # --- topogate -----------------------------------------------------------------------------------

    def start_reconciler(self, faults: Faults | None = None, dies: Dies = lambda _: False) -> None:
        """Starts a reconciler that leads. One that `dies` is started again some seconds later, as a Deployment does."""
        faults = faults or Faults(random.Random(self.chance.random()))

        def end() -> None:
            self.crashes += 1
            task.cancel()
            self.reconcilers.remove(task)
            self._ended.append(task)
            self.loop.call_later(self.chance.uniform(1, 10), self.start_reconciler, faults, dies)

        client = Client(SimTransport(self.server, RECONCILER, faults, dies, end))
        reconciler = Reconciler(client, self.clock, profiles_from_gates({}), kinds=KINDS)

        async def work() -> None:
            async with asyncio.TaskGroup() as group:
                await reconciler.follow(group)
                await reconciler.lead()

        self.leader = reconciler
        task = self.loop.create_task(work())
        self.reconcilers.append(task)

    def run_for(self, seconds: float) -> None:
        """Lets time pass. Raises what ended a reconciler."""
        self.loop.run_until_complete(asyncio.sleep(seconds))
        for task in self.reconcilers:
            if task.done():
                task.result()

    def close(self) -> None:
        """Ends all."""
        for task in self.reconcilers:
            task.cancel()
        self.loop.run_until_complete(asyncio.gather(*self.reconcilers, *self._ended, return_exceptions=True))
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()
