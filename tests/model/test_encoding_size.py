"""How short an encoded assignment is: against every other way to cut it, and at the sizes of real clusters."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.wire import grouping, paying_cuts
from core.model.wire.assignment import DomainCount, TopologyAssignment
from core.model.wire.encoding import MAX_SLICES, compute_encoded_size, decode, encode
from core.model.wire.grouping import choose_parts
from core.model.wire.savings import can_cut_pay
from tests.bench.encoding import BUDGET_BYTES, PEER, SCHEMES, build_assignment
from tests.model.cuts import encode_searching


def shortest_slice(domains: list[DomainCount]) -> int:
    """Bytes of one slice, every prefix and suffix tried."""
    counts = [domain.count for domain in domains]
    size = len('{"domainCount":,"valuesPerLevel":[],"podCounts":}') + len(str(len(domains)))
    uniform = len(f'{{"universal":{counts[0]}}}') if len(set(counts)) == 1 else 10**9
    size += min(uniform, len('{"individual":[]}') + sum(len(str(count)) + 1 for count in counts) - 1)
    for values in zip(*(domain.values for domain in domains), strict=True):
        best = len('{"universal":""}') + len(values[0]) if len(set(values)) == 1 else 10**9
        shortest = min(map(len, values))
        for prefix in range(shortest + 1):
            if len({value[:prefix] for value in values}) > 1:
                break
            for suffix in range(shortest - prefix + 1):
                if len({value[len(value) - suffix :] for value in values}) > 1:
                    break
                roots = sum(len(value) - prefix - suffix + 3 for value in values) - 1
                affixes = sum(len('"prefix":"",') + length for length in (prefix, suffix) if length)
                best = min(best, len('{"individual":{"roots":[]}}') + roots + affixes)
        size += best + 1
    return size - 1


def shortest(assignment: TopologyAssignment) -> int:
    """Bytes of the shortest way to cut an assignment, all ways tried."""
    domains = list(assignment.domains)
    best = [0]
    for end in range(1, len(domains) + 1):
        best.append(min(best[begin] + shortest_slice(domains[begin:end]) + (begin > 0) for begin in range(end)))
    return compute_encoded_size({"levels": list(assignment.levels), "slices": []}) + best[-1]


@st.composite
def pools(draw: st.DrawFn, *, most: int = 12) -> TopologyAssignment:
    """Nodes of a few pools with names of their own kind, in one or two levels, counts mostly alike."""
    word = st.text("abc0-", min_size=1, max_size=25)
    rows: list[tuple[str, str, int]] = []
    for _ in range(draw(st.integers(1, 4))):
        rack, prefix, suffix = draw(word), draw(word), draw(st.sampled_from(["", ".local", "-" + "s" * 20]))
        count = draw(st.integers(1, 12))
        rows += [
            (rack, f"{prefix}{i}{suffix}", count) for i in draw(st.lists(st.integers(0, 99999), min_size=1, max_size=most, unique=True))
        ]
    if draw(st.booleans()):
        rows = [(rack, host, draw(st.integers(1, 3))) for rack, host, _ in rows]
    rows = sorted({row[:2]: row for row in rows}.values())
    if draw(st.booleans()):
        return TopologyAssignment(("rack", "host"), tuple(DomainCount((rack, host), count) for rack, host, count in rows))
    return TopologyAssignment(("host",), tuple(DomainCount((host,), count) for _, host, count in rows))


def as_kueue_cuts(assignment: TopologyAssignment) -> int:
    """Bytes of the shorter one of one slice and of runs of hostnames that are alike up to the last dash before the end that all share."""
    domains = list(assignment.domains)
    hosts = [domain.values[-1] for domain in domains]
    end = next(end for end in range(min(map(len, hosts)), -1, -1) if len({host[len(host) - end :] for host in hosts}) == 1)
    stems = (host[: host.rfind("-", 0, len(host) - end) + 1] for host in hosts)
    runs = [[domain for _, domain in run] for _, run in groupby(zip(stems, domains, strict=True), itemgetter(0))]
    frame = compute_encoded_size({"levels": list(assignment.levels), "slices": []})
    return frame + min(shortest_slice(domains), sum(map(shortest_slice, runs)) + len(runs) - 1)


@given(pools())
def test_no_way_to_cut_is_shorter(assignment: TopologyAssignment):
    """Of a few dozen domains, where the best cuts are searched for."""
    least, ours = shortest(assignment), compute_encoded_size(encode_searching(assignment))
    assert ours >= least
    assert ours <= least * 1.02


@given(pools())
def test_few_domains_are_no_longer_than_kueue_cuts_them(assignment: TopologyAssignment):
    """Which is how much longer than the shortest it may get (docs/decisions/0009)."""
    ours = encode(assignment)
    assert compute_encoded_size(ours) <= as_kueue_cuts(assignment)
    assert len(ours["slices"]) == 1 or ours == encode_searching(assignment)


@given(pools())
def test_estimated_savings_of_chosen_parts_equal_the_bytes_of_the_json(assignment: TopologyAssignment):
    """The bytes saved that cuts are chosen by are those of the JSON: where the search is asked, its cuts are no worse than one slice."""
    columns = list(zip(*(domain.values for domain in assignment.domains), strict=True))
    parts = choose_parts(columns, [domain.count for domain in assignment.domains])
    assert [part.begin for part in parts] == [0, *(part.end for part in parts[:-1])]
    size = compute_encoded_size({"levels": list(assignment.levels), "slices": []}) + len(parts) - 1
    size += sum(shortest_slice(list(assignment.domains[part.begin : part.end])) for part in parts)
    assert size <= compute_encoded_size({"levels": list(assignment.levels), "slices": []}) + shortest_slice(list(assignment.domains))
    assert compute_encoded_size(encode_searching(assignment)) <= size


@given(pools())
def test_where_no_cut_can_pay_one_slice_is_the_shortest(assignment: TopologyAssignment):
    """What the search is skipped for, all ways to cut tried."""
    asked: list[bool] = []

    def ask(*facts: Any) -> bool:
        asked.append(can_cut_pay(*facts))
        return asked[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grouping, "can_cut_pay", ask)
        encode_searching(assignment)
    if asked == [False]:
        frame = compute_encoded_size({"levels": list(assignment.levels), "slices": []})
        assert shortest(assignment) == frame + shortest_slice(list(assignment.domains))


@given(pools(most=80))
def test_asking_first_changes_no_answer(assignment: TopologyAssignment):
    """What is skipped would have been found in vain."""
    wire = encode_searching(assignment)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grouping, "_ASK", 0)
        assert compute_encoded_size(encode_searching(assignment)) == compute_encoded_size(wire)


@given(st.lists(st.lists(st.integers(0, 30) | st.sampled_from([0, 5, 6]), min_size=50, max_size=50), min_size=1, max_size=3))
def test_few_and_many_promise_the_same(shared: list[list[int]]):
    few = paying_cuts.compute_promise(np.array(shared))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paying_cuts, "_FEW", 0)
        assert paying_cuts.compute_promise(np.array(shared)).tolist() == few.tolist()


@pytest.mark.parametrize("nodes", [1000, 10_000, 100_000])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_encoded_assignment_is_no_longer_than_that_of_kueue_and_within_the_budget(scheme: str, nodes: int):
    assignment = build_assignment(scheme, nodes)
    wire = encode(assignment)
    assert compute_encoded_size(wire) <= min(PEER[scheme][0][nodes])
    assert len(wire["slices"]) <= MAX_SLICES
    assert compute_encoded_size(wire) <= BUDGET_BYTES or scheme == "uuid"
    assert decode(wire) == assignment


def test_encoding_of_uuid_nodes_reaches_the_limit_of_kueue():
    """They share next to nothing: 100,000 take 3.7 MB in this format, whoever writes them."""
    assert compute_encoded_size(encode(build_assignment("uuid", 39_000))) <= BUDGET_BYTES
    assert PEER["uuid"][1] < 39_000


@pytest.mark.parametrize("scheme", ["peer-perf-1", "gke-1000-pools"])
def test_beyond_one_slice_the_runs_need_no_further_cut(scheme: str):
    """A thousand pools of 130 nodes: no slice has too many domains, and one more would be one too many."""
    wire = encode(build_assignment(scheme, 130_000))
    assert len(wire["slices"]) == MAX_SLICES
    assert compute_encoded_size(wire) <= BUDGET_BYTES
