"""`topogate queue`, from its arguments to its output. It imports nothing that it does not need, and the most of that while it reads: people
wait for it."""

import asyncio
from importlib import import_module

from cli.connection import connect
from cli.given import choose_namespace, choose_target, list_kinds, read_settings, refuse_watched_files, run
from cli.inputs import ClusterSource, DecisionInputs
from cli.reading.permitted_lists import list_queues

_OUTPUT = "cli.queue_output"


def show_queues(asked: str | None, source: ClusterSource, decisions: DecisionInputs, form: str | None, *, is_watched: bool) -> None:
    """Runs `topogate queue`: prints the queues that `asked` means (None: all that concern the namespace that is given, or all). `form` is
    `json` or `yaml` for data, `wide` for more columns. Where it `is_watched` it prints them again whenever they have changed, and on a
    terminal every few seconds, until it is interrupted. Raises Failure, of which BadInput for a name that means no queue."""
    settings, target, namespace = read_settings(decisions), choose_target(source), choose_namespace(source)
    refuse_watched_files(source, is_watched=is_watched)
    kinds = list_kinds()

    async def read_live() -> None:
        async with connect(target) as client:
            if is_watched:
                from cli.queue_output import QueueOutput, watch_queues

                await watch_queues(QueueOutput(asked, source, namespace, form), client, settings, kinds)
                return
            listed, _ = await asyncio.gather(list_queues(client, settings.namespace, namespace), asyncio.to_thread(import_module, _OUTPUT))
            from cli.queue_output import QueueOutput, read_queues

            QueueOutput(asked, source, namespace, form).show(read_queues(listed, client, settings, kinds))

    if source.files:
        from cli import cluster_view
        from cli.queue_output import QueueOutput
        from cli.reading.permitted_reading import ClusterReading

        read = ClusterReading(run(cluster_view.read_cluster(source.files, target, settings, kinds, namespace)))
        QueueOutput(asked, source, namespace, form).show(read)
    else:
        run(read_live())
