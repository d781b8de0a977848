// The page asks for state once a second; the pictures come by themselves in <img> elements.
const POLL_MS = 1000;
const BLANK = "data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw==";
const GOOD = new Set(["running", "ended"]);
const WAITING = new Set(["starting", "reconnecting", "stopping", "stopped"]);

const cards = new Map();
let reachable = true;

async function ask(path) {
  const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(5000) });
  if (!answer.ok) throw new Error(`${path} answered ${answer.status}`);
  return answer.json();
}

function number(value, digits = 1) {
  return value === null || value === undefined ? "–" : value.toFixed(digits);
}

function streamUrl(card) {
  // A few steps of width, so that windows of about the same size share one rendition.
  const wanted = card.image.clientWidth * Math.min(window.devicePixelRatio || 1, 2);
  const width = Math.max(320, Math.ceil(wanted / 320) * 320);
  return `/cameras/${encodeURIComponent(card.name)}/stream?width=${width}&_=${Date.now()}`;
}

function play(card) {
  card.image.src = card.paused ? BLANK : streamUrl(card);
}

function makeCard(name) {
  const element = document.getElementById("camera").content.firstElementChild.cloneNode(true);
  const card = { name, element, image: element.querySelector(".live"), paused: false };
  element.querySelector("h2").textContent = name;
  element.setAttribute("aria-label", `Camera ${name}`);
  element.querySelector(".scroll").setAttribute("aria-label", `Latency of ${name}`);
  card.image.alt = `Live picture of ${name}`;
  card.image.addEventListener("error", () => setTimeout(() => play(card), 2000));
  const pause = element.querySelector(".pause");
  pause.addEventListener("click", () => {
    card.paused = !card.paused;
    pause.textContent = card.paused ? "Play" : "Pause";
    pause.setAttribute("aria-pressed", String(card.paused));
    play(card);
  });
  pause.setAttribute("aria-label", `Pause ${name}`);
  document.getElementById("cameras").append(element);
  cards.set(name, card);
  play(card);
  return card;
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text; // unchanged text is not announced again
}

function show(card, camera) {
  const { element } = card;
  const badge = element.querySelector(".badge");
  const level = camera.ready && GOOD.has(camera.state) ? "good" : WAITING.has(camera.state) ? "warn" : "bad";
  badge.className = `badge ${level}`;
  setText(badge, camera.ready || !GOOD.has(camera.state) ? camera.state : `${camera.state}, stale`);
  const reason = element.querySelector(".reason");
  const said = camera.cause || (camera.ready ? "" : camera.reasons.join("; "));
  reason.hidden = !said;
  setText(reason, said);
  setText(element.querySelector("code"), camera.chain.text || "(passes through)");
  const size = camera.source ? `${camera.source.width}×${camera.source.height} ${camera.source.format}` : "–";
  if (camera.result) element.querySelector(".picture").style.aspectRatio = `${camera.result.width} / ${camera.result.height}`;
  const dropped = Object.values(camera.frames.dropped).reduce((sum, count) => sum + count, 0);
  const facts = [
    ["source", size],
    ["frames/s", number(camera.fps)],
    ["frame age", camera.age_ms === null ? "–" : `${number(camera.age_ms, 0)} ms`],
    ["frame", camera.sequence ?? "–"],
    ["dropped", dropped],
    ["viewers", camera.viewers.live],
    ["chain version", camera.chain.version],
    ["reconnects", camera.reconnects],
  ];
  element.querySelector(".facts").replaceChildren(...facts.map(([term, value]) => {
    const row = document.createElement("div");
    const dt = document.createElement("dt");
    const dd = document.createElement("dd");
    dt.textContent = term;
    dd.textContent = value;
    row.append(dt, dd);
    return row;
  }));
}

function showLatency(card, latency) {
  const rows = Object.entries(latency.stages).filter(([, stage]) => stage.count > 0).map(([name, stage]) => {
    const row = document.createElement("tr");
    const head = document.createElement("th");
    head.scope = "row";
    head.textContent = name;
    row.append(head, ...["p50_ms", "p99_ms", "max_ms"].map((key) => {
      const cell = document.createElement("td");
      cell.textContent = number(stage[key], 2);
      return cell;
    }));
    return row;
  });
  card.element.querySelector("tbody").replaceChildren(...rows);
}

async function poll() {
  const trouble = document.getElementById("trouble");
  try {
    const { cameras } = await ask("/api/v1/cameras");
    const back = !reachable;
    reachable = true;
    trouble.hidden = true;
    for (const [name, card] of cards) {
      if (!cameras.some((camera) => camera.name === name)) {
        card.element.remove();
        cards.delete(name);
      }
    }
    await Promise.all(cameras.map(async (camera) => {
      const card = cards.get(camera.name) ?? makeCard(camera.name);
      if (back) play(card);
      show(card, camera);
      showLatency(card, await ask(`/api/v1/cameras/${encodeURIComponent(camera.name)}/latency`));
    }));
  } catch (error) {
    reachable = false;
    setText(trouble, `The service does not answer (${error.message}). Trying again.`);
    trouble.hidden = false;
  }
  setTimeout(poll, document.hidden ? 5 * POLL_MS : POLL_MS);
}

async function machine() {
  const state = await ask("/api/v1/state");
  setText(document.getElementById("machine"),
    `${state.version} · ${state.device.name} · memory: ${state.device.reason}`);
}

machine().catch(() => {}).finally(poll);
