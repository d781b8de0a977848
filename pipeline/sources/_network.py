"""What the sources of network video share: their settings, the URL that FFmpeg gets, frames into slots."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import ConfigDict, Field

from kernels.image import ImageView
from pipeline.frame import Capture
from pipeline.sources._av_picture import AvPicture, Damage, describe_frame, picture_key, pts_ns
from pipeline.sources._fields import Flag
from pipeline.sources._pace import MediaClock, Playback
from pipeline.sources._redact import redact_uri
from pipeline.sources.base import (
    FormatChanged,
    FrameCorrupt,
    Source,
    SourceConfig,
    SourceEnded,
    SourceError,
    SourceFormat,
)

if TYPE_CHECKING:
    from pipeline.sources._av_stream import Arrived, NetworkReader

_NOMINAL_FPS = 25.0
LOW_DELAY = {"fflags": "nobuffer", "flags": "low_delay"}


class NetworkConfig(SourceConfig):
    """Settings that are not named here are the server's, and stay in the URL."""

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)


class RecordingConfig(NetworkConfig):
    loop: Flag = Field(default=False, description="Fetch a recording again when it ends.")


class NetworkSource(Source):
    """A stream that FFmpeg fetches. Planes are copied once, from the decoder into the slot.

    Live streams: whatever came is decoded at once, and the newest frame is taken. Recordings are played by their own
    stamps, and nothing is lost. A size or format that changes in mid-stream makes new slots. A read that gives nothing
    for some seconds ends the connection, and the camera tries again with back-off.
    """

    location = "host"
    options: ClassVar[dict[str, str]]
    live: ClassVar[bool | None] = True

    config: NetworkConfig

    def __init__(self, uri: str, config: NetworkConfig) -> None:
        super().__init__(uri, config)
        self._shown = redact_uri(uri, frozenset(), frozenset())
        self._reader: NetworkReader | None = None
        self._next: Arrived | None = None
        self._picture: AvPicture | None = None
        self._clock, self._playback = MediaClock(0), Playback()

    @classmethod
    def unavailable(cls) -> str | None:
        try:
            import av  # noqa: F401
        except ImportError as error:
            return f"PyAV cannot be imported ({error}); install the extra video: pip install 'pinhole-vision[video]'"
        return None

    def url(self) -> str:
        """What FFmpeg opens: the URI without Pinhole's own settings."""
        location, mark, query = self.uri.partition("?")
        own = type(self.config).model_fields
        rest = [part for part in query.split("&") if part and part.partition("=")[0] not in own]
        return location + (mark + "&".join(rest) if rest else "")

    def ffmpeg_options(self) -> dict[str, str]:
        """FFmpeg's options for this stream."""
        return dict(self.options)

    def open(self) -> SourceFormat:
        self.close()
        self._interrupted.clear()
        self._connect()
        while True:
            arrived = self._take()
            if not isinstance(arrived.item, Damage):
                break
        self._next = arrived
        self._picture = describe_frame(arrived.item)
        fps = self._reader.fps if self._reader is not None else None
        self._clock, self._playback = MediaClock(int(1e9 / (fps or _NOMINAL_FPS))), Playback()
        return self._format()

    def fill(self, view: ImageView) -> Capture:
        arrived = self._next = self._next or self._take()
        reader, item = self._reader, arrived.item
        captured_ns, wall_ns = arrived.captured_ns, arrived.wall_ns
        if reader is not None and not reader.live:
            position = self._clock.place(None if isinstance(item, Damage) else pts_ns(item))
            self.wait_until(self._playback.due(position, self.now_ns()))
            captured_ns = self.now_ns()
            wall_ns += captured_ns - arrived.captured_ns
        if isinstance(item, Damage):
            self._next = None
            raise FrameCorrupt("corrupt", f"{self._shown}: {item.reason}")
        assert self._picture is not None
        if self._picture.key != picture_key(item):
            self._picture = describe_frame(item)
        if not self._picture.fits(view.spec):
            raise FormatChanged(self._format())
        copied_bytes = self._picture.write(item, view)
        self._next = None
        stamp_ns = pts_ns(item)
        pts_s = None if stamp_ns is None else stamp_ns / 1e9
        return Capture(captured_ns, wall_ns, copied_bytes=copied_bytes, pts_s=pts_s)

    def skip(self) -> None:
        """Let a live frame go; one of a recording waits for a slot."""
        if self._reader is not None and self._reader.live:
            self._next = self._next or self._take()
            self._next = None

    def interrupt(self) -> None:
        super().interrupt()
        if (reader := self._reader) is not None:
            reader.wake()

    def close(self) -> None:
        self._next = None
        if (reader := self._reader) is not None:
            self._reader = None
            reader.close()

    def _connect(self) -> None:
        from pipeline.sources._av_stream import NetworkReader

        self._reader = NetworkReader(self.url(), self._shown, self.ffmpeg_options(), self.live)

    def _take(self) -> Arrived:
        """The next frame; a recording that loops is fetched again at its end."""
        for _ in range(2):
            if (reader := self._reader) is None:
                raise SourceError(f"{self._shown} is closed")
            if (arrived := reader.next(self._interrupted)) is not None:
                return arrived
            if not (isinstance(self.config, RecordingConfig) and self.config.loop):
                raise SourceEnded(f"{self._shown} is over")
            reader.close()
            self._connect()
            self._clock.restart()
        raise SourceError(f"{self._shown} holds no picture that can be decoded")

    def _format(self) -> SourceFormat:
        assert self._picture is not None
        reader = self._reader
        live = True if reader is None else bool(reader.live)
        return SourceFormat(self._picture.image, reader.fps if reader is not None else None, live)
