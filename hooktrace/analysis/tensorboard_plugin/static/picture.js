// The server's answer as typed arrays, one set of rectangles a colour: what a frame loops over.

import { FLAGS, KINDS } from "./definitions.js";

const OTHER = KINDS.indexOf("other");

// Times become ns since the run's origin.  `px_ns`: the ns that a pixel stands for.
export function prepare(answer, { width, strips }) {
  const { t0, t1, bin_ns, ruler, units } = answer;
  const ranks = answer.ranks.map((r) => prepareRank(r, t0, bin_ns, units));
  return {
    t0, t1, px_ns: (t1 - t0) / width, isStrip: Boolean(strips), version: answer.version,
    read_bytes: answer.read_bytes, waitUnknown: answer.wait_unknown,
    collectives: answer.collectives,
    ruler: { ...ruler, start: ruler.start.map((t) => t + t0) },
    // A file without its first line passes for rank 0: the first one is the rank's own.
    ranks, byRank: new Map(ranks.toReversed().map((r) => [r.rank, r])),
  };
}

// `of`: what each bar is called, and in a sharded run the unit and which of its calls it is.
function prepareRank({ rank, bars, bins, steps, exposed, marks, hangs, others }, t0, bin_ns, units) {
  const of = bars.unit.map((unit, i) =>
    units[unit] ?? { name: null, turn: 0, call: `bucket ${bars.bucket[i]}` });
  const since = (times) => times.map((t) => t + t0);
  const having = (flag) => bars.flags.map((f) => (f & FLAGS[flag]) !== 0);
  return {
    rank, ...bars, of,
    exposed: { ...exposed, start: since(exposed.start), end: since(exposed.end) },
    start: Float64Array.from(since(bars.start)),
    end: Float64Array.from(since(bars.end)),
    isLate: having("late"), isLast: having("is_last"), failed: having("exception"),
    stageRects: stageRects(bars, t0),
    bins: prepareBins(bins, t0, bin_ns),
    steps: { ...steps, start: since(steps.start), end: since(steps.end),
      last_ready: since(steps.last_ready) },
    others: others.map((o) => ({ ...o, start: o.start + t0, end: o.end + t0 })),
    marks: marks.map((m) => ({ ...m, at: m.at + t0 })),
    hangs: hangs.map((h) => ({ ...h, start: h.start + t0, isOpen: h.end === null,
      end: h.end === null ? Infinity : h.end + t0 })),
  };
}

// For each kind: start, end, lane, three numbers a rectangle.
function stageRects(bars, t0) {
  const rects = KINDS.map(() => []);
  let at = 0;
  bars.lane.forEach((lane, bar) => {
    rects[OTHER].push(bars.start[bar] + t0, bars.end[bar] + t0, lane);
    for (const last = at + bars.stages[bar]; at < last; at += 1) {
      const start = bars.stage_start[at] + t0, end = bars.stage_end[at] + t0;
      if (end > start) rects[bars.stage[at]].push(start, end, lane);
    }
  });
  return rects.map((r) => Float64Array.from(r));
}

// For each kind: start, end, lane, and from where to where of the row's height, in parts of 1.
function prepareBins(bins, t0, bin_ns) {
  const rects = KINDS.map(() => []);
  const start = bins.bin.map((bin) => t0 + bin * bin_ns), end = start.map((t) => t + bin_ns);
  const shares = start.map((_, i) => bins.shares.slice(i * KINDS.length, (i + 1) * KINDS.length));
  shares.forEach((own, i) => {
    const total = own.reduce((sum, share) => sum + share, 0);
    const height = (0.25 + 0.75 * bins.cover[i] / 100) / Math.max(1, total);
    let from = 0;
    own.forEach((share, kind) => {
      const to = from + height * share;
      if (share > 0) rects[kind].push(start[i], end[i], bins.lane[i], from, to);
      from = to;
    });
  });
  return { ...bins, start, end, shares, rects: rects.map((r) => Float64Array.from(r)) };
}
