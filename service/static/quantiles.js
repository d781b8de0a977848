// Recent percentiles from histograms that count since the start: what two of them differ by is a window.

const WINDOW_S = 10;

// buckets are [middle in ms, count] in order; the nearest rank, to the resolution of the buckets.
export function quantile(buckets, q) {
  const total = buckets.reduce((sum, [, count]) => sum + count, 0);
  const rank = Math.max(1, Math.ceil(q * total));
  let seen = 0;
  for (const [middle, count] of buckets) {
    seen += count;
    if (seen >= rank) return middle;
  }
  return null;
}

export function added(now, before) {
  const counts = new Map(before);
  return now.map(([middle, count]) => [middle, count - (counts.get(middle) ?? 0)]).filter(([, count]) => count > 0);
}

// The latest answers of one camera's latency; newest last.
export class Recent {
  #answers = []; // {at, stages}

  // at is in milliseconds of any clock that does not go back.
  add(stages, at) {
    const last = this.#answers.at(-1)?.stages;
    // A camera of the same name that began anew counts from 0 again.
    if (last && Object.keys(stages).some((stage) => stages[stage].count < last[stage].count)) this.#answers = [];
    this.#answers.push({ at, stages });
    while (this.#answers.length > 2 && at - this.#answers[1].at >= WINDOW_S * 1000) this.#answers.shift();
  }

  // Of a stage, the frames of so many seconds before the last answer, at least since the answer before it:
  // {p50, p99, max}, null where there were none. max is since the start.
  since(stage, seconds = WINDOW_S) {
    const { at, stages } = this.#answers.at(-1);
    const before = this.#answers.slice(0, -1);
    const first = before.findLast((answer) => at - answer.at >= seconds * 1000) ?? before[0];
    const now = stages[stage];
    const buckets = first ? added(now.buckets, first.stages[stage].buckets) : now.buckets;
    // A bucket's middle may lie beyond the longest in it.
    const of = (q) => (buckets.length ? Math.min(quantile(buckets, q), now.max_ms) : null);
    return { p50: of(0.5), p99: of(0.99), max: now.max_ms };
  }
}
