"""What `topogate queue` prints, of lists that have been read. It is imported while they are read."""

from collections.abc import Sequence

from cli.inputs import WIDE, ClusterSource
from cli.reading.permitted_lists import ListedQueues, list_queues
from cli.reading.permitted_reading import ClusterReading
from cli.reading.watching import watch
from cli.reporting.draw import WAITING, begin_next, make_console, write, write_data
from cli.reporting.queue_drawing import render_queues
from cli.reporting.queue_report import list_notes, report_queues, select_queues
from cli.reporting.report import Report
from core.jobs.contract import JobKind
from core.runtime.clock import SystemClock
from core.runtime.http.client import Client
from reconciler.measure.outlook import Outlook
from reconciler.settings import Settings


def read_queues(listed: ListedQueues, client: Client, settings: Settings, kinds: Sequence[JobKind]) -> ClusterReading:
    """Returns what a reconciler would know of what was listed. Sends nothing."""
    outlook = Outlook(client, SystemClock(), settings, kinds)
    outlook.observed.fill(listed.objects)
    return ClusterReading(outlook, listed.namespace, listed.unreadable)


class QueueOutput:
    """Prints queues. `form` is `json` or `yaml` for data, `wide` for more columns."""

    def __init__(self, asked: str | None, source: ClusterSource, namespace: str, form: str | None) -> None:
        self._console, self._asked, self._source, self.namespace, self._form = make_console(), asked, source, namespace, form
        self._shown: list[Report] | None = None

    def show(self, reading: ClusterReading) -> None:
        """Prints the queues that `asked` means. What has been printed before is printed again on a terminal only. Raises Failure, of which
        BadInput for a name that means no queue."""
        console, form = self._console, self._form
        selection = select_queues(reading, self._asked, self.namespace, is_given=self._source.namespace is not None)
        reports, notes = report_queues(reading, selection), list_notes(reading)
        if self._shown == reports and not (console.is_terminal and form in (None, WIDE)):
            return
        begin_next(console, form, is_first=self._shown is None)
        if form in (None, WIDE):
            if not reports:
                where = f"LocalQueue in namespace {self.namespace}" if selection.namespace is not None else "ClusterQueue"
                write(console, f"there is no {where}", WAITING)
            render_queues(console, reports, reading.outlook.now(), notes=notes, is_wide=form == WIDE)
        else:
            write_data(console, {"queues": reports} | ({"notRead": notes} if notes else {}), form)
        self._shown = reports


async def watch_queues(output: QueueOutput, client: Client, settings: Settings, kinds: Sequence[JobKind]) -> None:
    """Reads queues and prints them again and again, until it is cancelled. Raises Failure as `watch` does."""

    async def read() -> ClusterReading:
        return read_queues(await list_queues(client, settings.namespace, output.namespace), client, settings, kinds)

    await watch(read, output.show, SystemClock())
