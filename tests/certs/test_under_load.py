"""Two rotations of the CA under 200 admission requests a second through the API server: none fails.

Jobs are created by dry run, with arrivals at given times that wait for no answer, unless there are very many without one: what a busy
machine is late with comes later, so that the rate holds. Once a second forty come at one moment, more than the connections that an API
server keeps, so that new handshakes are made all the time, in each state of the rotation.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections import Counter
from collections.abc import Iterator

import aiohttp
import pytest

from e2e import manifests
from e2e.api import wait_for
from e2e.cluster import Cluster
from tests.certs.replicas import Replicas, compute_digest

RATE = 100  # jobs a second; each is two admission requests, one to each webhook
BURST = 40
ENOUGH = 10  # new connections to a webhook in each state of a rotation
SWITCHED, DROPPED = "the serving certificate is now of the new CA", "the former CA is dropped"
UNANSWERED = 80  # jobs; beyond, it would be measured how a machine goes under when each of its requests takes a handshake
# So they look every 0.75 s, and a rotation takes some fifteen.
SHORT = ("--cert-settle=1", "--cert-overlap=12", "--log-level=DEBUG")


@pytest.fixture
def replicas(cluster: Cluster, namespace: str) -> Iterator[Replicas]:
    with Replicas(cluster, namespace, *SHORT) as running:
        yield running.start()


class Load:
    """Counts answers by what they were. `stop` ends the arrivals; all that were sent are waited for."""

    def __init__(self, cluster: Cluster, replicas: Replicas, unanswered: int = UNANSWERED) -> None:
        """At most so many jobs are on their way."""
        job = replicas.job()
        self._url = f"{cluster.server}{manifests.get_path(job)}?dryRun=All"
        self._body = json.dumps(job).encode()
        self._headers = {"Authorization": f"Bearer {cluster.token}", "Content-Type": "application/json"}
        self._trusted = ssl.create_default_context(cafile=str(cluster.ca_file))
        self._unanswered = asyncio.Semaphore(unanswered)
        self.answers: Counter[str] = Counter()
        self.sent = 0
        self.lasted_s = 0.0
        self.stop = False

    async def run(self) -> None:
        connector = aiohttp.TCPConnector(ssl=self._trusted, limit=0)
        async with aiohttp.ClientSession(connector=connector, headers=self._headers) as session, asyncio.TaskGroup() as group:
            began = time.perf_counter()
            for offset in generate_arrivals():
                await asyncio.sleep(max(0.0, began + offset - time.perf_counter()))
                if self.stop:
                    break
                await self._unanswered.acquire()
                self.sent += 1
                group.create_task(self._ask(session))
            self.lasted_s = time.perf_counter() - began

    async def _ask(self, session: aiohttp.ClientSession) -> None:
        try:
            async with session.post(self._url, data=self._body) as reply:
                text = await reply.text()
                self.answers["taken" if reply.status == 201 else f"{reply.status}: {text}"] += 1
        except aiohttp.ClientError as error:
            self.answers[repr(error)] += 1
        finally:
            self._unanswered.release()


def generate_arrivals() -> Iterator[float]:
    """Seconds from the start: RATE in each, of which BURST at its beginning."""
    paced = RATE - BURST
    second = 0
    while True:
        yield from [float(second)] * BURST
        yield from (second + number / paced for number in range(paced))
        second += 1


@pytest.mark.long
async def test_two_ca_rotations_under_load_fail_no_request(cluster: Cluster, replicas: Replicas):
    load = Load(cluster, replicas)
    leaves = [replicas.secret()["tls.crt"]]
    async with asyncio.TaskGroup() as group:
        group.create_task(load.run(), name="load")
        try:
            for _ in range(2):
                await asyncio.to_thread(rotate, replicas)
                leaves.append(replicas.secret()["tls.crt"])
        finally:
            load.stop = True
    assert load.answers == {"taken": load.sent}
    print(f"{load.sent} jobs in {load.lasted_s:.0f} s")  # 100 a second, unless the machine is busy with something else
    assert len(set(leaves)) == 3
    for number in range(2):
        shown = replicas.handshakes(number)
        assert min(shown[compute_digest(leaf)] for leaf in leaves) >= ENOUGH, "each CA was tried by new connections"
        for leaf, since, until in zip(leaves[1:], replicas.step_times(SWITCHED), replicas.step_times(DROPPED), strict=True):
            lines = replicas.lines("handshake", number)
            both_trusted = [line for line in lines if line["certificate"] == compute_digest(leaf) and since <= line["time"] <= until]
            assert len(both_trusted) >= ENOUGH, "and while the former CA was trusted, too"


def rotate(replicas: Replicas) -> None:
    """To the end, and on until API servers have made new connections."""
    wait_for_handshakes(replicas)
    done = len(replicas.step_times(DROPPED))
    replicas.rotate()
    wait_for("the former CA to be dropped", lambda: len(replicas.step_times(DROPPED)) > done)
    wait_for("all to be told", replicas.is_at_rest)
    wait_for_handshakes(replicas)


def wait_for_handshakes(replicas: Replicas) -> None:
    """As many more as say something, by both, with what the Secret has."""
    leaf = compute_digest(replicas.secret()["tls.crt"])
    had = [replicas.handshakes(number)[leaf] for number in range(2)]

    def are_there() -> bool:
        return all(replicas.handshakes(number)[leaf] >= had[number] + ENOUGH for number in range(2))

    wait_for("new connections", are_there, poll_s=0.5)
