// What waits for the last rank: hatched in the wire's colour, and arrows from the rank that was last.
//
// An arrow leads from where the last rank began a collective to the ends of the other ranks' waits,
// which is one moment on all of them, so it stands upright.  Of the bucket under the pointer and of
// the pinned one there always are some; of all buckets where one or two steps fill the window.

import { KINDS } from "./definitions.js";

const WIRE = KINDS.indexOf("wire"), WAIT = KINDS.indexOf("wait");
const TILE = 6;
const HEAD = 4;
const WIDEST_STEPS = 2;
const LEAST_PX = 8;
const MOST_HEADS = 64;

// The fill of a kind of time: a colour, or of waiting the wire's colour, hatched.
export function fillOf(canvas, kind) {
  const { theme } = canvas;
  if (kind !== WAIT) return theme.kinds[kind];
  const key = `${theme.name}/${canvas.ratio}`;
  if (canvas.hatchKey !== key) {
    canvas.hatchKey = key;
    canvas.hatch = hatch(canvas);
  }
  return canvas.hatch;
}

function hatch({ context, theme, ratio }) {
  const tile = document.createElement("canvas");
  const size = tile.width = tile.height = Math.round(TILE * ratio);
  const c = tile.getContext("2d");
  c.fillStyle = theme.background;
  c.fillRect(0, 0, size, size);
  c.strokeStyle = c.fillStyle = theme.kinds[WIRE];
  c.globalAlpha = 0.22;
  c.fillRect(0, 0, size, size);
  c.globalAlpha = 1;
  c.lineWidth = 0.3 * size;
  c.beginPath();
  for (const at of [-size, 0, size]) {
    c.moveTo(at - 2, size + 2);
    c.lineTo(at + size + 2, -2);
  }
  c.stroke();
  const made = context.createPattern(tile, "repeat");
  made.setTransform(new DOMMatrix().scale(TILE / size));
  return made;
}

// Draws arrows, and counts their heads.
export function drawArrows(canvas, picture, chosen, counts) {
  for (const one of shown(canvas, picture, chosen)) drawArrow(canvas, one, counts);
}

function shown({ view, lanesWidth, lanes }, picture, chosen) {
  const isChosen = (one) => chosen.some((hit) =>
    hit && hit.kind === "bar" && hit.step === one.step && hit.bucket === one.bucket);
  const inView = picture.collectives.filter((one) => one.waiting.some((w) => w.at >= view.t0
    && w.start <= view.t1));
  const own = inView.filter(isChosen);
  if (new Set(inView.map((one) => one.step)).size > WIDEST_STEPS) return own;
  const least = LEAST_PX * view.span / lanesWidth;
  const longest = (one) => Math.max(...one.waiting.map((w) => w.at - w.start));
  const others = inView.filter((one) => !isChosen(one) && longest(one) >= least);
  const ranks = lanes.visible().length;
  // Rather those that waited long than a thicket.
  others.sort((a, b) => longest(b) - longest(a)).splice(Math.floor(MOST_HEADS / ranks));
  return [...others, ...own];
}

function drawArrow(canvas, one, counts) {
  const { context: c, lanes, theme, rowHeight } = canvas;
  const from = place(canvas, one.last, one.lane, one.at ?? one.waiting[0].at);
  const seen = new Set(lanes.visible().map((item) => item.rank));
  const heads = one.waiting.filter((w) => seen.has(w.rank))
    .map((w) => place(canvas, w.rank, w.lane, w.at));
  if (!from || !heads.length) return;
  const tips = heads.map(({ x, y }) => ({ x, y: y + (y < from.y ? rowHeight - 1 : 0),
    up: y < from.y ? 1 : -1 }));
  const start = from.y + (rowHeight - 1) / 2;
  const trace = (draw) => {
    c.beginPath();
    draw();
    c.strokeStyle = theme.background;
    c.lineWidth = 3.5;
    c.stroke();
    c.strokeStyle = c.fillStyle = theme.text;
    c.lineWidth = 1.2;
    c.stroke();
  };
  trace(() => tips.forEach(({ x, y }) => { c.moveTo(from.x, start); c.lineTo(x, y); }));
  tips.forEach(({ x, y, up }) => {
    c.beginPath();
    c.moveTo(x, y);
    c.lineTo(x - HEAD, y + up * (HEAD + 2));
    c.lineTo(x + HEAD, y + up * (HEAD + 2));
    c.fill();
  });
  c.beginPath();
  c.arc(from.x, start, 2.5, 0, 7);
  c.fill();
  counts.arrows += tips.length;
}

// Where a row of a rank is at a time; null where the rank has no lane.
function place(canvas, rank, row, time) {
  const top = canvas.lanes.top(rank);
  return top === null ? null : { x: canvas.x(time), y: canvas.rowTop(top, row) };
}
