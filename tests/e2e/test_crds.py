"""Definitions that are taken away are gone when it says so: who applied one that is on its way out would lose it again."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from e2e.api import Api, ApiError, wait_for
from e2e.cluster import Cluster
from e2e.crds import CRDS, is_established, remove_crds
from e2e.standins.base import build_crd

pytestmark = pytest.mark.cluster
GROUP = "removed.example.com"


@pytest.fixture
def held(cluster: Cluster) -> Iterator[tuple[Api, list[str]]]:
    """Two definitions, the second of which somebody's finalizer keeps."""
    api, definitions = cluster.api, [build_crd(GROUP, "v1", "Free", "frees"), build_crd(GROUP, "v1", "Held", "helds")]
    definitions[-1]["metadata"]["finalizers"] = ["example.com/held"]
    names = [api.create(CRDS, definition)["metadata"]["name"] for definition in definitions]
    for name in names:
        wait_for(f"{name} to be served", partial(is_established, api, name))
        wait_for(f"objects of {name} to be read", partial(is_read, api, name.partition(".")[0]))
    yield api, names
    for name in names:
        if api.find(f"{CRDS}/{name}") is not None:
            let_go(api, name)
            api.delete(f"{CRDS}/{name}")


def is_read(api: Api, plural: str) -> bool:
    """Whether the API server's cache of the objects is filled. If it is not when their definition is deleted, the API server tries to
    delete them once, and again only when the definition changes."""
    try:
        return api.find(f"/apis/{GROUP}/v1/{plural}?resourceVersion=0") is not None
    except ApiError as error:
        if error.status in (429, 503):
            return False
        raise


def let_go(api: Api, name: str) -> None:
    wait_for(f"the finalizer of {name} to be removed", partial(is_finalizer_removed, api, name))


def is_finalizer_removed(api: Api, name: str) -> bool:
    """Removes the finalizer of the test from the version that was read: the API server may remove its own one meanwhile.

    False if the definition changed in between. An ApiError of any other status is raised.
    """
    metadata = api.get(f"{CRDS}/{name}")["metadata"]
    kept = [finalizer for finalizer in metadata.get("finalizers", ()) if finalizer != "example.com/held"]
    try:
        api.patch(f"{CRDS}/{name}", {"metadata": {"finalizers": kept, "resourceVersion": metadata["resourceVersion"]}})
    except ApiError as error:
        if error.status == 409:
            return False
        raise
    return True


def test_one_that_is_on_its_way_out_is_waited_for(held: tuple[Api, list[str]]) -> None:
    api, (free, last) = held
    with ThreadPoolExecutor(1) as threads:
        removal = threads.submit(remove_crds, api, [free, last])
        wait_for(f"{free} to be gone", lambda: api.find(f"{CRDS}/{free}") is None)
        wait_for(f"{last} to be on its way", lambda: api.get(f"{CRDS}/{last}")["metadata"].get("deletionTimestamp"))
        assert is_established(api, last), "what misled whoever looked at this alone"
        assert not removal.done()
        let_go(api, last)
        removal.result(timeout=120)
    assert api.find(f"{CRDS}/{last}") is None
