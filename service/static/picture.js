// The live picture: Motion JPEG in an <img>, stopped while paused or out of sight, and honest about having none.
import { problemOf } from "./api.js";
import { byId, setBadge, setText } from "./dom.js";
import { SHOWS, ageText } from "./cameras.js";

const RETRY_MS = 2000;
const STEP_PX = 320; // windows of about the same size share one rendition
const OLD_MS = 1000;

export class LivePicture {
  #image = byId("live");
  #frozen = byId("frozen");
  #camera = null;
  #view = "result";
  #width = 0;
  #paused = false;
  #retry = 0;
  #settling = 0;
  #trouble = ""; // why the stream itself does not come
  #age = null; // {ms, at}: what the service said and when

  constructor() {
    this.#image.addEventListener("error", () => this.#failed());
    this.#image.addEventListener("load", () => this.#image.classList.remove("broken"));
    document.addEventListener("visibilitychange", () => this.#update());
    new ResizeObserver(() => this.#resized()).observe(byId("screen"));
    for (const radio of document.querySelectorAll("input[name=view]")) {
      radio.addEventListener("change", () => {
        this.#view = radio.value;
        this.#change();
      });
    }
    byId("pause").addEventListener("click", () => this.#pause(!this.#paused));
  }

  // What the service says of the chosen camera now.
  show(camera) {
    if (camera.name !== this.#camera) {
      this.#camera = camera.name;
      this.#image.alt = `Live picture of ${camera.name}`;
      this.#trouble = "";
      this.#image.removeAttribute("src");
      this.#frozen.width = 0; // another camera's picture
      this.#change();
    }
    if (this.#image.naturalWidth > 0) {
      this.#trouble = "";
      this.#image.classList.remove("broken");
    }
    const size = (this.#view === "source" ? camera.source : camera.result) ?? camera.source;
    if (size) byId("screen").style.aspectRatio = `${size.width} / ${size.height}`;
    this.#age = camera.age_ms === null ? null : { ms: camera.age_ms, at: performance.now() };
    const tooOld = Math.max(OLD_MS, 3000 / (camera.source?.nominal_fps || 30));
    const ended = camera.state === "ended";
    this.#showAge(tooOld, ended);
    // Its stream has a placeholder then, for those who see nothing else: here the message says the same, once.
    byId("screen").classList.toggle("empty", camera.age_ms === null || !SHOWS.has(camera.state));
    const reasons = camera.cause || (camera.ready ? "" : camera.reasons.join("; "));
    this.#say(this.#trouble || (reasons && `${camera.state}: ${reasons}`) || (ended ? "The source has ended; this is its last frame." : ""));
  }

  // The service does not answer: the picture only gets older.
  unreachable() {
    this.#showAge(OLD_MS, false);
    this.#say("The service does not answer; this picture is not live.");
  }

  // It answers again: a stream that broke meanwhile does not come back by itself.
  restart() {
    this.#play();
  }

  #showAge(tooOld, ended) {
    // What the service has is as old as it says, but it is not what is seen here.
    if (this.#trouble || this.#paused) {
      setBadge(byId("age"), this.#paused ? "warn" : "bad", this.#paused ? "paused" : "not shown");
      return;
    }
    if (this.#age === null) {
      setBadge(byId("age"), "bad", "no frame yet");
      return;
    }
    const ms = this.#age.ms + performance.now() - this.#age.at;
    setBadge(byId("age"), ended ? "warn" : ms > tooOld ? "bad" : "good", `${ageText(ms)} old`);
  }

  #say(text) {
    const shown = this.#paused ? "Paused" : text;
    setText(byId("message"), shown);
    byId("message").hidden = !shown;
  }

  // Another camera or view: shown live, also where the one before was paused.
  #change() {
    if (this.#paused) this.#pause(false);
    else this.#play();
  }

  #pause(paused) {
    if (paused === this.#paused) return;
    this.#paused = paused;
    setText(byId("pause"), paused ? "Play" : "Pause");
    this.#update();
  }

  #update() {
    if (this.#paused || document.hidden) this.#stop();
    else this.#play();
    if (this.#paused) setBadge(byId("age"), "warn", "paused");
    if (this.#paused) this.#say("");
    else byId("message").hidden = true;
  }

  #wantedWidth() {
    const pixels = byId("screen").clientWidth * Math.min(devicePixelRatio || 1, 2);
    return Math.max(STEP_PX, Math.ceil(pixels / STEP_PX) * STEP_PX);
  }

  #play() {
    clearTimeout(this.#retry);
    if (this.#camera === null || this.#paused || document.hidden) return;
    this.#freeze(); // until the first picture of the new stream
    this.#width = this.#wantedWidth();
    this.#image.src = `${this.#path()}?view=${this.#view}&width=${this.#width}&_=${Date.now()}`;
  }

  // Without an address the browser ends the stream.
  #stop() {
    clearTimeout(this.#retry);
    this.#freeze();
    this.#image.removeAttribute("src");
  }

  // The last picture stays on a canvas behind.
  #freeze() {
    const { naturalWidth: width, naturalHeight: height } = this.#image;
    if (this.#image.hasAttribute("src") && width) {
      Object.assign(this.#frozen, { width, height });
      this.#frozen.getContext("2d").drawImage(this.#image, 0, 0);
    }
  }

  #path() {
    return `/cameras/${encodeURIComponent(this.#camera)}/stream`;
  }

  #resized() {
    clearTimeout(this.#settling);
    this.#settling = setTimeout(() => { if (this.#wantedWidth() !== this.#width) this.#play(); }, 500);
  }

  async #failed() {
    if (!this.#image.hasAttribute("src")) return;
    this.#image.classList.add("broken"); // the browser's own sign for it says nothing
    const camera = this.#camera;
    clearTimeout(this.#retry);
    this.#retry = setTimeout(() => this.#play(), RETRY_MS);
    const asking = new AbortController();
    const answer = await fetch(this.#path(), { signal: asking.signal }).catch(() => null);
    const trouble = answer && !answer.ok ? (await problemOf(answer)).message : "";
    asking.abort(); // if it is a stream after all, it is not wanted here
    if (camera === this.#camera) {
      this.#trouble = trouble;
      if (trouble) setBadge(byId("age"), "bad", "not shown");
      this.#say(trouble || "The picture does not come; trying again.");
    }
  }
}
