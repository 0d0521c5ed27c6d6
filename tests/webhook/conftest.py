"""topogate beside the session's control plane, for the tests here only: registrations hold for the whole cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from e2e.cluster import Cluster
from e2e.otlp import Receiver
from e2e.topogate import REGISTRATIONS, Topogate
from webhook.registration import MUTATING_NAME, VALIDATING_NAME

# No event loop but those of the tests themselves (tests/runtime/conftest.py says why).
asyncio.set_event_loop(None)


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    """What a collector would be sent."""
    with Receiver() as running:
        yield running


@pytest.fixture(scope="module")
def topogate(cluster: Cluster, receiver: Receiver) -> Iterator[Topogate]:
    """Both processes and their registrations; gone when the module's tests are done."""
    running = Topogate(cluster, otlp_endpoint=receiver.endpoint, leader_election=False)
    try:
        yield running.start()
    finally:
        running.stop()
        unregister(cluster)


def unregister(cluster: Cluster) -> None:
    """The API server asks nobody any more."""
    cluster.api.delete(f"{REGISTRATIONS}/mutatingwebhookconfigurations/{MUTATING_NAME}")
    cluster.api.delete(f"{REGISTRATIONS}/validatingwebhookconfigurations/{VALIDATING_NAME}")
