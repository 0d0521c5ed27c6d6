"""What is known of a CronJob or a Deployment: where the label of its queue is, and what each Workload below it says."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from cli.finding import describe_missing_workload, list_workloads_of
from cli.reporting.draw import GOOD, HEAD, QUIET, WAITING, format_labelled, write
from cli.reporting.explain_command import find_reported_condition
from cli.reporting.report import Report, describe_state
from cli.reporting.table import remove_controls
from core.names import QUEUE_NAME_LABEL
from core.plan.steps import api_resources as r
from core.resource import Obj
from core.runtime.watch.store import build_object_key
from core.state.facts import find_controller
from reconciler.observe.indexes import show_as_owner
from reconciler.observe.observed import Observed

_SHOWN = 20  # jobs or pods that the terminal names
_JOBS = "Job.batch"
_GOOD_STATES = ("admitted", "finished")


def explain_cron_job(observed: Observed, cron_job: Obj, *, are_jobs_known: bool = True) -> Report:
    """Returns a report on a CronJob, as the API server has it, as plain data: `kind`, `namespace`, `name`, `state`, `schedule`, `queue` (of
    its Jobs; empty without one), `isSuspended`, `jobs`, how many of them are in each state (`states`), and `wouldHelp`. Each of the jobs,
    the newest first, has a `name`, its `workload` and the `state` of that, with the `reason` and `message` of its condition. There are no
    `jobs` and `states` where they could not be read (`are_jobs_known`)."""
    spec = cron_job.get("spec") or {}
    template = spec.get("jobTemplate") or {}
    queue = _get_queue(template)
    jobs = [job for job in observed.jobs[_JOBS].store.list() if _is_made_by(cron_job, job)]
    rows = [_report_part(observed, job, "job") for job in sorted(jobs, key=_get_creation, reverse=True)]
    is_suspended = spec.get("suspend") is True
    state = "suspended" if is_suspended else "queued" if queue else "not queued"
    return {
        **_report_owner(r.CRON_JOBS.kind, cron_job, state, queue),
        "schedule": str(spec.get("schedule") or ""),
        "isSuspended": is_suspended,
        **(_report_parts("jobs", rows) if are_jobs_known else {}),
        "wouldHelp": _list_cron_job_remedies(cron_job, is_suspended=is_suspended),
    }


def _list_cron_job_remedies(cron_job: Obj, *, is_suspended: bool) -> list[str]:
    template = (cron_job.get("spec") or {}).get("jobTemplate") or {}
    own, of_pods = _get_queue(cron_job), _get_queue((template.get("spec") or {}).get("template") or {})
    remedies = []
    if not _get_queue(template):
        elsewhere = own or of_pods
        where = "metadata.labels of the CronJob" if own else "the labels of the pod template"
        place = f"set the label {QUEUE_NAME_LABEL} in spec.jobTemplate.metadata.labels: each Job gets its labels from there"
        remedies.append(f"{place}; in {where} it does nothing ({elsewhere})" if elsewhere else place)
    if is_suspended:
        remedies.append("set spec.suspend to false: it creates no Job while it is suspended")
    return remedies


def explain_deployment(observed: Observed, deployment: Obj, *, are_pods_known: bool = True) -> Report:
    """Returns a report on a Deployment as plain data: `kind`, `namespace`, `name`, `state`, `queue` (of its pods; empty without one),
    `replicas`, `pods` (as the jobs of `explain_cron_job`), `states` and `wouldHelp`. The Deployment is as the API server has it.
    There are no `pods` and `states` where they, or what owns them, could not be read (`are_pods_known`)."""
    spec = deployment.get("spec") or {}
    own, of_pods = _get_queue(deployment), _get_queue(spec.get("template") or {})
    replicas = spec.get("replicas")
    replicas = 1 if replicas is None else int(replicas)
    keys = sorted(observed.owners.list_descendants(show_as_owner(deployment)))
    pods = [pod for key in keys for pod in observed.pods.store.list_by_index("owner", key)]
    rows = [_report_part(observed, pod, "pod") for pod in pods]
    queue = own or of_pods
    remedies = []
    if not queue:
        remedies.append(f"set the label {QUEUE_NAME_LABEL} in metadata.labels of the Deployment: its pods get it from there")
    elif replicas == 0:
        remedies.append("raise spec.replicas: each of its pods gets a Workload, and spec.replicas is 0")
    elif not pods and are_pods_known:
        remedies.append("look at the events of its ReplicaSets (`kubectl describe replicaset`): it has no pods, and each gets a Workload")
    return {
        **_report_owner(r.DEPLOYMENTS.kind, deployment, "queued" if queue else "not queued", queue),
        "replicas": replicas,
        **(_report_parts("pods", rows) if are_pods_known else {}),
        "wouldHelp": remedies,
    }


def _report_owner(kind: str, obj: Obj, state: str, queue: str) -> Report:
    metadata = obj["metadata"]
    return {"kind": kind, "namespace": metadata["namespace"], "name": metadata["name"], "state": state, "queue": queue}


def _report_parts(name: str, rows: list[Report]) -> Report:
    return {name: rows, "states": dict(Counter(row["state"] for row in rows))}


def _report_part(observed: Observed, obj: Obj, kind: str) -> Report:
    """One job or pod, with what its Workload says: of several that which holds quota."""
    row: Report = {"name": obj["metadata"]["name"]}
    known = [
        (facts, workload)
        for workload in list_workloads_of(observed, obj, is_pod=kind == "pod")
        if (facts := observed.state.workloads.facts.get(build_object_key(workload))) is not None
    ]
    if not known:
        return row | {"workload": "", "state": "without a Workload", "reason": "", "message": describe_missing_workload(obj, kind)}
    facts, workload = min(known, key=lambda each: (each[0].finished, not each[0].quota_reserved, each[0].key))
    condition: Mapping[str, Any] = find_reported_condition(workload, facts) or {}
    said = {"reason": str(condition.get("reason") or ""), "message": str(condition.get("message") or "")}
    return row | {"workload": workload["metadata"]["name"], "state": describe_state(facts), **said}


def _is_made_by(owner: Obj, obj: Obj) -> bool:
    controller = find_controller(obj)
    return (
        controller is not None
        and controller["uid"] == owner["metadata"]["uid"]
        and obj["metadata"]["namespace"] == owner["metadata"]["namespace"]
    )


def _get_queue(obj: Mapping[str, Any]) -> str:
    return str(((obj.get("metadata") or {}).get("labels") or {}).get(QUEUE_NAME_LABEL) or "")


def _get_creation(obj: Obj) -> tuple[str, str]:
    return str(obj["metadata"].get("creationTimestamp") or ""), str(obj["metadata"]["name"])


# --- on a terminal ------------------------------------------------------------------------------------


def render_owner(console: Console, report: Report) -> None:
    """Prints a report of `explain_cron_job` or `explain_deployment` for people: the first 20 jobs or pods, each in a line."""
    parts = "pods" if "replicas" in report else "jobs"
    write(console, Text(remove_controls(f"{report['kind']} {report['namespace']}/{report['name']}"), HEAD))
    write(console, format_labelled("state", report["state"], GOOD if report["state"] == "queued" else WAITING), indent=1)
    if "schedule" in report:
        write(console, format_labelled("schedule", remove_controls(report["schedule"])), indent=1)
    write(console, format_labelled("queue", f"LocalQueue {report['queue']}" if report["queue"] else "none"), indent=1)
    rows = report.get(parts, ())
    asked = f" of {report['replicas']}" if "replicas" in report else ""
    counted = ", ".join(f"{count} {state}" for state, count in report.get("states", {}).items())
    number = f"{len(rows)}{asked}{f' ({counted})' if counted else ''}" if parts in report else "not known"
    write(console, format_labelled(parts, number), indent=1)
    for row in rows[:_SHOWN]:
        _render_row(console, row)
    if len(rows) > _SHOWN:
        write(console, f"and {len(rows) - _SHOWN} more; -o json names all", QUIET, 2)
    render_remedies(console, report["wouldHelp"])


def render_remedies(console: Console, remedies: Iterable[str]) -> None:
    """Prints each change that would help, in a line."""
    for remedy in remedies:
        write(console, format_labelled("would help", remove_controls(remedy), GOOD), indent=1)


def _render_row(console: Console, row: Report) -> None:
    why = ": ".join(filter(None, (row["reason"], row["message"])))
    style = GOOD if row["state"] in _GOOD_STATES else WAITING
    write(console, Text(f"{row['name']}: ", HEAD).append(row["state"], style).append(f"  {remove_controls(why)}" if why else ""), indent=2)
