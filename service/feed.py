"""One camera's renditions while somebody looks: when they are encoded, and who is told.

Everything here runs on the event loop, but for :meth:`CameraFeeds.wake`, which the camera's threads call, and the
rendering itself, which worker threads do.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from service.picture import Picture, PictureSource, Renderer, Variant
from service.tally import Encoding, LiveTally

if TYPE_CHECKING:
    from service.live import Viewer

log = logging.getLogger("pinhole.live")

LOOK_S = 0.5  # a camera that says nothing is looked at this often while somebody waits, for its state may need showing

Render = Callable[[], Picture | None]
Submit = Callable[[Render], "Future[Picture | None]"]


class CameraFeeds:
    """One camera's variants, and the one subscription they share."""

    def __init__(self, camera: PictureSource, loop: asyncio.AbstractEventLoop) -> None:
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

    def __init__(self, camera: PictureSource, variant: Variant, submit: Submit, tally: LiveTally) -> None:
        self.variant = variant
        self.viewers: set[Viewer] = set()
        self.tally = tally
        self.news = asyncio.Event()
        self.news.set()
        self.current: Picture | None = None
        self.serial = 0  # of ``current``; grows with each picture
        self.error = ""  # why the last try to render failed
        self._demand = asyncio.Event()
        self._rendering = False
        self._submit = submit
        self._renderer = Renderer(camera, variant)
        self._loop = asyncio.get_running_loop()
        self._unused_since = self._loop.time()
        self._turn: asyncio.Future[None] = self._loop.create_future()  # done after each try to render
        self._task = self._loop.create_task(self._run(), name=f"feed-{variant.camera}")

    async def next(self, after: int, timeout_s: float, stop: asyncio.Future[None]) -> bool:
        """Wait until ``current`` has a serial above ``after`` and no newer frame was known when it was made.

        False after ``timeout_s`` or once ``stop`` is done.
        """
        until = self._loop.time() + timeout_s
        if self.serial > after and not self._rendering and not self.news.is_set():
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

    async def _run(self) -> None:
        while True:
            await self._demand.wait()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.news.wait(), LOOK_S)
            self.news.clear()
            self._demand.clear()
            self._rendering = True
            try:
                picture = await asyncio.wrap_future(self._submit(self._renderer.render))
            except Exception as error:  # a plug-in's border: an encoder's fault must not end the variant
                self._failed(error)
            else:
                if picture is not None:
                    self._show(picture)
            finally:
                self._rendering = False
            turn, self._turn = self._turn, self._loop.create_future()
            turn.set_result(None)

    def _show(self, picture: Picture) -> None:
        self.error = ""
        self.current = picture
        self.serial += 1
        if not picture.placeholder:
            self.tally.count_encoded(picture.encoder, picture.encode_ns)
            ended_ns = picture.encoded_ns
            started_ns = ended_ns - picture.encode_ns
            made = Encoding(picture.sequence, str(self.variant), started_ns, ended_ns, len(picture.data))
            self.tally.encodings.add(made)

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
        """End the encoding; a picture being made is finished by its thread and thrown away."""
        self._task.cancel()
