"""What each command does, from its arguments to its output."""

import asyncio
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import typer
from rich.console import Console

from cli import cluster_view, explaining, finding
from cli import suggest as suggesting
from cli.cluster_view import Target
from cli.failures import BadInput, Failure
from cli.inputs import ClusterSource, DecisionInputs
from cli.permitted_reading import ClusterReading
from cli.planning import plan_command
from cli.planning.documents import read_documents
from cli.queue_reading import read_queues, watch
from cli.reporting import topology_command
from cli.reporting.draw import WAITING, make_console, write, write_data
from cli.reporting.queue_drawing import render_queues
from cli.reporting.queue_report import list_notes, report_queues, select_queues
from cli.reporting.report import Report
from cli.reporting.table import print_remark
from core.jobs.contract import JobKind
from core.jobs.kinds.registry import INTEGRATIONS, UnusableIntegration, with_integrations
from core.runtime import plugins
from core.runtime.clock import SystemClock
from core.runtime.http.kubeconfig import find_namespace
from reconciler.settings import Settings, parse

Result = TypeVar("Result")
DEFAULT_NAMESPACE = "default"
WIDE = "wide"


def plan(files: Sequence[Path], source: ClusterSource, decisions: DecisionInputs, form: str | None) -> int:
    """Runs `topogate plan`: prints a report on each job (`form`: `json` or `yaml`; None: for people). Returns the exit code: 0 where all
    would be admitted, 3 where one would wait. Raises Failure, as all commands do; wrong settings end the process with status 2 (see
    `read_settings`)."""
    settings, target = read_settings(decisions), choose_target(source)
    namespace, is_given = choose_namespace(source), source.namespace is not None
    reports = run(plan_command.plan(files, source.files, target, namespace, settings, list_kinds(), is_given=is_given))
    return plan_command.print_reports(reports, form, make_console())


def explain(what: Sequence[str], source: ClusterSource, decisions: DecisionInputs, form: str | None, *, is_watched: bool = False) -> None:
    """Runs `topogate explain`: prints a report on the object that the words name (`form`: `json` or `yaml`; None: for people). Where it
    `is_watched` it prints the report again whenever it has changed, until it is interrupted. Raises Failure, of which BadInput for words or
    a kind that are not known. Wrong settings end the process with status 2."""
    settings, asked, target, namespace = read_settings(decisions), finding.read_asked(what), choose_target(source), choose_namespace(source)
    refuse_watched_files(source, is_watched=is_watched)
    console, shown, kinds = make_console(), list[Report](), list_kinds()

    def show(report: Report) -> None:
        if shown == [report]:
            return
        begin_next(console, form, is_first=not shown)
        if form is not None:
            write_data(console, report, form)
        else:
            explaining.render(console, report)
        shown[:] = [report]

    async def read_live() -> None:
        async with cluster_view.connect(target) as client:

            async def read() -> Report:
                return await explaining.explain_live(client, settings, kinds, asked, namespace)

            if is_watched:
                await watch(read, show, SystemClock())
            show(await read())

    async def read_files() -> None:
        wrong: list[str] = []
        documents = read_documents(source.files, wrong)
        show(await explaining.explain_files(documents, settings, kinds, asked, namespace, wrong))

    run(read_files() if source.files else read_live())


def refuse_watched_files(source: ClusterSource, *, is_watched: bool) -> None:
    """Raises BadInput where files are to be watched."""
    if is_watched and source.files:
        raise BadInput("--watch needs a live cluster: leave out --nodes, or leave out --watch")


def begin_next(console: Console, form: str | None, *, is_first: bool) -> None:
    """Prints what separates one answer of `--watch` from the one before: nothing before the first."""
    if is_first:
        return
    if form in (None, WIDE):
        console.clear()
        write(console)
    elif form == "yaml":
        typer.echo("---")


def show_topology(
    name: str | None, source: ClusterSource, decisions: DecisionInputs, form: str | None, view: topology_command.View
) -> None:
    """Runs `topogate topology`: prints a report on the Topology `name` (None: all), as data with `form` (`json` or `yaml`). Draws pictures
    where `view` wants them: into its file, and on the terminal only without `form`. Raises Failure, of which BadInput for a pod or resource
    that cannot be used. Wrong settings end the process with status 2."""
    counted = topology_command.read_pod(view.pod) if view.pod is not None else None
    target, settings = choose_target(source), read_settings(decisions)
    outlook = run(cluster_view.read_cluster(source.files, target, settings, list_kinds(), choose_namespace(source)))
    outlook.state.refresh()
    names = topology_command.find_names(outlook.state, name)
    if counted is not None:
        topology_command.check_pod(outlook.state, names, view.pod or "", counted)
    reports = [topology_command.report_topology(outlook.state, each, counted) for each in names]
    console = make_console()
    if form is not None:
        write_data(console, {"topologies": reports}, form)
    else:
        for report in reports:
            topology_command.render(console, report, shows_hosts=view.hosts)
    if view.svg is not None or view.seats:
        topology_command.draw_picture(outlook.observed, names, view.resource, view.svg, console if view.seats and form is None else None)


def show_queues(asked: str | None, source: ClusterSource, decisions: DecisionInputs, form: str | None, *, is_watched: bool) -> None:
    """Runs `topogate queue`: prints the queues that `asked` means (None: all that concern the namespace that is given, or all). `form` is
    `json` or `yaml` for data, `wide` for more columns. Where it `is_watched` it prints them again whenever they have changed, and on a
    terminal every few seconds, until it is interrupted. Raises Failure, of which BadInput for a name that means no queue."""
    settings, target, namespace = read_settings(decisions), choose_target(source), choose_namespace(source)
    refuse_watched_files(source, is_watched=is_watched)
    console, shown, kinds = make_console(), list[list[Report]](), list_kinds()

    def show(reading: ClusterReading) -> None:
        selection = select_queues(reading, asked, namespace, is_given=source.namespace is not None)
        reports, notes = report_queues(reading, selection), list_notes(reading)
        if shown == [reports] and not (console.is_terminal and form in (None, WIDE)):
            return
        begin_next(console, form, is_first=not shown)
        if form in (None, WIDE):
            if not reports:
                where = f"LocalQueue in namespace {namespace}" if selection.namespace is not None else "ClusterQueue"
                write(console, f"there is no {where}", WAITING)
            render_queues(console, reports, reading.outlook.now(), notes=notes, is_wide=form == WIDE)
        else:
            write_data(console, {"queues": reports} | ({"notRead": notes} if notes else {}), form)
        shown[:] = [reports]

    async def read_live() -> None:
        async with cluster_view.connect(target) as client:

            async def read() -> ClusterReading:
                return await read_queues(client, settings, kinds, namespace)

            if is_watched:
                await watch(read, show, SystemClock())
            show(await read())

    if source.files:
        show(ClusterReading(run(cluster_view.read_cluster(source.files, target, settings, kinds, namespace))))
    else:
        run(read_live())


def suggest_topology(source: ClusterSource, names: suggesting.Names) -> None:
    """Runs `topogate topology suggest`: prints objects as YAML on stdout, and on stderr remarks, also on objects of these names that exist
    and differ. Changes nothing in the cluster. Raises Failure."""
    target = choose_target(source)
    nodes = run(cluster_view.list_nodes(source.files, target))
    suggestion = suggesting.suggest(nodes, names)
    there, flavors = (
        run(cluster_view.list_present(source.files, target, suggestion.objects)),
        run(cluster_view.list_flavors(source.files, target)),
    )
    remarks = suggesting.compare_with_present(suggestion.objects, there) + suggesting.compare_with_flavors(suggestion, flavors, nodes)
    for remark in (*suggestion.remarks, *remarks):
        print_remark(remark)
    typer.echo(suggestion.to_yaml(), nl=False)


# --- what was given -----------------------------------------------------------------------------------


def read_settings(decisions: DecisionInputs) -> Settings:
    """Returns the settings as the reconciler reads them from these flags and the file; environment variables of a server have no effect.
    Ends the process with a message and status 2 if they are wrong."""
    arguments = [f"--config={decisions.config}"] if decisions.config is not None else []
    arguments += [f"--feature-gates={gates}" for gates in decisions.gates]
    arguments += [f"--placement-profile={decisions.profile}"] if decisions.profile is not None else []
    return parse(arguments, prog="topogate", environ={})  # flags of the command: the environment variables of a server have no effect


def choose_target(source: ClusterSource) -> Target:
    """Returns the API server to read; where files are read instead, one that is not used. Raises BadInput where files are given together
    with a kubeconfig or a context."""
    if source.files and (source.kubeconfig is not None or source.context is not None):
        raise BadInput("--nodes reads files instead of a cluster: leave out --kubeconfig and --context, or leave out --nodes")
    return Target(source.kubeconfig, source.context)


def choose_namespace(source: ClusterSource) -> str:
    """Returns the namespace of what names none, as for kubectl: what was given, else the context's, else `default`. Where files are read no
    context counts, and a kubeconfig that cannot be read is no error here."""
    named = source.namespace or (None if source.files else find_namespace(source.kubeconfig, source.context))
    return named or DEFAULT_NAMESPACE


def list_kinds() -> tuple[JobKind, ...]:
    """Returns all kinds of job: topogate's own, then those of other packages. Raises Failure where a package's kinds cannot be used."""
    try:
        return with_integrations(plugins.load(INTEGRATIONS))
    except (plugins.BrokenPlugin, UnusableIntegration) as error:
        raise Failure(str(error)) from error


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Runs asynchronous work on an event loop of its own, which is used for nothing else. Returns or raises what the work does."""
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return runner.run(work)
