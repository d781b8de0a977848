// Motion JPEG over HTTP, read part by part, so that number and age of each picture are known.
import { problemOf } from "./api.js";
import { Broken, query, watch } from "./stream.js";

const OPEN_MS = 4000;
const SILENT_MS = 5000;
const text = new TextDecoder("latin1");

export function frameOf(header, bytes) {
  const number = (name) => (header.has(name) ? Number(header.get(name)) : null);
  return {
    bytes, sequence: number("x-frame-sequence"), ageMs: number("x-frame-age-ms"), at: performance.now(),
    wallS: number("x-timestamp"), placeholder: header.get("x-pinhole-placeholder") ?? "",
  };
}

export async function refusal(answer) {
  return new Broken((await problemOf(answer)).message, { refusal: answer.status !== 502 && answer.status !== 504 });
}

// Parts of a multipart body: each has a Content-Length.
export class Parts {
  #buffer = new Uint8Array(1 << 18);
  #start = 0;
  #end = 0;
  #part = null; // {header, from, length} once its header is there

  push(chunk) {
    if (this.#end + chunk.length > this.#buffer.length) {
      const kept = this.#buffer.subarray(this.#start, this.#end);
      const target = kept.length + chunk.length > this.#buffer.length / 2 ? new Uint8Array(2 * (kept.length + chunk.length)) : this.#buffer;
      target.set(kept);
      this.#buffer = target;
      this.#end -= this.#start;
      this.#start = 0;
    }
    this.#buffer.set(chunk, this.#end);
    this.#end += chunk.length;
  }

  next() {
    this.#part ??= this.#header();
    if (!this.#part || this.#end - this.#start < this.#part.length) return null;
    const { header, length } = this.#part;
    const bytes = this.#buffer.slice(this.#start, this.#start + length);
    this.#start += length;
    this.#part = null;
    return { header, bytes };
  }

  #header() {
    const { length } = this.#buffer;
    for (let i = this.#start; i + 4 <= Math.min(this.#end, length); i++) {
      const b = this.#buffer;
      if (b[i] !== 13 || b[i + 1] !== 10 || b[i + 2] !== 13 || b[i + 3] !== 10) continue;
      const lines = text.decode(b.subarray(this.#start, i)).split("\r\n");
      const header = new Map(lines.map((line) => [line.split(":", 1)[0].toLowerCase(), line.slice(line.indexOf(":") + 1).trim()]));
      this.#start = i + 4;
      if (!header.has("content-length")) throw new Broken("sends parts without a length");
      return { header, length: Number(header.get("content-length")) };
    }
    return null;
  }
}

export async function play(want, show, signal) {
  const own = new AbortController();
  let silent = false;
  const silence = watch(() => {
    silent = true;
    own.abort();
  }, OPEN_MS);
  const stop = () => own.abort();
  signal.addEventListener("abort", stop);
  try {
    const path = `/cameras/${encodeURIComponent(want.camera)}/stream?${query(want)}`;
    const answer = await fetch(path, { cache: "no-store", signal: own.signal });
    if (!answer.ok) throw await refusal(answer);
    const reader = answer.body.getReader();
    const parts = new Parts();
    for (;;) {
      const { value, done } = await reader.read();
      if (done) throw new Broken("ended");
      parts.push(value);
      for (let part = parts.next(); part; part = parts.next()) {
        silence.touch(SILENT_MS);
        show(frameOf(part.header, part.bytes));
      }
    }
  } catch (error) {
    if (error instanceof Broken) throw error;
    throw new Broken(silent ? "went silent" : "does not come", { gaveUp: silent });
  } finally {
    silence.end();
    signal.removeEventListener("abort", stop);
    own.abort();
  }
}
