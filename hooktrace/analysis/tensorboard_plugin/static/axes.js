// What stands around the lanes: the overview of the whole run, the ruler, the ranks' labels.

import { formatTick, roundUp } from "./dom.js";
import { drawLabels } from "./lane_labels.js";
import { OVERVIEW, TOP } from "./lanes.js";
import { SMALL_FONT } from "./shapes.js";

// Returns how many steps the ruler names.
export function drawAxes(canvas, data) {
  const { context: c, theme } = canvas;
  c.fillStyle = theme.background;
  c.fillRect(0, 0, canvas.width, TOP);
  c.fillRect(0, 0, canvas.left, canvas.height);
  c.textBaseline = "middle";
  c.font = SMALL_FONT;
  canvas.bands.draw(canvas);
  if (data.summary && canvas.view.extent) drawOverview(canvas, data.summary);
  drawTimes(canvas);
  const named = data.picture ? drawSteps(canvas, data.picture.ruler) : 0;
  if (data.picture) drawLabels(canvas, data);
  c.fillStyle = theme.line;
  c.fillRect(0, TOP - 1, canvas.width, 1);
  c.fillRect(canvas.left - 1, 0, 1, canvas.height);
  return named;
}

function drawOverview({ context: c, theme, view, left, width, lanesWidth }, { lists, extent }) {
  const x = (time) => left + time / extent * lanesWidth;
  c.fillStyle = theme.bad;
  for (const { at } of lists.anomalies) c.fillRect(x(at) - 1, 1, 2, 5);
  const from = Math.max(left, x(view.t0)), to = Math.min(width, x(view.t1));
  c.fillStyle = theme.name === "dark" ? "rgba(0,0,0,0.5)" : "rgba(255,255,255,0.65)";
  c.fillRect(left, 0, Math.max(0, from - left), OVERVIEW);
  c.fillRect(to, 0, Math.max(0, width - to), OVERVIEW);
  c.strokeStyle = theme.text;
  c.lineWidth = 1;
  c.strokeRect(from + 0.5, 0.5, Math.max(2, to - from - 1), OVERVIEW - 1);
}

// Round times, at least 110 px apart.
function drawTimes(canvas) {
  const { context: c, theme, view } = canvas;
  const apart = roundUp(view.span / Math.max(1, canvas.lanesWidth / 110));
  c.textAlign = "left";
  for (let tick = Math.ceil(view.t0 / apart); tick * apart <= view.t1; tick += 1) {
    const t = tick * apart + 0; // no minus zero
    const x = canvas.x(t);
    c.fillStyle = theme.line;
    c.fillRect(x, OVERVIEW + 2, 1, 16);
    c.fillStyle = theme.muted;
    c.fillText(formatTick(t, apart, view.t1), x + 4, OVERVIEW + 10);
  }
  c.textAlign = "right";
  c.fillText("time", canvas.left - 8, OVERVIEW + 10);
  c.fillText("step", canvas.left - 8, OVERVIEW + 28);
}

function drawSteps(canvas, ruler) {
  const { context: c, theme, view } = canvas;
  c.textAlign = "left";
  const ends = (i) => ruler.start[i + 1] ?? Infinity;
  const visible = [...ruler.step.keys()].filter((i) => view.sees(ruler.start[i], ends(i))
    && (ruler.start[i] >= view.t0 || ends(i) < Infinity));
  const every = labelDistance(c, visible.map((i) => ruler.step[i]), canvas.lanesWidth);
  let named = 0, free = canvas.left;
  for (const i of visible) {
    const at = ruler.start[i], x = Math.max(canvas.x(at), canvas.left);
    const apart = canvas.x(ends(i)) - canvas.x(at);
    const text = String(ruler.step[i]), width = c.measureText(text).width;
    c.fillStyle = theme.line;
    if (at >= view.t0 && apart > 14) c.fillRect(x, OVERVIEW + 20, 1, canvas.height);
    if (ruler.step[i] % every || x + 3 < free || (at < view.t0 && apart < width)) continue;
    if (at >= view.t0) c.fillRect(x, OVERVIEW + 20, 1, 18);
    c.fillStyle = theme.text;
    c.fillText(text, x + 3, OVERVIEW + 28);
    free = x + width + 10;
    named += 1;
  }
  return named;
}

// Every how many steps there is room for a number.
function labelDistance(c, steps, width) {
  if (steps.length < 2) return 1;
  const first = steps[0], last = steps.at(-1);
  const text = c.measureText(String(last)).width + 14;
  return roundUp(Math.max(1, text * Math.max(1, last - first) / width));
}
