// What waits for the last rank: hatched in the wire's colour, and arrows from where the last rank
// began a collective to the ends of the others' waits, which is one moment on all.  Of the bucket
// under the pointer and the pinned one there always are some; of all where one or two steps fill
// the window.

import { KINDS } from "./definitions.js";
import { hatch, polygon } from "./shapes.js";

const WIRE = KINDS.indexOf("wire"), WAIT = KINDS.indexOf("wait");
const HATCH = 6;
const HEAD = 4;
const WIDEST_STEPS = 2;
const LEAST_PX = 8;
const MOST_HEADS = 64;

// The fill of a kind of time: a colour, or of waiting the wire's colour, hatched.
export function fillOf({ context, theme, ratio }, kind) {
  if (kind !== WAIT) return theme.kinds[kind];
  const wire = theme.kinds[WIRE];
  return hatch(context, ratio, { every: HATCH, line: [wire, 1, 1.8],
    grounds: [[theme.background, 1], [wire, 0.22]] });
}

export function drawArrows(canvas, picture, chosen, counts) {
  const seen = new Set(canvas.lanes.visible().map((item) => item.rank));
  for (const { last, lane, at, waiting } of shown(canvas, picture, chosen)) {
    const from = canvas.place(last, lane, at ?? waiting[0].at);
    const to = waiting.filter((w) => seen.has(w.rank))
      .map((w) => canvas.place(w.rank, w.lane, w.at));
    if (!from || !to.length) continue;
    drawArrow(canvas, from, to);
    counts.arrows += to.length;
  }
}

function shown({ view, lanesWidth, lanes }, { collectives }, chosen) {
  const isChosen = (one) => chosen.some((hit) =>
    hit && hit.kind === "bar" && hit.step === one.step && hit.bucket === one.bucket);
  const inView = collectives.filter((one) => one.waiting.some((w) => view.sees(w.start, w.at)));
  const own = inView.filter(isChosen);
  if (new Set(inView.map((one) => one.step)).size > WIDEST_STEPS) return own;
  const least = LEAST_PX * view.span / lanesWidth;
  const longest = (one) => Math.max(...one.waiting.map((w) => w.at - w.start));
  const others = inView.filter((one) => !isChosen(one) && longest(one) >= least);
  // Rather those that waited long than a thicket.
  others.sort((a, b) => longest(b) - longest(a));
  return [...others.slice(0, Math.floor(MOST_HEADS / lanes.visible().length)), ...own];
}

// `from` and `to`: the tops of rows; the shaft is edged with the ground's colour.
function drawArrow({ context: c, theme, rowHeight }, from, to) {
  const start = from.y + (rowHeight - 1) / 2;
  const tips = to.map(({ x, y }) => (y < from.y ? { x, y: y + rowHeight - 1, up: 1 }
    : { x, y, up: -1 }));
  c.beginPath();
  for (const { x, y } of tips) {
    c.moveTo(from.x, start);
    c.lineTo(x, y);
  }
  for (const [color, width] of [[theme.background, 3.5], [theme.text, 1.2]]) {
    c.strokeStyle = color;
    c.lineWidth = width;
    c.stroke();
  }
  c.fillStyle = theme.text;
  for (const { x, y, up } of tips) {
    const back = y + up * (HEAD + 2);
    polygon(c, [x, y], [x - HEAD, back], [x + HEAD, back]);
  }
  c.beginPath();
  c.arc(from.x, start, 2.5, 0, 7);
  c.fill();
}
