// The strip on top: the whole run in bands of exposed time or period over all ranks and steps.
//
//   summary.bands (heat_map.py) --> 5 to 95 % shaded, the median a line, the most a dot

import { element, formatTime } from "./dom.js";
import { OVERVIEW } from "./lanes.js";

const FONT = "10px system-ui, sans-serif";
const TOP = 5;
const BOTTOM = OVERVIEW - 4;
const NAMES = { exposed: "exposed time", period: "period" };

export class Bands {
  constructor(app) {
    this.app = app;
    this.address = app.viewState;
    this.select = element("select", { id: "bands", title: "What the strip of the whole run shows" },
      element("option", { value: "exposed" }, "exposed time"),
      element("option", { value: "period" }, "period"));
    app.stage.after(this.select);
    this.select.addEventListener("change", () =>
      this.address.set("bands", this.select.value === "exposed" ? null : this.select.value));
    const show = (value) => {
      this.value = this.select.value = Object.hasOwn(NAMES, value ?? "") ? value : "exposed";
      app.touch();
    };
    this.address.on("bands", show);
    show(this.address.get("bands"));
  }

  get bins() { return this.app.data.summary?.bands?.[this.value] ?? null; }

  // From where to where the strip reaches: what most ranks and steps have, with room above; the most
  // of a bin that lies beyond is at its upper edge, pointed.
  range() {
    const { p5, p95, most } = this.bins;
    const low = this.value === "period" ? Math.min(...p5) : 0;
    const usual = low + 1.6 * (Math.max(...p95) - low), highest = Math.max(...most);
    return { low, high: Math.max(low + 1, 1.1 * Math.min(usual, highest)) };
  }

  draw(canvas) {
    const gutter = canvas.left;
    const { context: c, theme } = canvas;
    this.legend(canvas, gutter);
    const { bins } = this, extent = this.app.data.summary?.extent;
    if (!bins || !bins.start.length || !extent) return;
    const { low, high } = this.range();
    const x = (t) => gutter + t / extent * canvas.lanesWidth;
    const y = (v) => BOTTOM - (BOTTOM - TOP) * Math.min(1, Math.max(0, (v - low) / (high - low)));
    const wide = (i) => Math.max(1, x(bins.start[i + 1] ?? bins.end[i]) - x(bins.start[i]));
    for (let i = 0; i < bins.start.length; i += 1) {
      const left = x(bins.start[i]), width = wide(i);
      c.globalAlpha = 0.32;
      c.fillStyle = theme.late;
      c.fillRect(left, y(bins.p95[i]), width, Math.max(1, y(bins.p5[i]) - y(bins.p95[i])));
      c.globalAlpha = 1;
      c.fillRect(left, y(bins.p50[i]) - 0.75, width, 1.5);
      c.fillStyle = theme.text;
      this.dot(c, left + width / 2, y(bins.most[i]), bins.most[i] > high);
    }
    c.font = FONT;
    c.textAlign = "left";
    for (const [value, at] of [[high, TOP + 3], [low, BOTTOM - 4]]) {
      const text = formatTime(value), width = c.measureText(text).width + 4;
      c.globalAlpha = 0.8;
      c.fillStyle = theme.background;
      c.fillRect(gutter + 2, at - 6, width, 12);
      c.globalAlpha = 1;
      c.fillStyle = theme.muted;
      c.fillText(text, gutter + 4, at);
    }
  }

  dot(c, x, y, isBeyond) {
    c.beginPath();
    if (isBeyond) {
      c.moveTo(x - 3, y + 4);
      c.lineTo(x + 3, y + 4);
      c.lineTo(x, y - 2);
    } else c.arc(x, y, 1.3, 0, 7);
    c.fill();
  }

  legend({ context: c, theme }, gutter) {
    const y = OVERVIEW - 8;
    c.font = FONT;
    c.textAlign = "left";
    c.globalAlpha = 0.32;
    c.fillStyle = theme.late;
    c.fillRect(8, y - 4, 9, 8);
    c.globalAlpha = 1;
    c.fillRect(8, y - 0.75, 9, 1.5);
    c.fillStyle = theme.muted;
    c.fillText("median, 5–95 %", 20, y, 74);
    c.fillStyle = theme.text;
    this.dot(c, gutter - 32, y, false);
    c.fillStyle = theme.muted;
    c.fillText("most", gutter - 27, y);
  }

  // The bin at a point of the strip in words, for the tooltip.
  hit(x, y, canvas) {
    const { bins } = this, extent = this.app.data.summary?.extent;
    if (!bins || !extent || y >= OVERVIEW || x <= canvas.left) return null;
    const time = (x - canvas.left) / canvas.lanesWidth * extent;
    const i = bins.start.findLastIndex((t) => t <= time);
    if (i < 0) return null;
    const steps = bins.first[i] === bins.last[i] ? `Step ${bins.first[i]}`
      : `Steps ${bins.first[i]} to ${bins.last[i]}`;
    return { key: `band/${this.value}/${i}`,
      title: `${steps}: ${NAMES[this.value]} ${formatTime(bins.p50[i])} in the median`,
      lines: [`Of all ranks and steps there, 5 % are below ${formatTime(bins.p5[i])} and 5 % above `
        + `${formatTime(bins.p95[i])}.`, `Most: ${formatTime(bins.most[i])}, rank ${bins.most_rank[i]} `
        + `at step ${bins.most_step[i]}.`] };
  }
}
