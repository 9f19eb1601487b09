// The server's answer as typed arrays, one set of rectangles a colour: what a frame loops over.

import { FLAGS, KINDS } from "./definitions.js";

const OTHER = KINDS.indexOf("other");

// `px_ns`: the ns that a pixel stands for.
export function prepare(answer, { width, strips }) {
  const { t0, t1, bin_ns, ruler, units, collectives } = answer;
  const ranks = answer.ranks.map((r) => prepareRank(r, t0, bin_ns, units));
  return {
    t0, t1, px_ns: (t1 - t0) / width, isStrip: Boolean(strips), version: answer.version,
    read_bytes: answer.read_bytes, waitUnknown: answer.wait_unknown, collectives, ruler,
    // A file without its first line passes for rank 0: the first one is the rank's own.
    ranks, byRank: new Map(ranks.toReversed().map((r) => [r.rank, r])),
  };
}

// `of`: what each bar is called, and in a sharded run the unit and which of its calls it is.
function prepareRank({ rank, bars, bins, hangs, ...others }, t0, bin_ns, units) {
  const of = bars.unit.map((unit, i) =>
    units[unit] ?? { name: null, repeat: 0, call: `bucket ${bars.bucket[i]}` });
  const having = (flag) => bars.flags.map((f) => (f & FLAGS[flag]) !== 0);
  return {
    rank, ...bars, of, ...others,
    start: Float64Array.from(bars.start),
    end: Float64Array.from(bars.end),
    isLate: having("late"), isLast: having("is_last"), failed: having("exception"),
    stageRects: stageRects(bars),
    bins: prepareBins(bins, t0, bin_ns),
    hangs: hangs.map((h) => ({ ...h, isOpen: h.end === null, end: h.end ?? Infinity })),
  };
}

// For each kind: start, end, lane, three numbers a rectangle.
function stageRects(bars) {
  const rects = KINDS.map(() => []);
  let at = 0;
  bars.lane.forEach((lane, bar) => {
    rects[OTHER].push(bars.start[bar], bars.end[bar], lane);
    for (const last = at + bars.stages[bar]; at < last; at += 1) {
      const start = bars.stage_start[at], end = bars.stage_end[at];
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
