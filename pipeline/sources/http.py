from __future__ import annotations

from pipeline.sources._network import NetworkSource, RecordingConfig


class Http(NetworkSource):
    """Video by HTTP, through FFmpeg: an MJPEG stream, live segments (HLS), or a recording.

    What has an end is a recording: it is played by its own stamps, and the camera has ``ended`` after it, or fetches it
    again (``loop=true``).
    """

    scheme = "http"
    Config = RecordingConfig
    example = "http://camera/video.mjpg"
    options = {"protocol_whitelist": "http,https,tcp,tls,crypto,httpproxy"}  # noqa: RUF012
    live = None
