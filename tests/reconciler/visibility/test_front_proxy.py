"""Rules of the front proxy, and the users that its headers name; the cache of access reviews."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from certs.pki import KeyPair, issue_ca
from core.resource import Obj, Resource
from e2e.pki import FRONT_PROXY_NAME, issue_client
from reconciler.visibility import access_reviews
from reconciler.visibility.access_reviews import KEPT_S, Access, AccessReviews
from reconciler.visibility.front_proxy import BadFrontProxyRules, FrontProxyRules, ProxiedUser, Unauthenticated
from tests.reconciler.visibility.serving import NOW, PROXY, PROXY_CA, Judge, build_config
from tests.runtime.fakes import ManualClock

RULES = FrontProxyRules.read(build_config())
JANE, QUEUE = ProxiedUser("jane", groups=("system:authenticated",)), Access("clusterqueues", name="cq")


def get_der(pair: KeyPair) -> bytes:
    return x509.load_pem_x509_certificate(pair.certificate).public_bytes(Encoding.DER)


def test_headers_name_user_uid_groups_and_extra_values():
    headers = [
        ("x-remote-user", ""),
        ("X-REMOTE-USER", "jane"),
        ("X-Remote-User", "root"),
        ("X-Remote-Uid", "7"),
        ("X-Remote-Group", "a"),
        ("X-Remote-Group", "b"),
        ("X-Remote-Extra-Acme.com%2Fproject", "p1"),
        ("X-Remote-Extra-Acme.com%2Fproject", "p2"),
        ("X-Remote-Groups", "system:masters"),
    ]
    user = RULES.find_user(get_der(PROXY), headers, NOW)
    assert user == ProxiedUser("jane", "7", ("a", "b", "system:authenticated"), (("acme.com/project", ("p1", "p2")),))


@pytest.mark.parametrize(
    ("user", "groups", "expected"),
    [
        ("system:aggregator", [], ("system:authenticated",)),
        ("jane", ["system:authenticated", "a"], ("system:authenticated", "a")),
        ("system:anonymous", ["system:unauthenticated"], ("system:unauthenticated",)),
        ("system:anonymous", [], ()),
    ],
)
def test_known_user_without_the_group_of_all_gets_it(user: str, groups: list[str], expected: tuple[str, ...]):
    headers = [("X-Remote-User", user), *(("X-Remote-Group", group) for group in groups)]
    assert RULES.find_user(get_der(PROXY), headers, NOW).groups == expected


@pytest.mark.parametrize("headers", [[], [("X-Remote-User", "")], [("X-User", "jane")], [("X-Remote-Group", "system:masters")]])
def test_request_without_a_user_is_refused(headers: list[tuple[str, str]]):
    with pytest.raises(Unauthenticated, match="no user"):
        RULES.find_user(get_der(PROXY), headers, NOW)


def test_certificate_that_ends_while_its_connection_is_open_is_refused():
    short = issue_client(PROXY_CA, FRONT_PROXY_NAME, NOW, timedelta(minutes=1))
    assert RULES.find_user(get_der(short), [("X-Remote-User", "jane")], NOW) == JANE
    with pytest.raises(Unauthenticated, match="ended"):
        RULES.find_user(get_der(short), [("X-Remote-User", "jane")], NOW + timedelta(minutes=2))


def test_certificate_is_refused_once_its_ca_has_ended():
    ca = issue_ca("short", NOW, timedelta(minutes=1))
    rules = FrontProxyRules.read(build_config(ca.certificate + PROXY_CA.certificate))
    shown = get_der(issue_client(ca, FRONT_PROXY_NAME, NOW))
    assert rules.find_user(shown, [("X-Remote-User", "jane")], NOW) == JANE
    with pytest.raises(Unauthenticated, match="ended"):
        rules.find_user(shown, [("X-Remote-User", "jane")], NOW + timedelta(minutes=2))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("client-ca-file", ""),
        ("client-ca-file", "no PEM"),
        ("allowed-names", "front-proxy-client"),
        ("allowed-names", '{"a": 1}'),
        ("username-headers", "[]"),
        ("username-headers", "[1]"),
        ("group-headers", "[" * 20_000),
    ],
)
def test_config_map_that_cannot_be_used_is_refused_with_its_field(key: str, value: str):
    with pytest.raises(BadFrontProxyRules, match=f"requestheader-{key}"):
        FrontProxyRules.read({**build_config(), f"requestheader-{key}": value})


def test_empty_config_map_is_refused():
    with pytest.raises(BadFrontProxyRules):
        FrontProxyRules.read({})


async def test_review_is_kept_for_some_seconds_and_belongs_to_one_user():
    judge, clock = Judge(), ManualClock()
    reviews = AccessReviews(judge, clock)
    assert await reviews.is_allowed(JANE, QUEUE)
    judge.allowed = False
    assert await reviews.is_allowed(JANE, QUEUE), "kept"
    assert not await reviews.is_allowed(ProxiedUser("jane", groups=("a",)), QUEUE)
    assert not await reviews.is_allowed(JANE, Access("clusterqueues", name="another"))
    clock.time += KEPT_S
    assert not await reviews.is_allowed(JANE, QUEUE)
    judge.allowed = True
    assert not await reviews.is_allowed(JANE, QUEUE), "a refusal is kept, too"


async def test_reviews_kept_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(access_reviews, "MOST_KEPT", 3)
    judge, clock = Judge(), ManualClock()
    reviews = AccessReviews(judge, clock)
    for number in range(9):
        await reviews.is_allowed(JANE, Access("clusterqueues", name=f"q{number}"))
    assert len(reviews._kept) == 3


async def test_equal_reviews_at_one_time_are_asked_once_though_a_client_leaves():
    goes_on = asyncio.Event()

    class Slow(Judge):
        async def create(self, resource: Resource, body: Obj) -> Obj:
            await goes_on.wait()
            return await super().create(resource, body)

    judge = Slow()
    reviews = AccessReviews(judge, ManualClock())
    tasks = [asyncio.create_task(reviews.is_allowed(JANE, QUEUE)) for _ in range(3)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    await asyncio.sleep(0)
    goes_on.set()
    assert await asyncio.gather(*tasks[1:]) == [True, True]
    assert len(judge.asked) == 1
