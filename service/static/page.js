// The page asks how things are once a second and shows it; pictures come by themselves.
import { read } from "./api.js";
import { CameraList, UNKNOWN, chosen, stateOf } from "./cameras.js";
import { ChainEditor } from "./chain.js";
import { ConfigurationText } from "./configuration.js";
import { byId, setBadge, setText } from "./dom.js";
import { Facts } from "./facts.js";
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
let reachable = true;
let timer = 0;

function show() {
  const current = cameras.find((camera) => camera.name === chosen()) ?? cameras[0];
  list.show(cameras, current?.name);
  byId("main").hidden = !current;
  if (!current) {
    setText(byId("trouble"), "There is no camera.");
    byId("trouble").hidden = false;
    return null;
  }
  document.title = `${current.name} · Pinhole`;
  setText(byId("name"), current.name);
  const { level, text } = stateOf(current);
  setBadge(byId("state"), level, text);
  picture.show(current);
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
    const current = show();
    if (back) picture.restart();
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
  if (cameras.some((camera) => camera.name === chosen())) poll();
});
document.addEventListener("visibilitychange", () => { if (!document.hidden) poll(); });
poll();
