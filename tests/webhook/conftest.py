"""One topogate for the tests of a module that go through the API server."""

from __future__ import annotations

import asyncio

import pytest

from e2e.topogate import Topogate
from tests.installed import Installed

# No event loop but those of the tests themselves (tests/runtime/conftest.py says why).
asyncio.set_event_loop(None)


@pytest.fixture(scope="module")
def topogate(installed: Installed) -> Topogate:
    return installed.run()
