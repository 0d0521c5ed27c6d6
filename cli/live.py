"""A cluster looked at once, as the reconciler would see it if it started now."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from cli.failures import told_in_a_line
from core.jobs.contract import JobKind
from core.runtime.client import Client
from core.runtime.clock import SystemClock
from core.runtime.informer import Informer
from reconciler.outlook import Outlook
from reconciler.settings import Settings

USER_AGENT = "topogate-cli"


@dataclass(frozen=True, slots=True)
class Target:
    """Which API server; None: as kubectl has it."""

    kubeconfig: str | None = None
    context: str | None = None


@asynccontextmanager
async def connected(target: Target) -> AsyncIterator[Client]:
    """A client; raises Failure where there is no way to the API server."""
    with told_in_a_line("connect"):
        client = await Client.connect(target.kubeconfig, context=target.context, user_agent=USER_AGENT)
    async with client:
        yield client


async def look(client: Client, settings: Settings, kinds: Sequence[JobKind]) -> Outlook:
    """The whole cluster, listed once; raises Failure."""
    outlook = Outlook(client, SystemClock(), settings, kinds)
    await outlook.observed.list_once(_list)
    return outlook


async def _list(informer: Informer) -> None:
    with told_in_a_line(f"list {informer.resource}", informer.resource):
        await informer.list_once()
