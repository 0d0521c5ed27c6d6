"""What a command line gives, as all commands use it: settings, the API server, the namespace, and whether an answer is repeated."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from cli.connection import Target
from cli.failures import BadInput, Failure
from cli.inputs import ClusterSource, DecisionInputs
from core.jobs.contract import JobKind
from core.jobs.kinds.registry import INTEGRATIONS, UnusableIntegration, with_integrations
from core.runtime import plugins
from core.runtime.http.kubeconfig import find_namespace
from reconciler.settings import Settings, parse

Result = TypeVar("Result")
DEFAULT_NAMESPACE = "default"


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


def refuse_watched_files(source: ClusterSource, *, is_watched: bool) -> None:
    """Raises BadInput where files are to be watched."""
    if is_watched and source.files:
        raise BadInput("--watch needs a live cluster: leave out --nodes, or leave out --watch")
