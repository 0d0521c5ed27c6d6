"""Workloads as a reconciler leaves them behind, for files that describe a cluster: made, decided on and written as it does."""

from __future__ import annotations

from collections.abc import Sequence

from cli.planning.documents import complete
from core.jobs.contract import Defaults
from core.jobs.kinds.job import Job
from core.jobs.kinds.registry import KINDS
from core.model.spare_nodes import show_borrowed, show_held_spares
from core.names import BORROWED_SPARES, SPARES
from core.plan.steps import api_resources as r
from core.plan.workloads.desired_workload import build_workload
from core.queueing.cycle.cycle import Cycle
from core.queueing.cycle.run import Verdict
from core.queueing.flavors.outcome import Admissible
from core.runtime.http.client import Client
from core.runtime.watch.store import build_object_key
from reconciler.measure.outlook import Outlook
from reconciler.settings import parse
from tests.cli.commands import Obj
from tests.queueing.statuses import build_verdict_status
from tests.runtime.fakes import ManualClock

NOW = "2026-02-03T04:05:06Z"


def build_queued_job(job: Obj, priority: int = 0) -> list[Obj]:
    """A job as the webhook leaves it, and its Workload."""
    stored = complete(Job().default(job, Defaults(None, None)), r.get_resource(Job()), "default")
    workload = complete(build_workload(Job(), stored, priority=priority, priority_class=None), r.WORKLOADS, "default")
    workload["metadata"]["creationTimestamp"] = NOW
    return [stored, workload]


def decide_documents(documents: Sequence[Obj]) -> list[Obj]:
    """The same with the statuses that a scheduler's cycle writes."""
    outlook = Outlook(Client.make_offline(), ManualClock(), parse([]), KINDS)
    objects: dict[tuple[str, str], list[Obj]] = {}
    for document in documents:
        objects.setdefault((document["apiVersion"], document["kind"]), []).append(document)
    namespace = {"metadata": {"name": "default", "uid": "default", "resourceVersion": "1"}}
    known = {
        i.resource: [complete(o, i.resource, "default") for o in objects.get((i.resource.api_version, i.resource.kind), ())]
        for i in outlook.observed.informers
    }
    outlook.observed.fill({**known, r.NAMESPACES: [namespace]})
    verdicts = {verdict.workload.key: verdict for verdict in Cycle(outlook.state, outlook.settings.profiles).run()}
    return [
        {
            **_with_spares(document, verdicts[build_object_key(document)]),
            "status": build_verdict_status(document, verdicts[build_object_key(document)], NOW),
        }
        if document["kind"] == "Workload" and build_object_key(document) in verdicts
        else document
        for document in documents
    ]


def _with_spares(workload: Obj, verdict: Verdict) -> Obj:
    """With the names of the nodes that are kept free for it, and of those that are kept free for others and lent to it."""
    if not isinstance(verdict.outcome, Admissible):
        return workload
    metadata, admission = workload["metadata"], verdict.outcome.admission
    said = {SPARES: show_held_spares(admission), BORROWED_SPARES: show_borrowed(admission)}
    notes = {**(metadata.get("annotations") or {}), **{name: text for name, text in said.items() if text}}
    return {**workload, "metadata": {**metadata, "annotations": notes}} if any(said.values()) else workload
