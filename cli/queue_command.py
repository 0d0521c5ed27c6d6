"""`topogate queue`, from its arguments to its output. It imports nothing that it does not need: people wait for it."""

from cli.connection import connect
from cli.given import WIDE, begin_next, choose_namespace, choose_target, list_kinds, read_settings, refuse_watched_files, run
from cli.inputs import ClusterSource, DecisionInputs
from cli.permitted_reading import ClusterReading
from cli.queue_reading import read_queues, watch
from cli.reporting.draw import WAITING, make_console, write, write_data
from cli.reporting.queue_drawing import render_queues
from cli.reporting.queue_report import list_notes, report_queues, select_queues
from cli.reporting.report import Report
from core.runtime.clock import SystemClock


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
        async with connect(target) as client:

            async def read() -> ClusterReading:
                return await read_queues(client, settings, kinds, namespace)

            if is_watched:
                await watch(read, show, SystemClock())
            show(await read())

    if source.files:
        from cli import cluster_view

        show(ClusterReading(run(cluster_view.read_cluster(source.files, target, settings, kinds, namespace))))
    else:
        run(read_live())
