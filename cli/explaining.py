"""`topogate explain`: from what was asked to the report on it, of a live cluster or of files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console

from cli import finding
from cli.cluster_view import build_offline, list_events, list_warnings, warn_of_unused_documents
from cli.failures import PERMITTED_BY_OBSERVER, BadInput, Failure, describe_missing_right, report_in_a_line
from cli.finding import NamedObject
from cli.kind_names import find_resource_beside
from cli.planning.documents import Document, sort_out
from cli.reading.permitted_lists import list_if_permitted
from cli.reading.permitted_reading import ClusterReading, list_permitted
from cli.reporting import explain_command, podgroup_report
from cli.reporting.draw import WAITING, format_labelled, write
from cli.reporting.node_report import explain_node, render_node
from cli.reporting.owner_report import explain_cron_job, explain_deployment, render_owner
from cli.reporting.queue_explanation import explain_cluster_queue, explain_local_queue, render_queue
from cli.reporting.queue_report import list_notes
from cli.reporting.report import Report
from core.jobs.contract import JobKind
from core.jobs.kinds.job import Job
from core.plan.steps import api_resources as r
from core.resource import Obj, Resource
from core.runtime.clock import SystemClock
from core.runtime.http.client import Client
from core.state.facts import find_controller
from reconciler.settings import Settings

_QUEUES = (r.CLUSTER_QUEUES, r.LOCAL_QUEUES)
_OWNERS = {r.CRON_JOBS: (r.get_resource(Job()),), r.DEPLOYMENTS: (r.REPLICA_SETS, r.PODS)}  # with what is between them and Workloads
_DECISIVE = (r.NODES, r.TOPOLOGIES, r.CLUSTER_QUEUES, r.WORKLOADS, r.PODS)  # named first among what may not be listed
_SHOWN = 5


class _Source(Protocol):
    """Where more is read than what the reconciler observes."""

    async def find(self, resource: Resource, namespace: str, name: str) -> Obj | None:
        """Returns a CronJob or a Deployment; None where it is not there. Raises Failure where it may not be read."""

    async def list_events(self, obj: Obj) -> list[Obj]:
        """Returns the events on an object, the oldest first."""

    async def list_warnings(self, namespace: str) -> list[Obj] | None:
        """Returns the Warning events of a namespace, the oldest first; None where they may not be read."""


@dataclass(frozen=True, slots=True)
class _Live:
    client: Client

    async def find(self, resource: Resource, namespace: str, name: str) -> Obj | None:
        with report_in_a_line(f"list {resource}", resource):
            found = await list_if_permitted(self.client, resource, namespace, f"metadata.name={name}")
        if found is None:
            raise Failure(describe_missing_right(resource, namespace))
        return next((obj for obj in found if obj["metadata"]["name"] == name), None)

    async def list_events(self, obj: Obj) -> list[Obj]:
        return await list_events(self.client, obj)

    async def list_warnings(self, namespace: str) -> list[Obj] | None:
        return await list_warnings(self.client, namespace)


@dataclass(frozen=True, slots=True)
class _Files:
    objects: Mapping[Resource, Sequence[Obj]]

    async def find(self, resource: Resource, namespace: str, name: str) -> Obj | None:
        named = {"namespace": namespace, "name": name}
        return next((obj for obj in self.objects.get(resource, ()) if obj["metadata"] | named == obj["metadata"]), None)

    async def list_events(self, obj: Obj) -> list[Obj]:
        return []

    async def list_warnings(self, namespace: str) -> list[Obj] | None:
        return []


async def explain_live(client: Client, settings: Settings, kinds: Sequence[JobKind], asked: NamedObject, namespace: str) -> Report:
    """Returns a report on what was asked, of a live cluster as far as the user may read it. What could not be read is listed under
    `notRead`. Raises Failure, of which BadInput for an unknown kind; where an object has no Workload the message has its last warning
    event."""
    is_queue = not asked.kind or find_resource_beside(asked.kind) == r.CLUSTER_QUEUES
    reading = await list_permitted(client, settings, kinds, namespace, asked.name if is_queue else "")
    report = await _explain(_Live(client), reading, asked, namespace)
    return report | ({"notRead": notes} if (notes := _list_notes(reading, report)) else {})


async def explain_files(
    documents: Sequence[Document], settings: Settings, kinds: Sequence[JobKind], asked: NamedObject, namespace: str, wrong: list[str]
) -> Report:
    """Returns the same of a cluster that files describe. `wrong` has mistakes that were found before. Warns on stderr of documents that are
    not used. Raises Failure, of which BadInput for all mistakes in the files."""
    outlook, others = build_offline(documents, settings, kinds, namespace, wrong)
    cron_jobs = sort_out(others, (r.CRON_JOBS,), namespace, wrong)
    if wrong:
        raise BadInput(wrong)
    warn_of_unused_documents(cron_jobs.others)
    deployments = sort_out(documents, (r.DEPLOYMENTS,), namespace, [])  # as they are, not as the reconciler keeps them
    return await _explain(_Files({**cron_jobs.objects, **deployments.objects}), ClusterReading(outlook), asked, namespace)


async def _explain(source: _Source, reading: ClusterReading, asked: NamedObject, namespace: str) -> Report:
    if not asked.kind:
        asked = await _choose_kind(source, reading, asked.name, namespace)
    resource = find_resource_beside(asked.kind)
    if resource == r.NODES:
        return explain_node(reading, asked.name)
    if resource == r.CLUSTER_QUEUES:
        return explain_cluster_queue(reading, asked.name)
    if resource == r.LOCAL_QUEUES:
        return explain_local_queue(reading, namespace, asked.name)
    if resource is not None and resource in _OWNERS:
        return await _explain_owner(source, reading, resource, asked, namespace)
    return await _explain_workload(source, reading, asked, namespace)


async def _choose_kind(source: _Source, reading: ClusterReading, name: str, namespace: str) -> NamedObject:
    """The one object of a name. A CronJob is looked for last: it may be that its right is missing."""
    observed = reading.outlook.observed
    found = finding.list_named_so(observed, name, namespace)
    if not found:
        try:
            is_cron_job = await source.find(r.CRON_JOBS, namespace, name) is not None
        except Failure:
            is_cron_job = False
        found = [NamedObject(r.CRON_JOBS.kind.lower(), name)] if is_cron_job else []
    if not found:
        raise Failure(finding.describe_missing_name(observed, name, namespace))
    if len(found) > 1:
        ways = " or ".join(f"explain {each.kind} {name}" for each in found)
        raise BadInput(f"there are {len(found)} objects {name}; give the kind: {ways}")
    return found[0]


async def _explain_owner(source: _Source, reading: ClusterReading, resource: Resource, asked: NamedObject, namespace: str) -> Report:
    owner = await source.find(resource, namespace, asked.name)
    if owner is None:
        raise Failure(f"{resource.kind} {asked.name} is not in namespace {namespace}")
    is_known = not set(_OWNERS[resource]).intersection(reading.unreadable)
    if resource == r.CRON_JOBS:
        return explain_cron_job(reading.outlook.observed, owner, are_jobs_known=is_known)
    of_group = podgroup_report.explain_if_asked(reading, asked, namespace)
    return of_group if of_group is not None else explain_deployment(reading.outlook.observed, owner, are_pods_known=is_known)


async def _explain_workload(source: _Source, reading: ClusterReading, asked: NamedObject, namespace: str) -> Report:
    outlook = reading.outlook
    resource = finding.get_resource_of_kind(outlook.observed, asked.kind)
    if resource in reading.unreadable:
        raise Failure(f"{describe_missing_right(resource, namespace)}; `explain workload NAME` needs no more than Workloads")
    report = podgroup_report.explain_if_asked(reading, asked, namespace)
    if report is not None:
        return report
    try:
        workload = finding.find_workload(outlook.observed, asked, namespace)
    except finding.NoWorkload as error:
        warnings = [event for event in await source.list_events(error.owner) if event.get("type") == "Warning"]
        if not warnings:
            raise
        shown = f"{warnings[-1].get('reason')}: {' '.join(str(warnings[-1].get('message')).split())}"
        raise Failure(f"{error.lines[0]}; its last warning: {shown}") from error
    changed = explain_command.report_last_change(reading, workload, await _list_owner_events(source, workload))
    report = explain_command.explain(reading, workload, await source.list_events(workload)) | changed
    if explain_command.has_missing_pods(report):
        about_pods = await source.list_warnings(workload["metadata"]["namespace"])
        report |= explain_command.report_warning(outlook, workload, about_pods)
    return report


async def _list_owner_events(source: _Source, workload: Obj) -> list[Obj]:
    """Events on what a Workload was made for; changes of that are reported there."""
    owner = find_controller(workload)
    if owner is None:
        return []
    return await source.list_events({"metadata": {"namespace": workload["metadata"]["namespace"], "uid": owner["uid"]}})


def _list_notes(reading: ClusterReading, report: Report) -> list[str]:
    """Sentences on what the user's rights do not reach, with the role that permits it."""
    if reading.is_whole:
        return []
    notes = list_notes(reading) if report["kind"] in {resource.kind for resource in _QUEUES} else []
    below = next((parts for owner, parts in _OWNERS.items() if owner.kind == report["kind"]), ())
    missing = [str(each) for each in dict.fromkeys((*below, *_DECISIVE)) if each in reading.unreadable]
    missing += [f"{each} of other namespaces" for each in _DECISIVE if each in reading.partial]
    others = [str(each) for each in (*reading.unreadable, *reading.partial)]
    named = ", ".join(missing or others[:_SHOWN])
    return [*notes, f"you may not list {named}: what depends on them is left out; {PERMITTED_BY_OBSERVER}"]


def render(console: Console, report: Report) -> None:
    """Prints a report of `explain_live` or `explain_files` for people."""
    kind = report["kind"]
    if kind == r.NODES.kind:
        render_node(console, report)
    elif kind in {resource.kind for resource in _QUEUES}:
        render_queue(console, report, SystemClock().now())
    elif kind in {resource.kind for resource in _OWNERS}:
        render_owner(console, report)
    elif kind == r.POD_GROUPS.kind:
        podgroup_report.render_group(console, report)
    else:
        explain_command.render(console, report)
    for note in report.get("notRead", ()):
        write(console, format_labelled("not shown", note, WAITING), indent=1)
