"""The visibility API over TLS: documents, pages, refusals, and the limits on answers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest

from core.plan.steps.api_resources import LOCAL_QUEUES, WORKLOADS
from core.runtime.http.client import Client
from core.runtime.http.errors import Unreachable
from core.runtime.watch.watcher import Watcher
from e2e.pki import FRONT_PROXY_NAME, issue_client
from reconciler.visibility import pending_pages, visibility_server
from reconciler.visibility.api_documents import AGGREGATED
from reconciler.visibility.front_proxy import FrontProxyRules
from tests.builders import NAMESPACE
from tests.reconciler.visibility.serving import NOW, OTHER_CA, PROXY_CA, USER, Visibility, build_config, issue_ended_ca
from tests.runtime.fakes import ManualClock

ROOT = "/apis/visibility.kueue.x-k8s.io/v1beta2"
CQ, LQ = f"{ROOT}/clusterqueues/cq/pendingworkloads", f"{ROOT}/namespaces/{NAMESPACE}/localqueues/lq/pendingworkloads"


@pytest.fixture
def visibility(tmp_path: Path) -> Visibility:
    return Visibility(tmp_path)


async def test_pending_workloads_of_a_cluster_queue_are_answered_as_kueue_answers_them(visibility: Visibility):
    visibility.submit("late", created="2026-01-01T00:00:09Z", owner="uid-of-job")
    visibility.submit("urgent", queue="second", priority=9, created="2026-01-01T00:00:10Z")
    async with visibility.open(), visibility.connect() as client:
        reply = await client.get(CQ)
        assert (reply.status, reply.content_type) == (200, "application/json")
        answer = await reply.json()
    urgent, late = answer.pop("items")
    assert answer == {"kind": "PendingWorkloadsSummary", "apiVersion": "visibility.kueue.x-k8s.io/v1beta2", "metadata": {}}
    assert urgent == {
        "metadata": {"name": "urgent", "namespace": NAMESPACE, "creationTimestamp": "2026-01-01T00:00:10Z"},
        "priority": 9,
        "localQueueName": "second",
        "positionInClusterQueue": 0,
        "positionInLocalQueue": 0,
    }
    assert late["metadata"]["ownerReferences"] == [{"apiVersion": None, "kind": "Job", "name": "j", "uid": "uid-of-job"}]
    assert (late["positionInClusterQueue"], late["positionInLocalQueue"]) == (1, 0)


async def test_answer_by_a_silent_watch_has_a_warning_with_its_age(visibility: Visibility):
    visibility.submit("first")
    clock = ManualClock()
    quick, silent = (Watcher(Client.make_offline(), resource, clock=clock) for resource in (LOCAL_QUEUES, WORKLOADS))
    visibility.pages._watchers = (quick, silent)
    silent._received_at = clock.monotonic()
    async with visibility.open(), visibility.connect() as client:
        clock.time += visibility_server.SILENT_S
        assert "Warning" not in (await client.get(CQ)).headers
        clock.time += 1
        quick._received_at = clock.monotonic()
        reply = await client.get(CQ)
    assert reply.status == 200
    assert reply.headers["Warning"].startswith('299 topogate "this may be 76 s old: ')
    assert len((await reply.json())["items"]) == 1


@pytest.mark.parametrize(
    ("query", "positions"),
    [
        ("", range(7)),
        ("?limit=0", range(7)),
        ("?limit=3", range(3)),
        ("?limit=3&offset=2", range(2, 5)),
        ("?offset=6", range(6, 7)),
        ("?offset=99", range(0)),
        ("?limit=999999999", range(7)),
        ("?limit=-5", range(0)),
        ("?offset=-5", range(7)),
    ],
)
async def test_limit_and_offset_are_clamped(visibility: Visibility, query: str, positions: range, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pending_pages, "AT_ONCE", 2)
    for number in range(7):
        visibility.submit(f"w{number}", created=f"2026-01-01T00:00:0{number}Z")
    async with visibility.open(), visibility.connect() as client:
        for path, field in ((CQ, "positionInClusterQueue"), (LQ, "positionInLocalQueue")):
            items = (await (await client.get(f"{path}{query}")).json())["items"]
            assert [item[field] for item in items] == list(positions)


@pytest.mark.parametrize("query", ["limit=ten", "offset=1e3", "limit=" + "9" * 30])
async def test_number_that_is_none_is_refused_with_its_name(visibility: Visibility, query: str):
    async with visibility.open(), visibility.connect() as client:
        reply = await client.get(f"{CQ}?{query}")
        status = await reply.json()
    assert (reply.status, status["reason"]) == (400, "BadRequest")
    assert status["message"].startswith(query.partition("=")[0])


async def test_default_limit_is_a_thousand(visibility: Visibility):
    for number in range(1_001):
        visibility.submit(f"w{number:04}")
    async with visibility.open(), visibility.connect() as client:
        assert len((await (await client.get(CQ)).json())["items"]) == 1_000
        assert len((await (await client.get(f"{CQ}?limit=2000")).json())["items"]) == 1_001


async def test_workload_that_is_deleted_while_its_page_is_written_is_left_out(visibility: Visibility):
    visibility.submit("gone")
    visibility.submit("stays")
    visibility.store._objects.pop(f"{NAMESPACE}/gone")
    async with visibility.open(), visibility.connect() as client:
        (item,) = (await (await client.get(CQ)).json())["items"]
        assert (item["metadata"]["name"], item["positionInClusterQueue"]) == ("stays", 1)
        assert (await (await client.get(f"{ROOT}/clusterqueues/empty/pendingworkloads")).json())["items"] == []


async def test_unknown_queue_is_answered_with_404_as_kueue_names_it(visibility: Visibility):
    async with visibility.open(), visibility.connect() as client:
        reply = await client.get(f"{ROOT}/clusterqueues/none/pendingworkloads")
        status = await reply.json()
        assert (reply.status, status["reason"], status["code"], status["status"]) == (404, "NotFound", 404, "Failure")
        assert status["details"] == {"name": "none", "group": "visibility.kueue.x-k8s.io", "kind": "clusterqueue"}
        assert status["message"] == 'clusterqueue.visibility.kueue.x-k8s.io "none" not found'
        reply = await client.get(LQ.replace("/lq/", "/none/"))
        assert (await reply.json())["details"]["kind"] == "localqueue"


@pytest.mark.parametrize(
    "path", [ROOT + "/clusterqueues", f"{ROOT}/localqueues/lq/pendingworkloads", CQ + "/x", "/api/v1/secrets", "/apis/../x"]
)
async def test_path_that_is_not_served_is_answered_with_404(visibility: Visibility, path: str):
    async with visibility.open(), visibility.connect() as client:
        assert (await client.get(path)).status == 404


async def test_discovery_names_both_resources_in_all_forms(visibility: Visibility):
    async with visibility.open(), visibility.connect() as client:
        groups = await (await client.get("/apis")).json()
        assert [group["preferredVersion"]["groupVersion"] for group in groups["groups"]] == ["visibility.kueue.x-k8s.io/v1beta2"]
        assert (await (await client.get("/apis/visibility.kueue.x-k8s.io")).json())["kind"] == "APIGroup"
        resources = (await (await client.get(ROOT)).json())["resources"]
        assert {one["name"]: (one["namespaced"], one["verbs"]) for one in resources} == {
            "clusterqueues": (False, []),
            "clusterqueues/pendingworkloads": (False, ["get"]),
            "localqueues": (True, []),
            "localqueues/pendingworkloads": (True, ["get"]),
        }
        reply = await client.get("/apis", headers={"Accept": f"{AGGREGATED},application/json"})
        assert reply.headers["Content-Type"] == AGGREGATED
        (group,) = (await reply.json())["items"]
        assert [one["resource"] for one in group["versions"][0]["resources"]] == ["clusterqueues", "localqueues"]
        v2, v3 = [await (await client.get(path)).json() for path in ("/openapi/v2", f"/openapi/v3{ROOT}")]
        assert (
            set(v2["paths"])
            == set(v3["paths"])
            == {CQ.replace("/cq/", "/{name}/"), f"{ROOT}/namespaces/{{namespace}}/localqueues/{{name}}/pendingworkloads"}
        )
        assert set(v2["definitions"]) == set(v3["components"]["schemas"])
        paths = (await (await client.get("/openapi/v3")).json())["paths"]
        assert [one["serverRelativeURL"] for one in paths.values()] == [f"/openapi/v3{ROOT}"]


# --- who asks -------------------------------------------------------------------------------------------


async def test_forged_headers_without_a_certificate_are_refused(visibility: Visibility):
    forged = {**USER, "X-Remote-Group": "system:masters"}
    async with visibility.open(), visibility.connect(None, forged) as client:
        for path in (CQ, "/apis", "/openapi/v2", "/metrics"):
            reply = await client.get(path)
            assert (reply.status, (await reply.json())["reason"]) == (401, "Unauthorized")
    assert visibility.judge.asked == []


async def test_health_endpoints_are_open(visibility: Visibility):
    async with visibility.open(), visibility.connect(None, {}) as client:
        assert [(await client.get(path)).status for path in ("/healthz", "/livez", "/readyz")] == [200, 200, 200]
        visibility.pages.is_complete = False
        assert [(await client.get(path)).status for path in ("/healthz", "/livez", "/readyz")] == [200, 200, 503]


async def test_certificate_with_another_name_is_refused(visibility: Visibility):
    async with visibility.open(), visibility.connect(issue_client(PROXY_CA, "kubelet", NOW)) as client:
        reply = await client.get(CQ)
        assert (reply.status, "requestheader-allowed-names" in (await reply.json())["message"]) == (401, True)
        visibility.server.rules = FrontProxyRules.read(build_config(names="[]"))
        assert (await client.get(CQ)).status == 200, "without names any certificate of the CA is accepted"


async def test_certificate_of_another_ca_gets_no_connection(visibility: Visibility):
    async with visibility.open(), visibility.connect(issue_client(OTHER_CA, FRONT_PROXY_NAME, NOW)) as client:
        with pytest.raises(aiohttp.ClientError):
            await client.get(CQ)


async def test_certificate_of_an_expired_ca_gets_no_connection(visibility: Visibility):
    ended = issue_ended_ca()
    visibility.ca.pem = ended.certificate
    visibility.certificate.reload()
    visibility.server.rules = FrontProxyRules.read(build_config(ended.certificate))
    async with visibility.open(), visibility.connect(issue_client(ended, FRONT_PROXY_NAME, NOW)) as client:
        with pytest.raises(aiohttp.ClientError):
            await client.get(CQ)


async def test_open_connection_is_cut_when_its_ca_is_replaced(visibility: Visibility):
    async with visibility.open(), visibility.connect() as client:
        assert (await client.get(CQ)).status == 200
        visibility.ca.pem = OTHER_CA.certificate
        assert visibility.certificate.reload()
        visibility.server.rules = FrontProxyRules.read(build_config(OTHER_CA.certificate))
        with pytest.raises(aiohttp.ClientError):
            await client.get(CQ)
        async with visibility.connect(issue_client(OTHER_CA, FRONT_PROXY_NAME, NOW)) as another:
            assert (await another.get(CQ)).status == 200


async def test_request_is_refused_until_the_rules_of_the_front_proxy_are_known(visibility: Visibility):
    visibility.server.rules = None
    async with visibility.open(), visibility.connect() as client:
        reply = await client.get(CQ)
        assert (reply.status, reply.headers["Retry-After"]) == (503, "1")


# --- what is allowed ------------------------------------------------------------------------------------


async def test_user_without_rights_gets_403_and_the_review_names_all(visibility: Visibility):
    visibility.judge.allowed = False
    async with visibility.open(), visibility.connect() as client:
        reply = await client.get(CQ)
        status = await reply.json()
        assert (reply.status, status["reason"], status["details"]["name"]) == (403, "Forbidden", "cq")
        assert 'User "jane" cannot get resource "clusterqueues/pendingworkloads"' in status["message"]
        assert (await client.get(f"{ROOT}/clusterqueues/none/pendingworkloads")).status == 403, "no queue is revealed"
        assert (await client.get(ROOT)).status == 403
    first, _, document = visibility.judge.asked
    attributes = {
        "group": "visibility.kueue.x-k8s.io",
        "version": "v1beta2",
        "resource": "clusterqueues",
        "subresource": "pendingworkloads",
        "verb": "get",
        "namespace": "",
        "name": "cq",
    }
    user = {"user": "jane", "groups": ["team-a", "system:authenticated"], "uid": "", "extra": {"scopes": ["all"]}}
    assert first == {**user, "resourceAttributes": attributes}
    assert document == {**user, "nonResourceAttributes": {"path": ROOT, "verb": "get"}}


async def test_failed_review_is_answered_with_503_and_is_asked_again(visibility: Visibility):
    visibility.judge.fails = Unreachable("refused")
    async with visibility.open(), visibility.connect() as client:
        assert (await client.get(CQ)).status == 503
        visibility.judge.fails = None
        assert (await client.get(CQ)).status == 200


async def test_member_of_masters_needs_no_review(visibility: Visibility):
    visibility.judge.allowed = False
    async with visibility.open(), visibility.connect(headers={"X-Remote-User": "aggregator", "X-Remote-Group": "system:masters"}) as client:
        assert (await client.get(ROOT)).status == 200
    assert visibility.judge.asked == []


# --- limits ---------------------------------------------------------------------------------------------


async def test_body_and_other_methods_are_refused(visibility: Visibility):
    async with visibility.open(), visibility.connect() as client:
        assert (await client.get(CQ, data=b"x" * 100)).status == 413
        assert (await client.get(CQ, "DELETE")).status == 405
        assert (await client.get(CQ, "HEAD")).status == 405


async def test_answers_at_once_are_limited_for_a_user_and_in_all(visibility: Visibility, monkeypatch: pytest.MonkeyPatch):
    """Each answer waits for its first piece until all have been asked for."""
    monkeypatch.setattr(visibility_server, "ANSWERS_OF_A_USER", 2)
    monkeypatch.setattr(visibility_server, "ANSWERS_AT_ONCE", 3)
    visibility.submit("w")
    async with visibility.open(), visibility.connect() as client:
        await visibility.server._turn.acquire()
        names = ["jane"] * 3 + ["joe"] * 2
        asked = [asyncio.create_task(client.get(CQ, headers={**USER, "X-Remote-User": name})) for name in names]
        refused = 0
        while refused < 2:
            await asyncio.sleep(0.01)
            refused = sum(task.done() and task.result().status == 429 for task in asked)
        visibility.server._turn.release()
        replies = await asyncio.gather(*asked)
        assert sorted(reply.status for reply in replies) == [200, 200, 200, 429, 429]
        assert (await client.get(CQ)).status == 200
    assert not visibility.server._answered


async def test_answer_that_is_not_read_in_time_loses_its_connection(visibility: Visibility, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(visibility_server, "ANSWER_S", 0.1)
    visibility.submit("w")

    async def encode_much(_pieces: object) -> bytes:
        return b" " * (1 << 20)

    monkeypatch.setattr(visibility.server, "_encode_next", encode_much)
    async with visibility.open(), visibility.connect() as client, client._session.get(CQ) as reply:
        with pytest.raises(aiohttp.ClientError):
            await reply.read()
    assert not visibility.server._answered


@pytest.mark.looptime
async def test_answer_that_waits_for_its_turn_is_not_cut_off(visibility: Visibility):
    turn, answer_s = visibility.server._turn, visibility_server.ANSWER_S
    await turn.acquire()
    asyncio.get_running_loop().call_later(2 * answer_s, turn.release)
    async with asyncio.timeout(answer_s) as limit:
        assert await visibility.server._encode_in_turn(iter([b"piece"]), limit) == b"piece"


def test_service_accounts_of_one_namespace_share_their_answers() -> None:
    names = ["jane", "system:serviceaccount:a:one", "system:serviceaccount:a:two", "system:serviceaccount:b:one"]
    assert [*map(visibility_server._find_client, names)] == ["jane", *["system:serviceaccount:a"] * 2, "system:serviceaccount:b"]


async def test_user_of_hundreds_of_groups_is_served(visibility: Visibility):
    headers = [*USER.items(), *(("X-Remote-Group", f"group-{i}") for i in range(300))]
    async with visibility.open(), visibility.connect() as client, client._session.get(CQ, headers=headers) as reply:
        assert reply.status == 200
    assert len(visibility.judge.asked[0]["groups"]) > 300


async def test_connections_without_an_answered_request_go_first(visibility: Visibility):
    async with visibility.open(), visibility.connect() as client:
        assert (await client.get(CQ)).status == 200
        sockets = [await asyncio.open_connection("127.0.0.1", int(visibility.address.rpartition(":")[2])) for _ in range(40)]
        assert len(visibility.connections) <= 16
        assert (await client.get(CQ)).status == 200
        for _, writer in sockets:
            writer.close()
