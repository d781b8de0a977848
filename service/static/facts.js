// In which memory frames lie, on which device, and how many of their bytes are moved.
import { byId, make, setText } from "./dom.js";
import { whole } from "./cameras.js";
import { MEANINGS } from "./meanings.js";

// Why frames came to no result; the source's own reasons (truncated, …) speak for themselves.
const DROPS = {
  "stale": "a newer frame was there before its turn",
  "overrun": "its slot was needed for a newer one",
  "no_slot": "every slot was held",
  "format": "the source changed its size or format",
  "closed": "the camera stopped",
  "device": "the device failed on it",
  "memory": "there was no memory for its result",
  "lost": "a fault gave its slot up",
};

const WIDTHS = { why: "wide", measured: "wide", dropped: "wide", from: "wide", device: "broad" };

export function bytes(count) {
  if (count < 1000) return `${Math.round(count)} B`;
  const [unit, size] = count < 1e6 ? ["kB", 1e3] : count < 1e9 ? ["MB", 1e6] : ["GB", 1e9];
  return `${(count / size).toPrecision(3)} ${unit}`;
}

const image = (spec) => (spec ? `${spec.width}×${spec.height} ${spec.format}` : "–");

// What "auto" timed for this chain and size on this device.
function fastest(choice) {
  const others = Object.entries(choice.microseconds).filter(([way]) => way !== choice.chosen);
  const next = others.length ? `; next ${Math.min(...others.map(([, us]) => us))} µs` : "";
  return `${choice.chosen}: ${choice.microseconds[choice.chosen]} µs${next} (${choice.date.slice(0, 10)})`;
}

export class Facts {
  #last = null;
  #cells = new Map();

  show(camera, state) {
    const now = {
      name: camera.name, captured: camera.frames.captured, processed: camera.frames.processed,
      in: camera.link_bytes.in, out: camera.link_bytes.out,
    };
    const last = this.#last?.name === now.name && this.#last.captured <= now.captured ? this.#last : null;
    // Of the frames since the last answer; since the start where there were none.
    const each = (key, frames) => {
      const few = last && now[frames] > last[frames];
      const count = few ? now[frames] - last[frames] : now[frames];
      return count ? bytes((few ? now[key] - last[key] : now[key]) / count) : "–";
    };
    const { strategy, choice } = camera.memory;
    const linked = strategy !== "host";
    this.#set("memory strategy", strategy);
    this.#set("measured", choice ? fastest(choice) : "–");
    this.#set("device", state.device.name);
    this.#set("why", strategy === state.device.memory ? state.device.reason : "this camera asks for it");
    const copied = camera.copied_bytes_per_frame;
    this.#set("copied per frame", copied === null ? "–" : bytes(copied));
    this.#set("link in per frame", linked ? each("in", "processed") : "no link");
    this.#set("link out per frame", linked ? each("out", "processed") : "no link");
    this.#set("source", image(camera.source));
    this.#set("result", image(camera.result));
    this.#set("ring", camera.ring ? `${camera.ring.slots} slots, ${bytes(camera.ring.nbytes)}` : "–");
    this.#set("pinned memory", bytes(state.held_bytes.pinned));
    this.#set("frames processed", whole(camera.frames.processed));
    const drops = Object.entries(camera.frames.dropped).map(
      ([reason, n]) => `${whole(n)} ${reason}${DROPS[reason] ? ` (${DROPS[reason]})` : ""}`);
    this.#set("dropped", drops.join(", ") || "0");
    this.#set("viewers", whole(camera.viewers.live));
    this.#set("reconnects", whole(camera.reconnects));
    this.#set("from", camera.uri);
    this.#last = now;
  }

  #set(term, value) {
    let cell = this.#cells.get(term);
    if (!cell) {
      cell = make("dd");
      byId("facts").append(make("div", { className: WIDTHS[term] ?? "", title: MEANINGS[term] ?? "" }, make("dt", {}, term), cell));
      this.#cells.set(term, cell);
    }
    setText(cell, value);
  }
}
