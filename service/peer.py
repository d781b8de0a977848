"""One WebRTC peer (aiortc): takes a feed's access units, and sends them as RTP with what is known of each.

Imported only where the extra ``webrtc`` is installed. Everything here runs on the event loop.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, cast

from aiortc import (
    MediaStreamTrack,
    RTCConfiguration,
    RTCDataChannel,
    RTCIceServer,
    RTCPeerConnection,
    RTCRtpSender,
    RTCSessionDescription,
)
from aiortc.mediastreams import VIDEO_TIME_BASE, MediaStreamError
from aiortc.sdp import SessionDescription
from av.packet import Packet

from kernels.errors import PinholeError
from service.live import Viewer
from service.picture import Picture
from service.video import AccessUnit, VideoRenderer
from service.websocket import header_of

log = logging.getLogger("pinhole.webrtc")

CONNECT_S = 10.0  # for ICE and DTLS
SILENT_S = 10.0  # receivers report every second or so; ICE alone would notice after half a minute
LOOK_S = 0.5  # how often those two are looked after
QUEUE = 8  # access units that wait for the loop; a peer with more gets none until the next keyframe
CHANNEL = "frames"
CHANNEL_BYTES = 16_384  # a data channel that holds more is not given the next message
MOST_SECTIONS, MOST_CANDIDATES = 4, 64  # of an offer


class BadOfferError(PinholeError):
    """It is no session description, or none that can be answered."""


class NoCodecError(PinholeError):
    """Whoever offered takes no H.264 of the kind that is made."""


class Peer:
    """One session, from its offer to its end: ``ended`` says why. It is a ``Taker`` of its viewer's feed."""

    def __init__(self, viewer: Viewer, ice_servers: Sequence[str]) -> None:
        self.id = secrets.token_urlsafe(16)
        self.viewer = viewer
        self.serial = 0  # of the last access unit that was handed over
        self.ended = ""
        self._end = asyncio.Event()
        self._connected = False
        self._queue: deque[AccessUnit] = deque()
        self._wake = asyncio.Event()
        self._lost = True  # nothing can be decoded until a keyframe comes
        self._sending: AccessUnit | None = None
        self._channel: RTCDataChannel | None = None
        self._heard_s = time.monotonic()
        servers = [RTCIceServer(urls=url) for url in ice_servers]  # an empty list is none; None would be Google's
        self._connection = RTCPeerConnection(RTCConfiguration(iceServers=servers))
        self._connection.on("connectionstatechange", self._changed)
        self._connection.on("datachannel", self._opened)
        transceiver = self._connection.addTransceiver(_Track(self), direction="sendonly")
        codecs = RTCRtpSender.getCapabilities("video").codecs
        transceiver.setCodecPreferences([c for c in codecs if c.mimeType in ("video/H264", "video/rtx")])
        self._sender = cast(Any, transceiver.sender)
        # aiortc would tell an encoder of its own, of each peer; both methods have no public counterpart.
        handle = self._sender._handle_rtcp_packet

        async def heard(packet: Any) -> None:
            self._heard_s = time.monotonic()
            await handle(packet)

        self._sender._handle_rtcp_packet = heard
        self._sender._send_keyframe = self.request_keyframe

    async def negotiate(self, offer: str) -> str:
        """The answer, with all candidates of this side.

        Raises:
            BadOfferError, NoCodecError
        """
        check_offer(offer)
        try:
            await self._connection.setRemoteDescription(RTCSessionDescription(without_names(offer), "offer"))
            await self._connection.setLocalDescription(await self._connection.createAnswer())
        except Exception as error:  # a library's border: its parser raises whatever a line leads it to
            if "send parameters" in str(error):
                raise NoCodecError("the offer has no H.264 with packetization-mode=1") from None
            raise BadOfferError(f"the offer cannot be answered: {str(error) or type(error).__name__}") from None
        return self._connection.localDescription.sdp

    async def until_end(self) -> None:
        """Wait until either side ends it, or the other is not there (any more)."""
        started_s = time.monotonic()
        stopped = asyncio.ensure_future(self.viewer.stopped())
        over = asyncio.ensure_future(self._end.wait())
        try:
            while not await self._look(started_s, stopped, over):
                pass
        finally:
            stopped.cancel()
            over.cancel()

    async def _look(self, started_s: float, *ends: asyncio.Future[Any]) -> bool:
        await asyncio.wait(ends, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
        now_s = time.monotonic()
        if self._end.is_set():
            return True
        if any(end.done() for end in ends):
            self.end("the camera was removed or the service stops")
        elif not self._connected and now_s - started_s > CONNECT_S:
            self.end(f"it did not connect in {CONNECT_S:g} s")
        elif self._connected and now_s - self._heard_s > SILENT_S:
            self.end(f"nothing was heard of it for {SILENT_S:g} s")
        return self._end.is_set()

    def end(self, reason: str) -> None:
        """Have :meth:`until_end` return; the first reason counts."""
        self.ended = self.ended or reason
        self.viewer.feed.unask(self)
        self._end.set()
        self._wake.set()

    async def close(self) -> None:
        """Tell the other side, and let sockets and tasks go. Idempotent."""
        self.end("closed")
        await self._connection.close()

    def request_keyframe(self) -> None:
        """The next access unit, or one soon after, is one that decoding can begin with; for all peers of the feed."""
        renderer = self.viewer.feed.renderer
        assert isinstance(renderer, VideoRenderer)
        renderer.request_keyframe()

    def take(self, picture: Picture, serial: int) -> None:
        """See ``Taker``. What comes behind a gap is not sent, up to a keyframe."""
        assert isinstance(picture, AccessUnit)
        self._lost = self._lost or serial != self.serial + 1
        self.serial = serial
        if len(self._queue) >= QUEUE:
            self._queue.clear()
            self._lost = True
        if picture.keyframe:
            self._lost = False
        if self._lost:
            self.request_keyframe()
        else:
            self._queue.append(picture)
            self._wake.set()
        if not self._end.is_set():
            self.viewer.feed.ask(self)

    async def next_packet(self) -> Packet[Any]:
        """What aiortc sends next; asking for it says that the one before is with the kernel."""
        if self._sending is not None:
            self._sent(self._sending)
        while not self._queue:
            if self._end.is_set():
                raise MediaStreamError
            self._wake.clear()
            await self._wake.wait()
        unit = self._sending = self._queue.popleft()
        packet = Packet(unit.data)
        packet.pts, packet.time_base = unit.pts, VIDEO_TIME_BASE
        return packet

    def _sent(self, unit: AccessUnit) -> None:
        self.viewer.delivered(unit)
        channel = self._channel
        if channel is None or channel.readyState != "open" or channel.bufferedAmount > CHANNEL_BYTES:
            return
        feed = self.viewer.feed
        header = header_of(unit, feed.variant, feed.stale(unit), time.monotonic_ns())
        # The time stamp on the wire begins at a random one that only the sender knows.
        header["rtp"] = getattr(self._sender, "_RTCRtpSender__rtp_timestamp", None)
        channel.send(json.dumps(header, separators=(",", ":")))

    def _changed(self) -> None:
        state = self._connection.connectionState
        if state in ("failed", "closed"):
            self.end("no way to it was found" if state == "failed" else "it closed the connection")
        elif state == "connected" and not self._connected and not self._end.is_set():
            self._connected, self._heard_s = True, time.monotonic()
            self.request_keyframe()
            self.viewer.feed.ask(self)

    def _opened(self, channel: RTCDataChannel) -> None:
        if channel.label == CHANNEL:
            self._channel = channel


class _Track(MediaStreamTrack):
    kind = "video"

    def __init__(self, peer: Peer) -> None:
        super().__init__()
        self._peer = peer

    async def recv(self) -> Packet[Any]:
        return await self._peer.next_packet()


def without_names(offer: str) -> str:
    """The offer without candidates that are names (mDNS: what browsers say instead of an address).

    Who has one finds the way here by this side's candidates. To ask a network for it takes a second, mostly in vain.
    """
    kept = [
        line
        for line in offer.splitlines()
        if not (line.startswith("a=candidate:") and line.split(" ")[4:5] and line.split(" ")[4].endswith(".local"))
    ]
    if len(kept) == len(offer.splitlines()):
        return offer
    # Those that are found later are not announced.
    return "".join(f"{line}\r\n" for line in kept if line != "a=end-of-candidates")


def check_offer(offer: str) -> None:
    """Refuse what aiortc would fail at later, or open too much for.

    Raises:
        BadOfferError
    """
    if not offer.lstrip().startswith("v=0"):
        raise BadOfferError("it does not begin with v=0 and is no session description (RFC 8866)")
    try:
        description = SessionDescription.parse(offer)
        media = description.media
        video = [section for section in media if section.kind == "video"]
        candidates = sum(len(section.ice_candidates) for section in media)
        secured = all(m.ice and m.ice.usernameFragment and m.dtls and m.dtls.fingerprints for m in media)
        grouped = {mid for group in description.group if group.semantic == "BUNDLE" for mid in group.items}
        together = len(media) == 1 or all(section.rtp.muxId in grouped for section in media)
    except Exception as error:  # a library's border: its parser raises whatever a line leads it to
        raise BadOfferError(f"it cannot be read: {str(error) or type(error).__name__}") from None
    if len(video) != 1 or video[0].direction not in ("recvonly", "sendrecv"):
        raise BadOfferError("it must have one m=video that receives (a=recvonly)")
    if not secured:
        raise BadOfferError("each section needs a=ice-ufrag, a=ice-pwd and a=fingerprint")
    if len(media) > MOST_SECTIONS or not together:
        raise BadOfferError(f"at most {MOST_SECTIONS} sections, all in one BUNDLE group")
    if candidates > MOST_CANDIDATES:
        raise BadOfferError(f"{candidates} candidates are more than {MOST_CANDIDATES}")
