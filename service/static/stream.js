// A live stream that comes by the best transport that works: the next one within seconds where one does not, and again by
// itself after a loss.
import { load, recall, remember } from "./dom.js";
import { Decoder } from "./frames.js";

export const TRANSPORTS = { webrtc: "WebRTC", websocket: "WebSocket", mjpeg: "Motion JPEG", stills: "single pictures" };
const AGAIN_MS = [250, 500, 1000, 2000, 4000];
const FORGET_MS = 60000; // then a transport that did not work is tried again
const SLOW_MS = 2000; // those that took longer to fail are left for longer, and on the next visit too
const SLOW_FORGET_MS = 600000;
const ANSWER_MS = 2000;
const KNOWN_MS = 100;

// Of all streams of the page: what does not work for one does not for the others. transport → {why, slow, until}
const failures = recalled();
const running = new Map(); // stream → the transport by which its pictures come now
let chosen = recall("transport");

// What the user wants: a transport, or "" for the best one.
export const choice = {
  get: () => (chosen in TRANSPORTS ? chosen : ""),
  set(transport) {
    chosen = transport;
    forget();
    remember("transport", transport);
  },
};

function recalled() {
  try {
    return new Map(JSON.parse(recall("failures") || "[]"));
  } catch {
    return new Map(); // of another version
  }
}

export const found = new EventTarget(); // an event of a transport's name: it does not work here

function fail(transport, why, slow) {
  failures.set(transport, { why, slow, until: Date.now() + (slow ? SLOW_FORGET_MS : FORGET_MS) });
  remember("failures", JSON.stringify([...failures].filter(([, failure]) => failure.slow)));
  found.dispatchEvent(new Event(transport));
}

function forget() {
  failures.clear();
  remember("failures", "");
}

// A transport that ended: what it does, "went silent". gaveUp: it did not say no, it said nothing; refusal: the service's
// own words instead.
export class Broken extends Error {
  constructor(message, { gaveUp = false, refusal = false } = {}) {
    super(message);
    Object.assign(this, { gaveUp, refusal });
  }
}

// Calls late() once nothing has happened for that long; touch() is what happens.
export function watch(late, ms) {
  let timer = setTimeout(late, ms);
  return {
    touch(next) { clearTimeout(timer); timer = setTimeout(late, next); },
    end() { clearTimeout(timer); },
  };
}

// At most so many at once; the others wait in order.
export class Gate {
  #free;
  #queue = [];

  constructor(places) {
    this.#free = places;
  }

  async enter() {
    if (this.#free > 0) this.#free -= 1;
    else await new Promise((resolve) => this.#queue.push(resolve));
  }

  leave() {
    const next = this.#queue.shift();
    if (next) next();
    else this.#free += 1;
  }
}

// Why that transport does not work here, as another stream has found out meanwhile; "" as far as is known.
export const failed = (transport) => failures.get(transport)?.why ?? "";

function pick(ladder) {
  const why = [];
  for (const transport of ladder) {
    const failure = failures.get(transport);
    const again = failure && Date.now() > failure.until;
    if (!failure || again || transport === ladder.at(-1)) return { transport, why: again ? "" : why.join("; ") };
    why.push(`${TRANSPORTS[transport]} ${failure.why}`);
  }
  return { transport: ladder[0], why: "" };
}

let asking = null; // one question for all streams of the page

function answers() {
  asking ??= fetch("/health/live", { cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS) })
    .then(({ ok }) => ok, () => false)
    .finally(() => setTimeout(() => { asking = null; }, KNOWN_MS));
  return asking;
}

export class Stream {
  #ladder;
  #show;
  #said;
  #control = null;
  #wake = () => {};

  // ladder(): transports, the best first. show(frame) owns frame.image. said({transport, why, trouble}).
  constructor(ladder, show, said) {
    this.#ladder = ladder;
    this.#show = show;
    this.#said = said;
  }

  get playing() {
    return this.#control !== null;
  }

  // want: {camera, view, width, video}; what was played before ends.
  play(want) {
    this.stop();
    this.#control = new AbortController();
    this.#run(want, this.#control.signal);
  }

  stop() {
    this.#control?.abort();
    this.#control = null;
    running.delete(this);
    this.#wake();
  }

  // The service is back: not a moment longer.
  hurry() {
    this.#wake();
  }

  async #run(want, signal) {
    let losses = 0;
    let strikes = 0;
    const decoder = new Decoder(this.#show, signal);
    const lost = async (said) => {
      this.#said(said);
      await this.#pause(AGAIN_MS[Math.min(losses, AGAIN_MS.length - 1)]);
      losses += 1;
    };
    while (!signal.aborted) {
      const ladder = this.#ladder();
      const { transport, why } = pick(ladder);
      // Browsers hold back those who open WebSockets in vain, so that is not how to find out whether the service is back.
      if (losses > 0 && !await answers()) {
        if (!signal.aborted) await lost({ transport, why, trouble: "the service does not answer" });
        continue;
      }
      const started = performance.now();
      let worked = false;
      const show = (frame) => {
        if (signal.aborted) return;
        if (!worked) {
          worked = true;
          failures.delete(transport);
          losses = strikes = 0;
          running.set(this, transport);
          this.#said({ transport, why, trouble: "" });
        }
        decoder.put(frame);
      };
      try {
        const { play } = await load(`via_${transport}`);
        if (!signal.aborted) await play(want, show, signal);
      } catch (error) {
        running.delete(this);
        if (signal.aborted) return;
        if (!(error instanceof Broken)) console.warn(error);
        const what = error instanceof Broken ? error.message : "does not load";
        const others = [...running.values()].includes(transport); // then it does work here
        if (failed(transport) && transport !== ladder.at(-1)) continue;
        if (error.refusal) forget(); // that may be why the others do not work either
        else if (!worked && !others && transport !== ladder.at(-1) && await answers()) {
          // Once may have been the moment in which the service started.
          strikes += error.gaveUp ? 2 : 1;
          if (strikes >= 2) {
            fail(transport, what, performance.now() - started > SLOW_MS);
            strikes = 0;
          }
          continue;
        }
        const more = others && !worked ? "; perhaps all places for viewers are taken" : "";
        const trouble = error.refusal ? error.message : `${TRANSPORTS[transport]} ${what}${more}`;
        if (!signal.aborted) await lost({ transport, why, trouble });
      }
    }
  }

  #pause(ms) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}

export function query({ view, width }) {
  return new URLSearchParams({ ...(view && { view }), ...(width && { width }), _: Date.now() });
}
