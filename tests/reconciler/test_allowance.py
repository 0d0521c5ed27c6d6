"""So many at once, and so many a second from then on."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reconciler.allowance import Allowance


def test_some_at_once_then_by_the_second():
    allowance = Allowance(2.0, 3)
    assert [allowance.take(100.0) for _ in range(4)] == [True, True, True, False]
    assert not allowance.take(100.4)
    assert allowance.take(100.5)
    assert not allowance.take(100.5)


@given(st.lists(st.floats(0, 0.5), max_size=60), st.integers(1, 5), st.floats(0.5, 20))
def test_never_more_than_the_pace_allows(pauses: list[float], at_once: int, per_second: float):
    allowance, now, taken = Allowance(per_second, at_once), 50.0, 0
    for pause in pauses:
        now += pause
        taken += allowance.take(now)
        assert taken <= at_once + (now - 50.0) * per_second + 1e-6
