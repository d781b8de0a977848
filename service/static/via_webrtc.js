// WebRTC by WHEP: the browser decodes into a video, and each of its frames is drawn like any other picture.
import { Broken, query, watch } from "./stream.js";
import { playWhep } from "./webrtc.js";

const OPEN_MS = 5000; // with the search for a way through
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
  const onFrame = (frame = {}) => {
    late = "went silent";
    silence.touch(SILENT_MS);
    show({
      image: video, sequence: frame.sequence ?? null, ageMs: frame.age_ms ?? null, at: performance.now(),
      wallS: frame.timestamp ?? null, placeholder: frame.placeholder ?? "",
    });
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
