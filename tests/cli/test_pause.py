"""`topogate pause` and `resume` with a ConfigMap that others write, too; on a real API server: tests/reconciler/workloads/test_pause.py."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from cli.failures import Failure
from cli.pause import What, register
from cli.stopping import find_own_name, list_status_lines, release, set_pause, set_stops
from core.model.pause_state import Pause, Stop
from core.resource import Obj
from core.runtime.http.client import Client
from core.runtime.http.errors import Forbidden, ServerError
from sim.apiserver.server import Request
from sim.harness import DirectTransport, Harness
from tests.builders import build_condition_json
from tests.cli.commands import Commands
from tests.runtime.fakes import ManualClock

NAMESPACE = "topogate-system"


class Server(Harness):
    """One ConfigMap, ClusterQueues, and who asks. `before_write` is done by somebody else, each before one write."""

    def __init__(self) -> None:
        super().__init__(ManualClock())
        self.client = Client(DirectTransport(self.server, self.meet, "alice"))
        self.forbidden = {"secret"}  # names of namespaces, and kinds
        self.before_write: list[Callable[[], object]] = []
        self.put({"kind": "Namespace", "metadata": {"name": NAMESPACE}})

    @property
    def stored(self) -> Obj | None:
        return next(iter(self.all("ConfigMap")), None)

    @property
    def pause(self) -> Pause:
        return Pause.read(self.stored or {})

    def store(self, data: Mapping[str, Any]) -> None:
        self.put({"kind": "ConfigMap", "metadata": {"name": "topogate-pause", "namespace": NAMESPACE}, "data": data})

    async def meet(self, request: Request) -> None:
        await asyncio.sleep(0)
        if {request.name, request.kind.kind} & self.forbidden:
            raise Forbidden(403, "Forbidden", "you may not")
        if request.kind.kind == "ConfigMap" and request.verb != "get" and self.before_write:
            self.before_write.pop(0)()


@pytest.fixture
def server() -> Server:
    return Server()


async def pause(server: Server, what: What = What.ADMISSIONS, reason: str = "why", *, wait: bool = False) -> list[str]:
    return await set_pause(server.client, ManualClock(), NAMESPACE, what.parts, reason, wait=wait)


async def resume(server: Server, what: What = What.ADMISSIONS) -> list[str]:
    return await release(server.client, ManualClock(), NAMESPACE, what.parts, wait=False)


async def test_the_status_of_a_namespace_that_is_not_there_is_an_error_and_no_all_clear(server: Server):
    assert await list_status_lines(server.client, NAMESPACE) == ["admissions are not paused", "evictions are not paused"]
    with pytest.raises(Failure, match="wrong"):
        await list_status_lines(server.client, "wrong")
    assert len(await list_status_lines(server.client, "secret")) == 2


async def test_pause_writes_author_time_and_reason(server: Server):
    assert await pause(server, What.ALL) == ["admissions are paused", "evictions are paused"]
    stop = server.pause.admissions
    assert stop == Stop("admissions", "2026-01-01T00:16:40Z", "alice", "why")
    assert await list_status_lines(server.client, NAMESPACE) == [stop.sentence, server.pause.evictions.sentence]  # type: ignore[union-attr]
    assert len(await resume(server, What.EVICTIONS)) == 1
    assert server.pause == Pause(admissions=stop)


async def test_pause_beside_a_concurrent_pause_reports_and_keeps_the_first(server: Server):
    server.before_write.append(lambda: server.store({"admissions": Stop("admissions", "T", "bob", "earlier").to_text()}))
    assert len(await pause(server)) == 1
    assert server.pause.admissions == Stop("admissions", "T", "bob", "earlier")


async def test_two_at_once_for_different_things_do_not_overwrite_each_other(server: Server):
    await asyncio.gather(pause(server, What.ADMISSIONS), pause(server, What.EVICTIONS))
    assert None not in (server.pause.admissions, server.pause.evictions)
    await asyncio.gather(resume(server, What.ADMISSIONS), resume(server, What.EVICTIONS))
    assert server.pause == Pause()


async def test_it_may_be_deleted_under_way(server: Server):
    server.store({"other": "key"})
    server.before_write.append(lambda: server.drop("ConfigMap", "topogate-pause", NAMESPACE))
    assert await pause(server) == ["admissions are paused"]
    assert server.pause.admissions is not None


async def test_keys_of_others_stay_as_they_are(server: Server):
    server.store({"other": "key"})
    await pause(server, What.ALL)
    await resume(server, What.ALL)
    assert server.stored is not None
    assert server.stored["data"] == {"other": "key"}


async def test_pause_gives_up_with_an_error_after_ten_write_conflicts(server: Server):
    server.store({})
    server.before_write = [lambda: server.store({})] * 100
    with pytest.raises(Failure, match="topogate-pause"):
        await set_stops(server.client, NAMESPACE, {"admissions": Stop("admissions")})


async def test_resume_without_a_pause_reports_that_nothing_was_paused(server: Server):
    assert await resume(server, What.ALL) == ["admissions were not paused", "evictions were not paused"]
    assert server.stored is None


async def test_pause_author_is_the_local_user_if_the_server_does_not_report_one(server: Server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("USER", "carol")
    assert await find_own_name(server.client) == "alice"
    server.forbidden.add("SelfSubjectReview")
    assert await find_own_name(server.client) == "carol"


def queue(name: str, active: bool, reason: str) -> Obj:
    return {
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "status": {"conditions": [build_condition_json("Active", active, reason=reason)]},
    }


async def test_pause_is_in_force_when_no_queue_admits_for_any_reason(server: Server):
    for found in (queue("a", False, "AdmissionsPaused"), queue("b", False, "Stopped")):
        server.put(found)
    assert "2 ClusterQueues" in (await pause(server, wait=True))[1]


async def test_pause_with_wait_fails_if_a_queue_does_not_report_the_pause(server: Server):
    for found in (queue("a", False, "AdmissionsPaused"), queue("b", True, "Ready")):
        server.put(found)
    with pytest.raises(Failure, match="1 of 2 ClusterQueues, b"):
        await pause(server, wait=True)
    assert server.pause.admissions is not None, "it is written all the same"


async def test_pause_with_wait_without_queues_reports_one_line_more(server: Server):
    assert len(await pause(server, wait=True)) == 2


@pytest.mark.parametrize("arguments", [["pause"], ["pause", "everything"], ["resume"], ["resume", "status"]])
def test_a_wrong_word_is_bad_input(arguments: list[str]):
    app = typer.Typer()
    register(app)
    assert CliRunner().invoke(app, arguments).exit_code == 2


def test_pause_without_a_kubeconfig_fails_with_one_line(topogate: Commands, tmp_path: Path):
    ran = topogate.run("pause", "status", "--kubeconfig", tmp_path / "none")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)


def test_the_words_alone_cost_little():
    """Every completion, and every process that is started by the command, imports them."""
    code = "import sys, cli.pause; assert not {'aiohttp', 'numpy', 'reconciler', 'pydantic'} & set(sys.modules), sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


@pytest.mark.parametrize("fails", [3, 1000])
async def test_pause_that_is_written_is_not_reported_as_failed_where_queues_cannot_be_listed(server: Server, fails: int):
    """Found by a reader: the message said that the ConfigMap could not be written, and one failure ended the wait."""
    server.put({"kind": "ClusterQueue", "metadata": {"name": "q"}, "status": {"conditions": [build_condition_json("Active", False)]}})
    left = [fails]

    async def meet(request: Request) -> None:
        await asyncio.sleep(0)
        if request.kind.kind == "ClusterQueue" and left[0]:
            left[0] -= 1
            raise ServerError(503, "ServiceUnavailable", "etcd is away")

    client = Client(DirectTransport(server.server, meet, "alice"))
    if fails < 10:
        lines = await set_pause(client, ManualClock(), NAMESPACE, What.ADMISSIONS.parts, "why", wait=True)
        assert lines[-1].startswith("in force: reported by 1 ClusterQueue")
    else:
        with pytest.raises(Failure, match="etcd is away"):
            await set_pause(client, ManualClock(), NAMESPACE, What.ADMISSIONS.parts, "why", wait=True)
    assert server.pause.admissions is not None
