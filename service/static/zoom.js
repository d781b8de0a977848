// Looking closely at a picture: by wheel, pinch, drag and keys, with nearest neighbour, saying which pixel it is and its value.
import { byId, make, setText } from "./dom.js";
import { fit } from "./frames.js";

const STEP = 1.5;
const MAX_PX = 64; // of the page for one of the picture
const RETICLE_PX = 9; // smaller pixels are marked by this much

export class Zoom {
  scale = 1; // of the picture that fits
  #x = 0; // of the picture's corner, from the screen's, in the page's pixels
  #y = 0;
  #screen;
  #ask;
  #pointers = new Map();
  #middle = { u: 0.5, v: 0.5 };
  #at = null; // the pixel that is looked at, as parts of width and height
  #one = make("canvas", { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
  #reticle = make("div", { id: "reticle", hidden: true, "aria-hidden": "true" });

  // ask: {size(): the whole picture's, source(x): the canvas at that place if it is another, changed(): the scale is another}
  constructor(screen, ask) {
    this.#screen = screen;
    this.#ask = ask;
    screen.append(this.#reticle);
    screen.addEventListener("pointerdown", (event) => this.#down(event));
    screen.addEventListener("pointermove", (event) => this.#move(event));
    for (const kind of ["pointerup", "pointercancel"]) screen.addEventListener(kind, ({ pointerId }) => this.#pointers.delete(pointerId));
    screen.addEventListener("dblclick", (event) => this.#to(this.scale > 1 ? 1 : Math.max(2, this.#actual()), this.#place(event)));
    screen.addEventListener("keydown", (event) => this.#key(event));
    this.#apply();
  }

  act(name) {
    if (name === "fit") this.fit();
    else this.#to(name === "actual" ? this.#actual() : this.scale * (name === "in" ? STEP : 1 / STEP), this.#centre());
  }

  fit() {
    this.#to(1, this.#centre());
  }

  // What was in the middle stays there.
  resized() {
    const { x, y } = this.#on(this.#middle);
    this.#x += this.#screen.clientWidth / 2 - x;
    this.#y += this.#screen.clientHeight / 2 - y;
    this.#apply();
  }

  wheel(event) {
    const pixels = event.deltaY * (event.deltaMode === 1 ? 18 : 1);
    this.#to(this.scale * Math.exp(-Math.max(-120, Math.min(120, pixels)) * (event.ctrlKey ? 0.01 : 0.004)), this.#place(event));
    this.#point(event);
  }

  // Where the picture is when it fits: its corner, and how many of the page's pixels one of its own takes.
  #fitted() {
    const { width, height } = this.#ask.size();
    const pixel = width ? fit(width, height, this.#screen) || 1 : 1;
    return { width, height, pixel, left: (this.#screen.clientWidth - width * pixel) / 2, top: (this.#screen.clientHeight - height * pixel) / 2 };
  }

  #actual() {
    return 1 / this.#fitted().pixel;
  }

  #centre() {
    return this.#at && this.scale > 1 ? this.#on(this.#at) : { x: this.#screen.clientWidth / 2, y: this.#screen.clientHeight / 2 };
  }

  #place({ clientX, clientY }) {
    const { left, top } = this.#screen.getBoundingClientRect();
    return { x: clientX - left, y: clientY - top };
  }

  // From the picture (parts of it) to the screen, and back.
  #on({ u, v }) {
    const { width, height, pixel, left, top } = this.#fitted();
    return { x: this.#x + this.scale * (left + u * width * pixel), y: this.#y + this.scale * (top + v * height * pixel) };
  }

  #of({ x, y }) {
    const { width, height, pixel, left, top } = this.#fitted();
    return { u: ((x - this.#x) / this.scale - left) / (width * pixel), v: ((y - this.#y) / this.scale - top) / (height * pixel) };
  }

  #to(scale, { x, y }) {
    const next = Math.max(1, Math.min(scale, MAX_PX * this.#actual()));
    this.#x = x - (x - this.#x) * (next / this.scale);
    this.#y = y - (y - this.#y) * (next / this.scale);
    const changed = next !== this.scale;
    this.scale = next;
    this.#apply();
    if (changed) this.#ask.changed();
  }

  #apply() {
    const { clientWidth, clientHeight } = this.#screen;
    this.#x = Math.min(0, Math.max(clientWidth * (1 - this.scale), this.#x));
    this.#y = Math.min(0, Math.max(clientHeight * (1 - this.scale), this.#y));
    const close = this.scale > 1;
    for (const canvas of this.#screen.querySelectorAll("canvas")) {
      canvas.style.transform = close ? `translate(${this.#x}px, ${this.#y}px) scale(${this.scale})` : "";
    }
    this.#screen.classList.toggle("close", close);
    const { width, pixel } = this.#fitted();
    setText(byId("zoom-fit"), width ? `${Math.round(100 * this.scale * pixel)} %` : "–");
    this.#middle = this.#of({ x: clientWidth / 2, y: clientHeight / 2 });
    if (close) this.#at ??= this.#middle;
    else this.#at = null;
    this.look();
  }

  #down(event) {
    if (event.target.closest("#divider")) return;
    this.#pointers.set(event.pointerId, this.#place(event));
    if (this.scale > 1 || this.#pointers.size > 1) this.#screen.setPointerCapture(event.pointerId);
    this.#point(event);
  }

  #move(event) {
    const before = this.#pointers.get(event.pointerId);
    const now = this.#place(event);
    if (before && this.#pointers.size === 1 && this.scale > 1) {
      this.#x += now.x - before.x;
      this.#y += now.y - before.y;
      this.#apply();
    } else if (before && this.#pointers.size === 2) {
      const other = [...this.#pointers].find(([id]) => id !== event.pointerId)[1];
      const apart = ({ x, y }) => Math.hypot(x - other.x, y - other.y) || 1;
      this.#to(this.scale * (apart(now) / apart(before)), { x: (now.x + other.x) / 2, y: (now.y + other.y) / 2 });
    }
    if (before) this.#pointers.set(event.pointerId, now);
    this.#point(event);
  }

  #point(event) {
    if (this.scale <= 1) return;
    this.#at = this.#of(this.#place(event));
    this.look();
  }

  // The arrow keys go from pixel to pixel, with Shift ten at a time, and take the picture along.
  #key(event) {
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!steps || this.scale <= 1 || event.target !== this.#screen) return;
    event.preventDefault();
    const { width, height } = this.#fitted();
    const { column, row } = this.#pixel(width, height);
    const by = event.shiftKey ? 10 : 1;
    const to = (now, step, count) => (Math.max(0, Math.min(count - 1, now + step * by)) + 0.5) / count;
    this.#at = { u: to(column, steps[0], width), v: to(row, steps[1], height) };
    const { x, y } = this.#on(this.#at);
    const margin = 24;
    this.#x += Math.max(0, margin - x) - Math.max(0, x - this.#screen.clientWidth + margin);
    this.#y += Math.max(0, margin - y) - Math.max(0, y - this.#screen.clientHeight + margin);
    this.#apply();
    setText(byId("picture-said"), byId("pixel").textContent);
  }

  #pixel(width, height) {
    const within = (part, count) => Math.max(0, Math.min(count - 1, Math.floor(part * count)));
    return { column: within(this.#at.u, width), row: within(this.#at.v, height) };
  }

  // The value is that of the picture as it was sent: anew for each.
  look() {
    const out = byId("pixel");
    const { u, v } = this.#at ?? {};
    const inside = this.#at && u >= 0 && u < 1 && v >= 0 && v < 1;
    const other = inside && this.#ask.source(this.#on(this.#at).x);
    const canvas = other || byId("live");
    out.hidden = this.#reticle.hidden = !inside || !canvas.width;
    if (out.hidden) return;
    const { width, height, pixel } = this.#fitted();
    const sent = this.#pixel(canvas.width, canvas.height);
    this.#one.drawImage(canvas, sent.column, sent.row, 1, 1, 0, 0, 1, 1);
    const [r, g, b] = this.#one.getImageData(0, 0, 1, 1).data;
    const { column, row } = this.#pixel(width, height);
    setText(out, `${other ? "source " : ""}x ${column} y ${row} RGB ${r} ${g} ${b}${canvas.width < width && !other ? " (scaled down)" : ""}`);
    out.style.setProperty("--value", `rgb(${r} ${g} ${b})`);
    const side = Math.max(RETICLE_PX, pixel * this.scale);
    const { x, y } = this.#on({ u: (column + 0.5) / width, v: (row + 0.5) / height });
    Object.assign(this.#reticle.style, { width: `${side}px`, height: `${side}px`, left: `${x - side / 2}px`, top: `${y - side / 2}px` });
  }
}
