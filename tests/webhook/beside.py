"""topogate beside the session's control plane for a while: what it registers holds for the whole cluster, so it is taken back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from e2e.cluster import Cluster
from e2e.topogate import REGISTRATIONS, Topogate
from webhook.registration import MUTATING_NAME, VALIDATING_NAME


@contextmanager
def topogate_beside(cluster: Cluster, otlp_endpoint: str | None = None, flags: Sequence[str] = ()) -> Iterator[Topogate]:
    """Both processes and their registrations; nothing of them is left afterwards."""
    running = Topogate(cluster, otlp_endpoint=otlp_endpoint, leader_election=False, flags=flags)
    try:
        yield running.start()
    finally:
        running.stop()
        cluster.api.delete(f"{REGISTRATIONS}/mutatingwebhookconfigurations/{MUTATING_NAME}")
        cluster.api.delete(f"{REGISTRATIONS}/validatingwebhookconfigurations/{VALIDATING_NAME}")
