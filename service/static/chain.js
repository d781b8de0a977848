// The chain of one camera as controls: parameters act at once, operations are added, removed and moved.
import { cameraPath } from "./api.js";
import { byId, make, setText } from "./dom.js";
import { makeField } from "./field.js";
import { ChainSender } from "./sender.js";

const same = (ops, others) => ops.length === others.length && ops.every((step, i) => step.op === others[i].op);

const equal = (value, other) => JSON.stringify(value) === JSON.stringify(other); // lists come anew with each answer

export class ChainEditor {
  #ops; // by name: {name, summary, schema}
  #camera = null;
  #sender = null;
  #shown = []; // the ops that have controls now
  #fields = []; // for each of them, its fields by parameter

  constructor(ops) {
    this.#ops = new Map(ops.map((op) => [op.name, op]));
    const select = byId("op");
    select.replaceChildren(...ops.map((op) => make("option", { value: op.name }, op.name)));
    const describe = () => setText(byId("op-summary"), this.#ops.get(select.value)?.summary ?? "");
    select.addEventListener("change", describe);
    describe();
    byId("adding").addEventListener("submit", (event) => {
      event.preventDefault();
      const name = select.value;
      this.#edit((list) => [...list, { op: name }], `${name} added as the last operation`);
    });
  }

  // The chain as the service has it, also when somebody else changed it.
  show(camera, chain) {
    if (camera !== this.#camera) {
      this.#camera = camera;
      this.#say("");
      const sender = new ChainSender(camera, chain, (job) => {
        if (sender === this.#sender) this.#told(job);
      }, (job, error) => {
        if (sender === this.#sender) this.#refused(job, error);
      });
      this.#sender = sender;
      this.#build();
    } else if (this.#sender.idle && chain.version !== this.#sender.chain.version) {
      this.#sender.chain = chain;
      this.#update();
    }
  }

  #told(job) {
    if (job.said) this.#say(job.said);
    if (this.#sender.idle) this.#update(job.focus);
    this.#showVersion();
  }

  #refused(job, error) {
    if (job.edit) {
      this.#say(error.message, true);
      return;
    }
    for (const name of Object.keys(job.params)) {
      if (this.#sender.waiting(job.index, name)) continue; // the user is elsewhere by now
      const field = this.#fields[job.index]?.[name];
      const wrong = error.errors?.find((entry) => entry.field.endsWith(`.${name}`)) ?? error.errors?.[0];
      const why = wrong ? `${wrong.reason}${wrong.allowed ? ` (allowed: ${wrong.allowed})` : ""}` : error.message;
      field?.refuse(why, this.#sender.chain.ops[job.index]?.params[name]);
    }
  }

  #edit(edit, said, focus) {
    this.#say("");
    this.#sender.edit(edit, { said, focus });
  }

  #say(text, wrong = false) {
    byId("chain-said").classList.toggle("error", wrong);
    setText(byId("chain-said"), text);
  }

  #showVersion() {
    setText(byId("version"), `version ${this.#sender.chain.version}`);
  }

  // New values into the controls there are; new controls only where the operations are others.
  #update(focus) {
    const { ops } = this.#sender.chain;
    if (!same(ops, this.#shown)) {
      this.#build(focus);
      return;
    }
    this.#showVersion();
    ops.forEach((step, index) => {
      for (const [name, field] of Object.entries(this.#fields[index])) {
        if (!equal(step.params[name], this.#shown[index].params[name])) field.set(step.params[name]);
      }
    });
    this.#shown = ops;
  }

  #build(focus) {
    const { ops } = this.#sender.chain;
    this.#shown = ops;
    this.#fields = ops.map(() => ({}));
    byId("steps").replaceChildren(...ops.map((step, index) => this.#step(step, index, ops.length)));
    byId("no-steps").hidden = ops.length > 0;
    this.#showVersion();
    if (focus) this.#focus(...focus);
  }

  #step(step, index, count) {
    const { summary = "", schema = {} } = this.#ops.get(step.op) ?? {};
    for (const [name, property] of Object.entries(schema.properties ?? {})) {
      const field = makeField(name, property, schema.$defs, (value) => this.#sender.setParameter(index, name, value));
      field.set(step.params[name]);
      this.#fields[index][name] = field;
    }
    const swap = (to) => (list) => {
      [list[index], list[to]] = [list[to], list[index]];
      return list;
    };
    const place = (to) => `${step.op} is now chain/${to} of ${count}`;
    const buttons = [
      this.#button("up", "↑", `Move ${step.op} up`, index === 0, swap(index - 1), place(index - 1), index - 1),
      this.#button("down", "↓", `Move ${step.op} down`, index === count - 1, swap(index + 1), place(index + 1), index + 1),
      this.#button("remove", "✕", `Remove ${step.op}`, false, (list) => list.filter((_, i) => i !== index), `${step.op} removed`, index),
    ];
    return make("li", {},
      make("fieldset", {},
        make("legend", {}, step.op, make("span", { className: "path quiet", title: `Over HTTP: PATCH ${cameraPath(this.#camera)}/chain/${index}` }, `chain/${index}`)),
        make("div", { className: "tools" }, make("span", { className: "quiet" }, summary), ...buttons),
        ...Object.values(this.#fields[index]).map((field) => field.element)));
  }

  #button(kind, sign, label, disabled, edit, said, focusIndex) {
    const button = make("button", { type: "button", className: `tool ${kind}`, disabled, title: label, "aria-label": label }, sign);
    button.addEventListener("click", () => this.#edit(edit, said, [focusIndex, kind]));
    return button;
  }

  // The same button of the operation where it is now, or the nearest thing to it that can be used.
  #focus(index, kind) {
    const steps = [...byId("steps").children];
    const step = steps[Math.min(index, steps.length - 1)];
    const button = step?.querySelector(`button.${kind}:enabled`) ?? step?.querySelector("button.tool:enabled");
    (button ?? byId("op")).focus({ preventScroll: true });
  }
}
