// What stands around the lanes: the overview of the whole run, the ruler, the ranks' labels.

import { formatTick } from "./dom.js";
import { drawLabels } from "./lane_labels.js";
import { OVERVIEW, TOP } from "./lanes.js";

const FONT = "11px system-ui, sans-serif";

// Returns how many steps the ruler names.
export function drawAxes(canvas, data) {
  const { context: c, theme } = canvas;
  c.fillStyle = theme.background;
  c.fillRect(0, 0, canvas.width, TOP);
  c.fillRect(0, 0, canvas.left, canvas.height);
  c.textBaseline = "middle";
  c.font = FONT;
  drawOverview(canvas, data.summary);
  drawTimes(canvas);
  const named = data.picture ? drawSteps(canvas, data.picture.ruler) : 0;
  if (data.picture) drawLabels(canvas, data, canvas.left);
  c.fillStyle = theme.line;
  c.fillRect(0, TOP - 1, canvas.width, 1);
  c.fillRect(canvas.left - 1, 0, 1, canvas.height);
  return named;
}

// The whole run in bands, what went wrong in it, and where the view is.
function drawOverview(canvas, summary) {
  const { context: c, theme, view } = canvas;
  canvas.bands.draw(canvas);
  if (!summary || !view.extent) return;
  c.fillStyle = theme.bad;
  for (const { at } of summary.anomalies) {
    c.fillRect(canvas.left + at / summary.extent * canvas.lanesWidth - 1, 1, 2, 5);
  }
  const left = Math.max(canvas.left, canvas.left + view.t0 / summary.extent * canvas.lanesWidth);
  const right = Math.min(canvas.width, canvas.left + view.t1 / summary.extent * canvas.lanesWidth);
  c.fillStyle = theme.name === "dark" ? "rgba(0,0,0,0.5)" : "rgba(255,255,255,0.65)";
  c.fillRect(canvas.left, 0, Math.max(0, left - canvas.left), OVERVIEW);
  c.fillRect(right, 0, Math.max(0, canvas.width - right), OVERVIEW);
  c.strokeStyle = theme.text;
  c.lineWidth = 1;
  c.strokeRect(left + 0.5, 0.5, Math.max(2, right - left - 1), OVERVIEW - 1);
}

// A round distance between ticks that are at least 110 px apart.
function tickDistance(span, width) {
  const least = span / Math.max(1, width / 110);
  const power = 10 ** Math.floor(Math.log10(least));
  return power * [1, 2, 5, 10].find((f) => f * power >= least);
}

function drawTimes(canvas) {
  const { context: c, theme, view } = canvas;
  const apart = tickDistance(view.span, canvas.lanesWidth);
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
}

function drawSteps(canvas, ruler) {
  const { context: c, theme, view } = canvas;
  c.textAlign = "right";
  c.fillStyle = theme.muted;
  c.fillText("step", canvas.left - 8, OVERVIEW + 28);
  c.textAlign = "left";
  const visible = [];
  for (let i = 0; i < ruler.step.length; i += 1) {
    const at = ruler.start[i], ends = ruler.start[i + 1] ?? Infinity;
    if (at <= view.t1 && ends >= view.t0 && (at >= view.t0 || ends < Infinity)) visible.push(i);
  }
  const every = labelDistance(c, ruler, visible, canvas.lanesWidth);
  let named = 0, free = canvas.left;
  for (const i of visible) {
    const at = ruler.start[i], x = Math.max(canvas.x(at), canvas.left);
    const apart = canvas.x(ruler.start[i + 1] ?? Infinity) - canvas.x(at);
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

// Every how many steps there is room for a number: 1, 2, 5, 10, 20 ...
function labelDistance(c, ruler, visible, width) {
  if (visible.length < 2) return 1;
  const first = ruler.step[visible[0]], last = ruler.step[visible.at(-1)];
  const text = c.measureText(String(last)).width + 14;
  const least = text / (width / Math.max(1, last - first));
  if (least <= 1) return 1;
  const power = 10 ** Math.floor(Math.log10(least));
  return power * [1, 2, 5, 10].find((f) => f * power >= least);
}
