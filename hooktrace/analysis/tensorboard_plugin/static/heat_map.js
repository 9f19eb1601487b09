// Ranks by steps, coloured by one time: which rank and which step stand out.
//
//   heat route (heat_map.py) + lanes.items (order, groups, filter) --rows--> picture --> canvas
//
// A row is a rank, or a host that is folded.  Where there are more rows than pixels, a line of pixels
// is the largest of its rows; a column that is several steps is their largest too: what stands out
// is never averaged away.  Colours go with the square root, so that small differences show beside
// large ones; the scale names its values.

import { HEAT_VALUES } from "./definitions.js";
import { element, formatTime } from "./dom.js";
import { cssRamp, hatchUnknown, pixelsOf } from "./heat_pixels.js";

const GUTTER = 132;
const FOOT = 22;
const FONT = "11px system-ui, sans-serif";

export class HeatMap {
  constructor(parent, app, choose) {
    this.app = app;
    this.value = "exposed";
    this.answer = this.hovered = null;
    this.asked = "";
    this.select = element("select", { id: "heat-value", title: "What the colour shows" },
      ...HEAT_VALUES.map(([value, text]) => element("option", { value }, text)));
    this.scale = element("span", { id: "heat-scale" });
    this.note = element("span", { id: "heat-note" });
    this.cell = element("span", { class: "spoken", role: "status" });
    this.element = element("canvas", { id: "heat-map", tabindex: "0", role: "img" });
    this.area = element("div", { id: "heat-area" }, this.element);
    this.box = element("div", { id: "heat" },
      element("div", { id: "heat-bar" }, element("label", {}, "colour ", this.select), this.scale,
        this.note, this.cell), this.area);
    this.box.hidden = true;
    parent.append(this.box);
    this.context = this.element.getContext("2d", { alpha: false });
    this.select.addEventListener("change", () => choose(this.select.value));
    this.listen();
    new ResizeObserver(() => app.touch()).observe(this.area);
  }

  get isShown() { return !this.box.hidden; }

  show(on) {
    this.box.hidden = !on;
    this.hovered = null;
    this.app.leave();
  }

  choose(value) {
    this.value = this.select.value = value;
    this.app.touch();
  }

  listen() {
    const place = (event) => {
      const box = this.element.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    this.element.addEventListener("pointermove", (event) => {
      const [x, y] = place(event);
      this.point(this.hit(x, y));
      this.app.tooltip.show(this.hovered && this.words(this.hovered), x, y + this.area.offsetTop);
    });
    this.element.addEventListener("pointerleave", () => {
      this.point(null);
      this.app.tooltip.show(null);
    });
    this.element.addEventListener("click", (event) => this.jump(this.hit(...place(event))));
    this.element.addEventListener("keydown", (event) => this.key(event));
  }

  // Arrows move from cell to cell, Enter jumps; the cell's words are spoken.
  key(event) {
    const by = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (event.key === "Enter") this.jump(this.hovered);
    if (!by || !this.rows) return;
    event.preventDefault();
    event.stopPropagation();
    const { row, column } = this.hovered ?? { row: 0, column: -1 };
    const clamp = (value, count) => Math.min(Math.max(value, 0), count - 1);
    this.point(this.at(clamp(row + by[1], this.rows.length),
      clamp(column + by[0], this.answer.step.length)));
    const { x, y } = this.middle(this.hovered);
    this.app.tooltip.show(this.words(this.hovered), x, y + this.area.offsetTop);
  }

  point(hit) {
    this.hovered = hit;
    this.cell.textContent = hit ? this.words(hit).title : "";
    this.element.style.cursor = hit ? "pointer" : "default";
    this.app.touch();
  }

  // Called with each frame: is the answer at hand the one that is wanted?
  need() {
    const { data } = this.app;
    const width = Math.max(1, Math.floor(this.area.clientWidth - GUTTER));
    const wanted = [data.run, data.model, data.info?.version, this.value, width].join("\n");
    if (!data.model || wanted === this.asked || this.isPending) return;
    this.asked = wanted;
    this.isPending = true;
    const parameters = { run: data.run, model: data.model, value: this.value, columns: width };
    data.get("heat", parameters).then((answer) => {
      if (wanted !== this.asked) return;
      this.answer = answer;
      this.byRank = new Map(answer.ranks.map((rank, index) => [rank, index]));
      this.tell();
    }, (error) => { this.note.textContent = error.message; }).finally(() => {
      this.isPending = false;
      this.app.touch();
    });
  }

  get isBusy() { return this.isShown && (this.isPending || !this.answer); }

  // The scale with its values, and what is not known.
  tell() {
    const { low, high, unknown, unsure, bin_steps: bin } = this.answer;
    this.toldTheme = this.app.canvas.theme.name;
    this.scale.hidden = !this.answer.cells.some((ns) => ns >= 0);
    const ticks = (low < high ? [0, 0.25, 0.5, 0.75, 1] : [0]).map((share) => {
      const tick = element("i", {}, formatTime(low + (high - low) * share ** 2));
      tick.style.left = `${100 * share}%`;
      return tick;
    });
    const ramp = element("b", {});
    ramp.style.background = cssRamp(this.toldTheme);
    this.scale.replaceChildren(ramp, ...ticks);
    const notes = [];
    if (bin > 1) notes.push(`${bin} steps a column, the largest is shown`);
    if (unknown) notes.push(`hatched: ${unknown}`);
    if (unsure) notes.push(`clocks are known to ${formatTime(unsure)}`);
    this.note.textContent = notes.join(" · ");
  }

  draw() {
    if (!this.isShown) return;
    this.need();
    const { theme, lanes } = this.app.canvas, { clientWidth, clientHeight } = this.area;
    const ratio = window.devicePixelRatio || 1, c = this.context;
    this.width = clientWidth - GUTTER;
    this.height = clientHeight - FOOT;
    this.element.width = Math.round(clientWidth * ratio);
    this.element.height = Math.round(clientHeight * ratio);
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.fillStyle = theme.background;
    c.fillRect(0, 0, clientWidth, clientHeight);
    if (!this.answer || this.width < 1 || this.height < 1) return;
    this.rows = lanes.items.flatMap((item) => {
      if (item.kind === "host" && !item.isFolded) return [];
      const ranks = (item.ranks ?? [item.rank]).filter((rank) => this.byRank.has(rank));
      return ranks.length ? [{ ranks, host: item.host, isHost: item.kind === "host" }] : [];
    });
    if (this.toldTheme !== theme.name) this.tell();
    hatchUnknown(c, GUTTER, 0, this.width, this.height, theme);
    const made = this.pixels(Math.floor(this.height * ratio), theme.name);
    c.imageSmoothingEnabled = false;
    if (made) c.drawImage(made, GUTTER, 0, this.width, this.height);
    this.drawLabels(c, theme);
    this.drawSteps(c, theme);
    this.drawCursor(c, theme);
    const name = HEAT_VALUES.find(([value]) => value === this.answer.value)[1];
    this.element.setAttribute("aria-label", `Heat map of ${name}: ${this.rows.length} rows by `
      + `${this.answer.steps} steps; arrow keys go from cell to cell, Enter shows it in the timeline.`);
  }

  // Made anew only where what it shows has changed, not with each move of the pointer.
  pixels(most, theme) {
    const rows = this.rows.map((row) => row.ranks.map((rank) => this.byRank.get(rank)));
    const key = [theme, most, ...rows.map((row) => row.join())].join("|");
    if (this.made?.key !== key || this.made.answer !== this.answer) {
      this.made = { key, answer: this.answer, pixels: pixelsOf(this.answer, rows, most, theme) };
    }
    return this.made.pixels;
  }

  get rowHeight() { return this.height / Math.max(1, this.rows.length); }

  get columnWidth() { return this.width / Math.max(1, this.answer.step.length); }

  // As many ranks as there is room for are named, and each host where it begins; no line over cells.
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
      c.fillText(row.isHost ? `${row.host} (${row.ranks.length})` : `rank ${row.ranks[0]}`, 10, middle);
      if (!isNew || !row.host || row.isHost) return;
      c.textAlign = "right";
      c.fillStyle = theme.muted;
      c.fillText(row.host.slice(0, 10), GUTTER - 6, middle);
      c.fillStyle = theme.line;
      if (index && this.rowHeight >= 14) c.fillRect(0, index * this.rowHeight - 0.5, GUTTER, 1);
    });
  }

  drawSteps(c, theme) {
    const { step } = this.answer;
    c.textBaseline = "middle";
    c.textAlign = "left";
    c.fillStyle = theme.muted;
    c.fillText("step", 10, this.height + FOOT / 2);
    const least = (c.measureText(String(this.answer.last_step)).width + 16) / this.columnWidth;
    const power = 10 ** Math.floor(Math.log10(Math.max(1, least)));
    const every = power * [1, 2, 5, 10].find((f) => f * power >= least);
    for (let i = 0; i < step.length; i += every) {
      const x = GUTTER + i * this.columnWidth;
      c.fillRect(x, this.height, 1, 4);
      c.fillText(String(step[i]), x + 2, this.height + FOOT / 2 + 1);
    }
  }

  drawCursor(c, theme) {
    if (!this.hovered) return;
    c.strokeStyle = theme.text;
    c.lineWidth = 1.5;
    c.strokeRect(GUTTER + this.hovered.column * this.columnWidth - 1,
      this.hovered.row * this.rowHeight - 1, Math.max(3, this.columnWidth) + 2,
      Math.max(3, this.rowHeight) + 2);
  }

  // The cell at a point of the canvas: where rows share a pixel, the largest of them.
  hit(x, y) {
    if (!this.answer || !this.rows?.length || x < GUTTER || y < 0 || y >= this.height) return null;
    const column = Math.floor((x - GUTTER) / this.columnWidth);
    if (column >= this.answer.step.length) return null;
    const from = Math.floor(Math.floor(y) / this.rowHeight);
    const to = Math.max(from + 1, Math.ceil((Math.floor(y) + 1) / this.rowHeight));
    const near = [];
    for (let row = from; row < Math.min(to, this.rows.length); row += 1) near.push(this.at(row, column));
    return this.rowHeight >= 1 ? near[0] : near.reduce((a, b) => (b.ns > a.ns ? b : a));
  }

  at(row, column) {
    const { cells, step, at } = this.answer, columns = step.length;
    const index = this.rows[row].ranks.map((rank) => this.byRank.get(rank) * columns + column)
      .reduce((a, b) => (cells[b] > cells[a] ? b : a));
    return { row, column, ns: cells[index], step: step[column] + (at[index] ?? 0),
      rank: this.answer.ranks[Math.floor(index / columns)] };
  }

  words({ rank, step, ns, row }) {
    const name = HEAT_VALUES.find(([value]) => value === this.answer.value)[1];
    const lines = [];
    if (this.answer.bin_steps > 1) lines.push(`the largest of ${this.answer.bin_steps} steps`);
    if (this.rows[row].isHost) lines.push(`the largest of ${this.rows[row].ranks.length} ranks of ${this.rows[row].host}`);
    if (ns < 0) lines.push(this.answer.unknown);
    return { key: `heat/${this.answer.value}/${rank}/${step}/${row}`,
      title: `rank ${rank}, step ${step}: ${inWords(this.answer.value, name, ns)}`,
      lines: [...lines, "Click to see it in the timeline."] };
  }

  jump(hit) {
    if (!hit) return;
    this.app.ranks.showLanes(hit.rank);
    this.app.goToStep(hit.step);
  }

  state() {
    return { isShown: this.isShown, value: this.value, rows: this.rows?.map((r) => r.ranks) ?? [],
      columns: this.answer?.step.length ?? 0, hovered: this.hovered, note: this.note.textContent };
  }

  // Where a rank's cell of a step is, its middle in px of the canvas; for tests.
  locate(rank, step) {
    if (!this.answer || !this.rows) return null;
    const row = this.rows.findIndex((r) => r.ranks.includes(rank));
    const column = this.answer.step.findLastIndex((s) => s <= step);
    if (row < 0 || column < 0) return null;
    return this.middle({ row, column });
  }

  middle({ row, column }) {
    return { x: GUTTER + (column + 0.5) * this.columnWidth, y: (row + 0.5) * this.rowHeight };
  }
}

function inWords(value, name, ns) {
  if (ns < 0) return `${name} unknown`;
  return value === "lag" && ns === 0 ? "not behind the middle rank" : `${name} ${formatTime(ns)}`;
}
