"""The capture thread, ``cap-<camera>``: opens the source, drains it into the ring, and tries again when it breaks."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass

from kernels.errors import InputError, PinholeError
from kernels.profiler import RANGES
from pipeline.core import Core
from pipeline.provider import CaptureSlots
from pipeline.sources.base import FormatChanged, FrameCorrupt, Source, SourceEnded, SourceError, SourceFormat
from pipeline.state import CameraState

log = logging.getLogger("pinhole.capture")

FIRST_BACKOFF_S, LAST_BACKOFF_S = 0.5, 5.0
STEADY_S = 5.0  # a source that delivered for so long starts with the first back-off again
SUMMARY_S = 60.0  # between lines on a camera that stays away
LOOK_S = 0.2  # between looks for a device that is back
IDLE_S = 0.005  # a read that came back at once with nothing is not repeated sooner
DRAIN_WAIT_S = 0.1  # how soon the wait for the last frames of a file notices the end of the camera
MAX_CORRUPT_PAUSE_S = 0.1
MAX_FORMAT_CHANGES = 5  # in a row, with no frame between
OPEN_LIMIT_S = 10.0
STUCK_GRACE_S = 2.0  # between the interruption of a stuck call and giving up its thread


@dataclass(frozen=True, slots=True)
class Call:
    """A call into the source that may block: since when, and until when that is all right."""

    what: str
    began_ns: int
    limit_s: float

    def overdue_s(self, now_ns: int) -> float:
        return (now_ns - self.began_ns) / 1e9 - self.limit_s

    def __str__(self) -> str:
        return f"{self.what} did not return within {self.limit_s:g} s"


class CaptureLoop:
    """One capture thread. It alone calls its sources' ``open``, ``read`` and ``close``."""

    def __init__(self, core: Core, source: Source | None, *, wait_first: bool = False) -> None:
        """``source`` is tried first, then (or at once, if None) fresh ones; ``wait_first`` begins with a back-off."""
        self._core = core
        self._halted = core.halted
        self._source = source
        self._lock = threading.Lock()  # guards the three below
        self._call: Call | None = None
        self._interrupted: Call | None = None
        self._abandoned = False
        self._wake = threading.Event()  # ends every wait of this loop
        self._backoff_s = FIRST_BACKOFF_S
        self._wait_first = wait_first
        self._attempts = 0
        self._last_summary = 0.0
        self._slots: CaptureSlots | None = None
        self._corrupt_logged: dict[str, float] = {}  # by reason: when
        self._formats_logged: set[str] = set()
        self.thread = threading.Thread(target=self._run, name=f"cap-{core.config.name}", daemon=True)

    # ---- any thread

    def interrupt(self) -> None:
        """Make the loop end soon. Repeat until the thread has ended: a source may be just about to open."""
        self._wake.set()
        self._interrupt_source()

    def watch(self, now_ns: int) -> str | None:
        """Interrupt a call into the source that takes too long. A cause once it is time to give the thread up.

        It is then abandoned: whatever its source still delivers is thrown away, and it ends when it can.
        """
        with self._lock:
            call = self._call
            if call is None or (overdue_s := call.overdue_s(now_ns)) < 0:
                return None
            if self._interrupted is call:
                if overdue_s < STUCK_GRACE_S:
                    return None
                self._abandoned = True
            self._interrupted = call
            abandoned = self._abandoned
        if not abandoned:
            self._core.try_move(CameraState.RECONNECTING, str(call))
        self._interrupt_source()
        return str(call) if abandoned else None

    def _interrupt_source(self) -> None:
        source = self._source
        if source is None:
            return
        try:
            source.interrupt()
        except Exception as error:  # a plug-in's border: a stop must go on
            log.warning("camera %s: the source was not interrupted: %s", self._core.config.name, self._explain(error))

    def _explain(self, error: BaseException) -> str:
        return self._core.explain(error)

    def over(self) -> bool:
        """True once the loop should end."""
        return self._halted.is_set() or self._abandoned

    # ---- the capture thread

    def _run(self) -> None:
        try:
            if not (self._wait_first and self._pause(self._backoff_s)):
                self._try_again_and_again()
        except PinholeError as error:
            if not self._abandoned:
                self._core.fail(self._explain(error))
        except BaseException as error:  # the thread's border: it must not die silently
            if not self._abandoned:
                self._core.fail_unexpectedly("capture", error)

    def _try_again_and_again(self) -> None:
        while not self.over():
            cause = self._attempt()
            if cause is None or self.over():
                return
            self._lost(cause)
            if self._pause_for_return():
                return
            self._backoff_s = min(2 * self._backoff_s, LAST_BACKOFF_S)

    def _attempt(self) -> str | None:
        """Open a source and deliver until it breaks: why it did, or None at its end or the camera's."""
        try:
            if self._source is None:
                self._source = self._core.make_source()
            if (previous := self._core.last_source) is not None and previous is not self._source:
                self._source.follow(previous)
            self._deliver(self._source)
            return None
        except SourceEnded:
            self._close()
            self._end()
            return None
        except (SourceError, InputError, OSError) as error:
            with self._lock:
                stuck, self._interrupted = self._interrupted, None
            return str(stuck) if stuck is not None else self._explain(error)
        finally:
            self._close()

    def _deliver(self, source: Source) -> None:
        core = self._core
        self._enter("opening the source", OPEN_LIMIT_S)
        try:
            format = source.open()
        finally:
            self._leave()
        if self.over():
            return
        work = core.prepare(format)
        slots = self._slots = CaptureSlots(core, self, work.ring)
        read_limit_s = self._read_limit_s(format)
        corrupt_since: float | None = None
        corrupt = changes = 0
        while not self.over():
            before, began = slots.published, time.monotonic()
            slots.counted = False
            if read_limit_s is not None:
                self._enter("reading the source", read_limit_s)
            try:
                with RANGES.range(core.config.name, "capture"):
                    source.read(slots)
            except FrameCorrupt as error:
                self._leave()
                if not slots.counted:
                    core.counters.dropped.add(error.reason)
                corrupt += 1
                corrupt_since = began if corrupt_since is None else corrupt_since
                self._log_corrupt(error)
                if time.monotonic() - corrupt_since > core.config.stale_after_s:
                    raise SourceError(f"no usable frame, {corrupt} corrupt ones in a row: {error}") from error
                self._pause(min(0.001 * 2 ** min(corrupt, 10), MAX_CORRUPT_PAUSE_S))
                continue
            except FormatChanged as error:
                self._leave()
                changes += 1
                if changes > MAX_FORMAT_CHANGES:
                    raise SourceError(f"the format changes without a frame, now to {error.format.image}") from error
                self._log_format(error)
                slots.ring = core.prepare(error.format).ring
                read_limit_s = self._read_limit_s(error.format)
                continue
            finally:
                self._leave()
            if slots.published != before:
                corrupt, corrupt_since, changes = 0, None, 0
            elif time.monotonic() - began < IDLE_S:
                self._pause(IDLE_S)

    def _read_limit_s(self, format: SourceFormat) -> float | None:
        """How long a read may take. Sources that are not live wait by design, on their media's clock or a slot."""
        if not format.live:
            return None
        return max(self._core.config.stale_after_s, 10 / format.fps if format.fps else 0.0)

    def _log_format(self, error: FormatChanged) -> None:
        """Each format once at ``info``; a folder of pictures of all sizes changes it for ever."""
        text = error.format.image.describe()
        level = logging.DEBUG if text in self._formats_logged else logging.INFO
        self._formats_logged.add(text)
        log.log(level, "camera %s: the source is now %s", self._core.config.name, text)

    def _log_corrupt(self, error: FrameCorrupt) -> None:
        """One line for each reason, now and then; the counter has them all."""
        now = time.monotonic()
        if now - self._corrupt_logged.get(error.reason, -SUMMARY_S) >= SUMMARY_S:
            self._corrupt_logged[error.reason] = now
            log.warning("camera %s: corrupt frame: %s", self._core.config.name, self._explain(error))

    def _lost(self, cause: str) -> None:
        core, now = self._core, time.monotonic()
        slots, self._slots = self._slots, None
        if slots is not None and slots.first_s is not None and now - slots.first_s > STEADY_S:
            self._backoff_s = FIRST_BACKOFF_S
        self._attempts += 1
        if core.try_move(CameraState.RECONNECTING, cause):
            self._attempts, self._last_summary = 1, now
        elif now - self._last_summary >= SUMMARY_S:
            self._last_summary = now
            log.warning("camera %s: still away after %d attempts: %s", core.config.name, self._attempts, cause)

    def delivering(self) -> None:
        """A frame is there while the camera was not running."""
        core = self._core
        with self._lock:
            self._interrupted = None
        again = core.state is CameraState.RECONNECTING
        if core.try_move(CameraState.RUNNING) and again:
            core.counters.reconnects += 1
            log.info("camera %s: back after %d attempts", core.config.name, self._attempts)
        self._attempts = 0

    def _end(self) -> None:
        """The source is over: wait until its frames are processed, so that the last picture is the last frame."""
        work = self._core.work
        while work is not None and not self.over() and not work.ring.drained(DRAIN_WAIT_S):
            pass
        if not self.over():
            self._core.try_move(CameraState.ENDED)

    def _close(self) -> None:
        source, slots = self._source, self._slots
        if source is None:
            return
        try:
            source.close()
        except Exception as error:  # a plug-in's border: what cannot be closed well is still let go
            log.warning("camera %s: the source did not close: %s", self._core.config.name, self._explain(error))
        self._source, self._core.last_source = None, source
        if slots is not None and (kept := slots.take_back()):
            log.warning("camera %s: the source kept %d slots when it closed", self._core.config.name, kept)

    def _pause(self, seconds: float) -> bool:
        """Wait; True if the loop should end."""
        self._wake.wait(seconds)
        return self.over()

    def _pause_for_return(self) -> bool:
        """Wait out the back-off, or until the source has something new to try; True if the loop should end."""
        source = self._core.last_source
        if source is None or type(source).returned is Source.returned:  # it cannot tell
            return self._pause(self._backoff_s)
        deadline = time.monotonic() + self._backoff_s
        while (left_s := deadline - time.monotonic()) > 0:
            if self._pause(min(left_s, LOOK_S)):
                return True
            try:
                if source.returned():
                    self._backoff_s = FIRST_BACKOFF_S / 2
                    break
            except Exception as error:  # a plug-in's border: it is only a hint
                log.warning("camera %s: %s", self._core.config.name, self._explain(error))
                break
        return self.over()

    def _enter(self, what: str, limit_s: float) -> None:
        with self._lock:
            self._call = Call(what, time.monotonic_ns(), limit_s)

    def _leave(self) -> None:
        with self._lock:
            self._call = None
