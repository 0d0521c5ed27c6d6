"""`topogate plan`: files or a cluster in, a report and an exit code out."""

from collections.abc import Sequence
from pathlib import Path

import typer
from rich.console import Console

from cli.documents import Document, read_documents, sort_out
from cli.draw import BAD, GOOD, WAITING, draw_found, draw_refusal, labelled, write, write_data
from cli.failures import ADMITTED, WAITS, BadInput
from cli.live import Target, connected, look
from cli.plan import Planned, Planner
from cli.report import Report, report_found, report_refusal
from core.jobs.contract import JobKind
from core.queueing.outcome import Found, NotFound
from core.runtime.client import Client
from core.runtime.clock import SystemClock
from core.state.cluster import ClusterState
from reconciler import resources as r
from reconciler.outlook import Outlook
from reconciler.settings import Settings


async def plan(
    files: Sequence[Path], nodes: Sequence[Path], target: Target, namespace: str, settings: Settings, kinds: Sequence[JobKind]
) -> list[Report]:
    """One report per job. Raises Failure; BadInput names every mistake in all files."""
    wrong: list[str] = []
    known = {(r.resource_of(kind).api_version, kind.kind) for kind in kinds}
    documents = read_documents(files, wrong)
    jobs = [document for document in documents if document.api in known]
    others = [document for document in documents if document.api not in known]
    if not jobs and not wrong:
        found = ", ".join(sorted({document.obj["kind"] for document in documents}))
        wrong.append(
            f"{', '.join(map(str, files))}: there is no job in it, but {found}; kinds of job are {', '.join(k.kind for k in kinds)}"
        )
    if nodes:
        outlook, others = offline([*read_documents(nodes, wrong), *others], settings, kinds, namespace, wrong)
    elif wrong:
        raise BadInput(wrong)
    else:
        async with connected(target) as client:
            outlook = await look(client, settings, kinds)
    planned = await Planner(outlook, kinds).plan(jobs, namespace, wrong)
    for document in others:
        typer.echo(f"topogate: warning: {document.where} ({document.api[0]}) is not looked at", err=True)
    return [report(outlook.state, one) for one in planned]


def offline(
    documents: Sequence[Document], settings: Settings, kinds: Sequence[JobKind], namespace: str, wrong: list[str]
) -> tuple[Outlook, list[Document]]:
    """A cluster that files describe, and what of them is not looked at; mistakes are added to `wrong`."""
    outlook = Outlook(Client.offline(), SystemClock(), settings, kinds)
    cluster = sort_out(documents, (informer.resource for informer in outlook.observed.informers), namespace, wrong)
    if not cluster.objects.get(r.NODES) and not wrong:
        wrong.append("there is no node in the files of --nodes; `kubectl get nodes -o yaml` writes such a file")
    objects = {resource: list(found) for resource, found in cluster.objects.items()}
    # Who writes down a queue means its namespace to be there.
    there = {obj["metadata"]["name"] for obj in objects.setdefault(r.NAMESPACES, [])}
    named = {namespace, *(obj["metadata"]["namespace"] for obj in objects.get(r.LOCAL_QUEUES, ()))}
    for name in sorted(named - there):
        labels = {"kubernetes.io/metadata.name": name}
        objects[r.NAMESPACES].append({"metadata": {"name": name, "uid": name, "resourceVersion": "1", "labels": labels}})
    outlook.observed.fill(objects)
    return outlook, list(cluster.others)


def report(state: ClusterState, planned: Planned) -> Report:
    """One job as data."""
    metadata = planned.job["metadata"]
    told: Report = {"kind": planned.kind.kind, "namespace": metadata["namespace"], "name": metadata["name"]}
    if isinstance(planned.outcome, Found):
        told |= {"outcome": "admitted" if planned.is_admitted else "waits", **report_found(state, planned.outcome)}
        if planned.outcome.checks:
            checks = ", ".join(planned.outcome.checks)
            told |= {"reason": "QuotaReserved", "message": f"it would get its quota, and then wait for admission checks: {checks}"}
    elif isinstance(planned.outcome, NotFound):
        told |= {"outcome": "waits", **report_refusal(planned.outcome)}
    else:
        told |= {"outcome": "waits", "reason": "NotQueued", "message": planned.problem}
    return told | ({"warnings": list(planned.warnings)} if planned.warnings else {})


def tell(reports: Sequence[Report], form: str | None, console: Console) -> int:
    """Prints what would happen; returns the exit code."""
    for each in reports:
        for warning in each.get("warnings", ()):
            typer.echo(f"topogate: warning: {each['kind']} {each['namespace']}/{each['name']}: {warning}", err=True)
    if form is not None:
        write_data(console, {"jobs": list(reports)}, form)
    else:
        for each in reports:
            _draw(console, each)
    return ADMITTED if all(each["outcome"] == "admitted" for each in reports) else WAITS


def _draw(console: Console, told: Report) -> None:
    name = f"{told['kind']} {told['namespace']}/{told['name']}"
    if told["outcome"] == "admitted":
        write(console, labelled(name, f"would be admitted by ClusterQueue {told['clusterQueue']}", GOOD))
    else:
        style = BAD if told.get("breaksRule") else WAITING
        write(console, labelled(name, f"would wait: {told['reason']}", style))
        write(console, told["message"], indent=1)
    if "podSets" in told:
        draw_found(console, told)
    if "attempts" in told:
        draw_refusal(console, told)
