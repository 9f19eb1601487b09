// Draws a rank's buckets: bars with their stages where they are wide enough, else merged ones.

import { KINDS } from "./definitions.js";
import { FONT, plate, plateWidth } from "./shapes.js";
import { fillOf } from "./waits.js";

const WAIT = KINDS.indexOf("wait"), OTHER = KINDS.indexOf("other");
const BELOW = ["other", "serialization_wait", "queue"];
// What is in no stage lies below the stages, and what waits below what works.
const DRAWN = [...BELOW, ...KINDS.filter((k) => !BELOW.includes(k))].map((k) => KINDS.indexOf(k));
const NARROW_PX = 10;

export function drawBins(canvas, bins, y, counts) {
  const { context: c, theme, rowHeight: h, view: { t0, t1 } } = canvas;
  const height = Math.max(1, h - 1);
  for (const kind of KINDS.keys()) {
    if (canvas.hidden.has(kind)) continue;
    const rects = bins.rects[kind];
    c.fillStyle = fillOf(canvas, kind);
    for (let i = 0; i < rects.length; i += 5) {
      if (rects[i + 1] < t0 || rects[i] > t1) continue;
      const x = canvas.x(rects[i]), base = y + rects[i + 2] * h + height;
      c.fillRect(x, base - rects[i + 4] * height, Math.max(0.5, canvas.x(rects[i + 1]) - x + 0.3),
        (rects[i + 4] - rects[i + 3]) * height);
    }
  }
  c.fillStyle = theme.text;
  const seen = canvas.inView(bins), late = seen.filter((i) => bins.late[i]);
  counts.bins += seen.length;
  counts.late += late.length;
  for (const i of late) {
    const x = canvas.x(bins.start[i]);
    c.fillRect(x, y + (bins.lane[i] + 1) * h - 2, canvas.x(bins.end[i]) - x, 1.5);
  }
}

export function drawBars(canvas, rank, y, counts) {
  const { context: c, rowHeight: h, view: { t0, t1 } } = canvas;
  const height = Math.max(1, h - 1);
  for (const kind of DRAWN) {
    if (canvas.hidden.has(kind)) continue;
    const rects = rank.stageRects[kind];
    c.fillStyle = fillOf(canvas, kind);
    for (let i = 0; i < rects.length; i += 3) {
      if (rects[i + 1] < t0 || rects[i] > t1) continue;
      const x = canvas.x(rects[i]);
      c.fillRect(x, y + rects[i + 2] * h, Math.max(0.7, canvas.x(rects[i + 1]) - x), height);
      if (kind === WAIT) counts.waits += 1;
      else if (kind !== OTHER) counts.stages += 1;
    }
  }
  c.font = FONT;
  const seen = canvas.inView(rank);
  counts.bars += seen.length;
  counts.late += seen.filter((i) => rank.isLate[i]).length;
  for (const i of seen) {
    const x = Math.max(canvas.x(rank.start[i]), canvas.left);
    markBar(canvas, rank, i, { x, y: y + rank.lane[i] * h, height,
      width: canvas.x(rank.end[i]) - x });
  }
}

// Over a bar: that its rank is late, that its hook failed, and what it is.
function markBar({ context: c, theme, rowHeight }, rank, i, { x, y, width, height }) {
  const isLow = rowHeight < 10;
  if (rank.isLate[i]) {
    c.strokeStyle = c.fillStyle = theme.text;
    c.lineWidth = 1.5;
    // In a low row, or around a narrow bar, a frame would hide the stages.
    if (isLow || width < NARROW_PX) c.fillRect(x, y + height - 1.5, Math.max(1, width), 1.5);
    else c.strokeRect(x + 0.5, y + 0.5, Math.max(1, width - 1), height - 1);
  }
  if (rank.failed[i]) {
    c.fillStyle = theme.bad;
    c.fillRect(x, y, Math.max(2, width), 2);
  }
  if (rowHeight < 11 || width <= 34) return;
  const label = labels(rank, i).find((text) => plateWidth(c, text) <= width - 4);
  const place = { x: x + 2, y: y + height / 2, height: height - 2, color: theme.text };
  if (label) plate(c, theme, label, place);
}

// What a bar may be labelled, the longest first: of a unit's name the end tells the most.
function labels(rank, i) {
  const { name, repeat } = rank.of[i];
  if (name === null) return [`b${rank.bucket[i]}${rank.isLast[i] ? " last" : ""}`];
  const parts = name.split("."), again = repeat ? ` #${repeat + 1}` : "";
  return parts.map((_, from) => `${from ? "…" : ""}${parts.slice(from).join(".")}${again}`);
}
