"""The topogate of a test process: installed once beside its control plane, for all modules that use one."""

from __future__ import annotations

from collections.abc import Sequence

from e2e.cluster import Cluster
from e2e.topogate import Topogate


class Installed:
    """Definitions, accounts, webhooks and policies stay from the first use to the end. The processes are restarted where a module
    needs other options, or where the one before it has left them otherwise than they were started."""

    def __init__(self, cluster: Cluster, kind: type[Topogate] = Topogate) -> None:
        self._cluster, self._kind = cluster, kind
        self._topogate: Topogate | None = None
        self._options: object = None

    def run(
        self, *, otlp_endpoint: str | None = None, leader_election: bool = False, flags: Sequence[str] = (), is_fresh: bool = False
    ) -> Topogate:
        """The running topogate with these options. Without leader election a killed reconciler can be followed at once. `is_fresh`:
        both processes start now, as a user starts them, and again for the next module."""
        options = (otlp_endpoint, leader_election, tuple(flags))
        if self._topogate is None:
            topogate = self._kind(self._cluster, otlp_endpoint=otlp_endpoint, leader_election=leader_election, flags=flags, are_copies=True)
            self._topogate = topogate.start()
        elif is_fresh or options != self._options or not self._topogate.is_as_started:
            self._topogate.are_copies = not is_fresh
            self._topogate.restart(
                otlp_endpoint=otlp_endpoint,
                leader_election=leader_election,
                flags=flags,
                keeps_webhook=not is_fresh and self._options is not None,
            )
        self._options = None if is_fresh else options
        return self._topogate

    def stop(self) -> None:
        """Ends both processes and removes what holds for the whole cluster."""
        if self._topogate is not None:
            self._topogate.stop()
            self._topogate = None
