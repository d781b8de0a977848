// One snapshot after the other, for many cameras over few connections: a browser has six for each host, and one stream of
// Motion JPEG keeps one. All streams of the page take turns at three.
import { frameOf, refusal } from "./via_mjpeg.js";
import { Broken, Gate, query } from "./stream.js";

const AT_ONCE = 3;
const SPACING_MS = 200;
const ANSWER_MS = 8000;

const turns = new Gate(AT_ONCE);

async function still(path, signal) {
  if (signal.aborted) return null;
  const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS) });
  if (!answer.ok) throw await refusal(answer);
  return frameOf(answer.headers, new Uint8Array(await answer.arrayBuffer()));
}

export async function play(want, show, signal) {
  while (!signal.aborted) {
    const path = `/cameras/${encodeURIComponent(want.camera)}/snapshot?${query(want)}`;
    await turns.enter();
    const frame = await still(path, signal).catch((error) => {
      throw error instanceof Broken ? error : new Broken("do not come");
    }).finally(() => turns.leave());
    if (frame) show(frame);
    await new Promise((resolve) => setTimeout(resolve, SPACING_MS));
  }
}
