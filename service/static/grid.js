// All cameras at once. Only what is on screen is streamed, at the size at which it is shown, and each over its own WebSocket.
import { byId, capital, make, recall, remember, setBadge, setText } from "./dom.js";
import { SHOWS, ageText, stateOf } from "./cameras.js";
import { Painter, widthFor } from "./frames.js";
import { Stream, TRANSPORTS, choice } from "./stream.js";

const OLD_MS = 1000;
const LOOK_MS = 500;
const SETTLE_MS = 150; // of what only passes by while scrolling, nothing is asked
const GAP_PX = 6; // as in page.css
const PADDING_PX = 12;
const MIN_TILE_PX = 160;
const MIN_NARROW_TILE_PX = 150;

// One connection for each camera: Motion JPEG would take all that the browser has for a host.
const ladder = () => (choice.get() === "mjpeg" ? ["stills"] : ["websocket", "stills"]);

class Tile {
  camera = null;
  #canvas = make("canvas", { width: 0, height: 0, "aria-hidden": "true" });
  #badge = make("span", { className: "badge" });
  #why = make("span", { className: "why" });
  #painter = new Painter(this.#canvas);
  #stream;
  #seen = false;
  #width = undefined; // undefined: nothing is played
  #timer = 0;
  #trouble = "";
  #ask;

  // ask: {answering(): whether the service does, said(text)}
  constructor(name, ask) {
    this.#ask = ask;
    this.link = make("a", { className: "tile", href: `#${name}` }, this.#canvas, this.#why,
      make("span", { className: "bar" }, make("strong", {}, name), this.#badge));
    this.element = make("li", {}, this.link);
    this.#stream = new Stream(ladder, (frame) => this.#painter.put(frame), ({ transport, why, trouble }) => {
      this.#trouble = trouble;
      ask.said(TRANSPORTS[transport] + (why ? ` (${why})` : ""));
      this.look();
    });
  }

  get playing() {
    return this.#width !== undefined;
  }

  seen(seen) {
    this.#seen = seen;
    this.update();
  }

  // Play what is to be seen, in the size in which it is seen; end what is not.
  update() {
    clearTimeout(this.#timer);
    if (!this.#seen || document.hidden || !this.camera) this.stop();
    else this.#timer = setTimeout(() => this.#play(), SETTLE_MS);
  }

  #play() {
    const full = this.camera.result ?? this.camera.source;
    const shown = full ? Math.min(this.link.clientWidth, (this.link.clientHeight * full.width) / full.height) : this.link.clientWidth;
    const width = widthFor(shown, full?.width);
    if (width === this.#width) return;
    this.#width = width;
    this.#stream.play({ camera: this.camera.name, view: "result", width });
  }

  stop() {
    clearTimeout(this.#timer);
    this.#width = undefined;
    this.#stream.stop();
    this.#painter.hold();
  }

  hurry() {
    this.#stream.hurry();
  }

  look() {
    if (!this.camera) return;
    const { name, state, source, age_ms: age, cause, ready, reasons } = this.camera;
    const ms = this.#painter.ageMs;
    const empty = !this.#painter.shown || Boolean(this.#painter.shown.placeholder) || age === null || !SHOWS.has(state);
    const old = ms !== null && ms > Math.max(OLD_MS, 3000 / (source?.nominal_fps || 30));
    this.link.classList.toggle("empty", empty);
    this.link.classList.toggle("old", !empty && old && state !== "ended");
    const { level, text } = stateOf(this.camera);
    if (!this.#ask.answering()) setBadge(this.#badge, "bad", "no answer");
    else if (state !== "running") setBadge(this.#badge, level, text);
    else if (empty) setBadge(this.#badge, this.#trouble || !ready ? "bad" : "warn", "no picture");
    else setBadge(this.#badge, old || !ready ? "bad" : "good", old ? `${ageText(ms)} old` : ready ? "live" : "stale");
    const why = capital(this.#trouble) || cause || (ready ? "" : reasons.join("; "));
    setText(this.#why, why);
    this.link.setAttribute("aria-label", `${name}: ${this.#badge.textContent}`);
    this.link.title = why;
  }
}

export class Grid {
  #tiles = new Map();
  #open = false;
  #answering = true;
  #via = "";
  #watcher = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) this.#tileOf(target)?.seen(this.#open && isIntersecting);
  });

  constructor() {
    byId("columns").value = recall("columns");
    byId("columns").addEventListener("change", () => {
      remember("columns", byId("columns").value);
      this.#lay();
    });
    byId("grid-full").addEventListener("click", () => this.full());
    document.addEventListener("fullscreenchange", () => this.#filled(document.fullscreenElement === byId("grid")));
    document.addEventListener("visibilitychange", () => this.#update());
    addEventListener("pagehide", () => this.leave());
    new ResizeObserver(() => this.#lay()).observe(byId("grid"));
    addEventListener("resize", () => this.#lay());
    setInterval(() => this.#look(), LOOK_MS);
  }

  show(cameras) {
    this.#answering = true;
    for (const [name, tile] of this.#tiles) {
      if (cameras.some((camera) => camera.name === name)) continue;
      tile.stop();
      this.#watcher.unobserve(tile.link);
      tile.element.remove();
      this.#tiles.delete(name);
    }
    for (const camera of cameras) (this.#tiles.get(camera.name) ?? this.#add(camera.name)).camera = camera;
    if (!this.#open) {
      this.#open = true;
      for (const { link } of this.#tiles.values()) this.#watcher.observe(link);
    }
    this.#lay();
    this.#look();
  }

  #add(name) {
    const tile = new Tile(name, { answering: () => this.#answering, said: (text) => { this.#via = text; } });
    this.#tiles.set(name, tile);
    byId("tiles").append(tile.element);
    if (this.#open) this.#watcher.observe(tile.link);
    return tile;
  }

  leave() {
    this.#open = false;
    this.#watcher.disconnect();
    for (const tile of this.#tiles.values()) tile.seen(false);
    if (document.fullscreenElement === byId("grid")) document.exitFullscreen();
    this.#filled(false);
  }

  focus(name) {
    this.#tiles.get(name)?.link.focus();
  }

  unreachable() {
    this.#answering = false;
    this.#look();
  }

  restart() {
    for (const tile of this.#tiles.values()) tile.hurry();
  }

  full() {
    const grid = byId("grid");
    if (document.fullscreenElement) document.exitFullscreen();
    else if (grid.requestFullscreen) grid.requestFullscreen().catch(() => this.#filled(true));
    else this.#filled(!grid.classList.contains("full"));
  }

  unfill() {
    this.#filled(false);
  }

  #filled(full) {
    byId("grid").classList.toggle("full", full);
    byId("grid-full").setAttribute("aria-pressed", full);
    this.#lay();
  }

  #tileOf(link) {
    return [...this.#tiles.values()].find((tile) => tile.link === link);
  }

  #update() {
    if (this.#open) for (const tile of this.#tiles.values()) tile.update();
  }

  // As large as lets all cameras fit into the window; where that is too small to see something, one scrolls.
  #lay() {
    if (!this.#open) return;
    const grid = byId("grid");
    const width = grid.clientWidth - 2 * PADDING_PX;
    const height = innerHeight - (grid.classList.contains("full") ? 64 : 150);
    const count = this.#tiles.size;
    const sizeIn = (columns) => Math.min((width + GAP_PX) / columns - GAP_PX, ((height + GAP_PX) / Math.ceil(count / columns) - GAP_PX) * (16 / 9));
    let columns = Number(byId("columns").value);
    let size = 0; // of a tile; 0 is as the columns are wide
    if (!columns) {
      for (let n = 1; n <= count; n++) if (sizeIn(n) > size) [columns, size] = [n, sizeIn(n)];
      const least = width < 600 ? MIN_NARROW_TILE_PX : MIN_TILE_PX;
      if (size < least) [columns, size] = [Math.max(1, Math.min(count, Math.floor((width + GAP_PX) / (least + GAP_PX)))), 0];
    }
    const { style } = byId("tiles");
    style.setProperty("--columns", columns);
    style.maxWidth = size ? `${columns * (size + GAP_PX) - GAP_PX}px` : "";
    this.#update();
  }

  #look() {
    if (!this.#open || document.hidden) return;
    let playing = 0;
    for (const tile of this.#tiles.values()) {
      tile.look();
      playing += tile.playing;
    }
    setText(byId("grid-said"), `${playing} of ${this.#tiles.size} on screen${this.#via ? `, by ${this.#via}` : ""}`);
  }
}
