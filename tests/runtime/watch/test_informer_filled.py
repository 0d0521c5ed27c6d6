"""Informers without a watch: filled from a list of the server, or from objects at hand, as if it had told of them."""

from __future__ import annotations

import pytest

from core.resource import Obj, Page, Resource
from core.runtime.http.client import Client
from core.runtime.http.errors import Forbidden, Unreachable
from core.runtime.watch.informer import Informer
from core.runtime.watch.store import Change
from core.runtime.watch.watch_step import Init, InitApply, InitDone

PODS = Resource("", "v1", "pods", "Pod")


def build_pod(name: str, version: str = "1") -> Obj:
    return {"metadata": {"namespace": "ns", "name": name, "uid": name, "resourceVersion": version}, "spec": {"x": version}}


class Listing(Client):
    """A server that has a list, or refuses it."""

    def __init__(self, answer: list[Obj] | Exception) -> None:
        self._answer = answer
        self.asked: list[tuple[str, str | None, str | None]] = []

    async def list(self, resource: Resource, namespace: str | None = None, *, field_selector: str | None = None, limit: int = 500) -> Page:
        self.asked.append((str(resource), namespace, field_selector))
        if isinstance(self._answer, Exception):
            raise self._answer
        return Page(self._answer, "7")


def told(informer: Informer) -> list[tuple[str | None, str | None]]:
    """What handlers hear from now on: specs before and after."""
    heard: list[tuple[str | None, str | None]] = []

    def hear(change: Change) -> None:
        old, new = ((obj or {}).get("spec", {}).get("x") for obj in (change.old, change.new))
        heard.append((old, new))

    informer.add_handler(hear)
    return heard


async def test_one_list_is_folded_as_a_first_list_is():
    client = Listing([build_pod("a"), build_pod("b")])
    informer = Informer(client, PODS, namespace="ns", field_selector="f")
    heard = told(informer)
    await informer.list_once()
    assert informer.synced
    assert informer.store.list() == [build_pod("a"), build_pod("b")]
    assert heard == [(None, "1"), (None, "1")]
    assert client.asked == [("pods", "ns", "f")]


async def test_refused_list_raises_for_its_caller():
    informer = Informer(Listing(Forbidden(403, "Forbidden", "no")), PODS)
    with pytest.raises(Forbidden):
        await informer.list_once()
    assert not informer.synced


def test_objects_at_hand_replace_those_before_and_go_through_the_transform():
    informer = Informer(Client.make_offline(), PODS, transform=lambda obj: {**obj, "spec": {"x": obj["spec"]["x"] + "!"}})
    heard = told(informer)
    informer.fill([build_pod("a"), build_pod("b")])
    informer.put(build_pod("b", "2"))
    informer.fill([build_pod("b", "2")])
    assert [obj["spec"]["x"] for obj in informer.store.list()] == ["2!"]
    assert heard == [(None, "1!"), (None, "1!"), ("1!", "2!"), ("1!", None)]


async def test_without_a_server_nothing_can_be_asked():
    async with Client.make_offline() as client:
        with pytest.raises(Unreachable, match="there is no API server here"):
            await client.get(PODS, "a", "ns")
        with pytest.raises(Unreachable, match="there is no API server here"):
            await anext(client.watch(PODS, resource_version="1", timeout_seconds=1))


def test_observed_reply_is_transformed_and_reported_once():
    informer = Informer(Client.make_offline(), PODS, transform=lambda obj: {**obj, "spec": {"x": f"slim {obj['spec']['x']}"}})
    informer.fill([build_pod("a")])
    heard = told(informer)
    informer.observe_reply(build_pod("a", "2"))
    informer.put(build_pod("a", "2"))
    informer.observe_reply(build_pod("a", "1"))
    assert heard == [(None, "slim 1"), ("slim 1", "slim 2")]


def test_list_after_all_were_dropped_counts_as_synced_only_when_it_is_whole() -> None:
    informer = Informer(Listing([]), PODS)
    informer.fill([build_pod("a")])
    informer.drop_all()
    assert not informer.synced
    for event in (Init(), InitApply(build_pod("a", "2"))):
        informer._fold(event)
        assert not informer.synced
    informer._fold(InitDone())
    assert informer.synced
