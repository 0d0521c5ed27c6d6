"""Reviews a second and how long each takes, by kind and size; beside reviews of 7 MiB; and through the API server.

    python -m tests.bench.webhook [--seconds S] [--json]

Direct: eight clients, each with its next review once the last is answered, to the webhook process over TLS. Through the
API server: dry-run creations of Jobs begun at a steady rate, each of which is two reviews. Aims: an ordinary review under
5 ms, one of 7 MiB under 400 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import ssl
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import aiohttp

from core.names import QUEUE_NAME_LABEL, REQUIRED_TOPOLOGY
from e2e import manifests
from e2e.binaries import ensure_binaries
from e2e.cluster import Cluster
from e2e.standins.base import build_crd
from e2e.topogate import Topogate
from webhook.registration import build_hook_path

NAMESPACE = "bench"
CLIENTS = 8
RATES = (100, 500)  # reviews a second through the API server
LARGE = 7 * 1024 * 1024
RACK = "cloud.provider.com/topology-rack"
Row = dict[str, Any]


def jobset() -> dict[str, Any]:
    template = manifests.build_job("any", NAMESPACE, pods=4, required=RACK)["spec"]
    job = {key: template[key] for key in ("parallelism", "completions", "template")}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "set", "namespace": NAMESPACE, "labels": {QUEUE_NAME_LABEL: "main"}},
        "spec": {"replicatedJobs": [{"name": f"part-{i}", "replicas": 2, "template": {"spec": job}} for i in range(4)]},
    }


def workload() -> dict[str, Any]:
    template = manifests.build_job("any", NAMESPACE, pods=4)["spec"]["template"]
    pod_set = {"name": "main", "count": 4, "template": template, "topologyRequest": {"required": RACK}}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": NAMESPACE},
        "spec": {"queueName": "main", "podSets": [pod_set]},
    }


def wrong_job() -> dict[str, Any]:
    """Three mistakes, all of which are told."""
    job = manifests.build_job("wrong", NAMESPACE, pods=7, slice_topology="no label!", slice_size=2, preferred="a b")
    job["spec"]["template"]["metadata"]["annotations"][REQUIRED_TOPOLOGY] = "c d"
    return job


def large_job() -> dict[str, Any]:
    job = manifests.build_job("large", NAMESPACE, pods=4, required=RACK)
    value = "x" * 1000
    container = job["spec"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": f"V{i}", "value": value} for i in range(LARGE // 1040)]
    return job


def review(obj: dict[str, Any]) -> bytes:
    """A creation."""
    group, _, version = obj["apiVersion"].rpartition("/")
    plural = manifests.get_path(obj).rpartition("/")[2]
    request = {
        "uid": "bench",
        "kind": {"group": group, "version": version, "kind": obj["kind"]},
        "resource": {"group": group, "version": version, "resource": plural},
        "operation": "CREATE",
        "namespace": NAMESPACE,
        "name": obj["metadata"]["name"],
        "userInfo": {"username": "bench"},
        "object": obj,
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


CASES: dict[str, tuple[str, Callable[[], dict[str, Any]]]] = {
    "mutate Job": ("mutate", lambda: manifests.build_job("train", NAMESPACE, pods=4, required=RACK)),
    "validate Job": ("validate", lambda: manifests.build_job("train", NAMESPACE, pods=4, required=RACK)),
    "validate Job, three mistakes": ("validate", wrong_job),
    "mutate JobSet": ("mutate", jobset),
    "validate JobSet": ("validate", jobset),
    "validate Workload": ("validate", workload),
    "mutate Job of 7 MiB": ("mutate", large_job),
}


def summary(name: str, took: Sequence[float], seconds: float) -> Row:
    ordered = sorted(took)

    def at(share: float) -> float:
        return round(1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))], 2)

    return {"case": name, "per_second": round(len(took) / seconds), "p50_ms": at(0.5), "p99_ms": at(0.99)}


async def closed_loop(ask: Callable[[], Awaitable[None]], seconds: float, clients: int = CLIENTS) -> tuple[list[float], float]:
    """How long each of many requests took, each client's next one sent once the last is answered."""
    took: list[float] = []
    start = time.perf_counter()

    async def client() -> None:
        while time.perf_counter() - start < seconds:
            began = time.perf_counter()
            await ask()
            took.append(time.perf_counter() - began)

    await asyncio.gather(*(client() for _ in range(clients)))
    return took, time.perf_counter() - start


async def steady(ask: Callable[[], Awaitable[None]], rate: float, seconds: float) -> tuple[list[float], float]:
    """The same for requests begun at a steady rate, whether those before are answered or not."""
    took: list[float] = []

    async def one() -> None:
        began = time.perf_counter()
        await ask()
        took.append(time.perf_counter() - began)

    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for i in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, start + i / rate - time.perf_counter()))
            group.create_task(one())
    return took, time.perf_counter() - start


async def measure_direct(session: aiohttp.ClientSession, url: str, seconds: float) -> list[Row]:
    def asking(action: str, obj: dict[str, Any]) -> Callable[[], Awaitable[None]]:
        group, _, version = obj["apiVersion"].rpartition("/")
        path, body = build_hook_path(action, group, version, obj["kind"]), review(obj)

        async def ask() -> None:
            async with session.post(url + path, data=body) as reply:
                answer = await reply.json()
                assert reply.status == 200, answer

        return ask

    rows = []
    for name, (action, make) in CASES.items():
        clients = 1 if "7 MiB" in name else CLIENTS
        rows.append(summary(name, *await closed_loop(asking(action, make()), seconds, clients)))
    small, large = asking(*_made("mutate Job")), asking(*_made("mutate Job of 7 MiB"))
    others = asyncio.create_task(closed_loop(large, seconds, 1))
    rows.append(summary("mutate Job beside one of 7 MiB after the other", *await steady(small, 50, seconds)))
    await others
    return rows


def _made(name: str) -> tuple[str, dict[str, Any]]:
    action, make = CASES[name]
    return action, make()


async def measure_through(
    session: aiohttp.ClientSession, server: str, token: str, seconds: float, rates: Sequence[int] = RATES
) -> list[Row]:
    headers = {"Authorization": f"Bearer {token}"}
    job = manifests.build_job("train", NAMESPACE, pods=4, required=RACK)
    job["metadata"] = {**job["metadata"], "generateName": "train-"}
    del job["metadata"]["name"]
    url = f"{server}{manifests.get_path(job)}?dryRun=All"

    failed = 0

    async def create() -> None:
        nonlocal failed
        async with session.post(url, json=job, headers=headers) as reply:
            await reply.read()
            failed += reply.status != 201

    rows = []
    for rate in rates:
        failed = 0
        took, lasted = await steady(create, rate / 2, seconds)
        row = summary(f"Job through the API server, {rate} reviews/s asked", took, lasted)
        rows.append(row | {"per_second": 2 * int(row["per_second"]), "failed": failed})
    return rows


async def measure(seconds: float) -> list[Row]:
    with Cluster() as cluster:
        cluster.api.create(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", build_crd("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")
        )
        with Topogate(cluster, leader_election=False) as topogate:
            cluster.create_namespace(NAMESPACE)
            tls = ssl.create_default_context(cadata=topogate.ca_bundle.decode())
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls, limit=0)) as session:
                rows = await measure_direct(session, topogate.webhook_url, seconds)
            trusted = ssl.create_default_context(cafile=str(cluster.ca_file))
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusted, limit=0)) as session:
                rows += await measure_through(session, cluster.server, cluster.token, seconds)
    return rows


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.webhook", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement (default: %(default)s)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    ensure_binaries()
    rows = asyncio.run(measure(options.seconds))
    if options.json:
        print(json.dumps(rows))
        return 0
    for row in rows:
        failed = f"   {row['failed']} failed" if row.get("failed") else ""
        print(f"{row['case']:<52} {row['per_second']:>6} /s   p50 {row['p50_ms']:>8.2f} ms   p99 {row['p99_ms']:>8.2f} ms{failed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
