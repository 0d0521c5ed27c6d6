"""One topogate for the tests of a module that go through the API server."""

from __future__ import annotations

import pytest

from e2e.topogate import Topogate
from tests.installed import Installed


@pytest.fixture(scope="module")
def topogate(installed: Installed) -> Topogate:
    return installed.run()
