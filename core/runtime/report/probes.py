"""HTTP without TLS for the probes of the kubelet, and for scrapers of metrics.

A probe is answered by the event loop that it checks: a blocked one does not answer at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from aiohttp import web

from core.runtime.report.metrics import Metrics

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
WhyNot = Callable[[], str]
"""Returns what is wrong; empty where all is well."""

HEALTH, READY, METRICS = "/healthz", "/readyz", "/metrics"


@asynccontextmanager
async def serve_probes(
    host: str,
    *,
    metrics: Metrics,
    metrics_port: int,
    metrics_host: str | None = None,
    health_port: int = 0,
    why_not_alive: WhyNot = str,
    why_not_ready: WhyNot = str,
) -> AsyncGenerator[None]:
    """Serves probes (`HEALTH`, `READY`) on `health_port` and metrics (`METRICS`) on `metrics_port` until the block ends, by plain HTTP. A
    port of 0 is not served, and both may be the same. `metrics_host` is another than that of probes (None: the same). A probe answers 503
    with the reason, where its function returns one, else 200.

    Raises OSError where a port is taken."""
    probes = [web.get(HEALTH, _make_probe(why_not_alive)), web.get(READY, _make_probe(why_not_ready))]
    scraped = [web.get(METRICS, _make_scrape(metrics))]
    routes: dict[tuple[str, int], list[web.RouteDef]] = {}
    for address, of_port in (((host, health_port), probes), ((metrics_host or host, metrics_port), scraped)):
        if address[1]:
            routes.setdefault(address, []).extend(of_port)
    async with AsyncExitStack() as running:
        for (at, port), of_port in routes.items():
            await _serve(running, at, port, of_port)
        yield


async def _serve(running: AsyncExitStack, host: str, port: int, routes: list[web.RouteDef]) -> None:
    app = web.Application()
    app.add_routes(routes)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, handle_signals=False)
    await runner.setup()
    running.push_async_callback(runner.cleanup)
    await web.TCPSite(runner, host, port, reuse_address=True).start()


def _make_probe(why_not: WhyNot) -> Handler:
    async def answer(_: web.Request) -> web.StreamResponse:
        why = why_not()
        return web.Response(status=503, text=f"not ok: {why}") if why else web.Response(text="ok")

    return answer


def _make_scrape(metrics: Metrics) -> Handler:
    one_at_a_time = asyncio.Lock()  # what the SDK collects is handed on in one place

    async def answer(request: web.Request) -> web.StreamResponse:
        async with one_at_a_time:
            metrics.refresh()
            # Thousands of lines take longer to write than the event loop has to give.
            body, content_type = await asyncio.to_thread(metrics.expose, request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})

    return answer
