// The critical path: a line along the lanes, and what it consists of, beside them.  A line goes
// along the row of the bucket that is worked on, on the rank on which the path was followed, and
// upright to the next one.

import { element, paragraph } from "./dom.js";
import { Latest } from "./latest.js";

const MOST_STEPS = 8;
const NARROWEST_PX = 2;
const AGAIN_MS = 15_000;

export class CriticalPath {
  constructor(app) {
    this.app = app;
    this.isOn = false;
    this.paths = new Map();
    this.asking = 0;
    this.shown = [];
    this.sums = new Latest(app.data, "path_sums", (sums) => this.tellSums(sums),
      () => this.sums.forget());
  }

  get isBusy() { return this.asking > 0; }

  toggle() {
    this.isOn = !this.isOn;
    this.app.page.path.setAttribute("aria-pressed", String(this.isOn));
    this.app.touch();
  }

  // The steps whose path is wanted: the pinned one, and with `c` those in view, if they are few.
  steps() {
    const { data: { picture }, view, pinned } = this.app, inView = new Set();
    for (const { steps } of this.isOn && picture ? picture.ranks : []) {
      steps.step.forEach((step, i) => {
        if (view.sees(steps.start[i], steps.end[i])) inView.add(step);
      });
    }
    this.isTooMany = inView.size > MOST_STEPS;
    return [...new Set([...(pinned ? [pinned.step] : []), ...(this.isTooMany ? [] : inView)])];
  }

  need() {
    const { data: { model, info, era, isWhole } } = this.app;
    if (!model || !info) return;
    // Of another run or model nothing is kept, of one that has grown it is asked again.
    if (era !== this.era) {
      Object.assign(this, { era, told: null, askedAt: -Infinity });
      this.paths.clear();
    }
    const wanted = this.steps();
    for (const step of wanted) {
      if (this.paths.get(step)?.version !== info.version) this.ask(step, info.version);
    }
    this.shown = wanted.map((step) => this.paths.get(step).found).filter(Boolean);
    this.tellStep(wanted);
    // Once all is read, and now and then while a run grows: it takes the server a while.
    const now = performance.now();
    if (isWhole && !this.sums.isPending && now - this.askedAt > AGAIN_MS) {
      this.askedAt = now;
      this.sums.need();
    }
  }

  // Until the answer is there what was found before is shown.
  async ask(step, version) {
    const { data, data: { era } } = this.app;
    const asked = { version, found: this.paths.get(step)?.found };
    this.paths.set(step, asked);
    this.asking += 1;
    const found = await data.ask("path", { step })
      .catch((error) => ({ segments: [], title: error.message, rows: [] }));
    this.asking -= 1;
    if (era === data.era) asked.found = found;
    this.app.touch();
  }

  tellStep(wanted) {
    const { panel, pinned } = this.app;
    const own = (wanted.length === 1 || pinned) && this.shown[0];
    const told = [own, this.isTooMany, Boolean(pinned)];
    if (this.told?.every((one, i) => one === told[i])) return;
    this.told = told;
    panel.fill("path", [
      ...(this.isTooMany ? [paragraph(`More than ${MOST_STEPS} steps are in view: `
        + `${pinned ? "only the pinned bucket's step has its path" : "no path is"} drawn. `
        + "Zoom in to see each step's.")] : []),
      ...(own ? parts(own) : [])]);
  }

  tellSums(sums) {
    const { panel } = this.app;
    panel.fill("path-run", parts(sums));
    // A reason is a sentence, and no number beside a label.
    panel.fill("waiting", sums.waiting.map(([label, value]) =>
      (label === "not known" ? paragraph(`${label}: ${value}`) : row(label, value))));
  }

  draw(canvas, counts) {
    const { context: c, theme } = canvas;
    // What is narrower than the line would only make it jump to and fro.
    const least = NARROWEST_PX * canvas.view.span / canvas.lanesWidth;
    for (const { segments } of this.shown) {
      const points = segments.filter(({ start, end }) => end - start >= least)
        .flatMap(({ lane, row: of, start, end }) =>
          [start, end].map((time) => canvas.place(lane, of, time))).filter(Boolean);
      if (!points.length) continue;
      counts.pathSegments += segments.length;
      c.beginPath();
      for (const { x, y } of points) c.lineTo(x, y + canvas.rowHeight / 2);
      c.lineJoin = "round";
      for (const [color, width] of [[theme.background, 5], [theme.path, 2.5]]) {
        c.strokeStyle = color;
        c.lineWidth = width;
        c.stroke();
      }
      c.lineJoin = "miter";
    }
  }

  state() { return { isOn: this.isOn, shown: this.shown }; }
}

// What a path consists of: a row a part, with its share as a bar behind it.
function parts({ title, rows }) {
  return [paragraph(title), ...rows.map(([text, value, share]) =>
    row(text, value, { style: `--share: ${share}%` }))];
}

function row(label, value, attributes = {}) {
  return element("div", { class: "row part", ...attributes }, element("span", {}, label),
    element("span", {}, value));
}
