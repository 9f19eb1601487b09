// Left of the lanes: which rank each is, and what is to know of it; over the lanes, their hosts.
// Whoever is late stays in sight: where its lane is scrolled out or folded away, a button at the
// edge names it (`canvas.edges`) and leads to it.

import { counted, formatPercent } from "./dom.js";
import { GUTTER, HEADER, TOP } from "./lanes.js";
import { OTHERS } from "./others.js";
import { FONT, polygon, within } from "./shapes.js";

const LINE = 14;
const EDGE = 18;
const MOST_EDGES = 3;
const LEAST_TITLE = 11;

export function drawLabels(canvas, { picture, info, summary }) {
  const { context: c, lanes, theme, left, width, height } = canvas;
  const late = new Map((summary?.late ?? []).map((l) => [l.rank, l]));
  const known = new Map(info.ranks.map((r) => [r.rank, r]));
  c.textAlign = "left";
  c.textBaseline = "middle";
  within(c, 0, TOP, width, height - TOP, () => {
    for (const item of lanes.visible()) {
      if (item.kind === "host") drawHost(canvas, item, late);
      else {
        drawTitles(canvas, item);
        drawRank(canvas, item, linesOf(canvas, item, known.get(item.rank), late.get(item.rank),
          picture.byRank.get(item.rank)?.hangs ?? []));
      }
      c.fillStyle = theme.line;
      c.fillRect(0, lanes.screen(item) + item.height - 0.5, left, 0.5);
    }
    drawEdges(canvas, late);
  });
}

function drawHost({ context: c, lanes, theme, left, width }, item, late) {
  const { host, ranks, isFolded } = item, y = lanes.screen(item), middle = y + HEADER / 2;
  c.fillStyle = theme.lane;
  c.fillRect(0, y, width, HEADER - 1);
  c.fillStyle = theme.muted;
  if (isFolded) polygon(c, [10, middle - 4], [16, middle], [10, middle + 4]);
  else polygon(c, [8, middle - 2], [16, middle - 2], [12, middle + 3]);
  c.fillStyle = theme.text;
  c.font = `600 ${FONT}`;
  c.fillText(clip(host ?? "host unknown", 16), 22, middle);
  c.font = FONT;
  const own = isFolded ? ranks.filter((rank) => late.has(rank)) : [];
  c.fillStyle = own.length ? theme.late : theme.muted;
  c.fillText(counted(ranks.length, "rank") + (own.length ? `, late: ${own.join(", ")}` : ""),
    left + 6, middle);
}

// What is to know of a rank, the most important first: [text, colour] each.
function linesOf({ theme }, { height }, own, delay, hangs) {
  const isWaitedFor = hangs.some((hang) => hang.isOpen && !hang.waits);
  return [
    own && !own.clock_known && ["clock unknown", theme.muted],
    isWaitedFor && ["waited for", theme.hang],
    delay && [`last ${formatPercent(delay.share)} of steps`, theme.late],
    own?.skipped && [`${own.skipped} lines unread`, theme.bad],
    own?.host && height > 60 && [clip(own.host, 18), theme.muted],
  ].filter(Boolean);
}

function drawRank({ context: c, data, lanes, theme }, item, lines) {
  const name = `rank ${item.rank}`, isLow = item.height < LINE + 12;
  const y = lanes.screen(item) + (isLow ? item.height / 2 : 13);
  c.fillStyle = theme.text;
  c.font = `600 ${FONT}`;
  c.fillText(name, 10, y);
  const wide = c.measureText(name).width;
  c.font = FONT;
  const titled = data.othersLane === null ? 0 : LINE;
  const room = isLow ? 1 : Math.max(0, Math.floor((item.height - 17 - titled) / LINE));
  lines.slice(0, room).forEach(([text, color], i) => {
    c.fillStyle = color;
    // In a low lane the first of them stands beside the name.
    if (isLow) c.fillText(text.replace(" of steps", ""), 18 + wide, y, GUTTER - wide - 22);
    else c.fillText(text, 10, y + LINE * (i + 1), GUTTER - 14);
  });
}

// What the rows of a lane are, where they have titles and are high enough to be read.
function drawTitles({ context: c, data, lanes, theme, left }, item) {
  if (lanes.isStrip || lanes.rowHeight < LEAST_TITLE) return;
  c.fillStyle = theme.muted;
  c.font = FONT;
  c.textAlign = "right";
  const write = (title, row) => c.fillText(title, left - 6,
    lanes.rowTop(lanes.screen(item), row) + lanes.rowHeight / 2);
  data.titles.forEach(write);
  if (data.othersLane !== null) write(OTHERS, data.othersLane);
  c.textAlign = "left";
}

// The late ranks that are not in the window, at the edge that is nearer to each.
function drawEdges(canvas, late) {
  const { context: c, height, lanes, theme } = canvas, width = canvas.left - 10;
  canvas.edges = [];
  const seen = new Set(lanes.visible());
  const above = [], below = [];
  for (const rank of late.keys()) {
    const item = lanes.places.get(rank)
      ?? lanes.items.find((header) => header.isFolded && header.ranks.includes(rank));
    if (!item || seen.has(item)) continue;
    (lanes.screen(item) < TOP + lanes.room / 2 ? above : below).push(rank);
  }
  const edge = (rank, y, arrow) => {
    c.fillStyle = theme.late;
    c.beginPath();
    c.roundRect(4, y, width, EDGE - 2, 4);
    c.fill();
    c.fillStyle = theme.background;
    c.font = `600 ${FONT}`;
    c.fillText(`${arrow} rank ${rank} late`, 11, y + EDGE / 2 - 0.5, width - 12);
    canvas.edges.push({ rank, x: 4, y, width, height: EDGE - 2 });
  };
  above.slice(0, MOST_EDGES).forEach((rank, i) => edge(rank, TOP + 2 + i * EDGE, "▲"));
  below.slice(0, MOST_EDGES).forEach((rank, i) => edge(rank, height - (i + 1) * EDGE, "▼"));
}

function clip(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}
