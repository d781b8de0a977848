// The page asks how things are once a second and shows it; pictures come by themselves.
import { read } from "./api.js";
import { CameraList, UNKNOWN, chosen, stateOf } from "./cameras.js";
import { ChainEditor } from "./chain.js";
import { ConfigurationText } from "./configuration.js";
import { byId, load, setBadge, setText } from "./dom.js";
import { Facts } from "./facts.js";
import { Keys } from "./keys.js";
import { Latency } from "./latency.js";
import { LivePicture } from "./picture.js";

const POLL_MS = 1000;
const HIDDEN_POLL_MS = 10000;

const list = new CameraList();
const picture = new LivePicture();
const latency = new Latency();
const facts = new Facts();
const configuration = new ConfigurationText();
let chain = null; // needs the catalogue of operations first
let cameras = [];
let state = null;
let grid = null; // loaded when it is first wanted
let last = ""; // the camera to come back to
let shown = null; // all cameras, or one
let reachable = true;
let timer = 0;

const GRID = "/grid"; // no camera's name has a slash

// True if all cameras are shown, and not one.
async function turn() {
  const wanted = () => chosen() === GRID && cameras.length > 0;
  if (wanted()) grid ??= new (await load("grid")).Grid();
  const all = wanted();
  byId("grid").hidden = !all;
  byId("cameras").hidden = all;
  byId("turn").hidden = cameras.length < 2 && !all;
  byId("turn").href = all ? `#${last}` : `#${GRID}`;
  setText(byId("turn"), all ? "One camera" : "All cameras");
  const inside = document.activeElement.closest("#grid, #cameras, main"); // and soon hidden, if the other is shown
  const turned = shown !== null && shown !== all;
  shown = all;
  if (all) {
    byId("main").hidden = true;
    document.title = "All cameras · Pinhole";
    picture.leave();
    grid.show(cameras);
    if (turned && inside) grid.focus(last);
  } else {
    grid?.leave();
    byId("main").hidden = cameras.length === 0;
    if (turned && inside) byId("picture").focus({ preventScroll: true });
  }
  return all;
}

function show() {
  const current = cameras.find((camera) => camera.name === chosen()) ?? cameras[0];
  list.show(cameras, current?.name);
  byId("main").hidden = !current;
  if (!current) {
    setText(byId("trouble"), "There is no camera.");
    byId("trouble").hidden = false;
    return null;
  }
  last = current.name;
  document.title = `${current.name} · Pinhole`;
  setText(byId("name"), current.name);
  const { level, text } = stateOf(current);
  setBadge(byId("state"), level, text);
  picture.show(current, state);
  chain.show(current.name, current.chain);
  facts.show(current, state);
  return current;
}

async function poll() {
  clearTimeout(timer);
  try {
    chain ??= new ChainEditor((await read("/api/v1/ops")).ops);
    [state, { cameras }] = await Promise.all([read("/api/v1/state"), read("/api/v1/cameras")]);
    setText(byId("machine"), `${state.version} · ${state.device.name} · memory ${state.device.memory}`);
    byId("trouble").hidden = true;
    const back = !reachable;
    reachable = true;
    const current = (await turn()) ? null : show();
    if (back) {
      picture.restart();
      grid?.restart();
    }
    if (current) await Promise.all([latency.update(current.name), configuration.update(cameras)]);
  } catch (error) {
    failed(error);
  }
  clearTimeout(timer);
  timer = setTimeout(poll, document.hidden ? HIDDEN_POLL_MS : POLL_MS);
}

function failed(error) {
  if (error.status === 401) {
    setText(byId("trouble"), "The token is needed: open this page once as /?token=TOKEN.");
  } else if (error.status === 404) {
    return; // a camera that was just removed; the next answer tells
  } else {
    reachable = false;
    picture.unreachable();
    grid?.unreachable();
    list.unreachable();
    setBadge(byId("state"), "bad", UNKNOWN);
    setText(byId("trouble"), error.status ? `The service refuses: ${error.message}` : "The service does not answer. Trying again.");
  }
  byId("trouble").hidden = false;
  if (!error.status) console.warn(error);
}

// Not by its address: the part behind # names the camera.
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  byId("picture").focus();
});
addEventListener("hashchange", () => {
  if (chosen() === GRID || cameras.some((camera) => camera.name === chosen())) poll();
});
document.addEventListener("visibilitychange", () => { if (!document.hidden) poll(); });

const all = () => !byId("grid").hidden;
const one = (act) => () => { if (!all()) act(); };
const view = (value) => one(() => document.querySelector(`input[name=view][value=${value}]`).click());

function next({ shiftKey }) {
  const at = cameras.findIndex((camera) => camera.name === last);
  if (at >= 0) location.hash = cameras[(at + (shiftKey ? -1 : 1) + cameras.length) % cameras.length].name;
}

new Keys([
  { key: "f", says: "full screen", act: () => (all() ? grid : picture).full() },
  { key: "p", says: "freeze, or go on; also the space bar in the picture", act: one(() => picture.freeze()) },
  { key: "s", says: "save the frame as shown", act: one(() => picture.snapshot()) },
  { key: "r", says: "the result", act: view("result") },
  { key: "o", says: "the source", act: view("source") },
  { key: "b", says: "both, with a divider", act: view("split") },
  { key: "+", also: "=", says: "zoom in", act: one(() => picture.zoom("in")) },
  { key: "-", says: "zoom out", act: one(() => picture.zoom("out")) },
  { key: "0", says: "fit the picture in", act: one(() => picture.zoom("fit")) },
  { key: "1", says: "a pixel for a pixel", act: one(() => picture.zoom("actual")) },
  { key: "n", says: "next camera; with Shift, the one before", act: next },
  { key: "g", says: "all cameras, or one", act: () => { if (!byId("turn").hidden) byId("turn").click(); } },
], () => {
  picture.unfill();
  grid?.unfill();
});
poll();
