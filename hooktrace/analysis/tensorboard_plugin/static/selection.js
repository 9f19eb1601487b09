// A stretch of time in numbers, for the ranks that are looked at: selection.py says what counts.
//
//   Shift + drag, or x and drag --> address ("t0-t1") --> selection route --> tables, copied as CSV
//
// Listens to the canvas before input.js does, and keeps what is its own from it.

import { element, formatTime } from "./dom.js";
import { TOP } from "./lanes.js";
import { csvOf, offer, tableOf } from "./selection_table.js";

const LEAST_PX = 4;

export class Selection {
  constructor(app) {
    this.app = app;
    this.address = app.viewState;
    this.range = this.answer = this.drag = null;
    this.asked = "";
    this.isOn = false;
    this.button = element("button", { id: "select-button", type: "button",
      title: "Drag over a stretch of time for its numbers (x, or Shift + drag)" }, "select");
    this.button.addEventListener("click", () => this.toggle());
    this.box = element("section", { id: "selection", "aria-label": "Selection" });
    this.box.hidden = true;
    app.page.middle.after(this.box);
    this.listen();
    const read = (text) => {
      const ends = /^(-?\d+)\.\.(-?\d+)$/.exec(text ?? "");
      this.range = ends ? { t0: Number(ends[1]), t1: Number(ends[2]) } : null;
      this.app.touch();
    };
    this.address.on("selection", read);
    read(this.address.get("selection"));
  }

  toggle(on = !this.isOn) {
    this.isOn = on;
    this.app.touch();
    if (on) this.app.ranks.showLanes();
  }

  set(t0, t1) {
    this.address.set("selection", `${Math.round(t0)}..${Math.round(t1)}`);
    this.toggle(false);
  }

  close() {
    this.address.set("selection", null);
    this.toggle(false);
    this.app.stage.focus();
  }

  listen() {
    const { stage, canvas } = this.app;
    const x = (event) => Math.min(Math.max(event.clientX - stage.getBoundingClientRect().left,
      canvas.left), canvas.right);
    const take = (name, act) => stage.addEventListener(name, (event) => {
      if (act(event) !== true) return;
      event.stopImmediatePropagation();
      event.preventDefault();
      this.app.touch();
    }, { capture: true });
    take("pointerdown", (event) => {
      const box = stage.getBoundingClientRect();
      if (!(event.shiftKey || this.isOn) || event.button !== 0) return false;
      if (event.clientX - box.left < canvas.left || event.clientY - box.top < TOP) return false;
      stage.focus();
      stage.setPointerCapture(event.pointerId);
      this.drag = { from: canvas.time(x(event)), to: canvas.time(x(event)), x: x(event) };
      return true;
    });
    take("pointermove", (event) => {
      if (!this.drag) return false;
      this.drag.to = canvas.time(x(event));
      return true;
    });
    take("pointerup", (event) => {
      const drag = this.drag;
      this.drag = null;
      if (!drag) return false;
      if (Math.abs(x(event) - drag.x) >= LEAST_PX) {
        this.set(Math.min(drag.from, drag.to), Math.max(drag.from, drag.to));
      }
      return true;
    });
    stage.addEventListener("pointercancel", () => { this.drag = null; });
  }

  // The ranks that are asked for: those that the filter leaves, folded ones too.
  get ranks() {
    const { items, hosts } = this.app.canvas.lanes;
    const shown = new Set(items.flatMap((i) => i.ranks ?? [i.rank]));
    return shown.size === hosts.size ? "" : [...shown].sort((a, b) => a - b).join(",");
  }

  // Called with each frame.
  draw() {
    this.button.setAttribute("aria-pressed", String(this.isOn));
    this.app.stage.style.cursor = this.isOn ? "crosshair" : this.app.stage.style.cursor;
    this.drawRange();
    const isHint = this.isOn && !this.range;
    this.box.hidden = !this.range && !isHint;
    if (this.range) return this.need();
    this.asked = "";
    if (!isHint) this.box.replaceChildren();
    else if (!this.box.querySelector(".hint")) this.box.replaceChildren(this.hint());
  }

  hint() {
    const whole = element("button", { type: "button" }, "select what is shown");
    whole.addEventListener("click", () => this.set(this.app.view.t0, this.app.view.t1));
    return element("p", { class: "hint" }, "Drag over a stretch of time, or ", whole);
  }

  drawRange() {
    const { canvas } = this.app, { drag, range } = this;
    const ends = drag ? [drag.from, drag.to] : range && [range.t0, range.t1];
    if (!ends) return;
    const [a, b] = ends.map((t) => Math.min(Math.max(canvas.x(t), canvas.left), canvas.right));
    const c = canvas.context;
    c.fillStyle = canvas.theme.text;
    c.globalAlpha = 0.09;
    c.fillRect(Math.min(a, b), TOP, Math.abs(b - a), canvas.height - TOP);
    c.globalAlpha = 0.8;
    for (const x of [a, b]) c.fillRect(x - 0.5, TOP - 6, 1, canvas.height);
    c.globalAlpha = 1;
  }

  need() {
    const { data } = this.app, { t0, t1 } = this.range;
    if (!data.model || !data.info || !this.app.canvas.lanes.hosts.size) return;
    const ask = { run: data.run, model: data.model, t0, t1, ranks: this.ranks };
    const wanted = JSON.stringify([ask, data.info.version]);
    if (wanted === this.asked || this.isPending) return;
    this.asked = wanted;
    this.isPending = true;
    // Nobody chose a rank: an empty list must not ask for all of them.
    const isNone = this.app.canvas.lanes.items.length === 0;
    const answer = isNone ? Promise.reject(new Error("The filter leaves no rank."))
      : data.get("selection", ask);
    answer.then((found) => { this.answer = found; this.tell(); }, (error) => {
      this.answer = null;
      this.box.replaceChildren(element("p", { class: "bad" }, error.message), this.closing());
    }).finally(() => { this.isPending = false; this.app.touch(); });
  }

  get isBusy() { return Boolean(this.isPending) || (this.range !== null && this.asked === ""); }

  closing() {
    const made = element("button", { type: "button", class: "close", title: "Close" }, "×");
    made.addEventListener("click", () => this.close());
    return made;
  }

  tell() {
    const { answer } = this, zoom = element("button", { type: "button" }, "zoom to it");
    const copy = element("button", { id: "copy-csv", type: "button" }, "copy as CSV");
    const said = element("span", { role: "status" });
    copy.addEventListener("click", async () => { said.textContent = await offer(this.csv(), this.box); });
    zoom.addEventListener("click", () => this.app.view.show(answer.t0, answer.t1));
    this.box.replaceChildren(
      element("header", {}, element("b", {}, `${formatTime(answer.t1 - answer.t0)} selected`),
        element("span", {}, this.sentence()), zoom, copy, said, this.closing()),
      element("p", {}, "busy: at least one is under way, added up over the ranks. sum counts "
        + `${this.app.data.isSharded ? "collectives" : "buckets"} that overlap more than once and is no cost. exposed: share of the exposed time in which it is `
        + "under way; several are at once.", answer.wire_not_split
        ? ` Wire is not told apart into wait and transfer: ${answer.wire_not_split}.` : ""),
      element("div", { class: "tables" }, tableOf("stage", answer.stages),
        tableOf(this.app.data.isSharded ? "unit" : "bucket", answer.buckets)));
    const { data } = this.app;
    if (answer.more_buckets) {
      const noun = data.isSharded ? "units' collectives" : "buckets";
      this.box.append(element("p", {}, `and ${answer.more_buckets} more ${noun}`));
    }
  }

  sentence() {
    const { ranks, steps, buckets_counted: n, reach_in: before, reach_out: after, exposed } = this.answer;
    const of = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
    const { data } = this.app, counted = `${data.counted(n)} ${data.isSharded ? "begun" : "ready"} in it`;
    return `${counted} (${of(ranks, "rank")}, ${of(steps, "step")}), counted whole`
      + `; ${before.toLocaleString("en")} that reach in from before are not counted, `
      + `${after.toLocaleString("en")} reach out; ${formatTime(exposed)} exposed, all ranks together`;
  }

  csv() { return csvOf(this.answer, this.app.data.isSharded ? "unit" : "bucket"); }

  state() {
    return { isOn: this.isOn, range: this.range, answer: this.answer,
      csv: this.answer && this.range ? this.csv() : null };
  }
}
