// Draws a rank's buckets: bars with their stages where they are wide enough, else merged ones.

import { KINDS } from "./definitions.js";
import { fillOf } from "./waits.js";

const WAIT = KINDS.indexOf("wait"), OTHER = KINDS.indexOf("other");
const BELOW = ["other", "turn", "queue"];
// What is in no stage lies below the stages, and what waits below what works.
const DRAWN = [...BELOW, ...KINDS.filter((k) => !BELOW.includes(k))].map((k) => KINDS.indexOf(k));
const NARROW_PX = 10;
const LABEL_FONT = "11px system-ui, sans-serif";

export function drawBins(canvas, bins, y, counts) {
  const { context: c, theme, rowHeight: h } = canvas;
  const { t0, t1 } = canvas.view;
  const height = Math.max(1, h - 1);
  KINDS.forEach((_, kind) => {
    if (canvas.hidden.has(kind)) return;
    const rects = bins.rects[kind];
    c.fillStyle = fillOf(canvas, kind);
    for (let i = 0; i < rects.length; i += 5) {
      if (rects[i + 1] < t0 || rects[i] > t1) continue;
      const x = canvas.x(rects[i]);
      const base = y + rects[i + 2] * h + height;
      c.fillRect(x, base - rects[i + 4] * height, Math.max(0.5, canvas.x(rects[i + 1]) - x + 0.3),
        (rects[i + 4] - rects[i + 3]) * height);
    }
  });
  c.fillStyle = theme.text;
  for (let i = 0; i < bins.start.length; i += 1) {
    if (bins.end[i] < t0 || bins.start[i] > t1) continue;
    counts.bins += 1;
    if (bins.late[i]) {
      counts.late += 1;
      c.fillRect(canvas.x(bins.start[i]), y + (bins.lane[i] + 1) * h - 2,
        canvas.x(bins.end[i]) - canvas.x(bins.start[i]), 1.5);
    }
  }
}

export function drawBars(canvas, rank, y, counts) {
  const { context: c, theme, rowHeight: h } = canvas;
  const { t0, t1 } = canvas.view;
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
  c.font = LABEL_FONT;
  c.textBaseline = "middle";
  c.textAlign = "left";
  for (let i = 0; i < rank.id.length; i += 1) {
    if (rank.end[i] < t0 || rank.start[i] > t1) continue;
    counts.bars += 1;
    const x = Math.max(canvas.x(rank.start[i]), canvas.left), right = canvas.x(rank.end[i]);
    const at = y + rank.lane[i] * h;
    if (rank.isLate[i]) {
      counts.late += 1;
      c.strokeStyle = c.fillStyle = theme.text;
      c.lineWidth = 1.5;
      // In a low row, or around a narrow bar, a frame would hide the stages.
      if (h < 10 || right - x < NARROW_PX) c.fillRect(x, at + height - 1.5, Math.max(1, right - x), 1.5);
      else c.strokeRect(x + 0.5, at + 0.5, Math.max(1, right - x - 1), height - 1);
    }
    if (rank.failed[i]) {
      c.fillStyle = theme.bad;
      c.fillRect(x, at, Math.max(2, right - x), 2);
    }
    if (h >= 11 && right - x > 34) labelBar(canvas, rank, i, x, right, at, height);
  }
}

// The bucket's number or the unit's name, on a ground of its own: stages may begin anywhere under it.
function labelBar(canvas, rank, i, x, right, y, height) {
  const { context: c, theme } = canvas;
  const wide = (text) => c.measureText(text).width + 6;
  const label = labels(rank, i).find((text) => wide(text) <= right - x - 4);
  if (!label) return;
  const width = wide(label);
  c.globalAlpha = 0.82;
  c.fillStyle = theme.background;
  c.fillRect(x + 2, y + 1, width, height - 2);
  c.globalAlpha = 1;
  c.fillStyle = theme.text;
  c.fillText(label, x + 5, y + height / 2 + 0.5);
}

// What a bar may be labelled, the longest first: of a unit's name the end tells the most.
function labels(rank, i) {
  const unit = rank.unit[i];
  if (unit === null) return [`b${rank.bucket[i]}${rank.isLast[i] ? " last" : ""}`];
  const parts = unit.split("."), again = rank.turn[i] ? ` #${rank.turn[i] + 1}` : "";
  return parts.map((_, from) => `${from ? "…" : ""}${parts.slice(from).join(".")}${again}`);
}
