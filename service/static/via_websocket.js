// Pictures over a WebSocket: of each message a header's length (4 bytes, little endian), the header as JSON, a JPEG.
import { Broken, Gate, failed, found, query, watch } from "./stream.js";

const OPEN_MS = 3000;
const SILENT_MS = 5000; // the service repeats its last picture each second
// Chromium makes who has 16 on their way wait for seconds, and one after the other is not much slower.
const opening = new Gate(4);
const text = new TextDecoder();

export function read(data) {
  const length = new DataView(data).getUint32(0, true);
  const header = JSON.parse(text.decode(new Uint8Array(data, 4, length)));
  return {
    bytes: new Uint8Array(data, 4 + length), sequence: header.sequence ?? null, ageMs: header.age_ms ?? null, at: performance.now(),
    wallS: header.timestamp ?? null, placeholder: header.placeholder ?? "",
  };
}

export async function play(want, show, signal) {
  const before = failed("websocket");
  await opening.enter();
  let inside = true;
  const leave = () => {
    if (inside) opening.leave();
    inside = false;
  };
  try {
    if (!signal.aborted && failed("websocket") === before) await receive(want, show, signal, leave);
  } finally {
    leave();
  }
  throw new Broken(failed("websocket")); // others have found out meanwhile
}

function receive(want, show, signal, opens) {
  return new Promise((resolve, reject) => {
    const address = new URL(`/cameras/${encodeURIComponent(want.camera)}/ws?${query(want)}`, location.href);
    address.protocol = address.protocol.replace("http", "ws");
    const socket = new WebSocket(address);
    socket.binaryType = "arraybuffer";
    let opened = false;
    const end = (error) => {
      silence.end();
      signal.removeEventListener("abort", stop);
      found.removeEventListener("websocket", stop);
      socket.onmessage = socket.onclose = null;
      socket.close();
      reject(error);
    };
    const stop = () => end(new Broken("stopped"));
    const silence = watch(() => end(new Broken(opened ? "went silent" : "does not open", { gaveUp: true })), OPEN_MS);
    signal.addEventListener("abort", stop);
    found.addEventListener("websocket", stop);
    socket.onopen = () => {
      opened = true;
      found.removeEventListener("websocket", stop);
      opens();
      silence.touch(SILENT_MS);
    };
    socket.onmessage = ({ data }) => {
      silence.touch(SILENT_MS);
      if (data instanceof ArrayBuffer) show(read(data));
    };
    socket.onclose = ({ reason }) => end(new Broken(reason || (opened ? "lost its connection" : "is refused here"), { refusal: Boolean(reason) }));
  });
}
