// Where the time of the chosen camera's frames goes: a chart of the last minute and numbers of the last seconds.
import { cameraPath, read } from "./api.js";
import { StackedChart } from "./chart.js";
import { byId, make, setText } from "./dom.js";
import { Recent } from "./quantiles.js";

const STACKED = ["capture", "queue", "process", "encode", "deliver"];
const MEANINGS = {
  capture: "taken → in the ring",
  queue: "→ picked up",
  process: "→ result ready",
  gpu: "within process, by the GPU’s clock",
  encode: "one JPEG for all who look",
  deliver: "→ with each viewer’s socket",
  total: "capture, queue and process together",
};

const milliseconds = (value) => (value === null ? "–" : value < 10 ? value.toFixed(2) : value.toFixed(1));

export class Latency {
  #chart = new StackedChart(byId("chart"), STACKED);
  #camera = null;
  #recent = new Recent();
  #rows = new Map();

  constructor() {
    for (const radio of document.querySelectorAll("input[name=quantile]")) {
      radio.addEventListener("change", () => this.#chart.show(radio.value));
    }
  }

  async update(camera) {
    if (camera !== this.#camera) {
      this.#camera = camera;
      this.#recent = new Recent();
      this.#chart.clear();
    }
    const { stages } = await read(`${cameraPath(camera)}/latency?buckets=true`);
    if (camera !== this.#camera) return; // another one was chosen meanwhile
    const at = performance.now();
    this.#recent.add(stages, at);
    this.#chart.add(at, Object.fromEntries(STACKED.map((stage) => [stage, this.#recent.since(stage, 0)])));
    for (const [stage, { count }] of Object.entries(stages)) this.#show(stage, count);
  }

  #show(stage, count) {
    const row = this.#rows.get(stage) ?? this.#add(stage);
    row.element.hidden = stage === "gpu" && count === 0;
    const { p50, p99, max } = this.#recent.since(stage);
    [p50, p99, max].forEach((value, i) => setText(row.cells[i], milliseconds(value)));
  }

  #add(stage) {
    const swatch = make("span", { className: `swatch ${stage}`, "aria-hidden": "true" });
    const head = make("th", { scope: "row" }, swatch, `${stage} `, make("span", { className: "meaning quiet" }, MEANINGS[stage] ?? ""));
    const cells = [0, 1, 2].map(() => make("td"));
    const element = make("tr", { className: stage }, head, ...cells);
    byId("stages").append(element);
    const row = { element, cells };
    this.#rows.set(stage, row);
    return row;
  }
}
