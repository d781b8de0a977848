"""WebRTC by WHEP (draft-ietf-wish-whep): the sessions there are, how many there may be, and their end.

Each peer is a viewer of the hub like any other; what it is sent is encoded once for all peers of a variant. One answer
with all candidates; no trickle, no restart of ICE.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import ipaddress
import logging
from types import ModuleType
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool

from service.live import Hub
from service.problems import Problem
from service.settings import Settings
from service.video import VideoRenderer, VideoVariant

if TYPE_CHECKING:  # the extra may not be installed
    from service.peer import Peer

log = logging.getLogger("pinhole.webrtc")

NEGOTIATE_S = 5.0
CLOSE_S = 0.5
MEDIA_TYPE = "application/sdp"


class Sessions:
    """All WebRTC peers of all cameras. Event loop only."""

    def __init__(self, hub: Hub, settings: Settings) -> None:
        self._hub = hub
        self._settings = settings
        self._peers: dict[str, Peer] = {}
        self._opening = 0  # places that are taken while aiortc is loaded
        self._tasks: set[asyncio.Task[None]] = set()
        self._module: ModuleType | None = None
        hub.streams["h264"] = VideoRenderer

    @property
    def absence(self) -> str | None:
        """Why there is no WebRTC here, and what helps; None if there is."""
        if self._settings.limits.max_peers == 0:
            return "limits.max_peers is 0"
        missing = [name for name in ("aiortc", "av") if importlib.util.find_spec(name) is None]
        return f"{' and '.join(missing)} not installed; pip install pinhole-vision[webrtc]" if missing else None

    async def open(self, variant: VideoVariant, offer: str) -> tuple[str, str]:
        """A new session: its id, and the answer.

        Raises:
            Problem: 400 bad offer, 406 no common codec, 501 not installed, 503 no place
            UnknownNameError, TooManyViewersError, TooManyVariantsError, HubClosedError
        """
        if (absence := self.absence) is not None:
            raise Problem(501, f"no WebRTC: {absence}", type="urn:pinhole:no-webrtc")
        limit = self._settings.limits.max_peers
        if len(self._peers) + self._opening >= limit:
            detail = f"all {limit} places for WebRTC are taken; try again later or raise limits.max_peers"
            raise Problem(503, detail, type="urn:pinhole:too-many-peers", headers={"Retry-After": "5"})
        self._opening += 1
        try:
            if self._module is None:  # takes most of a second
                self._module = await run_in_threadpool(importlib.import_module, "service.peer")
            peer = self._start(variant, self._module)
        finally:
            self._opening -= 1
        try:
            answer = await asyncio.wait_for(peer.negotiate(offer), NEGOTIATE_S)
        except asyncio.TimeoutError:
            peer.end("it could not be answered in time")
            raise Problem(504, f"no answer was found in {NEGOTIATE_S:g} s", type="urn:pinhole:bad-offer") from None
        except (self._module.BadOfferError, self._module.NoCodecError) as error:
            peer.end(str(error))
            status = 400 if isinstance(error, self._module.BadOfferError) else 406
            raise Problem(status, str(error), type="urn:pinhole:bad-offer") from None
        except BaseException:
            peer.end("its request was given up")
            raise
        if "a=candidate:" not in answer:  # a loopback address is none
            peer.end("there is no way to it")
            raise Problem(503, "this machine has no address that WebRTC can use", type="urn:pinhole:no-webrtc")
        return peer.id, with_address(answer, self._settings.webrtc_address)

    def _start(self, variant: VideoVariant, module: ModuleType) -> Peer:
        viewer = self._hub.open(variant, "webrtc")
        try:
            peer: Peer = module.Peer(viewer, self._settings.ice_servers)
        except BaseException:
            viewer.release()
            raise
        viewer.on_abort = lambda: peer.end("cut off")
        viewer.asked = {"bitrate": variant.bitrate_kbps}
        self._peers[peer.id] = peer
        task = asyncio.get_running_loop().create_task(self._run(peer), name=f"peer-{variant.camera}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return peer

    async def _run(self, peer: Peer) -> None:
        """The one place where a session ends, whatever ends it."""
        try:
            await peer.until_end()
        finally:
            self._peers.pop(peer.id, None)
            peer.viewer.release()
            log.info("%s of %s ended: %s", peer.viewer.name, peer.viewer.feed.variant.camera, peer.ended)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(peer.close(), CLOSE_S)

    def close(self, camera: str, session: str) -> None:
        """End a session. Raises Problem (404) where there is none of that id."""
        peer = self._peers.get(session)
        if peer is None or peer.viewer.feed.variant.camera != camera:
            raise Problem(404, "there is no such session (any more)", type="urn:pinhole:not-found")
        peer.end("its client ended it")

    async def stop(self) -> None:
        """End all sessions, and wait for it: ``CLOSE_S`` at most. Idempotent."""
        for peer in list(self._peers.values()):
            peer.end("the service stops")
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=2 * CLOSE_S)


def with_address(answer: str, address: str | None) -> str:
    """The answer with ``address`` as one more way to each port of a host candidate (a 1:1 address translation)."""
    if not address:
        return answer
    version, lines, seen = ipaddress.ip_address(address).version, [], set()
    for line in answer.splitlines():
        lines.append(line)
        words = line.split(" ")
        if not line.startswith("a=candidate:") or words[7] != "host" or (place := (words[1], words[5])) in seen:
            continue
        if ipaddress.ip_address(words[4]).version == version and address not in line:
            seen.add(place)
            lines.append(" ".join([f"{words[0]}1", *words[1:4], address, *words[5:]]))
    return "\r\n".join(lines) + "\r\n"
