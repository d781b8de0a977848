// Source and result beside each other, frame by frame, with a divider to drag.
import { byId } from "./dom.js";
import { Painter, free } from "./frames.js";
import { Stream } from "./stream.js";

const WAITING = 4; // frames of one view that may wait for the other's

// Pictures of two views that belong together. Where no two do, as with a slow view, each shows its newest.
export class Pairs {
  #queues = { result: [], source: [] };
  #show;

  // show({result, source}) owns the images; one may be missing.
  constructor(show) {
    this.#show = show;
  }

  put(view, frame) {
    const { result, source } = this.#queues;
    const queue = this.#queues[view];
    const other = view === "result" ? source : result;
    queue.push(frame);
    const match = other.findLastIndex(({ sequence }) => sequence === frame.sequence);
    if (match >= 0 && frame.sequence !== null) {
      const found = other[match];
      other.splice(match, 1);
      queue.pop();
      this.clear();
      this.#show({ [view]: frame, [view === "result" ? "source" : "result"]: found });
    } else if (queue.length > WAITING) {
      const newest = { result: result.pop(), source: source.pop() };
      this.clear();
      this.#show(newest);
    }
  }

  clear() {
    for (const queue of Object.values(this.#queues)) {
      queue.forEach(free);
      queue.length = 0;
    }
  }
}

export class Split {
  #screen;
  #other = byId("other");
  #painter = new Painter(this.#other);
  #stream;
  #pairs;
  #percent = 50;

  constructor(screen, ladder, showResult) {
    this.#screen = screen;
    this.#pairs = new Pairs(({ result, source }) => {
      if (result) showResult(result);
      if (source) this.#painter.put(source);
    });
    this.#stream = new Stream(ladder, (frame) => this.put("source", frame), () => {});
    const divider = byId("divider");
    divider.addEventListener("pointerdown", (event) => {
      divider.setPointerCapture(event.pointerId);
      event.preventDefault();
      divider.focus();
    });
    divider.addEventListener("pointermove", (event) => {
      if (!divider.hasPointerCapture(event.pointerId)) return;
      const { left, width } = screen.getBoundingClientRect();
      this.#move(100 * (event.clientX - left) / width);
    });
    divider.addEventListener("keydown", (event) => {
      const by = event.shiftKey ? 10 : 1;
      const to = { ArrowLeft: this.#percent - by, ArrowRight: this.#percent + by, Home: 0, End: 100 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      this.#move(to);
    });
    this.#move(50);
  }

  #move(percent) {
    this.#percent = Math.max(0, Math.min(100, percent));
    const divider = byId("divider");
    const shown = Math.round(this.#percent);
    divider.setAttribute("aria-valuenow", shown);
    divider.setAttribute("aria-valuetext", `source ${shown} %, result ${100 - shown} %`);
    this.#screen.style.setProperty("--split", `${this.#percent}%`);
  }

  open(open) {
    for (const id of ["over", "divider"]) byId(id).hidden = !open;
    if (!open) {
      this.stop();
      this.clear();
    }
    for (const label of this.#screen.querySelectorAll(".side")) label.hidden = !open;
  }

  covers(x) {
    return x < (this.#percent / 100) * this.#screen.clientWidth;
  }

  put(view, frame) {
    this.#pairs.put(view, frame);
  }

  play(want) {
    this.#stream.play({ ...want, view: "source" });
  }

  stop() {
    this.#stream.stop();
  }

  hurry() {
    this.#stream.hurry();
  }

  hold() {
    this.#pairs.clear();
    this.#painter.hold();
  }

  clear() {
    this.#pairs.clear();
    this.#painter.clear();
  }

  // Both as one picture, as they are shown; a source of another shape fits into the result's.
  joined(result) {
    const { width, height } = result;
    const joined = document.createElement("canvas");
    Object.assign(joined, { width, height });
    const context = joined.getContext("2d");
    context.drawImage(result, 0, 0);
    const at = this.#edge(width, height);
    const source = this.#other;
    const scale = Math.min(width / source.width, height / source.height) || 1;
    context.beginPath();
    context.rect(0, 0, at, height);
    context.clip();
    context.fillRect(0, 0, at, height);
    context.drawImage(source, (width - source.width * scale) / 2, (height - source.height * scale) / 2, source.width * scale, source.height * scale);
    return joined;
  }

  // Where the divider is, in the result's pixels.
  #edge(width, height) {
    const { clientWidth, clientHeight } = this.#screen;
    const scale = Math.min(clientWidth / width, clientHeight / height);
    return Math.round(((this.#percent / 100) * clientWidth - (clientWidth - width * scale) / 2) / scale);
  }
}
