from __future__ import annotations

from pydantic import Field

from pipeline.sources._fields import Flag
from pipeline.sources._network import NetworkSource, RecordingConfig


class HttpsConfig(RecordingConfig):
    verify: Flag = Field(default=False, description="Refuse a server whose certificate nobody vouches for.")


class Https(NetworkSource):
    """Video by HTTP over TLS, through FFmpeg: an MJPEG stream, live segments (HLS), or a recording."""

    scheme = "https"
    Config = HttpsConfig
    example = "https://server/video.mp4?loop=true"
    options = {"protocol_whitelist": "https,http,tcp,tls,crypto,httpproxy"}  # noqa: RUF012
    live = None

    config: HttpsConfig

    def ffmpeg_options(self) -> dict[str, str]:
        return {**super().ffmpeg_options(), "tls_verify": str(int(self.config.verify))}
