"""The hub: encodes each frame at most once per variant, only while somebody waits for it, and hands out the newest.

Everything here runs on the event loop; pictures are made in a few worker threads. A camera's threads only ever call
:meth:`CameraFeeds.wake`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from kernels.errors import PinholeError, UnknownNameError
from kernels.profiler import RANGES
from service.feed import CameraFeeds, Feed, LiveSource, Make, Render, Submit
from service.picture import Picture, Renderer, Variant
from service.sender import REPEAT_S, Sender
from service.tally import Delivery, Encoding, LiveStatistics, LiveTally, ViewerStatistics

log = logging.getLogger("pinhole.live")

LINGER_S = 1.0  # a rendition is kept this long after its last viewer: snapshots of one frame are then one encoding
TICK_S = 0.1  # how often deadlines, repetitions and rates are looked after
RATE_S = 1.0  # what bit rates are taken over

_NUMBERS = itertools.count(1)  # of viewers


class HubClosedError(PinholeError):
    """The service is stopping."""


class TooManyViewersError(PinholeError):
    """Every viewer's place is taken; ``limit`` is how many there are."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(f"all {limit} places for viewers are taken; try again later or raise limits.max_viewers")


class TooManyVariantsError(PinholeError):
    """One more combination of view, format, quality and width of ``camera`` would be encoded than ``limit`` allows."""

    def __init__(self, camera: str, limit: int) -> None:
        self.camera = camera
        self.limit = limit
        super().__init__(
            f"{camera} is already being encoded in {limit} different renditions; "
            "ask for a quality and width that another viewer has, or raise limits.max_variants"
        )


class Hub:
    """All viewers of all cameras. ``cameras`` gives the cameras there are now."""

    def __init__(
        self, cameras: Callable[[], Mapping[str, LiveSource]], *, max_viewers: int = 100, max_variants: int = 32
    ) -> None:
        self._cameras = cameras
        self._max_viewers = max_viewers
        self._max_variants = max_variants
        # Of formats whose pictures depend on those before: who makes them. In the threads of live pictures, as jpg is.
        self.streams: dict[str, Make] = {}
        self._feeds: dict[str, CameraFeeds] = {}
        self._subscribed: set[CameraFeeds] = set()  # those above, and those of removed cameras that wind down
        self._viewers: set[Viewer] = set()
        self._tallies: dict[str, LiveTally] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._closing = False
        self._jobs: set[Future[Picture | None]] = set()  # being made, also those that nobody waits for any more
        self._ticking: asyncio.TimerHandle | None = None
        self._rated_at = 0.0
        cores = len(os.sched_getaffinity(0))
        # Stills that take long (PNG) have a thread of their own: they never delay a stream.
        self._live_pool = ThreadPoolExecutor(max(2, min(8, cores // 2)), "encode")
        self._still_pool = ThreadPoolExecutor(1, "still")

    def open(self, variant: Variant, kind: str, *, fps: float | None = None) -> Viewer:
        """A claim on a variant; to be released whatever happens. A ``snapshot`` takes no viewer's place.

        Raises:
            UnknownNameError, TooManyViewersError, TooManyVariantsError, HubClosedError
        """
        if self._closing:
            raise HubClosedError("the service is stopping")
        cameras = self._cameras()
        if variant.camera not in cameras:
            raise UnknownNameError("camera", "camera", variant.camera, cameras)
        if kind != "snapshot" and sum(v.kind != "snapshot" for v in self._viewers) >= self._max_viewers:
            raise TooManyViewersError(self._max_viewers)
        feeds, feed = self._feed(cameras[variant.camera], variant)
        viewer = Viewer(self, feeds, feed, kind, fps)
        feed.viewers.add(viewer)
        self._viewers.add(viewer)
        self._idle.clear()
        if self._ticking is None:
            loop = asyncio.get_running_loop()
            self._rated_at = loop.time()
            self._ticking = loop.call_later(TICK_S, self._tick)
        return viewer

    def move(self, viewer: Viewer, variant: Variant) -> None:
        """Let ``viewer`` look at another variant, or again at its own after :meth:`park`; it keeps its place.

        Raises:
            As :meth:`open`; what it looked at before then stays.
        """
        cameras = self._cameras()
        if variant.camera not in cameras:
            raise UnknownNameError("camera", "camera", variant.camera, cameras)
        feeds, feed = self._feed(cameras[variant.camera], variant)
        feed.viewers.add(viewer)
        if feed is not viewer.feed:
            self.park(viewer)
            viewer.feeds, viewer.feed = feeds, feed

    def park(self, viewer: Viewer) -> None:
        """Nothing is made for ``viewer`` until :meth:`move`; it keeps its place."""
        viewer.feed.leave(viewer)
        asyncio.get_running_loop().call_later(LINGER_S, self._drop_unused, viewer.feeds, LINGER_S)

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._ticking = loop.call_later(TICK_S, self._tick) if self._viewers else None
        cameras = self._cameras()
        since_s = now - self._rated_at
        if since_s >= RATE_S:
            self._rated_at = now
        for viewer in list(self._viewers):
            if since_s >= RATE_S:
                viewer.rate(since_s)
            if cameras.get(viewer.feeds.camera.name) is not viewer.feeds.camera:
                viewer.finish()  # it was removed
            if viewer.sender is not None:
                viewer.sender.tick(now)

    def _feed(self, camera: LiveSource, variant: Variant) -> tuple[CameraFeeds, Feed]:
        feeds = self._feeds.get(variant.camera)
        if feeds is not None and feeds.camera is not camera:  # that one was removed, and this one took its name
            for viewer in [v for feed in feeds.by_variant.values() for v in feed.viewers]:
                viewer.finish()
            feeds = None
        if feeds is not None and variant in feeds.by_variant:
            return feeds, feeds.by_variant[variant]
        if feeds is not None and len(feeds.by_variant) >= self._max_variants:
            self._drop_unused(feeds)
            if len(feeds.by_variant) >= self._max_variants:
                raise TooManyVariantsError(variant.camera, self._max_variants)
        if feeds is None or not feeds.by_variant:  # none yet, or closed with the last one that was dropped
            feeds = self._feeds[variant.camera] = CameraFeeds(camera, asyncio.get_running_loop())
            self._subscribed.add(feeds)
        pool = self._live_pool if variant.format == "jpg" or variant.format in self.streams else self._still_pool
        make, tally = self.streams.get(variant.format, Renderer), self._tally(variant.camera)
        feed = feeds.by_variant[variant] = Feed(camera, variant, self._submit_to(pool), tally, make)
        return feeds, feed

    def release(self, viewer: Viewer) -> None:
        """See :meth:`Viewer.release`."""
        self._viewers.discard(viewer)
        self.park(viewer)
        if not self._viewers:
            self._idle.set()

    def _drop_unused(self, feeds: CameraFeeds, unused_s: float = 0.0) -> None:
        """Forget the renditions that nobody has looked at for that long, and the camera with the last of them."""
        for feed in list(feeds.by_variant.values()):
            if feed.unused_for(unused_s):
                feed.close()
                del feeds.by_variant[feed.variant]
        if not feeds.by_variant:
            feeds.close()
            self._subscribed.discard(feeds)
            if self._feeds.get(feeds.camera.name) is feeds:
                del self._feeds[feeds.camera.name]

    async def stop(self, deadline_s: float = 1.0) -> bool:
        """Let every viewer finish, cut off those that do not, end the encoding; True if all of it ended in time.

        Afterwards no lease is held and no camera is subscribed to. Idempotent.
        """
        self._closing = True
        until = time.monotonic() + deadline_s
        for viewer in list(self._viewers):
            viewer.finish()
        await self._until_idle(deadline_s / 3)
        for viewer in list(self._viewers):
            viewer.abort()
        await self._until_idle(deadline_s / 3)
        left = list(self._viewers)
        for viewer in left:
            viewer.release()
        for feeds in list(self._subscribed):
            self._drop_unused(feeds)
        for pool in (self._live_pool, self._still_pool):
            pool.shutdown(wait=False)  # what waits there is short, and gives back what it holds
        jobs = asyncio.gather(*(asyncio.wrap_future(job) for job in list(self._jobs)), return_exceptions=True)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(jobs, max(0.0, until - time.monotonic()))
        if left or self._jobs:
            log.warning("%d viewers and %d encodings did not end in time", len(left), len(self._jobs))
        return not left and not self._jobs

    def _submit_to(self, pool: ThreadPoolExecutor) -> Submit:
        def submit(render: Render) -> Future[Picture | None]:
            job = pool.submit(render)
            self._jobs.add(job)
            job.add_done_callback(self._jobs.discard)
            return job

        return submit

    async def _until_idle(self, timeout_s: float) -> None:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._idle.wait(), timeout_s)

    def statistics(self, camera: str) -> LiveStatistics:
        """What was counted of a camera's viewers; zeros where it never had one."""
        tally = self._tally(camera)
        feeds = self._feeds.get(camera)
        viewers = [v for v in self._viewers if v.feed.variant.camera == camera]
        kinds: dict[str, int] = {}
        for viewer in viewers:
            kinds[viewer.kind] = kinds.get(viewer.kind, 0) + 1
        return LiveStatistics(
            encoded=dict(tally.encoded), encode_errors=tally.encode_errors,
            encode=tally.encode.snapshot(), deliver=tally.deliver.snapshot(),
            viewers=kinds, variants=len(feeds.by_variant) if feeds else 0,
            sent=tally.sent, sent_bytes=tally.sent_bytes, skipped=tally.skipped, cut_off=tally.cut_off,
            connections=tuple(viewer.statistics() for viewer in viewers),
        )  # fmt: skip

    def recent(self, camera: str) -> tuple[list[Encoding], list[Delivery]]:
        """The last pictures that were made of a camera's frames, and the last that its viewers were handed."""
        tally = self._tally(camera)
        return tally.encodings.newest(), tally.deliveries.newest()

    def _tally(self, camera: str) -> LiveTally:
        return self._tallies.setdefault(camera, LiveTally())


class Viewer:
    """One client's claim on a variant. Release it whatever happens; releasing twice is harmless."""

    def __init__(self, hub: Hub, feeds: CameraFeeds, feed: Feed, kind: str, fps: float | None) -> None:
        self.feeds = feeds
        self.feed = feed
        self.kind = kind
        self.name = f"{kind} {next(_NUMBERS)}"
        self.fps = fps
        self.on_abort: Callable[[], None] | None = None
        self.sender: Sender | None = None  # where pictures go by themselves, not by :meth:`next`
        self.sent = 0
        self.sent_bytes = 0
        self.repeated = 0
        self.skipped = 0
        self._hub = hub
        self._released = False
        self._stop: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._serial = 0
        self._sequence = -1
        self._age_ns: int | None = None
        self.frames_per_s: float | None = None
        self.asked: Mapping[str, object] = {}
        self._bits_per_s: float | None = None
        self._rated = (0, 0)  # frames, bytes

    @property
    def stopping(self) -> bool:
        """True once the stream should end."""
        return self._stop.done()

    async def stopped(self) -> None:
        """Wait until the stream should end."""
        await asyncio.wait((self._stop,))

    async def next(self, timeout_s: float = REPEAT_S) -> Picture | None:
        """The newest picture, if it comes within the time and was not taken before; None otherwise."""
        if not await self.feed.next(self._serial, timeout_s, self._stop):
            return None
        self._serial = self.feed.serial
        return self.feed.current

    def delivered(self, picture: Picture) -> None:
        """Account for a picture that the kernel has all of since just now."""
        tally = self.feed.tally
        self.sent_bytes += len(picture.data)
        tally.sent_bytes += len(picture.data)
        if picture.placeholder:
            return
        if picture.sequence <= self._sequence:
            self.repeated += 1
            return
        if self._sequence >= 0 and self.fps is None:
            skipped = picture.sequence - self._sequence - 1
            self.skipped += skipped
            tally.skipped += skipped
        self._sequence = picture.sequence
        self.sent += 1
        tally.sent += 1
        delivered_ns = time.monotonic_ns()
        self._age_ns = delivered_ns - picture.captured_ns
        tally.deliver.record(delivered_ns - picture.encoded_ns)
        RANGES.mark(self.feed.variant.camera, "deliver", picture.sequence, delivered_ns - picture.encoded_ns)
        tally.deliveries.add(Delivery(picture.sequence, self.name, picture.encoded_ns, delivered_ns))

    def rate(self, seconds: float) -> None:
        """Take the rates since the last call, ``seconds`` ago."""
        frames, nbytes = self._rated
        self.frames_per_s = (self.sent - frames) / seconds
        self._bits_per_s = 8 * (self.sent_bytes - nbytes) / seconds
        self._rated = (self.sent, self.sent_bytes)

    def missed_before(self, picture: Picture) -> int:
        """How many frames lie between ``picture`` and the last that was sent."""
        return max(0, picture.sequence - self._sequence - 1) if self._sequence >= 0 else 0

    def finish(self) -> None:
        """Ask the stream to end after what it is sending."""
        if self.sender is not None:
            self.sender.stop()
        if not self._stop.done():
            self._stop.set_result(None)

    def abort(self) -> None:
        """End the stream now, in the middle of what it is sending."""
        self.finish()
        if self.on_abort is not None:
            self.on_abort()

    def release(self) -> None:
        """Give the place back; with the last viewer's, encoding ends."""
        if not self._released:
            self._released = True
            self.finish()
            if self.sender is not None:
                self.sender.ended()
            self._hub.release(self)

    def statistics(self) -> ViewerStatistics:
        variant = self.feed.variant
        return ViewerStatistics(
            name=self.name, kind=self.kind, view=variant.view.value, quality=variant.quality, width=variant.width,
            fps=self.fps, sent=self.sent, sent_bytes=self.sent_bytes, repeated=self.repeated, skipped=self.skipped,
            age_ns=self._age_ns, bits_per_s=self._bits_per_s, frames_per_s=self.frames_per_s,
            paused=self not in self.feed.viewers, asked=self.asked,
        )  # fmt: skip
