"""What several tests of the queues count."""

from __future__ import annotations

from collections import Counter

import pytest

from core.queueing.cycle import judge as judge_module
from core.queueing.flavors.flavor_search import find_admission


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a place was looked for (quota and topology searched), by name of workload."""
    counts: Counter[str] = Counter()
    real = find_admission

    def counting(state, workload, *others):
        counts[workload.key.partition("/")[2]] += 1
        return real(state, workload, *others)

    monkeypatch.setattr(judge_module, "find_admission", counting)
    return counts
