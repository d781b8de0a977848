from __future__ import annotations

from pipeline.sources._network import LOW_DELAY, NetworkConfig, NetworkSource


class Udp(NetworkSource):
    """An MPEG transport stream by UDP that somebody sends here, through FFmpeg.

    ``udp://0.0.0.0:5000`` listens on a port of this machine, ``udp://239.0.0.1:5000`` joins a group. FFmpeg's own
    settings of the protocol (``localaddr``, ``buffer_size``, ``fifo_size``) may follow. A datagram that is lost shows
    as damage.
    """

    scheme = "udp"
    Config = NetworkConfig
    example = "udp://0.0.0.0:5000"
    options = {**LOW_DELAY, "protocol_whitelist": "udp", "overrun_nonfatal": "1"}  # noqa: RUF012
