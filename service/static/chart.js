// Stacked areas over the last minute, one for each stage: the height is what the stages take together.

const SECONDS = 60;
const HEIGHT_REM = 13;

const rootEm = () => parseFloat(getComputedStyle(document.documentElement).fontSize);

export class StackedChart {
  #element;
  #names;
  #points = []; // the newest last; {at: milliseconds, stages: {name: {p50, p99}}}
  #quantile = "p50";
  #plot = null;
  #rem = 0; // px, of the plot as it was made

  constructor(element, names) {
    this.#element = element;
    this.#names = names;
    new ResizeObserver(() => this.#resized()).observe(element);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#draw(true));
  }

  #resized() {
    if (this.#plot && this.#rem !== rootEm()) this.#draw(true);
    else this.#plot?.setSize(this.#size());
  }

  clear() {
    this.#points = [];
    this.#draw();
  }

  add(at, stages) {
    this.#points.push({ at, stages });
    while (this.#points.length > 2 && at - this.#points[1].at >= SECONDS * 1000) this.#points.shift();
    this.#draw();
  }

  show(quantile) {
    this.#quantile = quantile;
    this.#draw();
  }

  // Columns of uPlot: seconds before the newest, then each stage on top of those before it.
  #columns() {
    const sums = this.#points.map(() => 0);
    const times = this.#points.map(({ at }) => (at - this.#points.at(-1).at) / 1000);
    const stacked = this.#names.map((name) => this.#points.map(
      ({ stages }, i) => (sums[i] += stages[name]?.[this.#quantile] ?? 0)));
    return [times, ...stacked];
  }

  #size() {
    return { width: this.#element.clientWidth, height: Math.round(HEIGHT_REM * rootEm()) };
  }

  #draw(anew = false) {
    if (anew) {
      this.#plot?.destroy();
      this.#plot = null;
    }
    if (this.#plot) this.#plot.setData(this.#columns());
    else if (this.#element.clientWidth > 0) this.#plot = new uPlot(this.#options(), this.#columns(), this.#element);
  }

  #options() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const rem = rootEm();
    this.#rem = rem;
    const axis = {
      stroke: colour("quiet"), font: `${Math.round(0.8 * rem)}px system-ui, sans-serif`,
      grid: { stroke: colour("line"), width: 1 }, ticks: { show: false },
    };
    // Drawn from the tallest sum down, so that each smaller one covers the lower part of the larger.
    return {
      ...this.#size(),
      legend: { show: false },
      cursor: { show: false },
      scales: { x: { time: false, range: [-SECONDS, 0] }, y: { range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
      axes: [
        { ...axis, size: 2 * rem, gap: 0.5 * rem, values: (_, ticks) => ticks.map((s) => (s === 0 ? "now" : `${s} s`)) },
        { ...axis, size: 3.8 * rem, values: (_, ticks) => ticks.map((ms) => (ms < 1000 ? `${+ms.toFixed(2)} ms` : `${ms / 1000} s`)) },
      ],
      series: [{}, ...this.#names.map((name) => ({
        stroke: colour(`stage-${name}`), fill: colour(`stage-${name}`), width: 1, points: { show: false },
      }))],
      bands: this.#names.slice(1).map((_, i) => ({ series: [i + 2, i + 1] })),
    };
  }
}
