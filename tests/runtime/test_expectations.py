"""Expectations against a plain model: sets of pairs with deadlines."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from core.runtime.expectations import Expectations

KEYS = st.sampled_from(["a", "b"])
UIDS = st.sampled_from(["1", "2", "3"])


class ExpectationsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.real = Expectations(timeout_s=300)
        self.model: dict[tuple[str, str], float] = {}
        self.timeouts = 0

    @rule(key=KEYS, uids=st.sets(UIDS))
    def expect(self, key: str, uids: set[str]) -> None:
        self.real.expect(key, uids, self.now)
        for uid in uids:
            self.model[key, uid] = self.now + 300

    @rule(key=KEYS, uid=UIDS)
    def observe(self, key: str, uid: str) -> None:
        self.real.observe(key, uid)
        self.model.pop((key, uid), None)

    @rule(key=KEYS)
    def forget(self, key: str) -> None:
        self.real.forget(key)
        self.model = {pair: deadline for pair, deadline in self.model.items() if pair[0] != key}

    @rule(seconds=st.sampled_from([1.0, 100.0, 299.0, 300.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(key=KEYS)
    def satisfied(self, key: str) -> None:
        expired = [pair for pair, deadline in self.model.items() if pair[0] == key and deadline <= self.now]
        self.timeouts += len(expired)
        for pair in expired:
            del self.model[pair]
        left = [deadline for pair, deadline in self.model.items() if pair[0] == key]
        assert self.real.satisfied(key, self.now) is (not left)
        assert self.real.retry_in(key, self.now) == (max(left) - self.now if left else None)

    @invariant()
    def agrees(self) -> None:
        for key in ("a", "b"):
            assert self.real.pending(key) == {uid for known, uid in self.model if known == key}
        assert self.real.timeouts == self.timeouts
        assert len(self.real) == len({key for key, _ in self.model})


TestExpectations = ExpectationsMachine.TestCase


def test_a_lost_event_delays_a_key_but_does_not_stop_it():
    expectations = Expectations(timeout_s=300)
    expectations.expect("key", ["uid"], now=0)
    assert not expectations.satisfied("key", now=299.9)
    assert expectations.satisfied("key", now=300)
    assert expectations.timeouts == 1
    assert len(expectations) == 0


def test_a_busy_key_does_not_keep_an_old_expectation_alive():
    expectations = Expectations(timeout_s=300)
    expectations.expect("key", ["old"], now=0)
    expectations.expect("key", ["new"], now=200)
    assert not expectations.satisfied("key", now=300)
    assert expectations.pending("key") == {"new"}
