// Left of the lanes: which rank each is, and what is to know of it; over the lanes, their hosts.
//
// Whoever is late stays in sight: where its lane is scrolled out or folded away, a button at the edge
// names it (`canvas.edges`) and leads to it.

import { GUTTER, HEADER, TOP } from "./lanes.js";

const FONT = "11px system-ui, sans-serif";
const LINE = 14;
const EDGE = 18;
const MOST_EDGES = 3;
const LEAST_TITLE = 11;

export function drawLabels(canvas, { picture, info, summary }, width) {
  const { context: c, lanes, theme } = canvas;
  const late = new Map((summary ? summary.late : []).map((l) => [l.rank, l]));
  const known = new Map(info.ranks.map((r) => [r.rank, r]));
  c.save();
  c.beginPath();
  c.rect(0, TOP, canvas.width, canvas.height - TOP);
  c.clip();
  c.textAlign = "left";
  c.textBaseline = "middle";
  for (const item of lanes.visible()) {
    if (item.kind === "host") drawHost(canvas, item, late, width);
    else drawRank(canvas, item, { own: known.get(item.rank), lag: late.get(item.rank),
      hangs: picture.byRank.get(item.rank)?.hangs ?? [] }, width);
    c.fillStyle = theme.line;
    c.fillRect(0, lanes.screen(item) + item.height - 0.5, width, 0.5);
  }
  drawEdges(canvas, late, width);
  c.restore();
}

function drawHost({ context: c, lanes, theme, width: all }, item, late, width) {
  const y = lanes.screen(item), middle = y + HEADER / 2;
  c.fillStyle = theme.lane;
  c.fillRect(0, y, all, HEADER - 1);
  c.fillStyle = theme.muted;
  c.beginPath();
  const [x, d] = [12, 4];
  c.moveTo(x - (item.isFolded ? d / 2 : d), middle - (item.isFolded ? d : d / 2));
  c.lineTo(x + d, middle - (item.isFolded ? 0 : d / 2));
  c.lineTo(x - (item.isFolded ? d / 2 : 0), middle + (item.isFolded ? d : d * 0.75));
  c.fill();
  c.fillStyle = theme.text;
  c.font = `600 ${FONT}`;
  c.fillText(clip(item.host ?? "host unknown", 16), 22, middle);
  c.font = FONT;
  const own = item.ranks.filter((rank) => late.has(rank));
  const count = `${item.ranks.length} rank${item.ranks.length === 1 ? "" : "s"}`;
  const said = own.length && item.isFolded ? `${count}, late: ${own.join(", ")}` : count;
  c.fillStyle = own.length && item.isFolded ? theme.late : theme.muted;
  c.fillText(said, width + 6, middle);
}

function drawRank(canvas, item, { own, lag, hangs }, width) {
  const { context: c, lanes, theme } = canvas, y = lanes.screen(item);
  const lines = [];
  if (own && !own.clock_known) lines.push(["clock unknown", theme.muted]);
  if (hangs.some((h) => h.isOpen && !h.waits)) lines.push(["waited for", theme.hang]);
  if (lag) lines.push([`last ${percent(lag.times / lag.of)}`, theme.late]);
  if (own && own.skipped) lines.push([`${own.skipped} lines unread`, theme.bad]);
  if (own && own.host && item.height > 60) lines.push([clip(own.host, 18), theme.muted]);
  drawTitles(canvas, y, width);
  width = GUTTER;
  c.fillStyle = theme.text;
  c.font = `600 ${FONT}`;
  const name = `rank ${item.rank}`, isLow = item.height < LINE + 12;
  let at = y + (isLow ? item.height / 2 : 13);
  c.fillText(name, 10, at);
  const wide = c.measureText(name).width;
  c.font = FONT;
  // In a low lane the first of them stands beside the name.
  if (isLow && lines.length) {
    c.fillStyle = lines[0][1];
    c.fillText(lines[0][0].replace(" of steps", ""), 18 + wide, at, width - wide - 22);
    return;
  }
  for (const [text, color] of lines) {
    at += LINE;
    if (at > y + item.height - 4) break;
    c.fillStyle = color;
    c.fillText(text, 10, at, width - 14);
  }
}

// What the rows of a lane are, where they have titles and are high enough to be read.
function drawTitles({ context: c, data, lanes, theme }, y, width) {
  if (lanes.isStrip || lanes.rowHeight < LEAST_TITLE) return;
  c.fillStyle = theme.muted;
  c.font = FONT;
  c.textAlign = "right";
  data.titles.forEach((title, row) =>
    c.fillText(title, width - 6, lanes.rowTop(y, row) + lanes.rowHeight / 2));
  c.textAlign = "left";
}

// The late ranks that are not in the window, at the edge that is nearer to each.
function drawEdges(canvas, late, width) {
  const { context: c, height, lanes, theme } = canvas;
  canvas.edges = [];
  const seen = new Set(lanes.visible().map((item) => item.rank));
  const above = [], below = [];
  for (const rank of late.keys()) {
    const item = lanes.places.get(rank) ?? lanes.headerOf(rank);
    if (seen.has(rank) || !item || lanes.visible().includes(item)) continue;
    (lanes.screen(item) < TOP + lanes.room / 2 ? above : below).push(rank);
  }
  const button = (rank, y, arrow) => {
    c.fillStyle = theme.late;
    c.beginPath();
    c.roundRect(4, y, width - 10, EDGE - 2, 4);
    c.fill();
    c.fillStyle = theme.background;
    c.font = `600 ${FONT}`;
    c.fillText(`${arrow} rank ${rank} late`, 11, y + EDGE / 2 - 0.5, width - 22);
    canvas.edges.push({ rank, x: 4, y, width: width - 10, height: EDGE - 2 });
  };
  above.slice(0, MOST_EDGES).forEach((rank, i) => button(rank, TOP + 2 + i * EDGE, "▲"));
  below.slice(0, MOST_EDGES).forEach((rank, i) => button(rank, height - (i + 1) * EDGE, "▼"));
}

function percent(share) {
  const value = 100 * share;
  return `${value < 10 ? value.toPrecision(2) : Math.round(value)} % of steps`;
}

function clip(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}
