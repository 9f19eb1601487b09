// Ranks (lanes.items, a folded host is a row) by steps, coloured by one time (heat_map.py).  Where
// rows share a line of pixels it is their largest, as a column of several steps is: what stands out
// is never averaged away.  Colours go with the square root, so that small differences show too.

import { HEAT_VALUES } from "./definitions.js";
import { element, formatTime, roundUp } from "./dom.js";
import { cssRamp, pixelsOf } from "./heat_pixels.js";
import { GUTTER } from "./lanes.js";
import { Latest } from "./latest.js";
import { choice } from "./page.js";
import { FONT, hatch } from "./shapes.js";

const FOOT = 22;
const NAMES = new Map(HEAT_VALUES);
const ARROWS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

export class HeatMap {
  constructor(app) {
    this.app = app;
    this.answer = this.hovered = null;
    this.rows = [];
    this.latest = new Latest(app.data, "heat", (answer) => this.take(answer),
      (message) => { this.note.textContent = message; });
    this.select = choice(app, "heat", HEAT_VALUES,
      { id: "heat-value", title: "What the colour shows" }, (value) => { this.value = value; });
    this.scale = element("span", { id: "heat-scale" });
    this.note = element("span", { id: "heat-note" });
    this.cell = element("span", { class: "unseen", role: "status" });
    this.element = element("canvas", { id: "heat-map", tabindex: "0", role: "img",
      pointermove: (event) => this.point(this.hit(event.offsetX, event.offsetY), event),
      pointerleave: () => this.point(null),
      click: (event) => this.jump(this.hit(event.offsetX, event.offsetY)),
      keydown: (event) => this.key(event) });
    this.area = element("div", { id: "heat-area" }, this.element);
    this.box = element("div", { id: "heat" }, element("div", { id: "heat-bar" },
      element("label", {}, "colour ", this.select), this.scale, this.note, this.cell), this.area);
    app.stage.parentElement.append(this.box);
    this.context = this.element.getContext("2d", { alpha: false });
    new ResizeObserver(() => app.touch()).observe(this.area);
    app.address.follow("mode", (value) => {
      this.box.hidden = value !== "heat";
      this.hovered = null;
      app.leave();
    });
  }

  get isShown() { return !this.box.hidden; }
  get isBusy() { return this.isShown && (this.latest.isPending || !this.answer); }
  get name() { return NAMES.get(this.answer.value); }

  key(event) {
    const by = ARROWS[event.key];
    if (event.key === "Enter") this.jump(this.hovered);
    if (!by || !this.rows.length) return;
    event.preventDefault();
    event.stopPropagation();
    const { row, column } = this.hovered ?? { row: 0, column: -1 };
    const clamp = (value, count) => Math.min(Math.max(value, 0), count - 1);
    const cell = this.at(clamp(row + by[0], this.rows.length),
      clamp(column + by[1], this.answer.step.length));
    const { x, y } = this.middle(cell);
    this.point(cell, { offsetX: x, offsetY: y });
  }

  // A cell with its words beside the pointer, or null.
  point(cell, place) {
    const words = cell && this.words(cell);
    this.hovered = cell;
    this.cell.textContent = words?.title ?? "";
    this.element.style.cursor = cell ? "pointer" : "default";
    this.app.tooltip.show(words, place?.offsetX, place?.offsetY + this.area.offsetTop);
    this.app.touch();
  }

  take(answer) {
    this.answer = answer;
    this.byRank = new Map(answer.ranks.map((rank, index) => [rank, index]));
    this.told = null;
  }

  // The scale with its values, and what is not known; once for an answer and theme.
  tell(theme) {
    if (this.told === theme) return;
    this.told = theme;
    const { low, high, note, cells } = this.answer;
    this.note.textContent = note;
    this.scale.hidden = !cells.some((ns) => ns >= 0);
    const shares = low < high ? [0, 0.25, 0.5, 0.75, 1] : [0];
    this.scale.replaceChildren(element("b", { style: `background: ${cssRamp(theme)}` }),
      ...shares.map((share) => element("i", { style: `left: ${100 * share}%` },
        formatTime(low + (high - low) * share ** 2))));
  }

  draw() {
    if (!this.isShown) return;
    const { theme, lanes } = this.app.canvas, { clientWidth, clientHeight } = this.area;
    const ratio = window.devicePixelRatio || 1, c = this.context;
    this.width = clientWidth - GUTTER;
    this.height = clientHeight - FOOT;
    this.latest.need({ value: this.value, columns: Math.max(1, Math.floor(this.width)) });
    this.element.width = Math.round(clientWidth * ratio);
    this.element.height = Math.round(clientHeight * ratio);
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.fillStyle = theme.background;
    c.fillRect(0, 0, clientWidth, clientHeight);
    if (!this.answer || this.width < 1 || this.height < 1) return;
    this.rows = lanes.items.filter((item) => item.kind === "rank" || item.isFolded)
      .map((item) => ({ ranks: (item.ranks ?? [item.rank]).filter((rank) => this.byRank.has(rank)),
        host: item.host, isHost: item.kind === "host" }))
      .filter((row) => row.ranks.length);
    this.tell(theme.name);
    this.drawCells(c, theme, ratio);
    this.drawLabels(c, theme);
    this.drawSteps(c, theme);
    this.drawCursor(c, theme);
    this.element.setAttribute("aria-label", `Heat map of ${this.name}: ${this.rows.length} rows `
      + `by ${this.answer.steps} steps; arrow keys go from cell to cell, Enter shows it in the `
      + "timeline.");
  }

  // On a hatched ground, as no value is.  Pixels are made anew only where what they show has
  // changed, not with each move of the pointer.
  drawCells(c, theme, ratio) {
    c.fillStyle = hatch(c, ratio,
      { every: 7, line: [theme.muted, 0.6, 1.2], grounds: [[theme.lane, 1]] });
    c.fillRect(GUTTER, 0, this.width, this.height);
    const rows = this.rows.map((row) => row.ranks.map((rank) => this.byRank.get(rank)));
    const most = Math.floor(this.height * ratio), { answer, made } = this;
    const key = [theme.name, most, ...rows.map((row) => row.join())].join("|");
    if (made?.key !== key || made.answer !== answer) {
      this.made = { key, answer, pixels: pixelsOf(answer, rows, most, theme.name) };
    }
    c.imageSmoothingEnabled = false;
    if (this.made.pixels) c.drawImage(this.made.pixels, GUTTER, 0, this.width, this.height);
  }

  get rowHeight() { return this.height / Math.max(1, this.rows.length); }
  get columnWidth() { return this.width / Math.max(1, this.answer.step.length); }

  // As many ranks as there is room for are named, and each host where it begins; no line over
  // cells.
  drawLabels(c, theme) {
    c.font = FONT;
    c.textBaseline = "middle";
    let free = 0, host = null;
    this.rows.forEach((row, index) => {
      const isNew = row.host !== host;
      host = row.host;
      const y = (index + 0.5) * this.rowHeight;
      const middle = Math.min(Math.max(y, 7), this.height - 6);
      if (middle < free) return;
      free = middle + Math.max(13, this.rowHeight);
      c.textAlign = "left";
      c.fillStyle = theme.text;
      c.fillText(row.isHost ? `${host} (${row.ranks.length})` : `rank ${row.ranks[0]}`, 10, middle);
      if (!isNew || !host || row.isHost) return;
      c.textAlign = "right";
      c.fillStyle = theme.muted;
      c.fillText(host.slice(0, 10), GUTTER - 6, middle);
      c.fillStyle = theme.line;
      if (index && this.rowHeight >= 14) c.fillRect(0, index * this.rowHeight - 0.5, GUTTER, 1);
    });
  }

  drawSteps(c, theme) {
    const { step, last_step: last } = this.answer, y = this.height + FOOT / 2;
    c.textAlign = "left";
    c.fillStyle = theme.muted;
    c.fillText("step", 10, y);
    const every = roundUp(Math.max(1, (c.measureText(String(last)).width + 16) / this.columnWidth));
    for (let i = 0; i < step.length; i += every) {
      const x = GUTTER + i * this.columnWidth;
      c.fillRect(x, this.height, 1, 4);
      c.fillText(String(step[i]), x + 2, y + 1);
    }
  }

  drawCursor(c, theme) {
    if (!this.hovered) return;
    const { row, column } = this.hovered, { rowHeight, columnWidth } = this;
    c.strokeStyle = theme.text;
    c.lineWidth = 1.5;
    c.strokeRect(GUTTER + column * columnWidth - 1, row * rowHeight - 1,
      Math.max(3, columnWidth) + 2, Math.max(3, rowHeight) + 2);
  }

  // The cell at a point of the canvas: where rows share a pixel, the largest of them.
  hit(x, y) {
    const { answer, rows, rowHeight } = this;
    if (!answer || !rows.length || x < GUTTER || y < 0 || y >= this.height) return null;
    const column = Math.floor((x - GUTTER) / this.columnWidth);
    if (column >= answer.step.length) return null;
    const from = Math.floor(Math.floor(y) / rowHeight);
    if (rowHeight >= 1) return this.at(from, column);
    const to = Math.min(Math.ceil((Math.floor(y) + 1) / rowHeight), rows.length);
    const near = rows.slice(from, to).map((_, i) => this.at(from + i, column));
    return near.reduce((a, b) => (b.ns > a.ns ? b : a));
  }

  at(row, column) {
    const { cells, step, at, ranks } = this.answer, columns = step.length;
    const index = this.rows[row].ranks.map((rank) => this.byRank.get(rank) * columns + column)
      .reduce((a, b) => (cells[b] > cells[a] ? b : a));
    return { row, column, ns: cells[index], step: step[column] + (at[index] ?? 0),
      rank: ranks[Math.floor(index / columns)] };
  }

  words({ rank, step, ns, row }) {
    const { value, bin_steps: bin, unknown } = this.answer;
    const { ranks, host, isHost } = this.rows[row];
    const lines = [bin > 1 && `the largest of ${bin} steps`,
      isHost && `the largest of ${ranks.length} ranks of ${host}`, ns < 0 && unknown,
      "Click to see it in the timeline."].filter(Boolean);
    const isNotBehind = value === "delay" && ns === 0;
    const said = isNotBehind ? `not ${this.name}`
      : `${this.name} ${ns < 0 ? "unknown" : formatTime(ns)}`;
    return { key: `heat/${value}/${rank}/${step}/${row}`, lines,
      title: `rank ${rank}, step ${step}: ${said}` };
  }

  jump(cell) {
    if (!cell) return;
    this.app.ranks.showLanes(cell.rank);
    this.app.steps.go(cell.step);
  }

  state() {
    return { isShown: this.isShown, value: this.value, rows: this.rows.map((r) => r.ranks),
      columns: this.answer?.step.length ?? 0, hovered: this.hovered, note: this.note.textContent };
  }

  // Where a rank's cell of a step is, its middle in px of the canvas; for tests.
  locate(rank, step) {
    const row = this.rows.findIndex((r) => r.ranks.includes(rank));
    const column = this.answer?.step.findLastIndex((s) => s <= step) ?? -1;
    return row < 0 || column < 0 ? null : this.middle({ row, column });
  }

  middle({ row, column }) {
    return { x: GUTTER + (column + 0.5) * this.columnWidth, y: (row + 0.5) * this.rowHeight };
  }
}
