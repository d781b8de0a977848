// Pictures on their way to a canvas. The newest one wins at every step, and what is not drawn is freed at once.
// A frame: {bytes or image, sequence, ageMs, at, wallS, placeholder}; at is when its age held, by performance.now().

// Bytes become bitmaps one at a time; what comes meanwhile replaces what waits.
export class Decoder {
  #show;
  #signal;
  #waiting = null;
  #busy = false;

  // show(frame) owns frame.image from then on.
  constructor(show, signal) {
    this.#show = show;
    this.#signal = signal;
  }

  put(frame) {
    if (frame.image) {
      this.#show(frame);
      return;
    }
    this.#waiting = frame;
    if (!this.#busy) this.#run();
  }

  async #run() {
    this.#busy = true;
    while (this.#waiting && !this.#signal.aborted) {
      const { bytes, ...rest } = this.#waiting;
      this.#waiting = null;
      const image = await createImageBitmap(new Blob([bytes], { type: "image/jpeg" })).catch(() => null);
      if (!image) continue; // a broken picture is no picture
      if (this.#signal.aborted) image.close();
      else this.#show({ ...rest, image });
    }
    this.#busy = false;
  }
}

export const free = (frame) => frame?.image.close?.(); // a video has nothing to close

export class Painter {
  shown = null; // the frame on the canvas, without its image
  #canvas;
  #drawn;
  #next = null;
  #turn = 0;

  constructor(canvas, drawn = () => {}) {
    this.#canvas = canvas;
    this.#drawn = drawn;
  }

  put(frame) {
    free(this.#next);
    this.#next = frame;
    if (!frame.image.close) this.#paint(); // a video, which shows another frame by the next turn
    else this.#turn ||= requestAnimationFrame(() => this.#paint());
  }

  #paint() {
    this.#turn = 0;
    const { image, ...rest } = this.#next;
    const width = image.videoWidth ?? image.width;
    const height = image.videoHeight ?? image.height;
    if (this.#canvas.width !== width || this.#canvas.height !== height) Object.assign(this.#canvas, { width, height });
    this.#canvas.getContext("2d", { alpha: false }).drawImage(image, 0, 0);
    free(this.#next);
    this.#next = null;
    this.shown = { ...rest, width, height };
    this.#drawn();
  }

  // What waits is not drawn; what is shown stays.
  hold() {
    cancelAnimationFrame(this.#turn);
    this.#turn = 0;
    free(this.#next);
    this.#next = null;
  }

  clear() {
    this.hold();
    this.shown = null;
    this.#canvas.width = this.#canvas.height = 0;
  }

  // Milliseconds since the picture on the canvas was taken; null where there is none or nobody knows.
  get ageMs() {
    return this.shown?.ageMs == null ? null : this.shown.ageMs + performance.now() - this.shown.at;
  }
}

const WIDTHS_PX = [160, 320, 480, 640, 960, 1280, 1920, 2560, 3840];

// The width to ask for: the smallest of the service's fixed ones that has a pixel for each of the screen's; null is all there are.
export function widthFor(shownPx, fullPx) {
  const wanted = WIDTHS_PX.find((width) => width >= shownPx * (devicePixelRatio || 1));
  return wanted && !(wanted >= fullPx) ? wanted : null;
}

// How large a picture is where it has to fit as a whole, in the screen's units.
export const fit = (width, height, into) => Math.min(into.clientWidth / width, into.clientHeight / height);
