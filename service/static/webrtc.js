// WebRTC by WHEP: one offer, one answer, and the browser decodes into a video.
const ICE_MS = 500; // what has no candidate by then is found without
const OPEN_MS = 5000;
const KNOWN = 64; // frames that are told of before they are shown

// Resolves when the signal or the service ends it; rejects with the reason, within 5 s where it does not come at all.
//   playWhep({
//     url,     // "/cameras/front/whep?width=640"
//     video,   // the element that plays; muted, and empty again at the end
//     onFrame, // called for each frame that the video has now, with what the service says of it: {sequence, timestamp,
//              // age_ms (when it was sent), chain_version, width, height, stale, placeholder}, or {} where it says nothing
//     signal,  // an AbortSignal
//   })
export async function playWhep({ url, video, onFrame, signal }) {
  const peer = new RTCPeerConnection();
  const told = new Map(); // RTP time stamp → {header, at}
  let session = null;
  let turn = 0;
  let stop;
  const ended = new Promise((resolve, reject) => { stop = { resolve, reject }; });
  ended.catch(() => {}); // it may come before anybody waits for it
  const abort = () => stop.resolve();
  const fail = (why) => stop.reject(new Error(why));
  const opening = setTimeout(() => fail("no picture within 5 s"), OPEN_MS);
  const orEnded = (promise) => Promise.race([promise, ended.then(() => { throw new DOMException("stopped", "AbortError"); })]);

  const frame = (_, { rtpTimestamp } = {}) => {
    clearTimeout(opening);
    // Not every browser says which frame it is; the newest that the service told of is that, or the next one.
    const known = rtpTimestamp === undefined ? [...told.values()].at(-1) : told.get(rtpTimestamp);
    // The age held when the service sent it; since then it has been on its way to the screen.
    onFrame(known ? { ...known.header, age_ms: known.header.age_ms + performance.now() - known.at } : {});
    turn = video.requestVideoFrameCallback(frame);
  };

  signal?.addEventListener("abort", abort);
  try {
    if (signal?.aborted) return;
    if (!video.requestVideoFrameCallback) throw new Error("this browser does not say when a frame is shown");
    peer.addTransceiver("video", { direction: "recvonly" });
    const frames = peer.createDataChannel("frames", { ordered: false, maxRetransmits: 0 });
    frames.onmessage = ({ data }) => {
      const header = JSON.parse(data);
      told.set(header.rtp, { header, at: performance.now() });
      if (told.size > KNOWN) told.delete(told.keys().next().value);
    };
    peer.ontrack = ({ track, receiver }) => {
      if ("jitterBufferTarget" in receiver) receiver.jitterBufferTarget = 0; // the newest, not the smoothest
      video.muted = true;
      video.srcObject = new MediaStream([track]);
      video.play().catch(({ message }) => { if (video.srcObject) fail(message); });
      turn = video.requestVideoFrameCallback(frame);
    };
    peer.onconnectionstatechange = () => {
      if (peer.connectionState === "failed") fail("no way to the service was found");
      if (peer.connectionState === "closed") fail("the connection was closed");
    };
    frames.onclose = () => fail("the service ended it");

    await orEnded(peer.setLocalDescription());
    await orEnded(gathered(peer));
    const body = peer.localDescription.sdp;
    const answer = await orEnded(fetch(url, { method: "POST", headers: { "Content-Type": "application/sdp" }, body, signal }));
    const text = await answer.text();
    if (!answer.ok) throw new Error(reason(text) || `status ${answer.status}`);
    session = answer.headers.get("Location");
    await orEnded(peer.setRemoteDescription({ type: "answer", sdp: text }));
    await ended;
  } catch (error) {
    if (!signal?.aborted) throw error;
  } finally {
    clearTimeout(opening);
    signal?.removeEventListener("abort", abort);
    if (turn) video.cancelVideoFrameCallback(turn);
    video.srcObject = null;
    peer.close();
    if (session) fetch(session, { method: "DELETE", keepalive: true }).catch(() => {});
  }
}

const gathered = (peer) => new Promise((resolve) => {
  setTimeout(resolve, ICE_MS);
  peer.onicegatheringstatechange = () => { if (peer.iceGatheringState === "complete") resolve(); };
  if (peer.iceGatheringState === "complete") resolve();
});

function reason(text) {
  try {
    return JSON.parse(text).detail;
  } catch {
    return "";
  }
}
