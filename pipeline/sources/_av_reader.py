"""Reads the frames of one video file, once through, with PyAV. Import only where PyAV is known to be installed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import av

from pipeline.sources import _nal
from pipeline.sources._av_picture import Damage, pts_ns
from pipeline.sources._files import os_error_text, path_problem
from pipeline.sources.base import SourceError

if TYPE_CHECKING:
    from av.packet import Packet
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

_MAX_RATE = 1000
_MAX_THREADS = 4
_MAX_ERRORS = 100  # in a row; a file that is damaged up to its end is over


class VideoReader:
    """One pass over a file's best video stream. One thread; FFmpeg's own threads end with :meth:`close`.

    ``fps`` is the stream's average rate, None where the file does not tell a sensible one.

    Raises:
        SourceError: there is no such file, it may not be read, or FFmpeg finds no video in it.
    """

    def __init__(self, path: Path) -> None:
        if (problem := path_problem(path)) is not None:
            raise SourceError(problem)
        self._path = path
        try:
            # Nothing that a file refers to is fetched from elsewhere.
            self._container = av.open(os.fspath(path), options={"protocol_whitelist": "file"})
        except OSError as error:
            raise SourceError(os_error_text(path, error)) from error
        except av.FFmpegError as error:
            raise SourceError(f"{path} is not a video that FFmpeg can read ({error.strerror})") from error
        try:
            stream = self._find_stream()
        except BaseException:
            self._container.close()
            raise
        self._stream: VideoStream | None = stream
        self._packets: Iterator[Packet[VideoStream]] | None = self._container.demux(stream)
        self._damaged: set[int] = set()  # stamps of packets that were seen to be damaged
        self._errors = 0
        rate = stream.average_rate or stream.guessed_rate
        self.fps = float(rate) if rate is not None and 0 < rate <= _MAX_RATE else None

    def read(self) -> list[VideoFrame | Damage] | None:
        """What the next packet gives, in the order of display: often one frame, at times none; None at the end.

        Raises:
            SourceError: the file cannot be read any more.
        """
        stream = self._stream
        if self._packets is None or stream is None:
            return None
        try:
            packet = next(self._packets, None)
        except OSError as error:
            raise SourceError(os_error_text(self._path, error)) from error
        except av.FFmpegError as error:
            self._errors += 1
            self._packets = self._container.demux(stream) if self._errors < _MAX_ERRORS else None
            return [Damage(f"the file is damaged: {error.strerror}")]
        if packet is None:
            self._packets = None
            return None
        self._errors = 0
        if packet.size and packet.pts is not None and self._is_damaged(bytes(packet)):
            self._damaged.add(packet.pts)
        return self._decode(packet)

    def close(self) -> None:
        """Release the file and the decoder; idempotent."""
        self._packets = self._stream = None  # the decoder's threads end when nothing refers to it any more
        self._container.close()

    def _find_stream(self) -> VideoStream:
        stream = self._container.streams.best("video")
        if not isinstance(stream, av.VideoStream):
            raise SourceError(f"{self._path} has no video in it")
        decoder = stream.codec_context
        if decoder is None:
            raise SourceError(f"{self._path}: this FFmpeg has no decoder for its video")
        # Slice threads would hide damage: FFmpeg marks it only with frame threads or none.
        decoder.thread_type = "FRAME"
        decoder.thread_count = min(_MAX_THREADS, len(os.sched_getaffinity(0)))
        codec = decoder.name
        self._scanned = codec in _nal.CODECS
        self._length_bytes = _nal.length_size(codec, decoder.extradata) if self._scanned else None
        return stream

    def _is_damaged(self, packet: bytes) -> bool:
        return self._scanned and _nal.is_damaged(packet, self._length_bytes)

    def _decode(self, packet: Packet[VideoStream]) -> list[VideoFrame | Damage]:
        found: list[VideoFrame | Damage] = []
        for _ in range(_MAX_ERRORS):
            try:
                found += [self._checked(frame) for frame in packet.decode() if isinstance(frame, av.VideoFrame)]
                break
            except EOFError:
                break
            except av.FFmpegError as error:
                found.append(Damage(f"a frame cannot be decoded: {error.strerror}"))
                if packet.size:  # the decoder goes on with the next one; the empty packet, which flushes, is repeated
                    break
        return found

    def _checked(self, frame: VideoFrame) -> VideoFrame | Damage:
        if frame.is_corrupt or frame.pts in self._damaged:
            return Damage("a frame is damaged", pts_ns(frame))
        return frame
