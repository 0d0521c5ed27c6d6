"""The API server that a command reads."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from cli.failures import report_in_a_line
from core.runtime.http.client import Client

USER_AGENT = "topogate-cli"


@dataclass(frozen=True, slots=True)
class Target:
    """Which API server; None: as kubectl has it."""

    kubeconfig: str | None = None
    context: str | None = None


@asynccontextmanager
async def connect(target: Target) -> AsyncIterator[Client]:
    """Yields a client of the target, which is closed at the end. Raises Failure where there is no way to the API server, of which BadInput
    for an unusable kubeconfig.
    """
    with report_in_a_line("connect"):
        client = await Client.connect(target.kubeconfig, context=target.context, user_agent=USER_AGENT)
    async with client:
        yield client
