"""A cluster read once, as the reconciler would see it if it started now: a live one, or one that files describe."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from cli.connection import Target, connect
from cli.failures import BadInput, report_in_a_line
from cli.planning.documents import Document, read_documents, sort_out
from cli.reporting.table import print_remark
from core.jobs.contract import JobKind
from core.jobs.kinds.pod_kinds import list_pod_kinds
from core.plan.steps import api_resources as r
from core.resource import Obj
from core.runtime.clock import SystemClock
from core.runtime.http.client import Client
from core.runtime.http.errors import Forbidden, NotFound
from core.runtime.watch.informer import Informer
from core.state.facts import FlavorFacts, NodeFacts
from reconciler.measure.outlook import Outlook
from reconciler.podgroups.group_steps import hold_places
from reconciler.settings import Settings


async def list_cluster(client: Client, settings: Settings, kinds: Sequence[JobKind]) -> Outlook:
    """Returns the whole cluster, listed once, with the places that are kept for pods of groups. Raises Failure where a list fails; a
    ConfigMap that may not be read counts as missing."""
    outlook = Outlook(client, SystemClock(), settings, kinds)
    await outlook.observed.list_once(_list)
    hold_places(outlook.observed)
    return outlook


async def _list(informer: Informer) -> None:
    with report_in_a_line(f"list {informer.resource}", informer.resource):
        try:
            await informer.list_once()
        except Forbidden:
            if informer.resource != r.CONFIG_MAPS:
                raise
            informer.fill(())  # not every user may read the ConfigMap of pauses


async def list_events(client: Client, obj: Obj) -> list[Obj]:
    """Returns the events on an object with its uid, in its namespace, the oldest first; none where they may not be read. Raises Failure for
    any other error."""
    metadata = obj["metadata"]
    with report_in_a_line(f"list {r.EVENTS}", r.EVENTS):
        try:
            page = await client.list(r.EVENTS, metadata["namespace"], field_selector=f"involvedObject.uid={metadata['uid']}")
        except Forbidden:
            return []  # the reconciler itself may not; the rest is worth having without
    return sorted(page.items, key=find_event_time)


async def list_warnings(client: Client, namespace: str) -> list[Obj] | None:
    """Returns the Warning events of a namespace, the oldest first; None where they may not be read. Raises Failure for any other error."""
    with report_in_a_line(f"list {r.EVENTS}", r.EVENTS):
        try:
            page = await client.list(r.EVENTS, namespace, field_selector="type=Warning")
        except Forbidden:
            return None
    return sorted(page.items, key=find_event_time)


def find_event_time(event: Obj) -> str:
    """Returns when an event was emitted last, as the API writes it but without a zone, such as `2026-01-31T12:00:00`; empty where it has no
    time.
    """
    repeated = (event.get("series") or {}).get("lastObservedTime")
    return str(repeated or event.get("lastTimestamp") or event.get("eventTime") or "")[:19]


async def read_cluster(files: Sequence[Path], target: Target, settings: Settings, kinds: Sequence[JobKind], namespace: str) -> Outlook:
    """Returns the cluster that files describe, if there are any, else the live one, with the places that are kept for pods of groups.
    `namespace` is of objects in files that name none; `target` counts only without files. Warns on stderr of documents that are not used.
    Raises Failure, of which BadInput for all mistakes in the files, and for an unusable kubeconfig."""
    if not files:
        async with connect(target) as client:
            return await list_cluster(client, settings, kinds)
    wrong: list[str] = []
    outlook, others = build_offline(read_documents(files, wrong), settings, kinds, namespace, wrong)
    if wrong:
        raise BadInput(wrong)
    warn_of_unused_documents(others)
    return outlook


def build_offline(
    documents: Sequence[Document], settings: Settings, kinds: Sequence[JobKind], namespace: str, wrong: list[str]
) -> tuple[Outlook, list[Document]]:
    """Returns a cluster that files describe, and the documents that are not used; mistakes are added to `wrong`, also that there is no
    node. Objects with mistakes are left out of it. `namespace` is of objects that name none. A Namespace that only `namespace` or a
    LocalQueue names is added."""
    outlook = Outlook(Client.make_offline(), SystemClock(), settings, kinds)
    specs = {r.get_resource(kind): kind.spec_shape for kind in (*kinds, *list_pod_kinds(kinds))}
    cluster = sort_out(documents, (informer.resource for informer in outlook.observed.informers), namespace, wrong, specs)
    if not cluster.objects.get(r.NODES) and not wrong:
        wrong.append("there is no node in the files of --nodes; `kubectl get nodes -o yaml` writes such a file")
    objects = {resource: list(found) for resource, found in cluster.objects.items()}
    # A file with a queue implies the namespace of the queue.
    there = {obj["metadata"]["name"] for obj in objects.setdefault(r.NAMESPACES, [])}
    named = {namespace, *(obj["metadata"]["namespace"] for obj in objects.get(r.LOCAL_QUEUES, ()))}
    for name in sorted(named - there):
        labels = {"kubernetes.io/metadata.name": name}
        objects[r.NAMESPACES].append({"metadata": {"name": name, "uid": name, "resourceVersion": "1", "labels": labels}})
    outlook.observed.fill(objects)
    hold_places(outlook.observed)
    return outlook, list(cluster.others)


def add_related(outlook: Outlook, documents: Sequence[Document], namespace: str, wrong: list[str]) -> list[Document]:
    """Adds to a live cluster what jobs and pods of the same files refer to, in place of what has the name there. These are PodGroups, level
    aliases, PersistentVolumeClaims, objects of devices, and kinds that job kinds refer to. Returns all other documents, unused; mistakes
    are added to `wrong`, and objects with mistakes are in neither."""
    observed = outlook.observed
    devices = observed.devices.informers if observed.devices is not None else ()
    referred = (*observed.related.informers.values(), observed.pod_groups, observed.node_topologies, observed.volumes.claims, *devices)
    informers = {informer.resource: informer for informer in referred}
    given = sort_out(documents, informers, namespace, wrong)
    for resource, objects in given.objects.items():
        for obj in objects:
            informers[resource].put(obj)
    return list(given.others)


def warn_of_unused_documents(documents: Sequence[Document]) -> None:
    """Prints one warning on stderr for each of the documents, with its place and apiVersion. It judges none: the caller has left out all in
    use."""
    for document in documents:
        print_remark(f"warning: {document.where} ({document.api[0]}) is not looked at")


async def list_nodes(files: Sequence[Path], target: Target) -> list[NodeFacts]:
    """Returns what is read of the nodes of files or, without files, of the live cluster. Other objects in the files are passed over. Raises
    Failure, of which BadInput for all mistakes in the files, and for an unusable kubeconfig."""
    if not files:
        async with connect(target) as client:
            with report_in_a_line(f"list {r.NODES}", r.NODES):
                return [NodeFacts.read(node) for node in (await client.list(r.NODES)).items]
    wrong: list[str] = []
    cluster = sort_out(read_documents(files, wrong), (r.NODES,), "default", wrong)
    if wrong:
        raise BadInput(wrong)
    return [NodeFacts.read(node) for node in cluster.objects.get(r.NODES, ())]


async def list_flavors(files: Sequence[Path], target: Target) -> list[FlavorFacts]:
    """Returns what is read of the ResourceFlavors of files or, without files, of the live cluster: none where they may not be listed or are
    not installed. Mistakes in files are passed over. Raises Failure where the API server gives another error."""
    if files:
        of_files = sort_out(read_documents(files, []), (r.RESOURCE_FLAVORS,), "default", []).objects
        return [FlavorFacts.read(flavor) for flavor in of_files.get(r.RESOURCE_FLAVORS, ())]
    async with connect(target) as client:
        with report_in_a_line(f"list {r.RESOURCE_FLAVORS}", r.RESOURCE_FLAVORS), suppress(NotFound, Forbidden):
            return [FlavorFacts.read(flavor) for flavor in (await client.list(r.RESOURCE_FLAVORS)).items]
    return []


async def list_present(files: Sequence[Path], target: Target, wanted: Sequence[Obj]) -> list[Obj]:
    """Returns copies, each with its kind, of the queues, flavors and topologies that exist by the names of those of `wanted`, in the same
    order. It looks into the files, else into the live cluster. What may not be read counts as missing, and mistakes in files are passed
    over. Raises Failure where the API server gives another error, of which BadInput for an unusable kubeconfig."""
    resources = {resource.kind: resource for resource in (r.TOPOLOGIES, r.RESOURCE_FLAVORS, r.CLUSTER_QUEUES, r.LOCAL_QUEUES)}
    if files:
        of_files = sort_out(read_documents(files, []), resources.values(), "default", []).objects
        there = {(kind, *_name_of(obj)): obj for kind, resource in resources.items() for obj in of_files.get(resource, ())}
        named = ((obj["kind"], *_name_of(obj)) for obj in wanted)
        return [{**there[key], "kind": key[0]} for key in named if key in there]
    found = []
    async with connect(target) as client:
        for obj in wanted:
            namespace, name = _name_of(obj)
            with report_in_a_line(f"get {resources[obj['kind']]}"):
                try:
                    there_now = await client.get(resources[obj["kind"]], name, namespace)
                except (NotFound, Forbidden):
                    continue
            found.append({**there_now, "kind": obj["kind"]})
    return found


def _name_of(obj: Obj) -> tuple[str | None, str]:
    return obj["metadata"].get("namespace"), obj["metadata"]["name"]
