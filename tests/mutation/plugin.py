"""A pytest plugin, for a copy of the tree: notes which test runs which lines and how long, or runs what it is told to."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import coverage
import hypothesis
import pytest

RECORD = "TOPOGATE_MUTATION_RECORD"  # a file to write durations to
CHOOSE = "TOPOGATE_MUTATION_CHOOSE"  # a file with the tests to run, in order, and the seconds that each may take

_durations: dict[str, float] = {}


@pytest.hookimpl(trylast=True)
def pytest_configure() -> None:
    """The same examples each time, and no search for a simpler failure: that one fails is enough."""
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile("mutation", deadline=None, max_examples=60, derandomize=True, phases=phases)
    hypothesis.settings.load_profile("mutation")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if CHOOSE in os.environ:
        chosen: dict[str, float] = json.loads(Path(os.environ[CHOOSE]).read_text())
        found = {item.nodeid: item for item in items}
        items[:] = [found[name] for name in chosen if name in found]
        for item in items:
            # The method that ends the process: a failure raised inside of a loop may be caught there.
            item.add_marker(pytest.mark.timeout(chosen[item.nodeid], method="thread"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    running = coverage.Coverage.current()
    if running is not None:
        running.switch_context(item.nodeid)
    try:
        return (yield)
    finally:
        if running is not None:
            running.switch_context("")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _durations[report.nodeid] = _durations.get(report.nodeid, 0) + report.duration


def pytest_sessionfinish() -> None:
    if RECORD in os.environ:
        Path(os.environ[RECORD]).write_text(json.dumps(_durations))
