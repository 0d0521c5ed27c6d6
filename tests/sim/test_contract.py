"""The API server in memory answers as the real one, and tells watchers the same."""

from __future__ import annotations

import json
import os
import random
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import takewhile
from typing import Any
from urllib.parse import urlencode

import pytest

from e2e.api import Api, ApiError, wait_for
from e2e.audit.follow import Follower
from e2e.cluster import Cluster
from e2e.crds import install_crds, load_crds
from sim.apiserver.kinds import build_in, read_definitions
from sim.apiserver.routes import find_request, handle_request
from sim.apiserver.server import Refused, Server
from tests.sim.contract import APPLY, Op, Player, Sequence, find_difference
from tests.sim.contract_cases import CASES

Json = dict[str, Any]
SEQUENCES, FIRST = (int(os.environ.get(f"TOPOGATE_CONTRACT_{name}", default)) for name, default in (("SEQUENCES", "40"), ("FIRST", "0")))
CONTAINERS = {"containers": [{"name": "c", "image": "c"}]}
LAST: dict[str, Json] = {  # what is made in the end, of each resource that is followed: all that was told of others came before it
    "/apis/kueue.x-k8s.io/v1beta2/workloads": {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "spec": {"podSets": [{"name": "main", "count": 1, "template": {"spec": CONTAINERS}}]},
    },
    "/api/v1/pods": {"apiVersion": "v1", "kind": "Pod", "spec": {"schedulingGates": [{"name": "example.com/last"}], **CONTAINERS}},
    "/api/v1/configmaps": {"apiVersion": "v1", "kind": "ConfigMap"},
}
BATCH = 20  # namespaces that are made together


class Real:
    """The real server.

    It stores an apply of empty parts of metadata again if the second is another than that of the apply before. So that this does not
    depend on when a sequence is played, each such apply waits for another second; in memory every request has one of its own.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._second = int(time.time())
        self.is_late = False

    def request(self, op: Op) -> tuple[int, Json]:
        """The answer. Afterwards `is_late` says whether a second has gone by that was not waited for: the server orders `managedFields` by
        time, and stores an apply that changes nothing but their order."""
        self.is_late |= int(time.time()) != self._second
        if op.content_type == APPLY and not all(op.body["metadata"].values()):
            time.sleep(1.01 - time.time() % 1)
        self._second = int(time.time())
        try:
            return 200, self._api.request(op.method, op.path + (f"?{urlencode(op.params)}" if op.params else ""), op.body, op.content_type)
        except ApiError as error:
            return error.status, error.body


class InMemory:
    """Ours, with one namespace."""

    def __init__(self, namespace: str) -> None:
        kinds = [*build_in(), *read_definitions(load_crds())]
        self._requests = 0
        self.server = Server(kinds, now=self._tell_time, chance=random.Random(1))
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        assert self.request(Op("POST", "/api/v1/namespaces", {}, made))[0] == 200

    def _tell_time(self) -> str:
        return f"2026-01-01T00:{self._requests // 60:02}:{self._requests % 60:02}Z"

    def request(self, op: Op) -> tuple[int, Json]:
        self._requests += 1
        body = json.dumps(op.body).encode() if op.body is not None else None
        try:
            return 200, handle_request(self.server, find_request(self.server, op.method, op.path, op.params, body, op.content_type))
        except Refused as refused:
            return refused.code, refused.status

    def read_events(self, namespace: str, path: str) -> list[Json]:
        whole = path.replace("/workloads", f"/namespaces/{namespace}/workloads").replace("/v1/", f"/v1/namespaces/{namespace}/")
        request = find_request(self.server, "GET", whole, {"watch": "true"}, None, "")
        return [event for _, event in self.server.read_changes(request, 1)]


class Told:
    """What the real server tells watchers of all namespaces."""

    def __init__(self, cluster: Cluster) -> None:
        self._events: dict[tuple[str, str], list[Json]] = defaultdict(list)
        self._lock = threading.Lock()
        self._followers = [self._follow(cluster, path) for path in LAST]

    def _follow(self, cluster: Cluster, path: str) -> Follower:
        def tell(kind: str, obj: Json) -> None:
            if obj["metadata"]["name"].startswith("kube-"):
                return  # that every namespace has
            with self._lock:
                self._events[path, obj["metadata"].get("namespace", "")].append({"type": kind, "object": obj})

        return cluster.follow(path, tell)

    def read_events(self, namespace: str, path: str) -> list[Json]:
        """Those before the last object; all if that has not come."""
        with self._lock:
            return list(takewhile(lambda event: not is_last(event), self._events[path, namespace]))

    def has_all(self, namespace: str, path: str) -> bool:
        with self._lock:
            return any(map(is_last, self._events[path, namespace]))

    def stop(self) -> None:
        for follower in self._followers:
            follower.stop()


def is_last(event: Json) -> bool:
    return bool(event["object"]["metadata"]["name"] == "last")


@pytest.fixture(scope="module")
def told(cluster: Cluster) -> Iterator[Told]:
    install_crds(cluster.api)
    told = Told(cluster)
    yield told
    told.stop()


@contextmanager
def fresh_namespaces(api: Api, count: int) -> Iterator[list[str]]:
    """With the account that pods are created with; they go with all that is in them."""
    names = [f"contract-{uuid.uuid4().hex[:8]}" for _ in range(count)]
    try:
        for name in names:
            api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for name in names:
            wait_for(f"the account of {name}", lambda name=name: api.find(f"/api/v1/namespaces/{name}/serviceaccounts/default"))  # type: ignore[misc]
        yield names
    finally:
        for name in names:
            remove_namespace(api, name)


def remove_namespace(api: Api, namespace: str) -> None:
    """Deletes what a sequence has left with its finalizers: an admitted Workload that stays counts in the tests that follow."""
    for path in LAST:
        objects = get_path(path, namespace)
        for obj in api.list(objects):
            one = f"{objects}/{obj['metadata']['name']}"
            if obj["metadata"].get("finalizers"):
                api.patch(one, {"metadata": {"finalizers": None}})
            api.delete(one, grace_period_s=0)
    api.delete(f"/api/v1/namespaces/{namespace}")


def get_path(path: str, namespace: str) -> str:
    group_version, _, plural = path.rpartition("/")
    return f"{group_version}/namespaces/{namespace}/{plural}"


def find_differences(name: str, ops: list[Op], namespace: str, api: Api, real: Real, told: Told) -> Iterator[str]:
    ours = InMemory(namespace)
    expected, found = Player(real, namespace), Player(ours, namespace)
    expected.play(ops)
    found.play(ops)
    for path, last in LAST.items():
        api.create(get_path(path, namespace), {**last, "metadata": {"name": "last"}})
        wait_for(f"the events of {path}", partial(told.has_all, namespace, path))
    for op, one, other in zip(ops, expected.answers, found.answers, strict=True):
        difference = find_difference(to_json(one), to_json(other))
        if difference:
            yield f"{name}, {op.method} {op.path} {json.dumps(op.body)}: real and ours: {difference}"
            return
    for path in LAST:
        events = ours.read_events(namespace, path)
        expected_events = [expected.normalize(event) for event in told.read_events(namespace, path)]
        difference = find_difference(to_json(expected_events), to_json([found.normalize(event) for event in events]))
        if difference:
            yield f"{name}, events of {path}: real and ours: {difference}"


def find_undisturbed(name: str, ops: list[Op], namespace: str, api: Api, told: Told) -> list[str]:
    """The differences of a sequence, which is played up to three times more where the real control plane has changed one of its pods, or
    its writes were not in one second."""
    real = Real(api)
    differences = list(find_differences(name, ops, namespace, api, real, told))
    for _ in range(3):
        if not differences or not (real.is_late or is_disturbed(told, namespace)):
            break
        real = Real(api)
        with fresh_namespaces(api, 1) as [namespace]:
            differences = list(find_differences(name, ops, namespace, api, real, told))
    return differences


def is_disturbed(told: Told, namespace: str) -> bool:
    """Whether the collector of pods was there: at each 20 s of the clock it fails those that are being deleted and have no node."""
    pods = [event["object"] for event in told.read_events(namespace, "/api/v1/pods")]
    return any(entry["manager"] == "kube-controller-manager" for pod in pods for entry in pod["metadata"].get("managedFields") or ())


def to_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


@pytest.mark.timeout(3000 + 3 * SEQUENCES)
def test_random_operations_have_the_same_answers_and_events(cluster: Cluster, told: Told):
    """`TOPOGATE_CONTRACT_SEQUENCES=2000` plays so many; `TOPOGATE_CONTRACT_FIRST` is the first seed."""
    differences = list[str]()
    for first in range(FIRST, FIRST + SEQUENCES, BATCH):
        seeds = range(first, min(first + BATCH, FIRST + SEQUENCES))
        with fresh_namespaces(cluster.api, len(seeds)) as made:
            for seed, namespace in zip(seeds, made, strict=True):
                differences += find_undisturbed(f"seed {seed}", Sequence(seed).ops, namespace, cluster.api, told)
    assert not differences, "\n".join(differences)


@pytest.mark.parametrize("name", CASES)
def test_fixed_operations_have_the_same_answers_and_events(cluster: Cluster, told: Told, name: str):
    with fresh_namespaces(cluster.api, 1) as [namespace]:
        differences = find_undisturbed(name, CASES[name], namespace, cluster.api, told)
    assert not differences, "\n".join(differences)


def test_operations_of_every_kind_are_played():
    """Of 40 sequences, so that the contract says something."""
    played: defaultdict[str, set[int]] = defaultdict(set)
    for seed in range(40):
        ours = InMemory("n")
        player = Player(ours, "n")
        sequence = Sequence(seed)
        player.play(sequence.ops)
        for op, (code, _) in zip(sequence.ops, player.answers, strict=True):
            played[f"{op.method} {op.content_type.partition('/')[2]} {'status' if op.path.endswith('status') else ''}".strip()].add(code)
    assert played["PATCH apply-patch+yaml status"] >= {200, 404, 409}
    assert played["PATCH merge-patch+json"] >= {200, 404, 409, 422}
    assert played["PATCH strategic-merge-patch+json"] >= {200, 404}
    assert played["POST json"] >= {200, 409, 422}
    assert played["DELETE json"] >= {200, 404, 409}
