from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from pydantic import Field, field_validator

from kernels.errors import InputError
from kernels.formats import working_format
from kernels.image import ImageSpec, ImageView, Values
from pipeline.frame import Capture
from pipeline.sources._fields import Flag, Rate
from pipeline.sources._files import os_error_text, path_problem
from pipeline.sources._pace import Playback
from pipeline.sources._picture_file import NAMES, SUFFIXES, DamagedPictureError, decode_picture
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

_ALLOWED_FPS = "0.01 to 1000, also as a fraction (1/10)"
_MAX_FILE_BYTES = 1 << 30


class ImageConfig(SourceConfig):
    fps: Rate = Field(
        default=Fraction(5), description="Pictures per second.", json_schema_extra={"x-allowed": _ALLOWED_FPS}
    )
    depth: int = Field(
        default=8, description="Bits of a value: 16 keeps those of pictures that have them; others are times 257.",
        json_schema_extra={"enum": [8, 16]},
    )  # fmt: skip
    loop: Flag = Field(default=True, description="Go on for ever; if not, each picture is shown once.")

    @field_validator("depth")
    @classmethod
    def _is_one(cls, depth: int) -> int:
        if depth not in (8, 16):
            raise ValueError("is neither 8 nor 16")
        return depth

    @field_validator("fps")
    @classmethod
    def _in_range(cls, fps: Fraction) -> Fraction:
        if not Fraction(1, 100) <= fps <= 1000:
            raise ValueError("is out of range")
        return fps


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A decoded picture, and the file as it was then."""

    path: Path
    stamp: tuple[int, int, int]
    pixels: Values

    @property
    def image(self) -> ImageSpec:
        height, width = self.pixels.shape[:2]
        format = working_format(1 if self.pixels.ndim == 2 else 3, 8 * self.pixels.itemsize)
        return ImageSpec.make(format, width, height)


class Image(Source):
    """A picture, repeated, or a folder of pictures, one after the other.

    Each picture is shown for 1/fps seconds; a folder's are sorted as people count (2 before 10) and listed anew in each
    round. A file that is replaced is read again. Grey pictures stay GRAY8, all others are BGR8, upright, 8 bit unless
    16 are asked for (see ``_picture_file``). Decoding is not counted, the copy into the slot is. Not live: nothing is
    lost.

    A picture of a folder that is damaged is counted and left out; one of another size or kind changes the format.
    """

    scheme = "image"
    Config = ImageConfig
    example = "image:///path/to/picture.jpg?fps=5"
    location = "path"

    config: ImageConfig

    def __init__(self, uri: str, config: ImageConfig) -> None:
        super().__init__(uri, config)
        self.path = parse_uri(uri).local_path()
        self._paths: list[Path] = []
        self._index = 0  # in _paths, of the next picture
        self._shown = 0
        self._loaded: _Loaded | None = None
        self._image: ImageSpec | None = None
        self._playback = Playback()

    def check(self, field: str = "uri") -> None:
        # An empty folder too: it is a mount that is missing more often than one that pictures will come to.
        try:
            self._list()
        except SourceError as error:
            raise InputError(field, str(error)) from None

    def open(self) -> SourceFormat:
        self.close()
        self._interrupted.clear()
        self._paths = self._list()
        self._index = self._shown = 0
        self._playback = Playback()
        self._image = self._load_first().image
        return self._format(self._image)

    def fill(self, view: ImageView) -> Capture:
        if self._index >= len(self._paths):
            self._begin_round()
        position_ns = int(self._shown * 1_000_000_000 / self.config.fps)
        try:
            loaded, damage = self._load(self._paths[self._index]), None
        except FrameCorrupt as error:
            loaded, damage = None, error
        self.wait_until(self._playback.due(position_ns, self.now_ns()))
        captured_ns, wall_ns = self.now_ns(), time.time_ns()
        if loaded is None:
            self._advance()
            assert damage is not None
            raise damage
        image, slot = loaded.image, view.spec
        if (slot.format, slot.width, slot.height) != (image.format, image.width, image.height):
            raise FormatChanged(self._format(image))
        np.copyto(view.plane(0), loaded.pixels)
        self._advance()
        return Capture(captured_ns, wall_ns, copied_bytes=loaded.pixels.nbytes)

    def skip(self) -> None:
        """Nothing: the picture waits for a slot."""

    def close(self) -> None:
        self._paths = []
        self._index = 0
        self._loaded = None

    def _format(self, image: ImageSpec) -> SourceFormat:
        return SourceFormat(image, float(self.config.fps), live=False)

    def _advance(self) -> None:
        self._index += 1
        self._shown += 1

    def _begin_round(self) -> None:
        if not self._paths:
            raise SourceError(f"{self.path} is closed")
        if not self.config.loop:
            raise SourceEnded(f"all pictures of {self.path} were shown")
        self._paths = self._list()
        self._index = 0

    def _list(self) -> list[Path]:
        """The picture, or the folder's pictures in order. Raises SourceError where there is none."""
        if (problem := path_problem(self.path, "file or folder")) is not None:
            raise SourceError(problem)
        if not self.path.is_dir():
            return [self.path]
        try:
            with os.scandir(self.path) as entries:
                names = [e.name for e in entries if os.path.splitext(e.name)[1].lower() in SUFFIXES and e.is_file()]
        except OSError as error:
            raise SourceError(os_error_text(self.path, error)) from error
        if not names:
            raise SourceError(f"the folder {self.path} holds no picture ({NAMES}, by the end of the name)")
        return [self.path / name for name in sorted(names, key=_as_people_count)]

    def _load_first(self) -> _Loaded:
        """The first picture that can be read, to know the format; damaged ones before it get counted by ``fill``."""
        reason = ""
        for path in self._paths:
            if self._interrupted.is_set():
                raise SourceError("interrupted")
            try:
                return self._load(path)
            except FrameCorrupt as error:
                reason = reason or str(error)
        if len(self._paths) == 1:
            raise SourceError(reason)
        raise SourceError(f"none of the {len(self._paths)} pictures in {self.path} can be read; the first: {reason}")

    def _load(self, path: Path) -> _Loaded:
        """The picture, decoded anew only if another one or another version of it was loaded last.

        Raises:
            FrameCorrupt: it is damaged, or a folder's picture that cannot be read.
            SourceError: the only picture cannot be read.
        """
        try:
            status = path.stat()
            stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
            if self._loaded is not None and (self._loaded.path, self._loaded.stamp) == (path, stamp):
                return self._loaded
            if status.st_size > _MAX_FILE_BYTES:
                raise DamagedPictureError(f"has {status.st_size} bytes; allowed: up to {_MAX_FILE_BYTES}")
            self._loaded = _Loaded(path, stamp, decode_picture(path.read_bytes(), self.config.depth))
        except DamagedPictureError as error:
            raise FrameCorrupt("corrupt", f"{path} {error}") from error
        except OSError as error:
            text = os_error_text(path, error)
            if path == self.path:
                raise SourceError(text) from error
            raise FrameCorrupt("corrupt", text) from error
        return self._loaded


def _as_people_count(name: str) -> tuple[list[tuple[int, int, str]], str]:
    """A key that sorts numbers in names by value, ``a2`` before ``a10``, and the rest without regard to case."""
    parts = re.split("([0-9]+)", name)
    return [(0, int(p), "") if p.isdecimal() else (1, 0, p.casefold()) for p in parts if p], name
