"""A cluster as far as a user may read it: all of it, or one namespace and what else the user's rights reach."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from cli.failures import Failure, describe_missing_right, report_in_a_line
from cli.reading.permitted_lists import get_permitted_queues, list_if_permitted
from core.jobs.contract import JobKind
from core.plan.steps import api_resources as r
from core.resource import Resource
from core.runtime.clock import SystemClock
from core.runtime.http.client import Client
from core.runtime.http.errors import Forbidden
from core.runtime.watch.informer import Informer
from reconciler.measure.outlook import Outlook
from reconciler.observe.installed_kinds import is_built_in
from reconciler.settings import Settings


@dataclass(frozen=True, slots=True)
class ClusterReading:
    """A cluster as far as it could be read. `namespace`: the only one with Workloads that could be read; None: all could. `unreadable`:
    resources that could not be listed, or of which only those that are named could be read. `partial`: those of which only the objects of
    `namespace` could be listed."""

    outlook: Outlook
    namespace: str | None = None
    unreadable: tuple[Resource, ...] = ()
    partial: tuple[Resource, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether all was read that a decision depends on."""
        return self.namespace is None and not self.unreadable and not self.partial

    @property
    def has_whole_quota(self) -> bool:
        """Whether all is known that uses quota: all Workloads, ClusterQueues and Cohorts."""
        return self.namespace is None and not {r.CLUSTER_QUEUES, r.COHORTS}.intersection(self.unreadable)


async def list_permitted(client: Client, settings: Settings, kinds: Sequence[JobKind], namespace: str, queue: str = "") -> ClusterReading:
    """Returns the cluster, listed once. Of what may not be listed in all namespaces it has the objects of `namespace`, and of ClusterQueues
    the one of the name `queue` and those that LocalQueues name. Raises Failure where not even the Workloads of the namespace may be listed,
    or a list fails."""
    from reconciler.podgroups.group_steps import hold_places  # not for `topogate queue`, which imports this module, too

    outlook = Outlook(client, SystemClock(), settings, kinds)
    observed, unreadable, partial = outlook.observed, list[Resource](), list[Resource]()

    async def list_one(informer: Informer) -> None:
        resource = informer.resource
        with report_in_a_line(f"list {resource}", resource):
            with suppress(Forbidden):
                await informer.list_once()
                return
            if resource == r.CONFIG_MAPS:  # the conditions of queues and Workloads report a pause, too
                informer.fill(())
                return
            found = await list_if_permitted(client, resource, namespace) if resource.namespaced else None
        informer.fill(found or ())
        (unreadable if found is None else partial).append(resource)

    await observed.list_once(list_one)
    if r.CUSTOM_RESOURCE_DEFINITIONS in unreadable:  # which kinds are installed is not known
        groups = await _list_groups(client)
        for informer in observed.optional.values():
            if informer.resource.group in groups and not is_built_in(informer.resource):
                await list_one(informer)
    if r.WORKLOADS in unreadable:
        raise Failure(describe_missing_right(r.WORKLOADS, namespace))
    if r.CLUSTER_QUEUES in unreadable:
        named = {(local.get("spec") or {}).get("clusterQueue") or "" for local in observed.local_queues.store.list()}
        observed.cluster_queues.fill(await get_permitted_queues(client, {*named, queue} - {""}))
    hold_places(observed)
    # Workloads of other namespaces have no queue where their LocalQueues are not known: then they count as not read.
    is_partial = bool({r.WORKLOADS, r.LOCAL_QUEUES}.intersection((*partial, *unreadable)))
    return ClusterReading(outlook, namespace if is_partial else None, tuple(unreadable), tuple(partial))


async def _list_groups(client: Client) -> set[str]:
    """The API groups that the API server has, which every user may ask; a kind of such a group may be missing all the same."""
    with report_in_a_line("list API groups"):
        found = json.loads(await client.request_raw("GET", "/apis"))
    return {str(group.get("name")) for group in found.get("groups") or ()}
