"""WebRTC by WHEP, to a real peer (aiortc) that decodes what it is sent."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib.util
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

pytest.importorskip("aiortc")

import service.peer
import service.video
from service.settings import Limits, Settings
from service.websocket import HEADER_MEANINGS
from service.whep import with_address
from tests.helpers.inprocess import Served, serving
from tests.helpers.sequence_code import read_codes
from tests.helpers.server import SMALL_CARD, Client, serve
from tests.helpers.whep import SDP, Watching, needs_address, post, watching
from tests.leaks import no_leaks

pytestmark = needs_address

WRAP = 1 << 32
ENDS_S = 15


def peers(client: Client, camera: str = "two") -> int:
    return int(client.metric("pinhole_viewers", camera=camera, kind="webrtc"))


def encoded(client: Client, camera: str = "two") -> int:
    return int(client.metric("pinhole_frames_encoded_total", camera=camera, encoder="h264"))


async def code_of(one: Watching) -> tuple[int, int]:
    """The next frame's time stamp and the number it shows."""
    stamp, picture = await one.frame()
    top, bottom = read_codes(picture)
    assert top == bottom
    assert top is not None
    return stamp, top


@contextlib.asynccontextmanager
async def several(client: Client, *paths: str) -> AsyncIterator[list[Watching]]:
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(watching(client, path)) for path in paths]


@pytest.fixture(autouse=True)
def _all_gone(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test nobody looks, and nothing is held for those who did."""
    yield
    if "served" in request.fixturenames:
        served: Served = request.getfixturevalue("served")
        served.until(lambda: peers(served, "one") + peers(served, "two") == 0)
        served.until(lambda: not served.context.sessions._tasks)


def test_each_frame_is_the_one_that_the_data_channel_says(served: Served) -> None:
    async def watch() -> tuple[list[tuple[int, int]], list[dict[str, Any]]]:
        async with watching(served, "/cameras/one/whep") as one:
            shown = [await code_of(one) for _ in range(30)]
            await asyncio.sleep(0.1)  # what was told of the last one
            return shown, one.told

    shown, told = asyncio.run(watch())
    codes = [code for _, code in shown]
    assert codes == sorted(set(codes))
    by_sequence = {header["sequence"]: header for header in told}
    both = [(stamp, by_sequence[code]) for stamp, code in shown if code in by_sequence]
    assert len(both) >= 15
    # aiortc counts from the first frame it has; on the wire the stamps begin anywhere.
    assert len({(header["rtp"] - stamp) % WRAP for stamp, header in both}) == 1
    for _, header in both:
        assert set(header) == {*HEADER_MEANINGS, "rtp"} - {"stale", "placeholder"}
        assert (header["camera"], header["width"], header["height"]) == ("one", 352, 128)
        assert abs(header["timestamp"] - time.time()) < 60
        assert 0 <= header["encoded_ms"] <= header["age_ms"] + 0.1 < 10_000


def test_two_peers_share_one_encoder_and_a_third_at_another_width_has_its_own(served: Served) -> None:
    async def watch() -> list[Watching]:
        async with several(
            served, "/cameras/two/whep", "/cameras/two/whep", "/cameras/two/whep?width=160"
        ) as all_three:
            for _ in range(20):
                await asyncio.gather(*(one.frame() for one in all_three))
            state = served.get("/api/v1/cameras/two").json()["viewers"]
            assert state["variants"] == 2
            assert [one["kind"] for one in state["connections"]] == ["webrtc"] * 3
            assert all(one["sent"] > 10 and one["sent_bytes"] > 0 for one in state["connections"])
            return all_three

    first, second, third = ({h["sequence"]: h for h in one.told} for one in asyncio.run(watch()))
    both = set(first) & set(second)
    assert len(both) >= 10
    # When it was encoded, to ten microseconds: the same for both only if it was once.
    assert [first[n]["encoded_ms"] for n in both] == [second[n]["encoded_ms"] for n in both]
    assert {h["width"] for h in third.values()} == {160}
    both = set(first) & set(third)
    assert sum(first[n]["encoded_ms"] != third[n]["encoded_ms"] for n in both) > len(both) / 2


def test_without_peers_nothing_is_encoded(served: Served) -> None:
    async def watch() -> None:
        async with watching(served, "/cameras/two/whep") as one:
            await one.frame()

    asyncio.run(watch())
    served.until(lambda: peers(served) == 0)
    before, captured = encoded(served), served.metric("pinhole_frames_captured_total", camera="two")
    assert before > 0
    served.until(lambda: served.metric("pinhole_frames_captured_total", camera="two") > captured + 10)
    assert encoded(served) <= before + 1  # the one that was being made


@pytest.mark.slow
def test_a_keyframe_that_one_asks_for_comes_once_for_all(served: Served) -> None:
    async def keys(one: Watching, until: int) -> list[int]:
        """The numbers of the keyframes among those that come, up to one."""
        assert one.track is not None
        found, code = [], -1
        while code < until:
            frame: Any = await asyncio.wait_for(one.track.recv(), 15)
            code = read_codes(frame.to_ndarray(format="bgr24"))[0] or code
            if frame.key_frame:
                found.append(code)
        return found

    def captured() -> int:
        return int(served.metric("pinhole_frames_captured_total", camera="two"))

    async def watch() -> tuple[list[list[int]], list[list[int]], list[list[int]]]:
        async with several(served, "/cameras/two/whep", "/cameras/two/whep") as both:
            first = await asyncio.gather(*(keys(one, captured() + 20) for one in both))  # what each began with
            quiet = await asyncio.gather(*(keys(one, captured() + 15) for one in both))
            receiver: Any = both[0].peer.getReceivers()[0]
            for ssrc in receiver._RTCRtpReceiver__remote_streams:
                for _ in range(5):
                    await receiver._send_rtcp_pli(ssrc)
            return first, quiet, await asyncio.gather(*(keys(one, captured() + 15) for one in both))

    first, quiet, asked = asyncio.run(watch())
    assert all(first)
    assert quiet == [[], []], "nobody asked"
    assert asked[0] == asked[1]
    assert len(asked[0]) == 1, "five times, by one, within a moment"


def test_a_peer_that_ends_its_session_is_gone_at_once_and_it_cannot_be_ended_again(served: Served) -> None:
    async def watch() -> None:
        async with watching(served, "/cameras/two/whep") as one:
            await one.frame()
            assert one.session.startswith("/cameras/two/whep/")
            other = one.session.replace("two", "one")
            assert served.request("DELETE", other).status == 404, "another camera's"
            assert served.request("DELETE", one.session).status == 200
            served.until(lambda: peers(served) == 0)
            assert served.request("DELETE", one.session).status == 404

    asyncio.run(watch())


@pytest.mark.slow
def test_b09_a_peer_that_vanishes_is_closed(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service.peer, "SILENT_S", 2.0)

    async def watch() -> None:
        async with watching(served, "/cameras/two/whep") as one:
            for _ in range(3):
                await one.frame()
            transport: Any = one.peer.getReceivers()[0].transport.transport
            for protocol in transport._connection._protocols:
                protocol.transport.abort()  # as when its process is killed
            await asyncio.to_thread(served.until, lambda: peers(served) == 0, ENDS_S)

    asyncio.run(watch())


def test_b09_who_asks_and_never_connects_leaves_nothing(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service.peer, "CONNECT_S", 0.5)
    made_before = encoded(served)
    offer = asyncio.run(good_offer())
    with no_leaks():
        for _ in range(20):
            assert post(served, "/cameras/two/whep", offer).status == 201
        assert peers(served) > 0
        served.until(lambda: not served.context.sessions._tasks, ENDS_S)
    assert peers(served) == 0
    assert encoded(served) <= made_before + 1, "nobody was there to see it"  # and one that was being made before
    gc.collect()
    kept = [one for one in gc.get_objects() if isinstance(one, (service.peer.Peer, service.peer._Track))]
    assert len(kept) == 0, "and its memory is free"


async def good_offer(codec: str = "video/H264") -> str:
    one = Watching(Client(), "")
    try:
        return await one.offer(codec=codec)
    finally:
        await one.peer.close()


@pytest.fixture(scope="module")
def offer() -> str:
    return asyncio.run(good_offer())


@pytest.mark.parametrize(
    "body", ["", "hello", "v=0", "v=0\r\nm=video\r\n", "{}", "\x00\xff" * 50, "v=0\r\n" + "m=video 9 X 1\r\n" * 900]
)
def test_what_is_no_offer_is_refused_and_says_why(served: Served, body: str) -> None:
    reply = post(served, "/cameras/two/whep", body)
    assert reply.status == 400
    problem = reply.json()
    assert problem["type"] == "urn:pinhole:bad-offer"
    assert len(problem["detail"]) > 20


def test_an_offer_without_any_one_of_its_lines_is_answered_or_refused(served: Served, offer: str) -> None:
    lines = offer.splitlines()
    seen = set()
    for left_out in range(len(lines)):
        body = "\r\n".join(lines[:left_out] + lines[left_out + 1 :]) + "\r\n"
        reply = post(served, "/cameras/two/whep", body)
        assert reply.status in (201, 400, 406), (lines[left_out], reply.body)
        seen.add(reply.status)
        if reply.status == 201:
            served.request("DELETE", reply.headers["location"])
    assert {201, 400} <= seen


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("a=recvonly", "a=sendonly", "receives"),
        ("a=recvonly", "a=inactive", "receives"),
        ("a=group:BUNDLE 0 1", "a=group:BUNDLE 0", "BUNDLE"),
        ("a=fingerprint", "a=x", "fingerprint"),
        ("a=end-of", "a=candidate:1 1 udp 1 10.0.0.9 9 typ host\r\n" * 65 + "a=end-of", "candidates are more"),
    ],
)
def test_an_offer_that_cannot_be_served_says_what_is_missing(
    served: Served, offer: str, old: str, new: str, reason: str
) -> None:
    reply = post(served, "/cameras/two/whep", offer.replace(old, new))
    assert reply.status == 400
    assert reason in reply.json()["detail"]


def test_other_ways_to_ask_wrongly(served: Served, offer: str) -> None:
    path = "/cameras/two/whep"
    vp8 = asyncio.run(good_offer("video/VP8"))
    assert post(served, path, vp8).status == 406
    assert post(served, "/cameras/nobody/whep", offer).status == 404
    assert post(served, f"{path}?width=17", offer).status == 422
    assert post(served, f"{path}?bitrate=17", offer).status == 422
    wrong_type = served.request("POST", path, offer.encode(), headers={"Content-Type": "application/json"})
    assert wrong_type.status == 415
    assert wrong_type.headers["accept-post"] == SDP
    foreign = post(served, path, offer, Origin="https://elsewhere.example")
    assert foreign.status == 403
    trickled = served.request(
        "PATCH", f"{path}/x", b"a=candidate", headers={"Content-Type": "application/trickle-ice-sdpfrag"}
    )
    assert trickled.status == 405
    assert "DELETE" in trickled.headers["allow"]
    options = served.request("OPTIONS", path)
    assert (options.status, options.headers["accept-post"]) == (204, SDP)
    assert served.get(path).status == 405


def test_browsers_names_instead_of_addresses_are_not_waited_for(offer: str) -> None:
    candidate = next(line for line in offer.splitlines() if line.startswith("a=candidate"))
    words = candidate.split(" ")
    named = offer.replace(candidate, " ".join([*words[:4], "3f0c5a1e-0000-4000-8000-000000000000.local", *words[5:]]))
    left = service.peer.without_names(named)
    assert ".local" not in left
    assert "end-of-candidates" not in left
    assert service.peer.without_names(offer) == offer
    service.peer.check_offer(left)


def test_another_address_is_one_more_way_to_each_port() -> None:
    answer = (
        "a=candidate:aa 1 udp 2130706431 10.0.0.5 5000 typ host\r\n"
        "a=candidate:bb 1 udp 2130706431 fd00::2 5001 typ host\r\n"
        "a=candidate:cc 1 udp 1694498815 198.51.100.1 5002 typ srflx raddr 10.0.0.5 rport 5000\r\n"
    )
    added = with_address(answer, "203.0.113.7").splitlines()
    assert [line for line in added if line not in answer] == [
        "a=candidate:aa1 1 udp 2130706431 203.0.113.7 5000 typ host"
    ]
    assert with_address(answer, None) == answer


def test_places_are_bounded_and_links_name_the_servers(offer: str) -> None:
    settings = Settings(limits=Limits(max_peers=1), ice_servers=("stun:127.0.0.1:9",), webrtc_address="203.0.113.7")
    with serving({"two": SMALL_CARD}, settings=settings) as served:
        link = '<stun:127.0.0.1:9>; rel="ice-server"'
        assert served.request("OPTIONS", "/cameras/two/whep").headers["link"] == link
        served.context.sessions._settings = settings.model_copy(update={"ice_servers": ()})  # not to wait for one

        async def watch() -> None:
            async with watching(served, "/cameras/two/whep") as one:
                await one.frame()
                assert " 203.0.113.7 " in one.answer
                full = post(served, "/cameras/two/whep", offer)
                assert (full.status, full.headers["retry-after"]) == (503, "5")
                # A camera that is removed takes its peers with it.
                await asyncio.to_thread(served.engine.remove, "two")
                await asyncio.to_thread(served.until, lambda: not served.context.sessions._tasks)

        asyncio.run(watch())


def test_where_it_is_not_installed_it_says_so(served: Served, monkeypatch: pytest.MonkeyPatch, offer: str) -> None:
    assert served.get("/api/v1/state").json()["webrtc"] is True
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "aiortc" else find(name, *a))
    assert served.get("/api/v1/state").json()["webrtc"] is False
    reply = post(served, "/cameras/two/whep", offer)
    assert reply.status == 501
    assert "pip install pinhole-vision[webrtc]" in reply.json()["detail"]


@pytest.mark.slow
def test_the_service_ends_at_once_with_peers_and_leaves_nothing() -> None:
    async def watch() -> tuple[int, float]:
        async with several(server, *["/cameras/cam/whep"] * 3) as three:
            await asyncio.gather(*(one.frame() for one in three))
            return await asyncio.to_thread(server.end)

    with serve("--camera", f"cam={SMALL_CARD}") as server:
        code, seconds = asyncio.run(watch())
    assert code == 0
    assert seconds < 2
    assert "did not end" not in server.log


def test_a_machine_without_an_address_says_so(served: Served, offer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioice.ice.get_host_addresses", lambda use_ipv4, use_ipv6: [])
    reply = post(served, "/cameras/two/whep", offer)
    assert reply.status == 503
    assert "no address" in reply.json()["detail"]


class FakeFeed:
    """What a peer asks of its feed."""

    def __init__(self) -> None:
        self.asked = 0
        self.renderer = service.video.VideoRenderer.__new__(service.video.VideoRenderer)
        self.renderer._requests = 0

    def ask(self, taker: object) -> None:
        self.asked += 1

    def unask(self, taker: object) -> None:
        self.asked = 0


class FakeViewer:
    def __init__(self) -> None:
        self.feed = FakeFeed()


def unit(number: int, keyframe: bool = False) -> service.video.AccessUnit:
    return service.video.AccessUnit(b"", "video/h264", 2, 2, "BGR8", "h264", sequence=number, keyframe=keyframe)


def test_behind_a_gap_nothing_is_sent_until_a_keyframe() -> None:
    async def run() -> None:
        viewer: Any = FakeViewer()
        peer = service.peer.Peer(viewer, ())
        requests = []
        for serial, keyframe in [(5, False), (6, True), (7, False), (9, False), (10, False), (11, True), (12, False)]:
            peer.take(unit(serial, keyframe), serial)
            requests.append(viewer.feed.renderer._requests)
        assert [u.sequence for u in peer._queue] == [6, 7, 11, 12]
        assert requests == [1, 1, 1, 2, 3, 3, 3]
        assert viewer.feed.asked == 7, "it always wants the next one"
        await peer.close()

    asyncio.run(run())


def test_a_peer_that_lags_holds_a_bounded_queue_and_goes_on_at_a_keyframe() -> None:
    async def run() -> None:
        viewer: Any = FakeViewer()
        peer = service.peer.Peer(viewer, ())
        held = []
        for serial in range(1, 40):
            peer.take(unit(serial, keyframe=serial in (1, 30)), serial)
            held.append(len(peer._queue))
        assert max(held) <= service.peer.QUEUE
        sequences = [u.sequence for u in peer._queue]
        assert sequences == [] or sequences[0] == 30
        assert viewer.feed.renderer._requests > 0
        await peer.close()

    asyncio.run(run())
