from __future__ import annotations

from typing import Literal

from pydantic import Field

from pipeline.sources._network import LOW_DELAY, NetworkConfig, NetworkSource

# What a server may lead to: the media, and nothing that is on this machine.
PROTOCOLS = "rtsp,rtp,rtcp,udp,tcp,srtp,http"


class RtspConfig(NetworkConfig):
    via: Literal["tcp", "udp", "http"] = Field(
        default="tcp",
        description="How the media come: tcp loses nothing; udp is for servers without it; http is tunnelled.",
    )


class Rtsp(NetworkSource):
    """A network camera or server by RTSP, through FFmpeg.

    | URI | |
    |---|---|
    | ``rtsp://user:password@192.168.1.20/stream1`` | TCP, as is the default |
    | ``rtsp://camera/live?channel=1&subtype=0&via=udp`` | the server's settings stay; ``via`` is Pinhole's |

    Low delay: FFmpeg buffers nothing, the decoder holds no frame back, and only the newest frame waits for a slot.
    """

    scheme = "rtsp"
    Config = RtspConfig
    example = "rtsp://user:password@camera/stream"
    options = {**LOW_DELAY, "protocol_whitelist": PROTOCOLS, "reorder_queue_size": "0", "max_delay": "0"}  # noqa: RUF012

    config: RtspConfig

    def ffmpeg_options(self) -> dict[str, str]:
        options = {**super().ffmpeg_options(), "rtsp_transport": self.config.via}
        if self.config.via == "udp":  # datagrams may overtake each other, and are waited for a little
            options |= {"reorder_queue_size": "500", "max_delay": "200000"}
        return options
