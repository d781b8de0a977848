// Sends changes of one camera's chain, one at a time and in order, so that answers cannot overtake each other.
// While one is on its way, newer values of a parameter replace those that wait: the last one is always sent.
import { cameraPath, change } from "./api.js";

const SPACING_MS = 25; // at most 40 changes a second, however fast a slider moves

export class ChainSender {
  #path;
  #queue = [];
  #pumping = false;
  #asking = false;

  // chain is the last confirmed one: {version, ops}; told(job) after each answer, refused(job, error) after an error.
  constructor(camera, chain, told, refused) {
    this.#path = `${cameraPath(camera)}/chain`;
    this.chain = chain;
    this.told = told;
    this.refused = refused;
  }

  get idle() {
    return !this.#asking && this.#queue.length === 0;
  }

  // True if a newer value of that parameter waits to be sent.
  waiting(index, name) {
    return this.#queue.some((job) => job.index === index && name in job.params);
  }

  setParameter(index, name, value) {
    const last = this.#queue.at(-1);
    if (last && last.index === index) last.params[name] = value;
    else this.#queue.push({ index, params: { [name]: value } });
    this.#pump();
  }

  // edit(ops) gives the new list; it sees what the changes before it made. notes come back with the job.
  edit(edit, notes = {}) {
    this.#queue.push({ index: null, params: {}, edit, ...notes });
    this.#pump();
  }

  async #pump() {
    if (this.#pumping) return;
    this.#pumping = true;
    while (this.#queue.length > 0) {
      const job = this.#queue.shift();
      this.#asking = true;
      let failure = null;
      try {
        this.chain = job.edit
          ? await change("PUT", this.#path, { ops: job.edit(structuredClone(this.chain.ops)) })
          : await change("PATCH", `${this.#path}/${job.index}`, { params: job.params });
      } catch (error) {
        failure = error;
      }
      this.#asking = false;
      if (failure) this.refused(job, failure);
      else this.told(job);
      await new Promise((resolve) => setTimeout(resolve, SPACING_MS));
    }
    this.#pumping = false;
  }
}
