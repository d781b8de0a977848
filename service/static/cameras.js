// The list of cameras: links, so that a click, Enter and the address all choose one.
import { byId, make, setBadge, setText } from "./dom.js";
import { MEANINGS } from "./meanings.js";

export const SHOWS = new Set(["running", "ended"]); // pictures
const WAITS = new Set(["starting", "reconnecting", "stopping", "stopped"]);

export const UNKNOWN = "no answer";

// The name after # in the address; names are letters, digits, _ and - only.
export const chosen = () => location.hash.slice(1);

export function stateOf(camera) {
  if (!SHOWS.has(camera.state)) return { level: WAITS.has(camera.state) ? "warn" : "bad", text: camera.state };
  return camera.ready ? { level: "good", text: camera.state } : { level: "bad", text: `${camera.state}, stale` };
}

export const whole = (value) => Math.round(value).toLocaleString("en").replaceAll(",", "\u202f");

export const ageText = (ms) => (ms === null ? "no frame yet" : ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`);

export const dropped = (camera) => Object.values(camera.frames.dropped).reduce((sum, count) => sum + count, 0);

// Scrolls the list, and not the page as the browser would.
function reveal(link) {
  const list = byId("cameras");
  const top = link.offsetTop - list.offsetTop;
  if (top < list.scrollTop || top + link.offsetHeight > list.scrollTop + list.clientHeight) list.scrollTop = top;
}

export class CameraList {
  #cards = new Map();

  show(cameras, current) {
    for (const [name, card] of this.#cards) {
      if (!cameras.some((camera) => camera.name === name)) {
        card.link.remove();
        this.#cards.delete(name);
      }
    }
    for (const camera of cameras) {
      const card = this.#cards.get(camera.name) ?? this.#add(camera.name);
      const { level, text } = stateOf(camera);
      setBadge(card.badge, level, text);
      setText(card.fps, camera.fps === null ? "– fps" : `${camera.fps.toFixed(1)} fps`);
      setText(card.age, camera.age_ms === null ? "no frame yet" : `${ageText(camera.age_ms)} old`);
      setText(card.drops, dropped(camera) === 1 ? "1 drop" : `${whole(dropped(camera))} drops`);
      if (camera.name !== current) card.link.removeAttribute("aria-current");
      else if (!card.link.hasAttribute("aria-current")) {
        card.link.setAttribute("aria-current", "true");
        reveal(card.link);
      }
    }
  }

  // The service does not answer: nothing that it said of them still holds.
  unreachable() {
    for (const { badge, fps } of this.#cards.values()) {
      setBadge(badge, "bad", UNKNOWN);
      setText(fps, "– fps");
    }
  }

  #add(name) {
    const [badge, fps, age, drops] = ["badge", "fps", "age", "drops"].map(
      (name) => make("span", name === "badge" ? { className: name } : { title: MEANINGS[name] }));
    const link = make("a", { href: `#${name}`, className: "camera" },
      make("span", { className: "first" }, make("strong", {}, name), badge),
      make("span", { className: "numbers quiet" }, fps, age, drops));
    byId("cameras").append(link);
    const card = { link, badge, fps, age, drops };
    this.#cards.set(name, card);
    return card;
  }
}
