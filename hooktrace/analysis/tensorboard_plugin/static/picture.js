// The server's answer as typed arrays, one set of rectangles a colour: what a frame loops over.

import { FLAGS, KINDS } from "./definitions.js";

const OTHER = KINDS.indexOf("other");

// Times become ns since the run's origin.  `px_ns`: the ns a pixel stands for in the picture.
export function prepare(answer, px_ns) {
  const { t0, t1, lanes, bin_ns, ruler, units } = answer;
  const ranks = answer.ranks.map((r) => prepareRank(r, t0, bin_ns, units));
  return {
    t0, t1, px_ns, lanes, extent: answer.extent, read_bytes: answer.read_bytes,
    version: answer.version, waitUnknown: answer.wait_unknown, collectives: answer.collectives,
    ruler: { every: ruler.every, step: ruler.step, start: ruler.start.map((t) => t + t0) },
    // A file without its first line passes for rank 0: the first one is the rank's own.
    ranks, byRank: new Map(ranks.toReversed().map((r) => [r.rank, r])),
  };
}

// `call`: what a bar is called; `unit`, `turn`: of a sharded run whose it is, and which of several.
function prepareRank({ rank, bars, bins, steps, exposed, marks, hangs }, t0, bin_ns, units) {
  const of = bars.unit.map((i) => units[i] ?? null);
  return {
    rank, ...bars,
    unit: of.map((unit) => unit?.name ?? null),
    turn: of.map((unit) => unit?.turn ?? 0),
    call: of.map((unit, i) => unit?.call ?? `bucket ${bars.bucket[i]}`),
    exposed: { ...exposed, start: exposed.start.map((t) => t + t0), end: exposed.end.map((t) => t + t0) },
    start: Float64Array.from(bars.start, (t) => t + t0),
    end: Float64Array.from(bars.end, (t) => t + t0),
    isLate: bars.flags.map((f) => (f & FLAGS.late) !== 0),
    isLast: bars.flags.map((f) => (f & FLAGS.is_last) !== 0),
    failed: bars.flags.map((f) => (f & FLAGS.exception) !== 0),
    stageRects: stageRects(bars, t0),
    bins: prepareBins(bins, t0, bin_ns),
    steps: {
      ...steps, start: steps.start.map((t) => t + t0), end: steps.end.map((t) => t + t0),
      last_ready: steps.last_ready.map((t) => t + t0),
    },
    marks: marks.map((m) => ({ ...m, at: m.at + t0 })),
    hangs: hangs.map((h) => ({ ...h, start: h.start + t0, isOpen: h.end === null,
      end: h.end === null ? Infinity : h.end + t0 })),
  };
}

// For each kind: start, end, lane, three numbers a rectangle.
function stageRects(bars, t0) {
  const rects = KINDS.map(() => []);
  let at = 0;
  for (let bar = 0; bar < bars.id.length; bar += 1) {
    const lane = bars.lane[bar];
    rects[OTHER].push(bars.start[bar] + t0, bars.end[bar] + t0, lane);
    for (const last = at + bars.stages[bar]; at < last; at += 1) {
      const start = bars.stage_start[at] + t0, end = bars.stage_end[at] + t0;
      if (end > start) rects[bars.stage[at]].push(start, end, lane);
    }
  }
  return rects.map((r) => Float64Array.from(r));
}

// For each kind: start, end, lane, and from where to where of the row's height, in parts of 1.
function prepareBins(bins, t0, bin_ns) {
  const rects = KINDS.map(() => []);
  const n = bins.lane.length;
  const start = new Float64Array(n), end = new Float64Array(n);
  for (let i = 0; i < n; i += 1) {
    start[i] = t0 + bins.bin[i] * bin_ns;
    end[i] = start[i] + bin_ns;
    const height = 0.25 + 0.75 * bins.cover[i] / 100;
    let total = 0;
    for (let k = 0; k < KINDS.length; k += 1) total += bins.shares[i * KINDS.length + k];
    let from = 0;
    for (let k = 0; k < KINDS.length; k += 1) {
      const share = total ? height * bins.shares[i * KINDS.length + k] / total : 0;
      if (share > 0) rects[k].push(start[i], end[i], bins.lane[i], from, from + share);
      from += share;
    }
  }
  return { ...bins, start, end, rects: rects.map((r) => Float64Array.from(r)) };
}
