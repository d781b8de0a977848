"""One camera's renditions while somebody looks: when they are encoded, and who is told.

Everything here runs on the event loop, but for :meth:`CameraFeeds.wake`, which the camera's threads call, and the
rendering itself, which worker threads do.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Protocol

from pipeline.state import CameraState
from service.picture import Picture, PictureSource, Renderer, Variant
from service.placeholder import mark_stale
from service.tally import Encoding, LiveTally

if TYPE_CHECKING:
    from service.live import Viewer
    from service.sender import Framing

log = logging.getLogger("pinhole.live")

LOOK_S = 0.5  # a camera that says nothing is looked at this often while somebody waits, for its state may need showing
BATCH = 32  # so many are handed a picture before the loop turns to whatever else waits
SHARED_NS = 1_000_000  # how old an age may be that is sent to several viewers

Render = Callable[[], Picture | None]
Make = Callable[["LiveSource", Variant], Renderer]
Submit = Callable[[Render], "Future[Picture | None]"]


class LiveConfig(Protocol):
    """What the hub reads of a camera's configuration."""

    @property
    def stale_after_s(self) -> float: ...


class LiveSource(PictureSource, Protocol):
    """What the hub needs of a camera."""

    @property
    def config(self) -> LiveConfig: ...


class Taker(Protocol):
    """Who is handed pictures as they are made; ``serial`` is that of the last one."""

    @property
    def serial(self) -> int: ...

    def take(self, picture: Picture, serial: int) -> None:
        """Called on the event loop, once for each :meth:`Feed.ask`."""


class CameraFeeds:
    """One camera's variants, and the one subscription they share."""

    def __init__(self, camera: LiveSource, loop: asyncio.AbstractEventLoop) -> None:
        self.camera = camera
        self.by_variant: dict[Variant, Feed] = {}
        self._loop = loop
        self._waking = False
        self._open = True
        self._unsubscribe = camera.subscribe(self.wake)

    def wake(self) -> None:
        """Called by the camera's threads. Wake-ups that the loop has not come to yet are one."""
        if self._waking or not self._open:
            return
        self._waking = True
        try:
            self._loop.call_soon_threadsafe(self._woken)
        except RuntimeError:  # the loop was closed under us
            self._open = False

    def _woken(self) -> None:
        self._waking = False
        for feed in self.by_variant.values():
            feed.news.set()

    def close(self) -> None:
        if self._open:
            self._open = False
            self._unsubscribe()


class Feed:
    """One variant while it has viewers: a task that renders the newest frame when somebody waits for one."""

    def __init__(
        self, camera: LiveSource, variant: Variant, submit: Submit, tally: LiveTally, make: Make = Renderer
    ) -> None:
        self.variant = variant
        self.viewers: set[Viewer] = set()
        self.tally = tally
        self.news = asyncio.Event()
        self.news.set()
        self.current: Picture | None = None
        self.serial = 0  # of ``current``; grows with each picture
        self.error = ""  # why the last try to render failed
        self._camera = camera
        self._demand = asyncio.Event()
        self._rendering = False
        self._submit = submit
        self.renderer = make(camera, variant)
        self._framed: dict[Framing, tuple[Picture, int, Sequence[bytes]]] = {}
        self._marked: Picture | None = None  # ``current``, saying that it is old
        self._asking: dict[Taker, None] = {}  # in the order in which they asked
        self._ready: dict[Taker, None] = {}  # those whose turn it is
        self._loop = asyncio.get_running_loop()
        self._unused_since = self._loop.time()
        self._turn: asyncio.Future[None] = self._loop.create_future()  # done after each try to render
        self._task = self._loop.create_task(self._run(), name=f"feed-{variant.camera}")

    async def next(self, after: int, timeout_s: float, stop: asyncio.Future[None]) -> bool:
        """Wait until ``current`` has a serial above ``after`` and no newer frame was known when it was made.

        False after ``timeout_s`` or once ``stop`` is done.
        """
        until = self._loop.time() + timeout_s
        if self._newer_than(after):
            return not stop.done()
        while True:
            self._demand.set()
            turn, left = self._turn, until - self._loop.time()
            await asyncio.wait((turn, stop), timeout=max(0.0, left), return_when=asyncio.FIRST_COMPLETED)
            if stop.done():
                return False
            if turn.done() and self.serial > after:
                return True
            if left <= 0:
                return False

    def ask(self, taker: Taker) -> None:
        """Hand ``taker`` one picture that it does not have, in this call or later; as :meth:`next`, without a task."""
        if self._newer_than(taker.serial):
            assert self.current is not None
            taker.take(self.current, self.serial)
        else:
            self._asking[taker] = None
            self._demand.set()

    def unask(self, taker: Taker) -> None:
        """It is not handed what it asked for."""
        self._asking.pop(taker, None)
        self._ready.pop(taker, None)

    def again(self) -> Picture | None:
        """What is shown while no newer picture comes: the last one, marked once it is old."""
        return self._marked or self.current

    def framed(self, framing: Framing, viewer: Viewer, picture: Picture) -> Sequence[bytes]:
        """``picture`` as it stands on the wire. The age in it is right to a millisecond."""
        now_ns = time.monotonic_ns()
        held = self._framed.get(framing)
        if held is not None and held[0] is picture and now_ns - held[1] < SHARED_NS:
            return held[2]
        chunks = framing.frame(viewer, picture, self.stale(picture), now_ns)
        if framing.shared:
            self._framed[framing] = (picture, now_ns, chunks)
        return chunks

    def stale(self, picture: Picture) -> str:
        """Why ``picture`` should not be taken for what is there now, or ""."""
        if picture.placeholder:
            return ""
        return stale_reason(picture, self._camera.config.stale_after_s, self._camera.state)

    def _newer_than(self, serial: int) -> bool:
        return self.serial > serial and not self._rendering and not self.news.is_set()

    async def _run(self) -> None:
        while True:
            await self._demand.wait()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.news.wait(), LOOK_S)
            self.news.clear()
            self._demand.clear()
            self._rendering = True
            try:
                picture = await asyncio.wrap_future(self._submit(self.renderer.render))
                if picture is None:
                    await self._mark()
            except Exception as error:  # a plug-in's border: an encoder's fault must not end the variant
                self._failed(error)
            else:
                if picture is not None:
                    self._show(picture)
            finally:
                self._rendering = False
            turn, self._turn = self._turn, self._loop.create_future()
            turn.set_result(None)
            self._after_turn()

    async def _mark(self) -> None:
        picture = self.current
        if picture is None or self._marked is not None or self.variant.format != "jpg":
            return
        reason = self.stale(picture)
        if reason and self._camera.state is CameraState.RUNNING:  # what has ended stays as it was
            marking = self._submit(lambda: dataclasses.replace(picture, data=mark_stale(picture.data, reason)))
            self._marked = await asyncio.wrap_future(marking)

    def _show(self, picture: Picture) -> None:
        self.error = ""
        self.current, self._marked = picture, None
        self.serial += 1
        if not picture.placeholder:
            self.tally.count_encoded(picture.encoder, picture.encode_ns)
            ended_ns = picture.encoded_ns
            started_ns = ended_ns - picture.encode_ns
            made = Encoding(picture.sequence, str(self.variant), started_ns, ended_ns, len(picture.data))
            self.tally.encodings.add(made)

    def _after_turn(self) -> None:
        """Hand out what there is now; ask for more if somebody has that already."""
        handing_out = bool(self._ready)
        for taker in list(self._asking):
            if taker.serial < self.serial:
                del self._asking[taker]
                self._ready[taker] = None
        if self._ready and not handing_out:
            self._hand_out()
        if self._asking:
            self._demand.set()

    def _hand_out(self) -> None:
        picture, serial = self.current, self.serial
        assert picture is not None
        for taker in list(itertools.islice(self._ready, BATCH)):
            if taker in self._ready:  # nobody's turn ends another's, but it may end its own
                del self._ready[taker]
                taker.take(picture, serial)
        if self._ready:
            self._loop.call_soon(self._hand_out)

    def _failed(self, error: Exception) -> None:
        self.tally.encode_errors += 1
        text = f"{type(error).__name__}: {error}"
        if text != self.error:
            self.error = text
            log.error("%s cannot be shown as %s: %s", self.variant.camera, self.variant.format, text)

    def leave(self, viewer: Viewer) -> None:
        """One viewer less; nothing is encoded for it any more."""
        self.viewers.discard(viewer)
        if not self.viewers:
            self._demand.clear()
            self._unused_since = self._loop.time()

    def unused_for(self, seconds: float) -> bool:
        """True if nobody has looked for that long."""
        return not self.viewers and self._loop.time() - self._unused_since >= seconds - 0.001

    def close(self) -> None:
        """End the encoding; a picture being made is finished by its thread and thrown away.

        What its renderer holds on a device goes in a worker thread: that may have to wait for the device.
        """
        self._task.cancel()
        self._submit(self.renderer.close)


def stale_reason(picture: Picture, stale_after_s: float, state: CameraState) -> str:
    """Why a camera's picture should not be taken for what is there now, or ""."""
    if state is CameraState.ENDED:
        return "ended"
    age_s = (time.monotonic_ns() - picture.captured_ns) / 1e9
    return f"older than {stale_after_s:g} s" if age_s > stale_after_s else ""
