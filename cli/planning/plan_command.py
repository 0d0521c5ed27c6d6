"""`topogate plan`: files or a cluster in, a report and an exit code out."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from cli.cluster_view import add_related, build_offline, list_cluster, warn_of_unused_documents
from cli.connection import Target, connect
from cli.failures import ADMITTED, WAITS, BadInput
from cli.planning.documents import Document, complete, read_documents
from cli.planning.plan_groups import POD_GROUP_API, plan_groups, sort_out_groups
from cli.planning.plan_jobs import Planned, Planner, index_kinds_by_api
from cli.reporting.draw import BAD, GOOD, WAITING, format_labelled, render_found, render_refusal, write, write_data
from cli.reporting.podgroup_report import render_places_of_group
from cli.reporting.report import Report, report_found, report_refusal
from cli.reporting.table import print_remark
from core.jobs.contract import JobKind
from core.plan.steps import api_resources as r
from core.queueing.flavors.outcome import Admissible, NotAdmissible
from core.runtime.watch.store import build_object_key
from core.state.cluster import ClusterState
from reconciler.settings import Settings


async def plan(
    files: Sequence[Path],
    nodes: Sequence[Path],
    target: Target,
    namespace: str,
    settings: Settings,
    kinds: Sequence[JobKind],
    *,
    is_given: bool = False,
) -> list[Report]:
    """Returns one report per Workload that would be made for the jobs, then one per replica of a group of pods. A job without any, such as
    one with no replicas, has none. `nodes` are the files of the cluster; without any the live one is read. `is_given`: `namespace` was
    named by the user, and an object of another one is a mistake, as for kubectl. Warns on stderr of documents that are not used. Raises
    Failure; BadInput names every mistake in all files."""
    wrong: list[str] = []
    known = index_kinds_by_api(kinds)
    documents = read_documents(files, wrong)
    if is_given:
        wrong += _list_other_namespaces(documents, namespace)
    grouped = sort_out_groups(documents, known, namespace, wrong)
    jobs = [document for document in grouped.others if document.api in known]
    others = [document for document in grouped.others if document.api not in known]
    groups = [document for document in others if document.api == POD_GROUP_API]
    if not (jobs or grouped.pods or groups or wrong):
        where = ", ".join(map(str, files))
        if any(document.api in known for document in documents):
            found = ", ".join(sorted({document.obj["kind"] for document in documents}))
            what = f"no {found} in it makes any pods"
        else:
            found = ", ".join(sorted({_name_api(document.api) for document in documents}))
            what = f"it has {found or 'no object'}; known kinds of job are {', '.join(map(_name_api, (*known, POD_GROUP_API)))}"
        wrong.append(f"{where}: {what}")
    if nodes:
        outlook, others = build_offline([*read_documents(nodes, wrong), *others], settings, kinds, namespace, wrong)
    elif wrong:
        raise BadInput(wrong)
    else:
        async with connect(target) as client:
            outlook = await list_cluster(client, settings, kinds)
        others = add_related(outlook, others, namespace, wrong)
    planned = await Planner(outlook, kinds).plan(jobs, namespace, wrong)
    warn_of_unused_documents(others)
    for group in grouped.groups:
        outlook.observed.pod_groups.put(group)
    named = [*grouped.groups, *(complete(group.obj, r.POD_GROUPS, namespace) for group in groups)]
    return [*(report(outlook.state, one) for one in planned), *plan_groups(outlook, named, grouped.pods)]


def _list_other_namespaces(documents: Sequence[Document], namespace: str) -> list[str]:
    named = ((document.where, (document.obj.get("metadata") or {}).get("namespace")) for document in documents)
    expected = f"{namespace!r} is expected, as --namespace says; leave out one of both"
    return [f"{where}: metadata.namespace: {own!r} is not accepted; {expected}" for where, own in named if own and own != namespace]


def report(state: ClusterState, planned: Planned) -> Report:
    """Returns what would become of one job as plain data: `kind`, `namespace`, `name`, the `outcome` (`admitted` or `waits`), and `reason`
    and `message` where it waits. Beside these it has `replica`, `warnings`, and the keys of `report_found` or `report_refusal` where they
    apply."""
    found: Report = {"kind": planned.kind, "namespace": planned.namespace, "name": planned.name}
    if planned.part is not None:
        found["replica"] = planned.part
    facts = state.workloads.facts.get(build_object_key(planned.workload)) if planned.workload is not None else None
    if isinstance(planned.outcome, Admissible):
        found |= {"outcome": "admitted" if planned.is_admitted else "waits", **report_found(state, planned.outcome, facts)}
        if planned.outcome.checks:
            checks = ", ".join(planned.outcome.checks)
            found |= {"reason": "QuotaReserved", "message": f"it would get its quota, and then wait for admission checks: {checks}"}
    elif isinstance(planned.outcome, NotAdmissible):
        found |= {"outcome": "waits", **report_refusal(planned.outcome)}
    else:
        found |= {"outcome": "waits", "reason": "NotQueued", "message": planned.problem}
    return found | ({"warnings": list(planned.warnings)} if planned.warnings else {})


def print_reports(reports: Sequence[Report], form: str | None, console: Console) -> int:
    """Prints what would happen (`form`: `json` or `yaml`; None: for people), and warnings on stderr. Returns the exit code: ADMITTED, or
    WAITS where one job or group would wait."""
    for each in reports:
        for warning in each.get("warnings", ()):
            print_remark(f"warning: {each['kind']} {each['namespace']}/{each['name']}: {warning}")
    if form is not None:
        write_data(console, {"jobs": list(reports)}, form)
    else:
        for each in reports:
            _render(console, each)
    return ADMITTED if all(each["outcome"] in ("admitted", "placed") for each in reports) else WAITS


def _render(console: Console, answer: Report) -> None:
    name = f"{answer['kind']} {answer['namespace']}/{answer['name']}" + (f" replica {answer['replica']}" if "replica" in answer else "")
    if "job" in answer:
        name += f" (for {answer['job']['kind']} {answer['job']['name']})"
    if answer["outcome"] == "placed":
        write(console, format_labelled(name, answer["message"], GOOD))
    elif answer["outcome"] == "admitted":
        write(console, format_labelled(name, f"would be admitted by ClusterQueue {answer['clusterQueue']}", GOOD))
    else:
        style = BAD if answer.get("breaksRule") else WAITING
        write(console, format_labelled(name, f"would wait: {answer['reason']}", style))
        write(console, answer["message"], indent=1)
    render_places_of_group(console, answer, 1)
    if "podSets" in answer:
        render_found(console, answer)
    if "attempts" in answer:
        render_refusal(console, answer)


def _name_api(api: tuple[str, str]) -> str:
    version, kind = api
    return f"{kind} of {version}"
