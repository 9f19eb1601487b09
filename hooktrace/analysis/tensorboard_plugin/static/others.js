// Collectives that belong to no bucket, in the last row of a rank's lane.

import { isWithin } from "./shapes.js";

export const OTHERS = "other collectives";

// Draws a rank's; `boxes` takes where they are, for the pointer.
export function drawOthers(canvas, { rank, others }, y, counts, boxes) {
  const { context: c, theme, view, rowHeight } = canvas;
  c.fillStyle = theme.muted;
  for (const other of others.filter(({ start, end }) => view.sees(start, end))) {
    const x = canvas.x(other.start), width = Math.max(1.5, canvas.x(other.end) - x);
    const box = { x, y: canvas.rowTop(y, other.lane), width, height: Math.max(2, rowHeight - 1) };
    c.globalAlpha = other.of_ddp ? 0.35 : 0.75;
    c.fillRect(box.x, box.y, box.width, box.height);
    boxes.push({ ...box, other, rank });
    counts.others += 1;
  }
  c.globalAlpha = 1;
}

// What is at a point, the last one drawn; null where nothing is.
export function otherHit(boxes, x, y) {
  const box = boxes.findLast((one) => isWithin({ ...one, x: one.x - 2, width: one.width + 4 }, x, y));
  return box ? { kind: "other", key: `other/${box.rank}/${box.other.start}/${box.other.title}`,
    title: box.other.title, lines: [box.other.text] } : null;
}
