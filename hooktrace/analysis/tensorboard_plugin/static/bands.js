// The strip on top: the whole run's exposed time or period (run_bands in heat_map.py), 5 to 95 %
// shaded, the median a line, the most a dot.

import { HEAT_VALUES } from "./definitions.js";
import { formatTime } from "./dom.js";
import { OVERVIEW } from "./lanes.js";
import { choice } from "./page.js";
import { plate, polygon } from "./shapes.js";

const TOP = 5;
const BOTTOM = OVERVIEW - 4;
const VALUES = HEAT_VALUES.filter(([value]) => ["exposed", "period"].includes(value));
const NAMES = new Map(VALUES);

export class Bands {
  constructor(app) {
    this.data = app.data;
    app.stage.after(choice(app, "bands", VALUES,
      { id: "bands", title: "What the strip of the whole run shows" },
      (value) => { this.value = value; }));
  }

  get bins() { return this.data.summary?.bands[this.value] ?? { start: [] }; }

  // From where to where the strip reaches: what most ranks and steps have, with room above; the
  // most of a bin that lies beyond is at its upper edge, pointed.
  range({ p5, p95, most }) {
    const low = this.value === "period" ? Math.min(...p5) : 0;
    const usual = low + 1.6 * (Math.max(...p95) - low), highest = Math.max(...most);
    return { low, high: Math.max(low + 1, 1.1 * Math.min(usual, highest)) };
  }

  draw({ context: c, theme, left, lanesWidth }) {
    c.textAlign = "left";
    drawLegend(c, theme, left);
    const { bins } = this, extent = this.data.summary?.extent;
    if (!bins.start.length || !extent) return;
    const { low, high } = this.range(bins);
    const x = (t) => left + t / extent * lanesWidth;
    const y = (v) => BOTTOM - (BOTTOM - TOP) * Math.min(1, Math.max(0, (v - low) / (high - low)));
    bins.start.forEach((start, i) => {
      const from = x(start), width = Math.max(1, x(bins.start[i + 1] ?? bins.end[i]) - from);
      drawBand(c, theme, from, width, y(bins.p95[i]), y(bins.p50[i]), y(bins.p5[i]));
      drawMost(c, theme, from + width / 2, y(bins.most[i]), bins.most[i] > high);
    });
    for (const [value, at] of [[high, TOP + 3], [low, BOTTOM - 4]]) {
      plate(c, theme, formatTime(value), { x: left + 2, y: at, height: 12, color: theme.muted });
    }
  }

  // The bin at a point of the strip in words, for the tooltip.
  hit(x, y, canvas) {
    const { bins } = this, extent = this.data.summary?.extent;
    if (!extent || y >= OVERVIEW || x <= canvas.left) return null;
    const time = (x - canvas.left) / canvas.lanesWidth * extent;
    const i = bins.start.findLastIndex((t) => t <= time);
    if (i < 0) return null;
    const steps = bins.first[i] === bins.last[i] ? `Step ${bins.first[i]}`
      : `Steps ${bins.first[i]} to ${bins.last[i]}`;
    return { key: `band/${this.value}/${i}`,
      title: `${steps}: ${NAMES.get(this.value)} ${formatTime(bins.p50[i])} in the median`,
      lines: [`Of all ranks and steps there, 5 % are below ${formatTime(bins.p5[i])} and 5 % above `
        + `${formatTime(bins.p95[i])}.`,
      `Most: ${formatTime(bins.most[i])}, rank ${bins.most_rank[i]} at step `
        + `${bins.most_step[i]}.`] };
  }
}

function drawBand(c, theme, x, width, top, middle, bottom) {
  c.globalAlpha = 0.32;
  c.fillStyle = theme.late;
  c.fillRect(x, top, width, Math.max(1, bottom - top));
  c.globalAlpha = 1;
  c.fillRect(x, middle - 0.75, width, 1.5);
}

function drawMost(c, theme, x, y, isBeyond) {
  c.fillStyle = theme.text;
  if (isBeyond) return polygon(c, [x - 3, y + 4], [x + 3, y + 4], [x, y - 2]);
  c.beginPath();
  c.arc(x, y, 1.3, 0, 7);
  c.fill();
}

function drawLegend(c, theme, left) {
  const y = OVERVIEW - 8;
  drawBand(c, theme, 8, 9, y - 4, y, y + 4);
  drawMost(c, theme, left - 32, y, false);
  c.fillStyle = theme.muted;
  c.fillText("median, 5–95 %", 20, y, 74);
  c.fillText("most", left - 27, y);
}
