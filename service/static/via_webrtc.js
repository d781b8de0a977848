// WebRTC by WHEP: the browser decodes into a video, and each of its frames is drawn like any other picture.
import { Broken, query, watch } from "./stream.js";
import { playWhep } from "./webrtc.js";

const OPEN_MS = 6000; // playWhep gives up, and says why, before that
const SILENT_MS = 5000;

export async function play({ camera, video, ...want }, show, signal) {
  const own = new AbortController();
  const stop = () => own.abort();
  signal.addEventListener("abort", stop);
  let late = "";
  const silence = watch(() => {
    late = late || "does not open";
    own.abort();
  }, OPEN_MS);
  let age = null; // where nothing is known of a frame, it is as old as the one before was
  const onFrame = ({ sequence = null, age_ms = NaN, timestamp = null, placeholder = "" }) => {
    late = "went silent";
    silence.touch(SILENT_MS);
    if (Number.isFinite(age_ms)) age = age_ms;
    show({ image: video, sequence, ageMs: placeholder ? null : age, at: performance.now(), wallS: timestamp, placeholder });
  };
  try {
    await playWhep({ url: `/cameras/${encodeURIComponent(camera)}/whep?${query(want)}`, video, onFrame, signal: own.signal });
    throw new Broken("ended");
  } catch (error) {
    if (own.signal.aborted) throw new Broken(late || "stopped", { gaveUp: true });
    throw error instanceof Broken ? error : new Broken(`does not come (${error.message})`, { gaveUp: true });
  } finally {
    silence.end();
    signal.removeEventListener("abort", stop);
    own.abort();
  }
}
