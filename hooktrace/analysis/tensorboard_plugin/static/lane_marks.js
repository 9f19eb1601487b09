// Draws what lies over and under a rank's buckets: its steps, exposed time, last buckets, and
// marks.

import { polygon } from "./shapes.js";

// Returns how many steps are in view.
export function drawSteps(canvas, steps, y) {
  const { context: c, theme, laneHeight } = canvas, seen = canvas.inView(steps);
  c.fillStyle = theme.step;
  for (const i of seen) {
    const x = canvas.x(steps.start[i]);
    c.fillRect(x, y, canvas.x(steps.end[i]) - x, laneHeight);
  }
  return seen.length;
}

// Where training waited; where much of it is too narrow to be told apart, as high as its share.
export function drawExposed(canvas, exposed, y, counts) {
  const { context: c, theme, laneHeight } = canvas, seen = canvas.inView(exposed);
  counts.exposed += seen.length;
  c.fillStyle = theme.exposed;
  for (const i of seen) {
    const x = canvas.x(exposed.start[i]), height = laneHeight * exposed.share[i] / 100;
    c.fillRect(x, y + laneHeight - height, Math.max(1, canvas.x(exposed.end[i]) - x), height);
  }
}

export function drawLastReady(canvas, steps, y, counts) {
  const { context: c, theme, view } = canvas;
  const seen = steps.last_ready.filter((at) => view.sees(at));
  counts.lastMarks += seen.length;
  c.fillStyle = theme.late;
  for (const at of seen) {
    const x = canvas.x(at);
    c.fillRect(x - 0.5, y, 1, canvas.laneHeight);
    polygon(c, [x - 4, y], [x + 4, y], [x, y + 6]);
  }
}

// Diamonds of anomalies.
export function drawMarks(canvas, { rank, marks }, y, counts) {
  const { context: c, theme, view, laneHeight } = canvas;
  const seen = marks.filter((mark) => view.sees(mark.at));
  counts.marks += seen.length;
  for (const mark of seen) {
    const x = canvas.x(mark.at), at = y + 7;
    c.fillStyle = theme.bad;
    c.fillRect(x - 0.5, y, 1, laneHeight);
    polygon(c, [x, at - 6], [x + 6, at], [x, at + 6], [x - 6, at]);
    canvas.marksAt.push({ x, y: at, mark, rank });
  }
}
