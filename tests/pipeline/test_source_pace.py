from __future__ import annotations

from fractions import Fraction

import pytest

from pipeline.sources._pace import MediaClock, Playback, Schedule

MS = 1_000_000
SECOND = 1000 * MS


def positions(stamps_ms: list[int | None], nominal_ms: int = 40) -> list[float]:
    clock = MediaClock(nominal_ms * MS)
    return [clock.place(None if ms is None else ms * MS) / MS for ms in stamps_ms]


@pytest.mark.parametrize(
    ("stamps_ms", "expected_ms"),
    [
        ([0, 10, 210, 250], [0, 10, 210, 250]),
        ([5000, 5040, 5041], [0, 40, 41]),
        ([-80, -40, 0, 40], [0, 40, 80, 120]),
        ([0, 9_000, 9_040], [0, 9_000, 9_040]),  # a pause
        ([0, 40, 3_600_000, 3_600_040], [0, 40, 80, 120]),  # a break in the clock
        ([0, 40, 40, 40, 80], [0, 40, 80, 120, 160]),  # repeated
        ([0, 40, 20, 60, 100], [0, 40, 80, 120, 160]),  # back, then on from there
        ([5000, 5040, 0, 40, 80], [0, 40, 80, 120, 160]),  # files joined
        ([None, None, None], [0, 40, 80]),
        ([0, None, 80, 200], [0, 40, 80, 200]),  # missing between known ones
        ([0, None, None, 50], [0, 40, 80, 120]),
        ([None, 100, 150], [0, 40, 90]),
    ],
)
def test_b112_positions_follow_stamps(stamps_ms: list[int | None], expected_ms: list[float]) -> None:
    assert positions(stamps_ms) == expected_ms


def test_long_frames_are_no_break() -> None:
    assert positions([0, 60_000, 120_000], nominal_ms=60_000) == [0, 60_000, 120_000]


def test_restart_goes_on_one_nominal_frame_later() -> None:
    clock = MediaClock(40 * MS)
    clock.place(0)
    clock.place(200 * MS)
    clock.restart()
    assert [clock.place(0), clock.place(10 * MS)] == [240 * MS, 250 * MS]


def test_playback_catches_up_after_small_delays_and_moves_after_long_ones() -> None:
    playback = Playback(patience_ns=200 * MS)
    assert playback.due(0, 5 * SECOND) == 5 * SECOND
    assert playback.due(40 * MS, 5 * SECOND + 100 * MS) == 5 * SECOND + 40 * MS  # 60 ms late: no drift
    assert playback.due(80 * MS, 7 * SECOND) == 7 * SECOND  # 1.92 s late: from here on
    assert playback.due(120 * MS, 7 * SECOND) == 7 * SECOND + 40 * MS


@pytest.mark.parametrize("rate", [Fraction(30), Fraction(30000, 1001), Fraction(1), Fraction(1000), Fraction(7, 3)])
def test_schedule_has_no_drift_over_a_day(rate: Fraction) -> None:
    schedule = Schedule(rate, 123)
    frames = int(rate * 3600 * 24)
    late = schedule.next(123 + 3600 * 24 * SECOND)
    assert schedule.skipped == frames
    assert late[0] == 123 + late[1] == 123 + int(frames / rate * SECOND)


@pytest.mark.parametrize("late_ms", [0, 1, 9, 10, 11, 19, 20, 21, 1005])
def test_schedule_gives_times_at_most_one_period_old(late_ms: int) -> None:
    schedule = Schedule(Fraction(100), 0)
    schedule.next(0)
    now = 10 * MS + late_ms * MS
    due, offset = schedule.next(now)
    assert due == offset
    assert due % (10 * MS) == 0
    assert 0 <= now - due < 10 * MS
    assert schedule.next(now)[0] == due + 10 * MS
