// A stretch of time in numbers, for the ranks that are looked at: selection.py says what counts.

import { button, element, formatPercent, formatTime, paragraph } from "./dom.js";
import { TOP } from "./lanes.js";
import { Latest } from "./latest.js";

const COLUMNS = ["count", "busy", "sum", "mean", "low", "p95", "high"];

export class Selection {
  constructor(app) {
    this.app = app;
    this.answer = this.dragged = null;
    this.isOn = false;
    this.latest = new Latest(app.data, "selection", (answer) => this.tell(answer),
      (message) => this.fail(message));
    this.button = button("select", () => this.toggle(), { id: "select-button",
      title: "Drag over a stretch of time for its numbers (x, or Shift + drag)" });
    this.box = element("section", { id: "selection", "aria-label": "Selection" });
    app.page.middle.after(this.box);
    app.address.follow("selection", (text) => {
      const ends = /^(-?\d+)\.\.(-?\d+)$/.exec(text ?? "");
      this.range = ends && { t0: Number(ends[1]), t1: Number(ends[2]) };
      this.isTold = false;
      if (ends) return;
      this.latest.forget();
      this.box.replaceChildren();
    });
  }

  toggle(on = !this.isOn) {
    this.isOn = on;
    this.app.stage.style.cursor = on ? "crosshair" : "default";
    this.app.touch();
    if (on) this.app.ranks.showLanes();
  }

  set(t0, t1) {
    this.app.address.set("selection", `${Math.round(t0)}..${Math.round(t1)}`);
    this.toggle(false);
  }

  close() {
    this.app.address.set("selection", null);
    this.toggle(false);
    this.app.stage.focus();
  }

  drag(from, to) {
    const { canvas } = this.app;
    const [t0, t1] = [from, to].map((x) => canvas.time(canvas.inside(x))).sort((a, b) => a - b);
    this.dragged = { t0, t1 };
    this.app.touch();
  }

  drop(isWanted) {
    if (isWanted) this.set(this.dragged.t0, this.dragged.t1);
    this.dragged = null;
    this.app.touch();
  }

  get isBusy() { return this.latest.isPending || (this.range !== null && !this.isTold); }

  draw() {
    const { app, range, isOn } = this;
    this.button.setAttribute("aria-pressed", String(isOn));
    this.drawRange();
    this.box.hidden = !range && !isOn;
    if (range) this.need();
    else if (isOn && !this.box.childElementCount) {
      const { view } = app;
      this.box.replaceChildren(element("p", {}, "Drag over a stretch of time, or ",
        button("select what is shown", () => this.set(view.t0, view.t1))));
    }
  }

  drawRange() {
    const { canvas, canvas: { context: c } } = this.app, range = this.dragged ?? this.range;
    if (!range) return;
    const a = canvas.inside(canvas.x(range.t0)), b = canvas.inside(canvas.x(range.t1));
    c.fillStyle = canvas.theme.text;
    c.globalAlpha = 0.09;
    c.fillRect(a, TOP, b - a, canvas.height - TOP);
    c.globalAlpha = 0.8;
    for (const x of [a, b]) c.fillRect(x - 0.5, TOP - 6, 1, canvas.height);
    c.globalAlpha = 1;
  }

  // Of the ranks that the filter leaves, folded ones too; "" is all of them.
  need() {
    const { items, hosts } = this.app.canvas.lanes;
    if (!hosts.size) return;
    const shown = new Set(items.flatMap((item) => item.ranks ?? [item.rank]));
    const ranks = shown.size === hosts.size ? "" : [...shown].sort((a, b) => a - b).join(",");
    if (shown.size) return this.latest.need({ ...this.range, ranks });
    this.latest.forget();
    this.fail("The filter leaves no rank.");
  }

  closing() { return button("×", () => this.close(), { class: "close", title: "Close" }); }

  fail(message) {
    this.answer = null;
    this.isTold = true;
    this.box.replaceChildren(paragraph(message, { class: "bad" }), this.closing());
  }

  tell(answer) {
    this.answer = answer;
    this.isTold = true;
    const { t0, t1, row, title, sentence, explained, stages, buckets, left } = answer;
    this.box.replaceChildren(
      element("header", {}, element("b", {}, title), element("span", {}, sentence),
        button("zoom to it", () => this.app.view.show(t0, t1)),
        this.closing()),
      paragraph(explained),
      element("div", { class: "tables" }, tableOf("stage", stages), tableOf(row, buckets)),
      ...(left ? [paragraph(left)] : []));
  }

  state() {
    const { isOn, range, answer } = this;
    return { isOn, range, answer: range && answer };
  }
}

// `noun`: of what a row is.
function tableOf(noun, rows) {
  const head = (scope, text) => element("th", { scope }, text);
  const names = [noun, ...COLUMNS, "exposed"].map((name) => head("col", name));
  const body = rows.map((row) => element("tr", {}, head("row", row.name),
    ...cellsOf(row).map((cell) => element("td", {}, cell))));
  return element("table", {}, element("thead", {}, element("tr", {}, ...names)),
    element("tbody", {}, ...body));
}

function cellsOf(row) {
  const [count, ...times] = COLUMNS.map((name) => row[name]);
  return [count.toLocaleString("en"), ...times.map(formatTime),
    row.exposed === null ? "–" : formatPercent(row.exposed)];
}
