// What each number of the page counts, and over which time: the words of /metrics.

export const MEANINGS = {
  "fps": "Results per second, over the last 2 s",
  "age": "Time since the newest result's picture was taken",
  "drops": "Frames that came to no result, all reasons together, since the start",
  "copied per frame": "Bytes of frames copied, by a CPU (capture) or by copy engines; of the newest frame",
  "measured": "memory: auto: how frames cross between host and device, of the ways that were timed for this chain and size",
  "link in per frame": "Bytes of frames over the link between host and device, by the plan; in, for each frame processed in the last second",
  "link out per frame": "Bytes of frames over the link between host and device, by the plan; out, for each frame processed in the last second",
  "ring": "Slots for frames, and the memory of all of them",
  "pinned memory": "Pinned host memory held, by all cameras now",
  "frames processed": "Frames whose result was ready, since the start",
  "dropped": "Frames that came to no result, by reason, since the start",
  "viewers": "Live viewers now",
  "reconnects": "Times that a source was opened again, since the start",
  "p50": "Half of the frames of the last 10 s took no longer",
  "p99": "99 of 100 frames of the last 10 s took no longer",
  "max": "The longest since the start",
};

export const STAGES = {
  "capture": "taken → in the ring",
  "queue": "→ picked up",
  "process": "→ result ready",
  "gpu": "within process, by the GPU’s clock",
  "encode": "one JPEG for all who look",
  "deliver": "→ with each viewer’s socket",
  "total": "capture, queue and process together",
};
