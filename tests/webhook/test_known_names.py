"""Warnings of misspelt queues and levels: by watches of the API server in memory, in virtual time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from core.api.admission_review import parse_review
from core.jobs.kinds.job import Job
from core.names import (
    AUTO_LEVEL,
    PREFERRED_TOPOLOGY,
    QUEUE_NAME_LABEL,
    REQUIRED_TOPOLOGY,
    SLICE_CONSTRAINTS,
    SLICE_REQUIRED_TOPOLOGY,
    SLICE_SIZE,
    UNCONSTRAINED_TOPOLOGY,
    WORKLOAD_REQUIRED_TOPOLOGY,
)
from core.resource import Obj
from core.runtime.http.errors import Forbidden
from e2e import manifests
from sim import transport
from sim.harness import Harness
from tests.builders import BLOCK, RACK
from tests.runtime.fakes import LoopClock, ManualClock
from tests.webhook.asking import NAMESPACE, build_body, hook
from webhook import known_names
from webhook.known_names import KnownNames, NamedLevel, list_named_levels
from webhook.review import Reviews

Json = dict[str, Any]
pytestmark = pytest.mark.looptime
ON_TEMPLATE = "spec.template.metadata.annotations"
QUEUE_FIELD = f"metadata.labels[{QUEUE_NAME_LABEL}]"


def put_queue(harness: Harness, name: str = "main", flavors: tuple[str, ...] = ("gpu",), namespace: str = NAMESPACE) -> None:
    quota = [{"name": flavor, "resources": [{"name": "cpu", "nominalQuota": "8"}]} for flavor in flavors]
    spec = {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": quota}]}
    harness.put({"kind": "ClusterQueue", "metadata": {"name": f"of-{name}"}, "spec": spec})
    harness.put({"kind": "LocalQueue", "metadata": {"name": name, "namespace": namespace}, "spec": {"clusterQueue": f"of-{name}"}})


def put_flavor(harness: Harness, name: str, topology: str | None, levels: tuple[str, ...] = (BLOCK, RACK)) -> None:
    harness.put({"kind": "ResourceFlavor", "metadata": {"name": name}, "spec": {"topologyName": topology} if topology else {}})
    if topology:
        harness.put({"kind": "Topology", "metadata": {"name": topology}, "spec": {"levels": [{"nodeLabel": level} for level in levels]}})


@pytest.fixture
def harness() -> Harness:
    found = Harness(ManualClock())
    put_flavor(found, "gpu", "default")
    put_queue(found)
    return found


@asynccontextmanager
async def watching(harness: Harness) -> AsyncIterator[KnownNames]:
    names = KnownNames(harness.client, LoopClock())
    task = asyncio.create_task(names.run())
    await asyncio.sleep(1)  # of virtual time
    try:
        yield names
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def ask(names: KnownNames, obj: Json, old: Json | None = None) -> list[str]:
    """The warnings of a review, which must allow the object."""

    async def has_default_queue(_: str) -> bool:
        return False

    reviews = Reviews(has_default_queue, list_name_warnings=names.list_warnings)
    answer = await reviews.answer(hook("validate", obj["kind"]), parse_review(build_body(obj, old)))
    assert answer["response"]["allowed"]
    warnings: list[str] = answer["response"].get("warnings", [])
    return warnings


def build_job(queue: str = "main", **annotations: str) -> Json:
    return manifests.build_job("train", NAMESPACE, pods=4, queue=queue, annotations=annotations, spec={"suspend": True})


async def test_misspelt_queue_draws_a_warning_with_the_nearest_name(harness: Harness):
    async with watching(harness) as names:
        (warning,) = await ask(names, build_job("mian"))
        assert warning.startswith(f"{QUEUE_FIELD}: namespace {NAMESPACE} has no LocalQueue mian")
        assert warning.endswith("did you mean main?")
        (warning,) = await ask(names, build_job("something-else"))
        assert "did you mean" not in warning
        assert await ask(names, build_job("main")) == []


async def test_queue_without_its_cluster_queue_draws_a_warning(harness: Harness):
    orphan = {"name": "orphan", "namespace": NAMESPACE}
    harness.put({"kind": "LocalQueue", "metadata": orphan, "spec": {"clusterQueue": "gone"}})
    async with watching(harness) as names:
        (warning,) = await ask(names, build_job("orphan"))
        assert warning.startswith(f"{QUEUE_FIELD}: LocalQueue orphan names ClusterQueue gone, which does not exist")
        assert await ask(names, build_job("orphan"), build_job("orphan")) == []


async def test_queue_of_another_namespace_draws_a_warning(harness: Harness):
    put_queue(harness, "other", namespace="elsewhere")
    async with watching(harness) as names:
        assert len(await ask(names, build_job("other"))) == 1


@pytest.mark.parametrize(
    "annotations",
    [
        {REQUIRED_TOPOLOGY: f"{RACK}s"},
        {PREFERRED_TOPOLOGY: f"{RACK}s"},
        {UNCONSTRAINED_TOPOLOGY: "true", SLICE_REQUIRED_TOPOLOGY: f"{RACK}s", SLICE_SIZE: "2"},
        {REQUIRED_TOPOLOGY: BLOCK, SLICE_CONSTRAINTS: f'[{{"topology": "{RACK}s", "size": 2}}]'},
    ],
    ids=("required", "preferred", "slice", "layers"),
)
async def test_misspelt_level_draws_a_warning_with_the_nearest_name(harness: Harness, annotations: dict[str, str]):
    async with watching(harness) as names:
        (warning,) = await ask(names, build_job(**annotations))
    field = f"{ON_TEMPLATE}[{next(name for name, value in annotations.items() if f'{RACK}s' in value)}]"
    assert warning.startswith(f"{field}: LocalQueue main has no level {RACK}s")
    assert warning.endswith(f"did you mean {RACK}?")


async def test_level_of_the_whole_job_that_is_misspelt_draws_a_warning(harness: Harness):
    job = build_job()
    job["metadata"]["annotations"] = {WORKLOAD_REQUIRED_TOPOLOGY: "example.com/zone"}
    async with watching(harness) as names:
        (warning,) = await ask(names, job)
    assert warning.startswith(f"metadata.annotations[{WORKLOAD_REQUIRED_TOPOLOGY}]: ")
    assert warning.endswith(f"its levels are {BLOCK}, {RACK}")


@pytest.mark.parametrize("level", [AUTO_LEVEL, RACK, BLOCK])
async def test_known_level_draws_no_warning(harness: Harness, level: str):
    async with watching(harness) as names:
        assert await ask(names, build_job(**{REQUIRED_TOPOLOGY: level})) == []


async def test_level_that_any_flavor_of_the_queue_has_draws_no_warning(harness: Harness):
    put_flavor(harness, "plain", None)
    put_flavor(harness, "other", "more", ("example.com/zone",))
    put_queue(harness, flavors=("gpu", "plain", "other"))
    async with watching(harness) as names:
        assert await ask(names, build_job(**{REQUIRED_TOPOLOGY: "example.com/zone"})) == []
        assert len(await ask(names, build_job(**{REQUIRED_TOPOLOGY: "example.com/zones"}))) == 1


async def test_level_of_a_queue_without_any_topology_draws_a_warning(harness: Harness):
    put_flavor(harness, "gpu", None)
    async with watching(harness) as names:
        (warning,) = await ask(names, build_job(**{REQUIRED_TOPOLOGY: RACK}))
    assert warning.startswith(f"{ON_TEMPLATE}[{REQUIRED_TOPOLOGY}]: ")
    assert warning == "".join(known_names.warn_of_levels("main", [NamedLevel(f"{ON_TEMPLATE}[{REQUIRED_TOPOLOGY}]", RACK)], []))


@pytest.mark.parametrize("missing", ["ClusterQueue/of-main", "ResourceFlavor/gpu", "Topology/default"])
async def test_levels_draw_no_warning_while_a_part_of_the_queue_is_missing(harness: Harness, missing: str):
    kind, _, name = missing.partition("/")
    harness.drop(kind, name, namespace="")
    async with watching(harness) as names:
        warnings = await ask(names, build_job(**{REQUIRED_TOPOLOGY: f"{RACK}s"}))
        assert not any(ON_TEMPLATE in warning for warning in warnings)


async def test_unreadable_queue_is_a_known_name_with_unknown_levels(harness: Harness):
    harness.put({"kind": "ClusterQueue", "metadata": {"name": "of-main"}, "spec": {"resourceGroups": [{"flavors": [{}]}]}})
    async with watching(harness) as names:
        assert await ask(names, build_job(**{REQUIRED_TOPOLOGY: f"{RACK}s"})) == []


async def test_change_draws_warnings_of_changed_names_only(harness: Harness):
    wrong = build_job("mian", **{REQUIRED_TOPOLOGY: f"{RACK}s"})
    right, resized = build_job(), {**build_job("mian"), "spec": {**wrong["spec"], "parallelism": 2}}
    async with watching(harness) as names:
        assert await ask(names, resized, wrong) == []
        assert len(await ask(names, build_job("mian"), right)) == 1
        assert len(await ask(names, build_job(**{REQUIRED_TOPOLOGY: f"{RACK}s"}), right)) == 1
        assert await ask(names, right, wrong) == []


async def test_object_of_a_controller_draws_no_warning(harness: Harness):
    job = build_job("mian")
    job["metadata"]["ownerReferences"] = [{"apiVersion": "example.com/v1", "kind": "Flow", "name": "a", "uid": "u", "controller": True}]
    async with watching(harness) as names:
        assert await ask(names, job) == []


async def test_queue_that_is_deleted_draws_a_warning_after_it(harness: Harness):
    async with watching(harness) as names:
        assert await ask(names, build_job()) == []
        harness.drop("LocalQueue", "main", NAMESPACE)
        await asyncio.sleep(1)
        assert len(await ask(names, build_job())) == 1


async def test_review_waits_for_nothing(harness: Harness):
    """Attack: waiting for a queue that may come held the memory of other reviews, and a user could have all of them refused."""
    async with watching(harness) as names:
        began = asyncio.get_running_loop().time()
        answers = await asyncio.gather(*(ask(names, build_job("mian")) for _ in range(100)))
        assert asyncio.get_running_loop().time() == began
    assert all(len(warnings) == 1 for warnings in answers)


async def test_watch_that_fails_ends_no_process_and_is_begun_again(harness: Harness, monkeypatch: pytest.MonkeyPatch):
    real = harness.client.list_page
    fails = [True]

    async def fail(resource: Any, *args: Any, **options: Any) -> Any:
        if fails and resource.plural == "localqueues":
            raise RuntimeError("a bug")
        return await real(resource, *args, **options)

    monkeypatch.setattr(harness.client, "list_page", fail)
    async with watching(harness) as names:
        assert await ask(names, build_job("mian")) == []
        fails.clear()
        await asyncio.sleep(known_names.AGAIN_S)
        assert len(await ask(names, build_job("mian"))) == 1


async def test_names_are_unknown_before_the_first_list_and_while_the_api_server_is_away(harness: Harness):
    harness.faults.is_cut = True
    async with watching(harness) as names:
        assert await ask(names, build_job("mian")) == []
        harness.faults.is_cut = False
        await asyncio.sleep(60)
        assert len(await ask(names, build_job("mian"))) == 1
        harness.faults.is_cut = True
        await asyncio.sleep(1000)
        assert await ask(names, build_job("mian")) == []


async def test_names_stay_known_while_a_watch_that_broke_is_begun_again(harness: Harness):
    """On a slow machine a page of the documents drew no warning: a watch had broken, and counted as broken until its next bookmark."""
    async with watching(harness) as names:
        await asyncio.sleep(300)
        harness.faults.is_cut = True
        await asyncio.sleep(5)
        assert len(await ask(names, build_job("mian"))) == 1
        harness.faults.is_cut = False
        await asyncio.sleep(5)
        assert len(await ask(names, build_job("mian"))) == 1


async def test_names_stay_known_by_streams_without_bookmarks(harness: Harness, monkeypatch: pytest.MonkeyPatch):
    """An API server left them out of two streams in a row, and no misspelt level drew a warning in between."""
    monkeypatch.setattr(transport, "BOOKMARK_S", float("inf"))
    monkeypatch.setattr(transport, "REFRESH_S", 0.0)
    async with watching(harness) as names:
        for _ in range(60):
            await asyncio.sleep(10)
            assert len(await ask(names, build_job("mian"))) == 1
            assert len(await ask(names, build_job(**{REQUIRED_TOPOLOGY: f"{RACK}s"}))) == 1


async def test_names_are_unknown_while_a_watch_hangs(harness: Harness, monkeypatch: pytest.MonkeyPatch):
    """A queue that was made after the watch fell silent drew a warning for two minutes."""
    real, answers = harness.client.watch, asyncio.Event()

    async def watch(*args: Any, **options: Any) -> AsyncIterator[Obj]:
        await answers.wait()
        async for event in real(*args, **options):
            yield event

    async with watching(harness) as names:
        await asyncio.sleep(300)
        assert len(await ask(names, build_job("mian"))) == 1
        monkeypatch.setattr(harness.client, "watch", watch)
        await asyncio.sleep(30)  # the streams that are open end
        put_queue(harness, "made")
        await asyncio.sleep(known_names.SILENT_S + 1)
        assert await ask(names, build_job("made")) == []
        answers.set()
        await asyncio.sleep(120)
        assert await ask(names, build_job("made")) == []
        assert len(await ask(names, build_job("mian"))) == 1


async def test_resource_that_may_not_be_listed_is_unknown(harness: Harness, monkeypatch: pytest.MonkeyPatch):
    real = harness.client.list_page

    async def refuse(resource: Any, *args: Any, **options: Any) -> Any:
        if resource.plural == "localqueues":
            raise Forbidden(403, "Forbidden", "no")
        return await real(resource, *args, **options)

    monkeypatch.setattr(harness.client, "list_page", refuse)
    async with watching(harness) as names:
        assert await ask(names, build_job("mian", **{REQUIRED_TOPOLOGY: f"{RACK}s"})) == []


@pytest.mark.parametrize("are_late", [False, True])
async def test_more_queues_than_are_kept_are_unknown(harness: Harness, monkeypatch: pytest.MonkeyPatch, are_late: bool):
    monkeypatch.setattr(known_names, "MOST_OBJECTS", 10)

    def put_many() -> None:
        for i in range(20):
            put_queue(harness, f"q-{i}", namespace=f"team-{i % 3}")

    if not are_late:
        put_many()
    async with watching(harness) as names:
        put_many()
        await asyncio.sleep(1)
        assert await ask(names, build_job("mian")) == []
        for known in (names._queues, names._cluster_queues):
            assert known._found is None
        for i in range(20):
            harness.drop("LocalQueue", f"q-{i}", f"team-{i % 3}")
            harness.drop("ClusterQueue", f"of-q-{i}", "")
        await asyncio.sleep(known_names.AGAIN_S + 1)
        assert len(await ask(names, build_job("mian"))) == 1


def test_levels_are_listed_with_their_fields():
    job = build_job(**{REQUIRED_TOPOLOGY: BLOCK, SLICE_REQUIRED_TOPOLOGY: RACK})
    job["metadata"]["annotations"] = {WORKLOAD_REQUIRED_TOPOLOGY: BLOCK}
    assert list_named_levels(Job(), job) == [
        NamedLevel(f"metadata.annotations[{WORKLOAD_REQUIRED_TOPOLOGY}]", BLOCK),
        NamedLevel(f"{ON_TEMPLATE}[{REQUIRED_TOPOLOGY}]", BLOCK),
        NamedLevel(f"{ON_TEMPLATE}[{SLICE_REQUIRED_TOPOLOGY}]", RACK),
    ]


def test_nearest_name_of_many_long_ones_is_found_in_bounded_time():
    known = [f"{'ab' * 29}{i:05}" for i in range(20_000)]
    began = time.process_time()
    known_names._find_nearest("ba" * 31, known)
    assert time.process_time() - began < 0.1
