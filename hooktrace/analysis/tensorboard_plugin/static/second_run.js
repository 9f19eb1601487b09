// A second run below the first, on the same time axis: step N of both begins at the same place.
//
//   "compare with" <--> address ("compared") --> Data and Canvas of the second run
//   first run's view + shift --LinkedView--> what is shown of the second
//   /step of both --> shift = second's first gradient of step N - first's; and the differences
//
// N is the step that was gone to, else the one in the middle of the window.  Zoom, pan and steps are
// the first run's; the second follows with each frame.

import { Canvas } from "./canvas.js";
import { Data } from "./data.js";
import { element, formatTime, table } from "./dom.js";
import { View } from "./view.js";

const CLICK_PX = 4;
const NO_PATH = { draw() {} };

// Shows what another view shows, `shift` ns later.
class LinkedView extends View {
  constructor(touch) {
    super(touch);
    this.shift = 0;
  }

  // The second run may be longer or shorter; what is shown follows the first.
  grow(extent) { this.extent = extent; }

  reset() { this.extent = 0; }

  // `wider`: how much wider its lanes are than the first's, so that a px is as much time on both.
  follow(view, wider) {
    const stretch = (t0, t1) => [t0 + this.shift, t0 + this.shift + (t1 - t0) * wider];
    [this.t0, this.t1] = stretch(view.t0, view.t1);
    [this.goal0, this.goal1] = stretch(view.goal0, view.goal1);
    this.from = view.from;
    this.scroll += view.scroll - (this.scrolled ?? view.scroll);
    this.scrolled = view.scroll;
  }
}

export class SecondRun {
  constructor(app) {
    this.app = app;
    this.select = element("select", { id: "compared", title: "Compare with another run" });
    this.label = element("label", {}, "compare with ", this.select);
    this.title = element("div", { class: "of-run" });
    this.stage = element("canvas", { id: "second-lanes", role: "img" });
    this.pane = element("div", { id: "second" }, this.stage);
    app.page.models.parentElement.after(this.label);
    app.page.main.before(this.first = element("div", { class: "of-run" }));
    app.page.main.after(this.title, this.pane);
    this.view = new LinkedView(() => app.touch());
    this.data = new Data(this.view, { changed: () => app.touch(), summary: () => {},
      failed: (message) => { this.failure = message; } });
    this.canvas = new Canvas(this.stage, this.view, this.data);
    this.canvas.lanes.choices = app.canvas.lanes.choices;
    this.canvas.bands = Object.create(app.canvas.bands, { app: { value: this } });
    this.pinned = null;
    this.close();
    this.listen();
  }

  get isOpen() { return this.data.run !== null; }

  get isBusy() { return this.isOpen && (this.data.isBusy || !this.data.isWhole || this.asking > 0); }

  listen() {
    const { app } = this, address = app.viewState;
    this.select.addEventListener("change", () => address.set("compared", this.select.value));
    address.on("compared", () => this.choose());
    new ResizeObserver(() => { if (this.isOpen) this.resize(); }).observe(this.pane);
    let moved = 0;
    this.stage.addEventListener("pointerdown", () => { moved = 0; });
    this.stage.addEventListener("pointermove", (event) => {
      const main = app.stage.getBoundingClientRect();
      moved += Math.abs(event.movementX) + Math.abs(event.movementY);
      app.tooltip.data = this.data;
      app.tooltip.show(this.hit(event), event.clientX - main.left, event.clientY - main.top);
      if (event.buttons === 1) app.view.pan(-event.movementX / this.canvas.lanesWidth, true);
    });
    this.stage.addEventListener("pointerup", (event) => {
      if (moved <= CLICK_PX) this.pin(this.hit(event));
    });
    this.stage.addEventListener("pointerleave", () => {
      app.tooltip.show(null);
      app.tooltip.data = app.data;
    });
    this.stage.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
  }

  hit(event) {
    const box = this.stage.getBoundingClientRect();
    return this.canvas.hit(event.clientX - box.left, event.clientY - box.top);
  }

  // In place of the first run's, whose critical path and arrows go with it.
  pin(hit) {
    this.app.unpin();
    if (!hit || hit.kind !== "bar") return;
    this.pinned = hit;
    this.app.panel.pin(hit, this.data);
    this.app.touch();
  }

  wheel(event) {
    event.preventDefault();
    const { app, canvas, view } = this, { lanesWidth } = canvas;
    const at = canvas.time(event.clientX - this.stage.getBoundingClientRect().left) - view.shift;
    if (event.shiftKey) app.view.pan(event.deltaY / lanesWidth, true);
    else if (event.ctrlKey || event.metaKey || !canvas.canScroll) {
      app.view.zoom(Math.exp(Math.max(-200, Math.min(200, event.deltaY)) / 300), at, true);
    } else view.scroll += event.deltaY;
    app.touch();
  }

  // The runs that there are to choose from.
  offer(names) {
    const others = names.filter((name) => name !== this.app.data.run);
    const text = ["", ...others].join("\n");
    if (text !== this.offered) {
      this.offered = text;
      this.select.replaceChildren(element("option", { value: "" }, "no other run"),
        ...others.map((name) => element("option", { value: name }, name)));
      this.label.hidden = !others.length;
    }
    this.names = others;
    this.choose();
  }

  // What the address says is what is shown.
  choose() {
    const wanted = this.app.viewState.get("compared");
    const name = (this.names ?? []).includes(wanted) ? wanted : null;
    this.select.value = name ?? "";
    if (wanted !== null && name === null && this.names && wanted !== this.missed) {
      this.app.tell(`There is no other run “${wanted}” to compare with under this logdir.`);
    }
    this.missed = name === null ? wanted : null;
    if (name === this.data.run) return;
    this.close();
    if (name !== null) this.open(name);
  }

  open(name) {
    for (const one of [this.first, this.title, this.pane]) one.hidden = false;
    this.data.open(name, this.app.data.model);
    this.resize();
  }

  close() {
    for (const one of [this.first, this.title, this.pane]) one.hidden = true;
    this.data.opened += 1; // no further polls
    Object.assign(this.data, { run: null, model: null, info: null, picture: null, summary: null });
    if (this.pinned) this.app.unpin();
    Object.assign(this, { failure: "", step: null, pair: null, asking: 0, drawn: {}, asked: null });
    this.app.panel?.fill("differences", []);
    this.app.touch();
  }

  resize() {
    this.canvas.resize();
    this.app.touch();
  }

  // Called with each frame, after the first run was drawn.
  draw() {
    const { app, canvas, view } = this;
    if (!this.isOpen) return;
    Object.assign(canvas, { theme: app.canvas.theme, hidden: app.canvas.hidden });
    this.align();
    view.follow(app.view, canvas.lanesWidth / Math.max(1, app.canvas.lanesWidth));
    this.drawn = canvas.draw(null, this.pinned, NO_PATH);
    this.data.need(canvas.lanesWidth, canvas.lanes);
    this.tell();
  }

  // Shift the second run so that the step in view begins where the first's does.
  async align() {
    const { app, data } = this;
    const step = app.steps.here;
    const versions = `${app.data.run}\n${app.data.model}\n${data.run}\n${data.model}\n${data.info?.version}`;
    const wanted = `${versions}\n${app.data.info?.version}\n${step}`;
    if (step === null || !data.model || wanted === this.asked) return;
    this.asked = wanted;
    this.asking += 1;
    const [one, two] = await Promise.all([app.data.step(step), data.step(step)]);
    this.asking = Math.max(0, this.asking - 1);
    if (this.asked !== wanted || !one || !two) return;
    this.pair = { one, two };
    this.view.shift = two.start - one.start;
    this.compare();
    app.touch();
  }

  tell() {
    const { app, data, pair } = this;
    const at = pair && pair.two.step !== pair.one.step ? `, which has no step ${pair.one.step}: its step `
      + `${pair.two.step} is the nearest` : "";
    const model = data.model && data.model !== app.data.model ? `, model ${data.model}` : "";
    this.first.textContent = `${app.data.run}${predicted(app.data)}`;
    this.title.textContent = this.failure || `${data.run}${predicted(data)}${model}${at}`
      + (pair ? ` · aligned at the ${this.begin} of step ${pair.two.step}` : "");
  }

  get begin() {
    return this.data.isSharded || this.app.data.isSharded ? "first bar" : "first gradient";
  }

  // The differences of this step; of the runs, with their error, `hooktrace compare` tells.
  compare() {
    const { one, two } = this.pair;
    const lines = [["step time", "period"], ["exposed", "exposed"]].map(([label, name]) =>
      [label, one[name], two[name]]);
    lines.push([`${this.begin} to done`, one.end - one.start, two.end - two.start]);
    this.app.panel.fill("differences", [
      element("p", {}, `Step ${one.step}: ${this.app.data.run} → ${this.data.run}`
        + (one.step === two.step ? "" : `, step ${two.step}`)),
      table(lines.map(([label, a, b]) => [label, difference(a, b)])),
      element("p", { class: "names" }, `The largest of any rank, of this step alone. ${this.more()}`),
    ]);
  }

  more() {
    return predicted(this.data) || predicted(this.app.data)
      ? "hooktrace whatif has the interval of what is predicted."
      : "hooktrace compare tells what differs between the runs.";
  }

  state() {
    const { data, view, pair, drawn } = this;
    return this.isOpen && { run: data.run, model: data.model, shift: view.shift, t0: view.t0,
      t1: view.t1, step: pair && pair.two.step, first: pair && pair.one.step, drawn: { ...drawn },
      pinned: this.pinned && { ...this.pinned } };
  }
}

function predicted(data) { return data.info?.predicted ? ", predicted, not measured" : ""; }

function difference(a, b) {
  if (!(a >= 0 && b >= 0)) return "not known";
  const by = b - a, sign = by > 0 ? "+" : by < 0 ? "−" : "±";
  const share = a > 0 ? ` (${sign}${Math.abs(100 * by / a).toPrecision(2)} %)` : "";
  return `${formatTime(a)} → ${formatTime(b)}, ${sign}${formatTime(Math.abs(by))}${share}`;
}
