"""Case (c): how long a Job takes to be created by the API server with the webhooks of the manager, at several rates."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence

import aiohttp

from e2e.cluster import Cluster
from tests.bench.compared.managers import Measured, Window, make_manager
from tests.bench.webhook import NAMESPACE, measure_through

RATES = (50, 200, 400)
REVIEWS_OF_A_JOB = 2


def measure_reviews(subject: str, seconds: float) -> Measured:
    """One run on a new control plane: each rate for so many seconds, after as many at the lowest that are not measured."""
    with Cluster() as cluster, make_manager(subject, cluster) as manager:
        cluster.create_namespace(NAMESPACE)
        asyncio.run(_ask(cluster, (RATES[0],), seconds))
        window = Window(cluster, manager)
        rows = asyncio.run(_ask(cluster, RATES, seconds))
        figures = dict[str, float]()
        for rate, row in zip(RATES, rows, strict=True):
            figures |= {f"{rate} reviews a second, p50, ms": row["p50_ms"], f"{rate} reviews a second, p99, ms": row["p99_ms"]}
        figures["creations that failed"] = sum(row["failed"] for row in rows)
        return window.close(sum(int(rate / REVIEWS_OF_A_JOB * seconds) for rate in RATES), figures)


async def _ask(cluster: Cluster, rates: Sequence[int], seconds: float) -> list[dict[str, float]]:
    trusted = ssl.create_default_context(cafile=str(cluster.ca_file))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusted, limit=0)) as session:
        return await measure_through(session, cluster.server, cluster.token, seconds, rates)
