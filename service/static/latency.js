// Where the time of the chosen camera's frames goes: a chart of the last minute and numbers of the last seconds.
import { cameraPath, read } from "./api.js";
import { StackedChart } from "./chart.js";
import { byId, make, setText } from "./dom.js";
import { MEANINGS, STAGES } from "./meanings.js";
import { Recent } from "./quantiles.js";

const STACKED = ["capture", "queue", "process", "encode", "deliver"];
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
      byId("trace").href = `${cameraPath(camera)}/trace`;
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
    const head = make("th", { scope: "row" }, swatch, `${stage} `, make("span", { className: "meaning quiet" }, STAGES[stage] ?? ""));
    const cells = ["p50", "p99", "max"].map((name) => make("td", { title: `${stage}: ${MEANINGS[name]}` }));
    const element = make("tr", { className: stage }, head, ...cells);
    byId("stages").append(element);
    const row = { element, cells };
    this.#rows.set(stage, row);
    return row;
  }
}
