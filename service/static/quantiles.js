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
  #answers = [];

  add(stages) {
    const last = this.#answers.at(-1);
    // A camera of the same name that began anew counts from 0 again.
    if (last && Object.keys(stages).some((stage) => stages[stage].count < last[stage].count)) this.#answers = [];
    this.#answers.push(stages);
    if (this.#answers.length > WINDOW_S + 1) this.#answers.shift();
  }

  // Of a stage, the frames since the answer so many before the last one; {p50, p99, max}, null where there were none.
  since(stage, answers = WINDOW_S) {
    const last = this.#answers.at(-1)[stage];
    const first = this.#answers.at(-1 - answers) ?? this.#answers[0];
    const buckets = this.#answers.length > 1 ? added(last.buckets, first[stage].buckets) : last.buckets;
    // A bucket's middle may lie beyond the longest in it.
    const of = (q) => (buckets.length ? Math.min(quantile(buckets, q), last.max_ms) : null);
    return { p50: of(0.5), p99: of(0.99), max: last.max_ms };
  }
}
