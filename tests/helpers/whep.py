"""A WebRTC client (aiortc) of a WHEP resource, as the draft describes one; it decodes what it is sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from aioice.ice import get_host_addresses
from aiortc import RTCConfiguration, RTCPeerConnection, RTCRtpReceiver, RTCSessionDescription
from aiortc.mediastreams import MediaStreamTrack

from tests.helpers.server import Client, Reply

SDP = "application/sdp"

# aiortc leaves the loopback's out, and so cannot talk to itself where there is no other.
needs_address = pytest.mark.skipif(
    not get_host_addresses(use_ipv4=True, use_ipv6=True), reason="this machine has no address but the loopback's"
)
WAIT_S = 15


class Watching:
    """A client with its peer; ``told`` is what the data channel said, in order."""

    def __init__(self, client: Client, path: str) -> None:
        self.client = client
        self.path = path
        self.session = ""
        self.answer = ""
        self.told: list[dict[str, Any]] = []
        self.peer = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        self.track: MediaStreamTrack | None = None

    async def offer(self, *, codec: str = "video/H264") -> str:
        """What it asks with, all candidates included."""
        transceiver = self.peer.addTransceiver("video", direction="recvonly")
        capabilities = RTCRtpReceiver.getCapabilities("video")
        assert capabilities is not None
        transceiver.setCodecPreferences([c for c in capabilities.codecs if c.mimeType in (codec, "video/rtx")])
        self.track = transceiver.receiver.track
        channel = self.peer.createDataChannel("frames", ordered=False, maxRetransmits=0)
        channel.on("message", lambda text: self.told.append(json.loads(text)))
        await self.peer.setLocalDescription(await self.peer.createOffer())
        return self.peer.localDescription.sdp

    async def connect(self) -> None:
        reply = await asyncio.to_thread(post, self.client, self.path, await self.offer())
        assert reply.status == 201, reply.body
        assert reply.headers["content-type"] == SDP
        self.session, self.answer = reply.headers["location"], reply.body.decode()
        await self.peer.setRemoteDescription(RTCSessionDescription(self.answer, "answer"))
        self.track = self.peer.getReceivers()[0].track

    async def frame(self) -> tuple[int, Any]:
        """The next frame: its RTP time stamp, and the picture, (H, W, 3) BGR."""
        assert self.track is not None
        frame: Any = await asyncio.wait_for(self.track.recv(), WAIT_S)
        return frame.pts, np.asarray(frame.to_ndarray(format="bgr24"))


def post(client: Client, path: str, offer: str, **headers: str) -> Reply:
    return client.request("POST", path, offer.encode(), headers={"Content-Type": SDP, **headers})


@asynccontextmanager
async def watching(client: Client, path: str) -> AsyncIterator[Watching]:
    """A connected client; closed at exit."""
    one = Watching(client, path)
    try:
        await one.connect()
        yield one
    finally:
        await one.peer.close()
