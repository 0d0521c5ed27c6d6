"""10,000 waiting workloads in 30 queues: how long `topogate queue` takes, how soon pages of the visibility API are answered, and what that
costs decisions.

    python -m tests.bench.visibility [--workloads 10000] [--queues 30] [--seconds 20] [--rate 50]

The command is a process of its own, timed from its start to its end; it lists by HTTP what an API server would have. Pages are asked for
over TLS by another process, at moments that are fixed beforehand: one that is late counts as slow. The loop that answers decides on
workloads that come at moments fixed beforehand, too, and in turn with pages and without. `decision_ms` is from such a moment to the
verdict; `busy_per_s` are decisions a second where the next one begins at once, which leaves no idle time for anything else.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import aiohttp

from core.names import QUOTA_RESERVED
from core.plan.steps import api_resources as r
from core.queueing.flavors.outcome import Admissible
from core.state.facts import WorkloadFacts
from e2e import manifests
from reconciler.visibility.api_documents import ROOT
from tests.answers import serve_bodies
from tests.builders import NAMESPACE, RACK, build_condition_json, build_pod_set_json, build_workload_json
from tests.cli.lives import build_queued_job
from tests.reconciler.visibility.serving import PROXY, SERVER_CA, USER, Visibility

Json = dict[str, Any]
MOST_COMMAND_S, MOST_P99_MS, MOST_SLOWDOWN = 2.0, 100.0, 1.05
LIMIT, ROUNDS, COMMANDS = 100, 4, 3
DECISIONS_PER_S = 50
NODES_A_RACK, RACKS = 16, 160
_WHY = 'couldn\'t assign flavors to pod set main: flavor "tas": needs 8 more nvidia.com/gpu; 64 of 64 in use'


# --- the command ------------------------------------------------------------------------------------------


def build_lists(workloads: int, queues: int) -> dict[str, list[Json]]:
    """What an API server has, by the path of its list."""
    _, model = build_queued_job(manifests.build_job("job", "default", pods=8, required=RACK))
    [owner] = model["metadata"]["ownerReferences"]
    waits = build_condition_json(QUOTA_RESERVED, status=False, reason="Pending", message=_WHY)
    found: dict[str, list[Json]] = {
        r.NAMESPACES.build_path(): [{"kind": "Namespace", "metadata": {"name": "default", "uid": "default", "resourceVersion": "1"}}],
        r.TOPOLOGIES.build_path(): [manifests.build_topology("t", [RACK])],
        r.RESOURCE_FLAVORS.build_path(): [manifests.build_flavor("tas", {"pool": "gpu"}, "t")],
        r.CLUSTER_QUEUES.build_path(): [manifests.build_cluster_queue(f"q{i}", {"tas": {"cpu": "64"}}) for i in range(queues)],
        r.LOCAL_QUEUES.build_path(): [manifests.build_local_queue(f"q{i}", "default", f"q{i}") for i in range(queues)],
        r.WORKLOADS.build_path(): [
            {
                **model,
                "metadata": {
                    **model["metadata"],
                    "name": f"job-{i:05}-a1b2c",
                    "uid": f"w{i}",
                    "ownerReferences": [{**owner, "name": f"job-{i:05}"}],
                },
                "spec": {**model["spec"], "queueName": f"q{i % queues}", "priority": i % 7},
                "status": {"conditions": [waits]},
            }
            for i in range(workloads)
        ],
    }
    for objects in found.values():
        for obj in objects:
            metadata = obj["metadata"]
            obj["metadata"] = {"uid": metadata["name"], "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z", **metadata}
    return found


@contextmanager
def serve(lists: dict[str, list[Json]]) -> Iterator[str]:
    """An API server of these lists alone, in pages that are encoded beforehand; all other lists are empty. Yields its address."""
    pages: dict[tuple[str, str], bytes] = {}
    for path, objects in lists.items():
        for begin in range(0, max(1, len(objects)), 500):
            more = {"continue": str(begin + 500)} if begin + 500 < len(objects) else {}
            page = {"items": objects[begin : begin + 500], "metadata": {"resourceVersion": "1", **more}}
            pages[path, str(begin) if begin else ""] = json.dumps(page).encode()
    none = json.dumps({"items": [], "metadata": {"resourceVersion": "1"}}).encode()

    def answer(path: str) -> tuple[int, bytes]:
        plain, _, query = path.partition("?")
        return 200, pages.get((plain, parse_qs(query).get("continue", [""])[0]), none)

    with serve_bodies(answer) as address:
        yield address


def time_command(workloads: int, queues: int) -> tuple[list[float], list[float]]:
    """Seconds that each of some runs of `topogate queue` takes, and seconds of processor time."""
    took, cpu = [], []
    with serve(build_lists(workloads, queues)) as address, tempfile.TemporaryDirectory() as folder:
        kubeconfig = Path(folder) / "kubeconfig"
        named = {"cluster": {"server": address}, "name": "c"}, {"context": {"cluster": "c", "user": "u"}, "name": "c"}
        config = {"clusters": [named[0]], "contexts": [named[1]], "users": [{"name": "u", "user": {}}], "current-context": "c"}
        kubeconfig.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **config}))
        for _ in range(COMMANDS):
            began, used = time.perf_counter(), _sum_cpu_of_children()
            command = [sys.executable, "-m", "cli", "queue", "--kubeconfig", str(kubeconfig)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            took.append(time.perf_counter() - began)
            cpu.append(_sum_cpu_of_children() - used)
            assert f"job-{workloads - 1:05}" in done.stdout
    return took, cpu


def _sum_cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


# --- pages, and decisions beside them ---------------------------------------------------------------------


class Loaded(Visibility):
    """The server, with workloads that wait for quota that others have; `decide` admits one more and lets it go."""

    def __init__(self, folder: Path, workloads: int, queues: int) -> None:
        super().__init__(folder)
        (folder / "ca.pem").write_bytes(SERVER_CA.certificate)
        (folder / "client.pem").write_bytes(PROXY.certificate + PROXY.key)
        for number in range(RACKS):
            self.scene.rack(f"r{number}", NODES_A_RACK)
        for number in range(queues):
            self.scene.queue(f"q{number}", {"tas": "0"})
            self.scene.local_queue(f"q{number}", f"q{number}")
        self.scene.queue("cq", {"tas": "1000"})
        for number in range(workloads):
            self.submit(f"w{number:05}", f"q{number % queues}", priority=number % 7)
        while list(self.scene.cycle.run()):
            pass  # until every one of them is refused
        self._next = 0

    def decide(self) -> None:
        """Decides on a new workload and takes it away again."""
        self._next += 1
        name = f"new{self._next}"
        workload = build_workload_json(name, [build_pod_set_json(count=8, topology={"required": RACK})])
        key = f"{NAMESPACE}/{name}"
        self.scene.state.observe_workload(key, WorkloadFacts.read(workload))
        while not (found := [verdict.outcome for verdict in self.scene.cycle.run() if verdict.workload.key == key]):
            pass  # it has its turn in a later cycle
        assert isinstance(found[0], Admissible), found
        self.scene.state.observe_workload(key, None)


async def decide_in_time(loaded: Loaded, seconds: float) -> list[float]:
    """Milliseconds from the moment at which each workload comes to its verdict."""
    took, began = [], time.perf_counter()
    for number in range(int(seconds * DECISIONS_PER_S)):
        due = began + number / DECISIONS_PER_S
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        loaded.decide()
        took.append((time.perf_counter() - due) * 1000)
    return took


async def decide_at_once(loaded: Loaded, seconds: float) -> float:
    """Decisions a second, one after the other."""
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        loaded.decide()
        count += 1
        await asyncio.sleep(0)
    return count / (time.perf_counter() - began)


async def ask(address: str, folder: Path, queues: int, rate: float, seconds: float) -> list[float]:
    """Milliseconds until each page was read, from the moment at which it was to be asked for. Runs in a process of its own."""
    tls = ssl.create_default_context(cafile=folder / "ca.pem")
    tls.load_cert_chain(folder / "client.pem")
    took: list[float] = []
    async with aiohttp.ClientSession(address, headers=USER, connector=aiohttp.TCPConnector(ssl=tls, limit=8)) as session:
        print(flush=True)  # it begins
        began = time.perf_counter()

        async def get(number: int) -> None:
            due = began + number / rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            page = f"{ROOT}/clusterqueues/q{number % queues}/pendingworkloads?limit={LIMIT}&offset={number % 3 * LIMIT}"
            async with session.get(page) as reply:
                found = await reply.json()
            assert reply.status == 200, found
            assert len(found["items"]) > 0
            took.append((time.perf_counter() - due) * 1000)

        await asyncio.gather(*(get(number) for number in range(int(rate * seconds))))
    return took


async def measure(loaded: Loaded, folder: Path, options: argparse.Namespace) -> Json:
    """Decisions with pages and without in turn, and the pages."""
    delays: dict[bool, list[float]] = {False: [], True: []}
    busy: dict[bool, list[float]] = {False: [], True: []}
    pages: list[float] = []
    pages_of_busy: list[float] = []
    share = options.seconds / ROUNDS / 2
    async with loaded.open():
        updating = asyncio.create_task(loaded.pages.run(loaded.clock))
        for _ in range(ROUNDS):
            for is_asked in (False, True):
                for found, work in ((pages, decide_in_time), (pages_of_busy, decide_at_once)):
                    client = await start_client(loaded.address, folder, options, share) if is_asked else None
                    result = await work(loaded, share)
                    if isinstance(result, list):
                        delays[is_asked] += result
                    else:
                        busy[is_asked].append(result)
                    if client is not None:
                        out, _ = await client.communicate()
                        found += json.loads(out)
        updating.cancel()
    return {
        "pages": len(pages),
        **_show("page", pages),
        **_show("page_while_busy", pages_of_busy),
        **{f"decision_{name}_ms": round(statistics.mean(delays[is_asked]), 3) for name, is_asked in (("without", False), ("with", True))},
        "decision_ratio": round(statistics.mean(delays[True]) / statistics.mean(delays[False]), 3),
        **{f"busy_{name}_per_s": round(statistics.mean(busy[is_asked])) for name, is_asked in (("without", False), ("with", True))},
        "busy_ratio": round(statistics.mean(busy[False]) / statistics.mean(busy[True]), 3),
    }


async def start_client(address: str, folder: Path, options: argparse.Namespace, seconds: float) -> asyncio.subprocess.Process:
    """Starts the process that asks; it has begun to ask when this returns."""
    arguments = ["--ask", address, "--folder", str(folder), "--queues", str(options.queues), "--rate", str(options.rate)]
    command = [sys.executable, "-m", "tests.bench.visibility", *arguments, "--seconds", str(seconds)]
    client = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert client.stdout is not None
    assert await client.stdout.readline() == b"\n"
    return client


def _show(name: str, took: Sequence[float]) -> dict[str, float]:
    ordered = sorted(took)
    return {
        f"{name}_{part}_ms": round(ordered[min(len(ordered) - 1, int(at * len(ordered)))], 1) for part, at in (("p50", 0.5), ("p99", 0.99))
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.visibility", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workloads", type=int, default=10_000)
    parser.add_argument("--queues", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=40.0, help="of decisions with pages, and as many without")
    parser.add_argument("--rate", type=float, default=50.0, help="pages a second")
    parser.add_argument("--ask", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.ask:
        print(json.dumps(asyncio.run(ask(options.ask, options.folder, options.queues, options.rate, options.seconds))))
        return 0
    load = os.getloadavg()[0]
    took, cpu = time_command(options.workloads, options.queues)
    row: Json = {"command_s": [round(each, 2) for each in took], "command_cpu_s": [round(each, 2) for each in cpu]}
    with tempfile.TemporaryDirectory() as folder:
        row |= asyncio.run(measure(Loaded(Path(folder), options.workloads, options.queues), Path(folder), options))
    row["load_before_after"] = [round(load, 2), round(os.getloadavg()[0], 2)]
    print("\n".join(f"{name:<24} {value}" for name, value in row.items()))
    for name, value, most in (
        ("topogate queue, s", statistics.median(took), MOST_COMMAND_S),
        ("pages, p99, ms", row["page_p99_ms"], MOST_P99_MS),
        ("decisions, ratio", row["decision_ratio"], MOST_SLOWDOWN),
    ):
        print(f"{name}: {value:.3g}, at most {most:g}: {'held' if value <= most else 'NOT HELD'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
