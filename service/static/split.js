// Source and result beside each other, frame by frame, with a divider to drag.
import { byId } from "./dom.js";
import { Painter, free } from "./frames.js";
import { Stream } from "./stream.js";

const WAITING = 4; // frames of one view that may wait for the other's

// Pictures of two views that belong together, also where one comes later than the other. What finds none among as many
// as may wait, as with a view that is slow or gone, is shown alone.
export class Pairs {
  #queues = { result: [], source: [] }; // in the order of their numbers
  #show;

  // show({result, source}) owns the images; one may be missing.
  constructor(show) {
    this.#show = show;
  }

  put(view, frame) {
    const other = view === "result" ? "source" : "result";
    const mine = this.#queues[view];
    const theirs = this.#queues[other];
    const match = theirs.findIndex(({ sequence }) => sequence === frame.sequence);
    if (match >= 0) {
      const found = theirs[match];
      for (const older of [...mine.splice(0), ...theirs.splice(0, match + 1)]) if (older !== found) free(older);
      this.#show({ [view]: frame, [other]: found });
    } else if (frame.sequence === null) {
      this.#show({ [view]: frame }); // a placeholder
    } else {
      mine.push(frame);
      if (mine.length > WAITING) this.#show({ [view]: mine.shift() });
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
