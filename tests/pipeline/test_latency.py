"""Histograms against sorted lists."""

from __future__ import annotations

import threading
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.latency import (
    LARGEST_NS,
    RELATIVE_ERROR,
    HistogramSnapshot,
    LogHistogram,
    bucket_index,
    bucket_range_ns,
)

durations = st.one_of(st.integers(0, 200), st.integers(0, 10**12), st.integers(0, LARGEST_NS))


def histogram(values: list[int]) -> HistogramSnapshot:
    made = LogHistogram()
    for value in values:
        made.record(value)
    return made.snapshot()


@given(durations)
def test_bucket_holds_its_value_and_is_narrow(value: int) -> None:
    low, high = bucket_range_ns(bucket_index(value))
    assert low <= value <= high
    assert abs((low + high) // 2 - value) <= value * RELATIVE_ERROR


@given(st.integers(0, 975))
def test_buckets_follow_on_each_other_without_gap(index: int) -> None:
    low, high = bucket_range_ns(index)
    assert bucket_index(low) == bucket_index(high) == index
    if high < LARGEST_NS:
        assert bucket_index(high + 1) == index + 1


@given(st.lists(durations, min_size=1, max_size=300), st.floats(0, 1))
def test_quantile_is_that_of_the_sorted_list(values: list[int], q: float) -> None:
    snapshot = histogram(values)
    rank = max(1, ceil(q * len(values) * (1 - 1e-12)))
    expected = sorted(values)[rank - 1]
    found = snapshot.quantile(q)
    assert found is not None
    assert abs(found - expected) <= expected * RELATIVE_ERROR
    assert snapshot.quantile(0) == min(values) == snapshot.min_ns
    assert snapshot.quantile(1) == max(values) == snapshot.max_ns


@given(st.lists(durations, max_size=300))
def test_count_sum_and_mean_are_exact(values: list[int]) -> None:
    snapshot = histogram(values)
    assert (snapshot.count, snapshot.sum_ns) == (len(values), sum(values))
    assert snapshot.mean_ns == (sum(values) / len(values) if values else None)
    assert sum(count for _, count in snapshot.buckets) == len(values)


@given(st.lists(durations, max_size=200), st.lists(durations, max_size=20))
def test_cumulative_counts_what_is_surely_below(values: list[int], bounds: list[int]) -> None:
    bounds = sorted(bounds)
    counts = histogram(values).cumulative(bounds)
    assert counts == sorted(counts)
    for bound, count in zip(bounds, counts, strict=True):
        slack = bound * 2 * RELATIVE_ERROR + 1
        assert sum(v < bound - slack for v in values) <= count <= sum(v <= bound + slack for v in values)


@given(st.lists(durations, max_size=100), st.lists(durations, max_size=100))
def test_since_is_what_was_added(first: list[int], second: list[int]) -> None:
    made = LogHistogram()
    for value in first:
        made.record(value)
    before = made.snapshot()
    for value in second:
        made.record(value)
    added, alone = made.snapshot().since(before), histogram(second)
    assert (added.count, added.sum_ns, added.buckets) == (alone.count, alone.sum_ns, alone.buckets)
    if second:
        assert added.min_ns is not None
        assert added.max_ns is not None
        assert added.min_ns <= max(second)
        assert added.max_ns >= min(second)
        assert added.max_ns <= max(first + second)
    else:
        assert added == HistogramSnapshot()


@pytest.mark.parametrize(
    ("values", "p50", "p99", "biggest"),
    [
        ([10] * 98 + [500] * 2, 10, 500, 500),
        ([10_000_000] * 98 + [500_000_000] * 2, 10_000_000, 500_000_000, 500_000_000),
        ([7] * 99 + [10**15], 7, 7, 10**15),
        ([1], 1, 1, 1),
    ],
)
def test_b108_mean_percentiles_and_max_are_right(values: list[int], p50: int, p99: int, biggest: int) -> None:
    snapshot = histogram(values)
    assert snapshot.mean_ns == sum(values) / len(values)
    assert snapshot.max_ns == biggest
    for q, expected in ((0.5, p50), (0.99, p99)):
        found = snapshot.quantile(q)
        assert found is not None
        assert abs(found - expected) <= expected * RELATIVE_ERROR


def test_an_empty_histogram_says_nothing_instead_of_zero() -> None:
    snapshot = LogHistogram().snapshot()
    assert (snapshot.mean_ns, snapshot.quantile(0.5), snapshot.min_ns, snapshot.max_ns) == (None, None, None, None)
    assert snapshot.cumulative([1, 2]) == [0, 0]


def test_values_out_of_range_count_as_the_nearest() -> None:
    snapshot = histogram([-5, LARGEST_NS + 10])
    assert (snapshot.min_ns, snapshot.max_ns, snapshot.count) == (0, LARGEST_NS, 2)


@pytest.mark.parametrize("q", [-0.1, 1.1, float("nan")])
def test_a_share_outside_0_to_1_is_refused(q: float) -> None:
    with pytest.raises(ValueError, match="quantile"):
        histogram([1]).quantile(q)


def test_snapshots_are_consistent_while_another_thread_records() -> None:
    made = LogHistogram()
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            made.record(1000)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(300):
            snapshot = made.snapshot()
            assert snapshot.sum_ns == 1000 * snapshot.count == 1000 * sum(n for _, n in snapshot.buckets)
    finally:
        stop.set()
        writer.join()
