// The configuration file that makes the cameras as they are now, to copy.
import { readText } from "./api.js";
import { byId, setText } from "./dom.js";

const SAID_MS = 3000;

export class ConfigurationText {
  #versions = "";

  constructor() {
    byId("copy").addEventListener("click", async () => {
      const copied = await copy(byId("yaml"));
      setText(byId("copied"), copied ? "copied" : "selected: copy it with Ctrl+C");
      setTimeout(() => setText(byId("copied"), ""), SAID_MS);
    });
  }

  // Asks again only when a camera came or went or a chain changed.
  async update(cameras) {
    const versions = cameras.map((camera) => `${camera.name} ${camera.uri} ${camera.chain.version}`).join("\n");
    if (versions === this.#versions) return;
    const text = await readText("/api/v1/configuration");
    this.#versions = versions;
    if (byId("yaml").value !== text) byId("yaml").value = text;
  }
}

async function copy(area) {
  try {
    await navigator.clipboard.writeText(area.value); // there on localhost and over HTTPS only
    return true;
  } catch {
    area.focus();
    area.select();
    return document.execCommand("copy");
  }
}
