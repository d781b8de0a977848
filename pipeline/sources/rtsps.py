from __future__ import annotations

from pydantic import Field

from pipeline.sources._fields import Flag
from pipeline.sources._network import LOW_DELAY, NetworkConfig, NetworkSource
from pipeline.sources.rtsp import PROTOCOLS


class RtspsConfig(NetworkConfig):
    verify: Flag = Field(
        default=False, description="Refuse a server whose certificate nobody vouches for; cameras' own are mostly such."
    )


class Rtsps(NetworkSource):
    """A network camera or server by RTSP over TLS, through FFmpeg; media over the same connection."""

    scheme = "rtsps"
    Config = RtspsConfig
    example = "rtsps://user:password@camera/stream"
    options = {**LOW_DELAY, "protocol_whitelist": f"rtsps,tls,crypto,{PROTOCOLS}", "rtsp_transport": "tcp"}  # noqa: RUF012

    config: RtspsConfig

    def ffmpeg_options(self) -> dict[str, str]:
        return {**super().ffmpeg_options(), "tls_verify": str(int(self.config.verify))}
