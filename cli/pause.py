"""`topogate pause` and `topogate resume`: an administrator's stop button (docs/pausing.md). `register(app)` adds both
commands.

The work is done in `cli.stopping`, which is only imported when a command runs, so that completion does not wait for it.
"""

from collections.abc import Callable, Coroutine, Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.reporting.table import print_line
from core.model.pause_state import PAUSABLE
from core.names import SYSTEM_NAMESPACE

if TYPE_CHECKING:
    from core.runtime.http.client import Client


class What(StrEnum):
    """What can be paused."""

    ADMISSIONS = "admissions"
    EVICTIONS = "evictions"
    ALL = "all"

    @property
    def parts(self) -> tuple[str, ...]:
        """Returns each thing that is to be paused: admissions, evictions or both."""
        return PAUSABLE if self is What.ALL else (self.value,)


class PauseTarget(StrEnum):
    """What can be paused, or whether anything is."""

    ADMISSIONS = "admissions"
    EVICTIONS = "evictions"
    ALL = "all"
    STATUS = "status"


Kubeconfig = Annotated[str | None, typer.Option("--kubeconfig", metavar="FILE", help="Default: $KUBECONFIG, then ~/.kube/config.")]
Context = Annotated[str | None, typer.Option("--context", metavar="NAME", help="Of the kubeconfig; default: its current one.")]
Namespace = Annotated[str, typer.Option("--namespace", "-n", help="Where the reconciler is.")]
Waits = Annotated[bool, typer.Option("--wait/--no-wait", help="Until all ClusterQueues say that it is in force, 10 s at most.")]


def register(app: typer.Typer) -> None:
    """Adds the commands `pause` and `resume` to an app."""
    app.command("pause")(pause)
    app.command("resume")(resume)


def pause(
    what: Annotated[PauseTarget, typer.Argument(help="What to pause; or status, which only says what is paused.")],
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="The reason; shown in the condition of each workload that waits.")
    ] = "",
    namespace: Namespace = SYSTEM_NAMESPACE,
    wait: Waits = True,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Pause admissions (nothing is admitted), evictions (nothing is evicted), or all. What runs runs on.

    Holds until `topogate resume`, whatever is restarted. Exit code 1: it cannot be done, or ClusterQueues do not say so; 2: bad input.
    """
    from cli.failures import BadInput
    from cli.stopping import list_status_lines, set_pause
    from core.runtime.clock import SystemClock

    if what is not PauseTarget.STATUS:
        parts = What(what.value).parts
        _report(kubeconfig, context, lambda client: set_pause(client, SystemClock(), namespace, parts, reason, wait=wait))
    elif reason:
        raise BadInput("--reason is for pausing; leave it out to see the status")
    else:
        _report(kubeconfig, context, lambda client: list_status_lines(client, namespace))


def resume(
    what: Annotated[What, typer.Argument(help="What is to go on.")],
    namespace: Namespace = SYSTEM_NAMESPACE,
    wait: Waits = True,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Let admissions, evictions, or all go on. What has waited is decided on at once.

    What is not paused is no error. Exit code 1: it cannot be done, or it is written and ClusterQueues do not say so; 2: bad input.
    """
    from cli.stopping import release
    from core.runtime.clock import SystemClock

    _report(kubeconfig, context, lambda client: release(client, SystemClock(), namespace, what.parts, wait=wait))


def _report(kubeconfig: str | None, context: str | None, work: Callable[["Client"], Coroutine[Any, Any, Iterable[str]]]) -> None:
    from cli.stopping import run

    for line in run(kubeconfig, context, work):
        print_line(line)
