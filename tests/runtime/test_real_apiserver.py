"""The runtime against a real API server: what no double tells the truth about.

Connections are cut by a proxy of the test's own; 410 is brought about as in life, by
an API server that restarts or has forgotten.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from core.runtime.http import errors
from core.runtime.http.client import Client, Obj, Page, Resource
from core.runtime.lease import LEASE, LeaderElection, LeadershipLost
from core.runtime.watch.informer import Informer
from core.runtime.watch.store import Change
from core.runtime.watch.watcher import WatchPolicy
from e2e.cluster import Cluster
from tests.installed import Installed
from tests.runtime.fakes import CONFIG_MAP, connect_to, name_of

WAIT_S = 60.0
TESTED = "metadata.name!=kube-root-ca.crt"  # which is in every namespace
NAMESPACE = Resource("", "v1", "namespaces", "Namespace", namespaced=False)


@pytest.fixture(scope="module", autouse=True)
def without_topogate(installed: Installed) -> None:
    """An API server that has just been started refuses what its cache of roles does not have yet, and the audit of rights would show it."""
    installed.stop()


async def wait_until(what: str, holds: Callable[[], bool]) -> None:
    try:
        async with asyncio.timeout(WAIT_S):
            while not holds():  # noqa: ASYNC110  # the server tells nobody
                await asyncio.sleep(0.02)
    except TimeoutError:
        pytest.fail(f"not within {WAIT_S:g} s: {what}")


class CuttingProxy:
    """TCP in between: cuts all connections when told, or stops forwarding without closing (half-open)."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.mute = False
        self.accepted = 0

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    def cut(self) -> None:
        for writer in self._open:
            writer.transport.abort()

    async def stop(self) -> None:
        self._server.close()
        self.cut()
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.accepted += 1
        try:
            up_reader, up_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
        else:
            self._open |= {writer, up_writer}
            await asyncio.gather(self._pump(reader, up_writer), self._pump(up_reader, writer))
            self._open -= {writer, up_writer}
        self._tasks.discard(task)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                while self.mute and not writer.is_closing():  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                writer.write(data)
                await writer.drain()
        writer.close()


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[Client]:
    async with await Client.connect(str(cluster.kubeconfig), user_agent="test") as client:
        yield client


@pytest.fixture
async def namespace(client: Client) -> AsyncIterator[str]:
    """Without waiting until pods can be created in it: nothing here needs one, and controllers take their time after a restart of the
    server."""
    created = await client.create(NAMESPACE, {"metadata": {"generateName": "runtime-"}})
    yield name_of(created)
    await client.delete(NAMESPACE, name_of(created))


@asynccontextmanager
async def through_proxy(cluster: Cluster, tmp_path: Path) -> AsyncIterator[tuple[Client, CuttingProxy]]:
    """A client whose connections can be cut."""
    address = urlsplit(cluster.server)
    assert address.hostname is not None
    assert address.port is not None
    proxy = CuttingProxy(address.hostname, address.port)
    port = await proxy.start()
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = f"https://{address.hostname}:{port}"
    kubeconfig = tmp_path / "proxied"
    kubeconfig.write_text(yaml.safe_dump(config))
    try:
        async with await Client.connect(str(kubeconfig), user_agent="test") as client:
            yield client, proxy
    finally:
        await proxy.stop()


class Following:
    """An informer on the ConfigMaps of a namespace, with what it told and asked."""

    def __init__(self, client: Client, namespace: str, **options: Any) -> None:
        self.asked: Counter[str] = Counter()
        client.on_request = lambda verb, resource, subresource: self.asked.update([verb])
        self.informer = Informer(client, CONFIG_MAP, namespace=namespace, field_selector=TESTED, **options)
        self.changes: list[Change] = []
        self.informer.add_handler(self.changes.append)

    def state(self) -> dict[str, str]:
        return {name_of(obj): obj["data"]["n"] for obj in self.informer.store.list()}

    def replayed(self) -> dict[str, str]:
        """The state that the changes told add up to, with each change fitting the one before."""
        state: dict[str, Obj] = {}
        for change in self.changes:
            name = name_of(change.obj)
            assert state.get(name) == change.old
            if change.new is None:
                del state[name]
            else:
                state[name] = change.new
        return {name: obj["data"]["n"] for name, obj in state.items()}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.informer.run())
        try:
            await wait_until("the first list", lambda: self.informer.synced or task.done())
            yield
            assert not task.done()
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def config_map(namespace: str, name: str, n: int) -> Obj:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": namespace, "name": name}, "data": {"n": str(n)}}


async def write(client: Client, namespace: str, name: str, n: int) -> None:
    body = config_map(namespace, name, n)
    await client.apply(CONFIG_MAP, name, namespace, body, field_manager="test")


async def test_nothing_is_missed_while_connections_are_cut(cluster: Cluster, namespace: str, client: Client, tmp_path: Path):
    async with through_proxy(cluster, tmp_path) as (proxied, proxy):
        following = Following(proxied, namespace)
        async with following.running():
            for n in range(60):
                await write(client, namespace, f"cm-{n % 10}", n)
                if n % 20 == 10:
                    proxy.cut()
                if n % 10 == 7:
                    await client.delete(CONFIG_MAP, f"cm-{n % 10}", namespace)
            wanted = {f"cm-{n % 10}": str(n) for n in range(50, 60) if n % 10 != 7}
            await wait_until("all to be seen", lambda: following.state() == wanted)
            assert following.replayed() == wanted
        assert following.asked["list"] == 1, "the history was there: no second list was needed"
        assert following.informer.watcher.restarts["unreachable"] >= 1
        assert following.asked["watch"] <= 6


async def test_writer_sees_its_writes_at_once_while_connections_are_cut(cluster: Cluster, namespace: str, client: Client, tmp_path: Path):
    """What others delete meanwhile is gone in the end, also where the answer to a write comes after the news of that."""
    async with through_proxy(cluster, tmp_path) as (proxied, proxy):
        following = Following(proxied, namespace)
        client.on_reply = lambda resource, obj, _: following.informer.observe_reply(obj)
        async with following.running():
            for n in range(60):
                await write(client, namespace, f"cm-{n % 10}", n)
                assert following.state()[f"cm-{n % 10}"] == str(n)
                if n % 20 == 10:
                    proxy.cut()
                if n % 10 == 7:
                    await client.delete(CONFIG_MAP, f"cm-{n % 10}", namespace)
            wanted = {f"cm-{n % 10}": str(n) for n in range(50, 60) if n % 10 != 7}
            await wait_until("all to be seen", lambda: following.state() == wanted and not following.informer.store._ahead)
            assert following.replayed() == wanted


async def test_a_half_open_connection_is_given_up(cluster: Cluster, namespace: str, client: Client, tmp_path: Path):
    async with through_proxy(cluster, tmp_path) as (proxied, proxy):
        following = Following(proxied, namespace, policy=WatchPolicy(timeout_s=2, silence_s=0.5), chance=lambda: 0.0)
        async with following.running():
            proxy.mute = True
            await write(client, namespace, "unheard", 1)
            await wait_until("the silence to be noticed", lambda: following.informer.watcher.restarts["idle"] >= 1)
            assert following.state() == {}
            proxy.mute = False
            await wait_until("it to be heard", lambda: following.state() == {"unheard": "1"})
        assert following.asked["list"] == 1


async def test_a_restart_of_the_api_server_mid_watch_is_survived(cluster: Cluster, namespace: str, client: Client):
    """Killed as by a crash, and changed as soon as it is back, before the watch is."""
    following = Following(client, namespace)
    async with await Client.connect(str(cluster.kubeconfig), user_agent="writer") as writer, following.running():
        for name in ("stays", "goes", "changes"):
            await write(writer, namespace, name, 0)
        await wait_until("the first three", lambda: len(following.state()) == 3)
        asked = following.asked.total()
        await asyncio.to_thread(cluster.stop_apiserver)
        down_at = asyncio.get_running_loop().time()
        await wait_until("the loss to be noticed", lambda: following.informer.watcher.restarts["unreachable"] >= 2)
        await asyncio.to_thread(cluster.start_apiserver)
        await writer.delete(CONFIG_MAP, "goes", namespace)
        await write(writer, namespace, "changes", 1)
        await write(writer, namespace, "comes", 1)
        wanted = {"stays": "0", "changes": "1", "comes": "1"}
        await wait_until("the new state", lambda: following.state() == wanted)
        assert following.replayed() == wanted
        seconds = asyncio.get_running_loop().time() - down_at
        assert following.asked.total() - asked <= 3 + seconds / 0.8, "no hot loop while it was away"


async def test_restarted_api_server_without_history_is_listed_again(cluster: Cluster, namespace: str, client: Client, tmp_path: Path):
    """Its new watch cache begins at the newest version: a real 410 to an older one, and a deletion that nobody watched."""
    async with through_proxy(cluster, tmp_path) as (proxied, proxy):
        following = Following(proxied, namespace)
        await write(client, namespace, "goes", 0)
        async with following.running():
            proxy.mute = True
            proxy.cut()
            await client.delete(CONFIG_MAP, "goes", namespace)
            await write(client, namespace, "comes", 1)
            await asyncio.to_thread(cluster.restart_apiserver)
            proxy.cut()
            proxy.mute = False
            await wait_until("the new state", lambda: following.state() == {"comes": "1"})
            assert following.replayed() == {"comes": "1"}
        assert following.informer.watcher.restarts["gone"] >= 1
        assert following.asked.total() < 15


@pytest.fixture
async def forgetful(cluster: Cluster, namespace: str) -> AsyncIterator[Cluster]:
    """Without its watch cache the API server has no more history than etcd; with it, compaction stays hidden."""
    await asyncio.to_thread(cluster.restart_apiserver, watch_cache="false")
    yield cluster
    await asyncio.to_thread(cluster.restart_apiserver)


async def test_a_watch_from_a_version_that_was_compacted_is_gone_and_survived(
    forgetful: Cluster, namespace: str, client: Client, tmp_path: Path
):
    """Cut off while its version is compacted away: a real 410, which this server sends inside the stream."""
    async with through_proxy(forgetful, tmp_path) as (proxied, proxy):
        following = Following(proxied, namespace)
        await write(client, namespace, "goes", 0)
        async with following.running():
            assert following.state() == {"goes": "0"}
            old = following.informer.store.list()[0]["metadata"]["resourceVersion"]
            proxy.mute = True
            proxy.cut()
            await client.delete(CONFIG_MAP, "goes", namespace)
            await write(client, namespace, "comes", 1)
            await compact(forgetful, int((await client.list_page(CONFIG_MAP, namespace)).resource_version))
            async with aclosing(client.watch(CONFIG_MAP, namespace, resource_version=old, timeout_seconds=5)) as events:
                event = await anext(events)
                assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
            proxy.mute = False
            await wait_until("the new state", lambda: following.state() == {"comes": "1"})
            assert following.replayed() == {"comes": "1"}
        assert following.informer.watcher.restarts["gone"] >= 1
        assert following.asked["list"] >= 2
        assert following.asked.total() < 15


async def test_a_stale_continue_token_is_a_real_410_and_lists_recover(forgetful: Cluster, namespace: str, client: Client):
    for n in range(5):
        await write(client, namespace, f"cm-{n}", n)
    pages: list[str] = []

    class Compacting(Client):
        """Compacts between the first page and the second of every list."""

        async def list_page(self, *args: Any, **options: Any) -> Page:
            try:
                page = await super().list_page(*args, **options)
            except errors.Gone:
                pages.append("gone")
                raise
            pages.append("page")
            if page.continue_token:
                for n in range(5):
                    await write(client, namespace, f"cm-{n}", n + 100 * len(pages))
                newest = await client.list_page(CONFIG_MAP, namespace)
                await compact(forgetful, int(newest.resource_version))
            return page

    async with await Compacting.connect(str(forgetful.kubeconfig), user_agent="test") as compacting:
        whole = await compacting.list(CONFIG_MAP, namespace, limit=2, field_selector=TESTED)
        assert {name_of(obj): obj["data"]["n"] for obj in whole.items} == {f"cm-{n}": str(n + 100) for n in range(5)}
        assert pages == ["page", "gone", "page"]

        following = Following(compacting, namespace, policy=WatchPolicy(page_limit=2))
        async with following.running():
            assert len(following.state()) == 5
        assert following.informer.watcher.restarts["gone"] == 1


async def compact(cluster: Cluster, revision: int) -> None:
    """Through etcd's own JSON gateway: everything before `revision` is forgotten."""
    url = f"http://127.0.0.1:{cluster._layout.ports.etcd_client}"
    async with connect_to(url) as etcd:
        body = json.dumps({"revision": str(revision), "physical": True}).encode()
        await etcd._transport.request("POST", "/v3/kv/compaction", body=body)


async def test_errors_of_the_real_server_are_typed(cluster: Cluster, namespace: str, client: Client):
    created = await client.create(CONFIG_MAP, config_map(namespace, "a", 1))
    with pytest.raises(errors.AlreadyExists):
        await client.create(CONFIG_MAP, config_map(namespace, "a", 1))
    with pytest.raises(errors.NotFound) as missing:
        await client.get(CONFIG_MAP, "b", namespace)
    assert missing.value.details["name"] == "b"
    changed = await client.replace(CONFIG_MAP, {**created, "data": {"n": "2"}})
    with pytest.raises(errors.Conflict):
        await client.replace(CONFIG_MAP, {**created, "data": {"n": "3"}})
    with pytest.raises(errors.Invalid) as invalid:
        await client.create(CONFIG_MAP, config_map(namespace, "Not A Name", 1))
    assert invalid.value.details["causes"][0]["field"] == "metadata.name"
    with pytest.raises(errors.BadRequest):
        await client.create(CONFIG_MAP, {**config_map(namespace, "b", 1), "data": 1})
    with pytest.raises(errors.Conflict):
        await client.delete(CONFIG_MAP, "a", namespace, uid="another")
    with pytest.raises(errors.NotFound):
        await client.list(Resource("nowhere.dev", "v1", "things", "Thing"))
    with pytest.raises(errors.ServerError):  # no 400: such a version is left after a few tries, not at once
        await anext(client.watch(CONFIG_MAP, namespace, resource_version="nonsense", timeout_seconds=5))
    async with connect_to(cluster.server, tls=_trust(cluster), token="wrong") as stranger:
        with pytest.raises(errors.Unauthorized):
            await stranger.get(CONFIG_MAP, "a", namespace)
    deleted = await client.delete(CONFIG_MAP, "a", namespace, uid=changed["metadata"]["uid"])
    assert deleted["status"] == "Success"


def _trust(cluster: Cluster) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(cluster.ca_file))


async def test_server_side_apply_takes_over_the_fields_of_another_manager(namespace: str, client: Client):
    await client.apply(CONFIG_MAP, "a", namespace, {"data": {"x": "1", "y": "1"}}, field_manager="one")
    forced = await client.apply(CONFIG_MAP, "a", namespace, {"data": {"x": "2"}}, field_manager="two")
    assert forced["data"] == {"x": "2", "y": "1"}
    dropped = await client.apply(CONFIG_MAP, "a", namespace, {}, field_manager="one")
    assert dropped["data"] == {"x": "2"}


async def test_of_two_candidates_one_leads_and_the_other_follows_it(namespace: str, client: Client):
    leading: list[str] = []
    order: list[str] = []
    stop = {name: asyncio.Event() for name in ("one", "two")}

    async def work(name: str) -> None:
        assert not leading
        leading.append(name)
        order.append(name)
        try:
            await stop[name].wait()
        finally:
            leading.remove(name)

    def candidate(name: str) -> asyncio.Task[None]:
        election = LeaderElection(client, namespace, "test", name, lease_duration_s=3, renew_deadline_s=2, retry_period_s=0.2)
        return asyncio.create_task(election.run(lambda: work(name)))

    tasks = {name: candidate(name) for name in ("one", "two")}
    await wait_until("one to lead", lambda: bool(leading))
    (first,) = leading
    second = "two" if first == "one" else "one"
    renewed = set[str]()
    while len(renewed) < 5:  # the other looks at it as often
        lease = await client.get(LEASE, "test", namespace)
        renewed.add(lease["spec"]["renewTime"])
    assert lease["spec"]["holderIdentity"] == first
    stop[first].set()
    await tasks[first]
    await wait_until("the other to lead", lambda: leading == [second])
    await client.delete(LEASE, "test", namespace)
    stolen = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"namespace": namespace, "name": "test"}}
    with suppress(errors.AlreadyExists):  # the leader may already have made it anew
        await client.create(LEASE, {**stolen, "spec": {"holderIdentity": "thief", "leaseDurationSeconds": 60}})
        with pytest.raises(LeadershipLost, match="thief"):
            await tasks[second]
    stop[second].set()
    await asyncio.wait({tasks[second]})
    assert order == [first, second]
    assert not leading
