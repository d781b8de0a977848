// Single keys, all of them listed in one place: what acts and what the help says is the same.
import { byId, make, recall, remember } from "./dom.js";

const OFF = "keys";

export class Keys {
  #bindings;
  #escape;

  // bindings: [{key, says, act}]; escape() is tried for Escape.
  constructor(bindings, escape) {
    this.#bindings = [...bindings, { key: "?", says: "this list", act: () => this.#help() }];
    this.#escape = escape;
    const everywhere = byId("keys-on");
    everywhere.checked = recall(OFF) !== "off";
    everywhere.addEventListener("change", () => remember(OFF, everywhere.checked ? "" : "off"));
    byId("help").addEventListener("click", () => this.#help());
    document.addEventListener("keydown", (event) => this.#pressed(event));
  }

  #pressed(event) {
    if (event.ctrlKey || event.altKey || event.metaKey || event.defaultPrevented || byId("keys").open) return;
    if (event.target.closest("textarea, select, input:not([type=radio], [type=checkbox])")) return;
    if (event.key === "Escape") this.#escape();
    const key = event.key === " " && event.target.id === "screen" ? "p" : event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const binding = this.#bindings.find((one) => one.key === key || one.also === key);
    if (!binding || (!byId("keys-on").checked && !event.target.closest("#picture, #grid"))) return;
    event.preventDefault();
    binding.act(event);
  }

  #help() {
    const list = byId("key-list");
    if (!list.children.length) {
      list.append(...this.#bindings.map(({ key, says }) => make("div", {}, make("dt", {}, make("kbd", {}, key.toUpperCase())), make("dd", {}, says))));
    }
    byId("keys").showModal();
  }
}
