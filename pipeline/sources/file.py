from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from pydantic import Field

from kernels.errors import InputError
from kernels.image import ImageView
from pipeline.frame import Capture
from pipeline.sources._av_picture import AvPicture, Damage, describe_frame, picture_key, pts_ns
from pipeline.sources._fields import Flag
from pipeline.sources._files import path_problem
from pipeline.sources._pace import MediaClock, Playback
from pipeline.sources._uri import parse_uri
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
    from av.video.frame import VideoFrame

    from pipeline.sources._av_reader import VideoReader

_NOMINAL_FPS = 25.0  # where neither the stamps nor the file say


class FileConfig(SourceConfig):
    loop: Flag = Field(default=False, description="Begin again when the file ends.")


class File(Source):
    """A video file, played by its own time stamps through FFmpeg; a chain that is slower slows it down, nothing drops.

    Planes are copied once, from the decoder into the slot, in the stream's own format (see ``_av_picture``), turned
    upright by the file's display matrix. Not live: nothing is lost, and a slow chain slows the playback down. Without
    ``loop`` the source ends after its last frame; with it each round opens the file anew.

    Stamps: see :class:`MediaClock`; a capture's ``pts_s`` is the file's own stamp, None where it has none. A frame
    that FFmpeg or the packet's form shows to be damaged is counted instead of shown; frames predicted from it are
    shown as the decoder makes them. The picture's shape (pixel aspect, interlacing) is left as it is stored.
    """

    scheme = "file"
    Config = FileConfig
    example = "file:///path/to/clip.mp4?loop=true"
    location = "path"

    config: FileConfig

    def __init__(self, uri: str, config: FileConfig) -> None:
        super().__init__(uri, config)
        self.path = parse_uri(uri).local_path()
        self._reader: VideoReader | None = None
        self._frames_in_round = 0
        self._queue: deque[tuple[VideoFrame | Damage, int]] = deque()  # with positions in nanoseconds
        self._picture: AvPicture | None = None
        self._clock = MediaClock(0)
        self._playback = Playback()

    @classmethod
    def unavailable(cls) -> str | None:
        try:
            import av  # noqa: F401
        except ImportError as error:
            return f"PyAV cannot be imported ({error}); install the extra video: pip install 'pinhole-vision[video]'"
        return None

    def check(self, field: str = "uri") -> None:
        if (problem := path_problem(self.path)) is not None:
            raise InputError(field, problem)

    def open(self) -> SourceFormat:
        self.close()
        self._interrupted.clear()
        fps = self._begin_round().fps
        self._clock, self._playback = MediaClock(int(1e9 / (fps or _NOMINAL_FPS))), Playback()
        while not self._frames_in_round:
            self._decode_more()
        self._picture = describe_frame(next(item for item, _ in self._queue if not isinstance(item, Damage)))
        return self._format()

    def fill(self, view: ImageView) -> Capture:
        while not self._queue:
            self._decode_more()
        item, position_ns = self._queue[0]
        self.wait_until(self._playback.due(position_ns, self.now_ns()))
        captured_ns, wall_ns = self.now_ns(), time.time_ns()
        if isinstance(item, Damage):
            self._queue.popleft()
            raise FrameCorrupt("corrupt", f"{self.path}: {item.reason}")
        assert self._picture is not None
        if self._picture.key != picture_key(item):
            self._picture = describe_frame(item)
        if not self._picture.fits(view.spec):
            raise FormatChanged(self._format())
        copied_bytes = self._picture.write(item, view)
        self._queue.popleft()
        stamp_ns = pts_ns(item)
        pts_s = None if stamp_ns is None else stamp_ns / 1e9
        return Capture(captured_ns, wall_ns, copied_bytes=copied_bytes, pts_s=pts_s)

    def skip(self) -> None:
        """Nothing: the frame waits for a slot."""

    def close(self) -> None:
        self._queue.clear()
        if (reader := self._reader) is not None:
            self._reader = None
            reader.close()

    def _format(self) -> SourceFormat:
        assert self._picture is not None
        fps = self._reader.fps if self._reader is not None else None
        return SourceFormat(self._picture.image, fps, live=False)

    def _begin_round(self) -> VideoReader:
        """Open the file at its beginning. Not by seeking, which not every format can."""
        from pipeline.sources._av_reader import VideoReader

        if self._reader is not None:
            self._reader.close()
        self._reader = None
        self._reader = VideoReader(self.path)
        self._frames_in_round = 0
        return self._reader

    def _decode_more(self) -> None:
        """Queue what one packet gives, or begin the next round. Raises SourceEnded after the last frame."""
        if self._interrupted.is_set():
            raise SourceError("interrupted")
        if self._reader is None:
            raise SourceError(f"{self.path} is closed")
        items = self._reader.read()
        if items is None:
            if not self._frames_in_round:
                raise SourceError(f"{self.path} holds no picture that can be decoded")
            if not self.config.loop:
                raise SourceEnded(f"{self.path} is over")
            self._begin_round()
            self._clock.restart()
            return
        for item in items:
            damaged = isinstance(item, Damage)
            self._frames_in_round += not damaged
            self._queue.append((item, self._clock.place(item.pts_ns if isinstance(item, Damage) else pts_ns(item))))
