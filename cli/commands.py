"""What each command but `queue` does, from its arguments to its output."""

from collections.abc import Sequence
from pathlib import Path

import typer

from cli import cluster_view, explaining, finding
from cli import suggest as suggesting
from cli.connection import connect
from cli.given import choose_namespace, choose_target, list_kinds, read_settings, refuse_watched_files, run
from cli.inputs import ClusterSource, DecisionInputs
from cli.planning import plan_command
from cli.planning.documents import read_documents
from cli.reading.watching import watch
from cli.reporting import topology_command
from cli.reporting.draw import begin_next, make_console, write_data
from cli.reporting.report import Report
from cli.reporting.table import print_remark
from core.runtime.clock import SystemClock


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
        async with connect(target) as client:

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
