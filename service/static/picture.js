// The picture of one camera: live or frozen, result, source or both; honest about how old it is and how it comes.
import { byId, capital, load, make, setBadge, setText } from "./dom.js";
import { SHOWS, ageText } from "./cameras.js";
import { Painter, fit, widthFor } from "./frames.js";
import { Stream, TRANSPORTS, choice } from "./stream.js";

const OLD_MS = 1000;
const AGE_MS = 400; // between two looks at the age
const SETTLE_MS = 400; // a window that is being resized

export class LivePicture {
  #screen = byId("screen");
  #canvas = byId("live");
  #painter = new Painter(this.#canvas, () => this.#drawn());
  #stream;
  #camera = null; // as the service last told it
  #name = null;
  #view = "result"; // or source, or split
  #frozen = false;
  #away = true; // another part of the page is shown
  #playing = ""; // what is asked for, to know whether it is something else
  #settling = 0;
  #trouble = ""; // why the stream itself does not come
  #unreachable = false;
  #webrtc = false; // the service offers it
  #zoom = null;
  #split = null;

  constructor() {
    this.#stream = new Stream(() => this.#ladder(), (frame) => this.#show(frame), (said) => this.#said(said));
    document.addEventListener("visibilitychange", () => this.#update());
    addEventListener("pagehide", () => this.#stop());
    new ResizeObserver(() => this.#resized()).observe(this.#screen);
    setInterval(() => { if (!this.#away && !document.hidden) this.#showAge(); }, AGE_MS);
    for (const radio of document.querySelectorAll("input[name=view]")) {
      radio.addEventListener("change", () => this.#look(radio.value));
    }
    const transport = byId("transport");
    transport.value = choice.get();
    transport.addEventListener("change", () => {
      choice.set(transport.value);
      this.#again();
    });
    byId("freeze").addEventListener("click", () => this.freeze());
    byId("snapshot").addEventListener("click", () => this.snapshot());
    byId("full").addEventListener("click", () => this.full());
    for (const [id, act] of [["zoom-in", "in"], ["zoom-out", "out"], ["zoom-fit", "fit"]]) {
      byId(id).addEventListener("click", () => this.zoom(act));
    }
    this.#screen.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    this.#screen.addEventListener("pointerdown", () => this.#loadZoom(), { once: true });
    document.addEventListener("fullscreenchange", () => this.#filled(document.fullscreenElement === byId("picture")));
  }

  // What the service says of the chosen camera, and of itself, now.
  show(camera, state) {
    this.#camera = camera;
    this.#unreachable = false;
    this.#webrtc = Boolean(state.webrtc);
    byId("transport").querySelector("[value=webrtc]").hidden = !this.#webrtc;
    if (camera.name !== this.#name) {
      this.#name = camera.name;
      this.#canvas.setAttribute("aria-label", `Live picture of ${camera.name}`);
      this.#trouble = "";
      this.#clear();
      this.#thaw();
    }
    const size = this.#size();
    if (size) this.#screen.style.aspectRatio = `${size.width} / ${size.height}`;
    this.#away = false;
    // Its stream has a placeholder then, for those who see nothing else: here the message says the same, once.
    this.#screen.classList.toggle("empty", !this.#frozen && (camera.age_ms === null || !SHOWS.has(camera.state)));
    this.#update();
    this.#showAge();
  }

  // Another part of the page is shown instead.
  leave() {
    this.#away = true;
    this.#stop();
    this.#playing = "";
  }

  // The service does not answer: the picture only gets older.
  unreachable() {
    this.#unreachable = true;
    this.#showAge();
  }

  restart() {
    this.#stream.hurry();
    this.#split?.hurry();
  }

  // The size of the whole picture in its own pixels, which may be more than are sent.
  #size() {
    return (this.#view === "source" ? this.#camera?.source : this.#camera?.result) ?? this.#camera?.source;
  }

  // Result, source or both beside each other: shown live, also where what was before was frozen.
  async #look(view) {
    const split = view === "split";
    if (split && !this.#split) {
      const { Split } = await load("split");
      this.#split ??= new Split(this.#screen, () => this.#ladder(), (frame) => this.#painter.put(frame));
    }
    this.#view = view;
    this.#split?.open(split);
    this.#thaw();
    this.#update();
  }

  #thaw() {
    if (this.#frozen) this.freeze();
  }

  // Keep this picture and end the stream; or go on.
  freeze() {
    this.#frozen = !this.#frozen;
    byId("freeze").setAttribute("aria-pressed", this.#frozen);
    if (this.#frozen) {
      this.#painter.hold();
      this.#split?.hold();
    }
    this.#update();
    this.#showAge();
  }

  #update() {
    if (!this.#name || this.#away) return;
    if (this.#frozen || document.hidden) this.#stop();
    else if (this.#wanted() !== this.#playing) this.#play();
  }

  #again() {
    this.#playing = "";
    this.#update();
  }

  #wanted() {
    const split = this.#view === "split";
    return JSON.stringify({ camera: this.#name, view: split ? "result" : this.#view, width: this.#width(), split, best: this.#ladder()[0] });
  }

  #width() {
    const { width, height } = this.#size() ?? {};
    if (!width) return widthFor(this.#screen.clientWidth);
    return widthFor(width * fit(width, height, this.#screen) * (this.#zoom?.scale ?? 1), width);
  }

  #play() {
    this.#playing = this.#wanted();
    const { split, best, ...want } = JSON.parse(this.#playing);
    this.#stream.play({ ...want, video: byId("video") });
    if (split) this.#split.play(want);
  }

  #stop() {
    this.#playing = "";
    this.#stream.stop();
    this.#split?.stop();
  }

  #clear() {
    this.#stop();
    this.#painter.clear();
    this.#split?.clear();
    this.#zoom?.fit();
  }

  #ladder() {
    const wanted = choice.get();
    // Of a video not every frame is numbered, as comparing two views needs; and pixels in a JPEG are nearer to the truth.
    const video = this.#webrtc && this.#view !== "split" && (wanted === "webrtc" || !(this.#zoom?.scale > 1));
    const all = video ? ["webrtc", "websocket", "mjpeg"] : ["websocket", "mjpeg"];
    return all.includes(wanted) ? all.slice(all.indexOf(wanted)) : all;
  }

  #show(frame) {
    if (this.#view === "split") this.#split.put("result", frame);
    else this.#painter.put(frame);
  }

  #drawn() {
    this.#trouble = "";
    if (this.#painter.shown.placeholder) this.#screen.classList.add("empty");
    if (this.#zoom) this.#zoom.look();
    else this.#loadZoom().catch(() => {}); // the service has just gone; the next picture tries again
  }

  #said({ transport, why, trouble }) {
    setText(byId("via"), TRANSPORTS[transport] + (why ? ` (${why})` : ""));
    byId("via").title = choice.get() === transport ? "As chosen" : this.#webrtc ? "The best that works here" : "The best that works here; the service offers no WebRTC";
    this.#trouble = trouble;
    this.#showAge();
  }

  #resized() {
    clearTimeout(this.#settling);
    this.#zoom?.resized();
    this.#settling = setTimeout(() => this.#update(), SETTLE_MS);
  }

  #showAge() {
    const { state, cause, ready, reasons, source } = this.#camera ?? {};
    const ms = this.#painter.ageMs;
    const ended = state === "ended";
    const tooOld = Math.max(OLD_MS, 3000 / (source?.nominal_fps || 30));
    const old = ms !== null && ms > tooOld;
    const shown = this.#painter.shown && !this.#screen.classList.contains("empty");
    this.#screen.classList.toggle("old", shown && old && !ended && !this.#frozen);
    if (this.#frozen) setBadge(byId("age"), "warn", ms === null ? "frozen" : `frozen, ${ageText(ms)} old`);
    else if (!shown) setBadge(byId("age"), "bad", this.#trouble ? "not shown" : this.#camera?.age_ms == null ? "no frame yet" : "no picture");
    else if (ms === null) setBadge(byId("age"), this.#unreachable ? "bad" : "good", this.#unreachable ? "not live" : "live");
    else setBadge(byId("age"), ended ? "warn" : old || this.#unreachable ? "bad" : "good", `${ageText(ms)} old`);
    const why = cause || (ready ? "" : reasons?.join("; "));
    this.#say(this.#frozen ? this.#frozenText() : this.#unreachable ? "The service does not answer; this picture is not live."
      : this.#trouble ? `${capital(this.#trouble)}; trying again.` : why ? `${state}: ${why}` : ended ? "The source has ended; this is its last frame." : "");
  }

  #frozenText() {
    const { sequence, wallS } = this.#painter.shown ?? {};
    if (sequence == null) return "Frozen";
    return `Frozen: frame ${sequence}${wallS ? `, ${new Date(wallS * 1000).toISOString().slice(11, 23)} UTC` : ""}`;
  }

  #say(text) {
    setText(byId("message"), text);
    byId("message").hidden = !text;
  }

  // The frame as it is shown, without loss: what of it is sent at this size.
  async snapshot() {
    const { shown } = this.#painter;
    if (!shown || this.#screen.classList.contains("empty")) return;
    const view = this.#view === "result" ? "" : `-${this.#view}`;
    const canvas = this.#view === "split" ? this.#split.joined(this.#canvas) : this.#canvas;
    const picture = await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
    const link = make("a", { href: URL.createObjectURL(picture), download: `${this.#name}${view}-${shown.sequence ?? Date.now()}.png` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    this.#announce(`Saved ${link.download}`);
  }

  #announce(text) {
    setText(byId("picture-said"), text);
  }

  full() {
    const picture = byId("picture");
    if (document.fullscreenElement) document.exitFullscreen();
    else if (picture.requestFullscreen) picture.requestFullscreen().catch(() => this.#filled(true));
    else this.#filled(!picture.classList.contains("full")); // telephones that have it for videos only
  }

  // True if it filled the window without being full screen, and does no more.
  unfill() {
    const filled = byId("picture").classList.contains("full");
    this.#filled(false);
    return filled;
  }

  #filled(full) {
    byId("picture").classList.toggle("full", full);
    byId("full").setAttribute("aria-pressed", full);
  }

  async #loadZoom() {
    const { Zoom } = await load("zoom");
    this.#zoom ??= new Zoom(this.#screen, {
      size: () => this.#size() ?? this.#canvas,
      source: (x) => (this.#view === "split" && this.#split.covers(x) ? byId("other") : null),
      changed: () => this.#resized(),
    });
  }

  // act: in, out, fit, or actual (a pixel of the picture is one of the page).
  async zoom(act) {
    await this.#loadZoom();
    this.#zoom.act(act);
  }

  // The page scrolls over a picture that nobody has touched.
  #wheel(event) {
    const mine = event.ctrlKey || this.#zoom?.scale > 1 || document.activeElement === this.#screen || byId("picture").classList.contains("full");
    if (!mine) return;
    event.preventDefault();
    this.#zoom?.wheel(event);
  }
}
