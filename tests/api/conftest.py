"""The webhook beside the session's control plane, converting and nothing else, for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.cluster import Cluster
from e2e.topogate import Topogate


@pytest.fixture(scope="module")
def converter(cluster: Cluster) -> Iterator[Topogate]:
    """What is asked about objects of another version than the one that is stored; no object is judged by it."""
    running = Topogate(cluster)
    try:
        yield running.start(converts_only=True)
    finally:
        running.stop()
