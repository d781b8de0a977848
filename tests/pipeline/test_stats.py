"""Counters, rates and the state machine."""

from __future__ import annotations

import itertools

import pytest

from pipeline.state import MOVES, CameraState, StateError, check_move
from pipeline.stats import RateMeter, Tally


@pytest.mark.parametrize(("old", "new"), list(itertools.product(CameraState, CameraState)))
def test_a_wrong_move_raises_and_names_both_states(old: CameraState, new: CameraState) -> None:
    if new in MOVES[old]:
        check_move("door", old, new)
        return
    with pytest.raises(StateError) as caught:
        check_move("door", old, new)
    assert (caught.value.old, caught.value.new) == (old, new)
    for word in ("door", old.value, new.value):
        assert word in str(caught.value)


def test_every_state_can_be_stopped_and_reached() -> None:
    assert set(MOVES) == set(CameraState)
    for state in set(CameraState) - {CameraState.STOPPED, CameraState.STOPPING}:
        assert CameraState.STOPPING in MOVES[state]
    assert set().union(*MOVES.values()) == set(CameraState)


def test_a_tally_counts_by_name_and_gives_copies() -> None:
    tally = Tally()
    tally.add("a")
    tally.add("b", 2)
    copy = tally.counts()
    tally.add("a")
    assert copy == {"a": 1, "b": 2}
    assert tally.counts() == {"a": 2, "b": 2}


def test_a_rate_is_none_before_two_events() -> None:
    meter = RateMeter()
    assert meter.per_second() is None
    meter.tick(5)
    assert meter.per_second(10) is None


@pytest.mark.parametrize("period_ms", [1, 33, 500, 5000])
def test_a_steady_rate_is_measured(period_ms: int) -> None:
    meter = RateMeter()
    for i in range(40):
        meter.tick(i * period_ms * 1_000_000)
    rate = meter.per_second(39 * period_ms * 1_000_000)
    assert rate == pytest.approx(1000 / period_ms)


def test_a_rate_falls_when_nothing_comes_any_more() -> None:
    meter = RateMeter()
    for i in range(40):
        meter.tick(i * 10_000_000)
    rates = [meter.per_second(390_000_000 + after * 1_000_000_000) for after in range(5)]
    known = [rate for rate in rates if rate is not None]
    assert known == sorted(known, reverse=True)
    assert known[0] == pytest.approx(100)
    assert known[-1] < 1


def test_events_at_one_instant_have_no_rate() -> None:
    meter = RateMeter()
    meter.tick(7)
    meter.tick(7)
    assert meter.per_second(7) is None
