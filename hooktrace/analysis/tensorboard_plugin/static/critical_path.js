// The critical path: a line along the lanes, and what it consists of, beside them.
//
//   pinned step, or `c` and the steps in view --need()--> /path of each --draw()--> a line
//                                                                      \--> panel: parts in words
//   run, once all of it is read --> /path_sums --> panel
//
// Where there is none the panel says why.  A line goes along the row of the bucket that is worked on,
// on the rank on which the path was followed, and upright to the next one.

import { element, formatTime } from "./dom.js";

const MOST_STEPS = 8;
const NARROWEST_PX = 2;
const AGAIN_MS = 15_000;

export class CriticalPath {
  constructor(app) {
    this.app = app;
    this.isOn = false;
    this.paths = new Map();
    this.asking = new Set();
    this.whose = this.version = null;
    this.shown = [];
  }

  get isBusy() { return this.asking.size > 0; }

  toggle() {
    this.isOn = !this.isOn;
    this.app.page.path.setAttribute("aria-pressed", String(this.isOn));
    this.app.touch();
  }

  // The steps whose path is wanted: the pinned one, and with `c` those in view, if they are few.
  steps() {
    const { data: { picture }, view, pinned } = this.app;
    const own = pinned ? [pinned.step] : [];
    this.isTooMany = false;
    if (!this.isOn || !picture) return own;
    const inView = new Set();
    for (const { steps } of picture.ranks) {
      steps.step.forEach((step, i) => {
        if (steps.end[i] >= view.t0 && steps.start[i] <= view.t1) inView.add(step);
      });
    }
    this.isTooMany = inView.size > MOST_STEPS;
    return [...new Set([...own, ...(this.isTooMany ? [] : inView)])];
  }

  // Called with each frame, before it is drawn.
  need() {
    const { data } = this.app;
    if (!data.model || !data.info) return;
    this.begin(`${data.opened}\n${data.run}\n${data.model}`, data.info.version);
    const wanted = this.steps();
    wanted.filter((step) => !this.paths.has(step) || this.stale.has(step))
      .forEach((step) => this.ask(step));
    this.shown = wanted.map((step) => this.paths.get(step)).filter(Boolean);
    this.tellStep(wanted);
    this.askSums();
  }

  // Of another run nothing is kept, of one that has grown it is asked again.
  begin(whose, version) {
    if (whose !== this.whose) {
      Object.assign(this, { whose, told: null, noted: null, sumsOf: null, askedAt: -Infinity });
      this.paths.clear();
    } else if (version === this.version) return;
    this.version = version;
    this.stale = new Set(this.paths.keys());
  }

  async ask(step) {
    const { whose, version } = this, { data } = this.app, key = `${whose}\n${version}\n${step}`;
    const take = (found) => {
      if (whose !== this.whose || version !== this.version) return;
      this.paths.set(step, found);
      this.stale.delete(step);
    };
    if (this.asking.has(key)) return;
    this.asking.add(key);
    try {
      take(await data.get("path", { run: data.run, model: data.model, step }));
    } catch (error) {
      take({ step, segments: [], why_unknown: error.message });
    }
    this.asking.delete(key);
    this.app.touch();
  }

  // Once all is read, and now and then while a run grows: it takes the server a while.
  async askSums() {
    const { data } = this.app, { whose, version } = this, now = performance.now();
    if (!data.isWhole || this.sumsOf === version || now - this.askedAt < AGAIN_MS) return;
    this.askedAt = now;
    this.sumsOf = version;
    try {
      const sums = await data.get("path_sums", { run: data.run, model: data.model });
      if (whose === this.whose) this.tellSums(sums);
    } catch {
      if (whose === this.whose) this.sumsOf = null;
    }
  }

  tell(id, children) { this.app.panel.fill(id, children); }

  tellStep(wanted) {
    const own = (wanted.length === 1 || this.app.pinned) && this.shown[0];
    const note = this.isTooMany ? tooMany(this.app.pinned) : "";
    if (own === this.told && note === this.noted) return;
    Object.assign(this, { told: own, noted: note });
    this.tell("path", [...(note ? [element("p", {}, note)] : []), ...(own ? stepText(own) : [])]);
  }

  tellSums({ steps, of, parts, length, why_unknown: why, waiting }) {
    const many = steps < of ? `${steps} of the ${of} steps that count, chosen by chance`
      : `all ${of} steps that count`;
    this.tell("path-run", why === null
      ? [element("p", {}, `On average ${formatTime(length)} a step, of ${many}:`), ...bars(parts, length)]
      : [element("p", {}, `There is none: ${why}.`)]);
    // A reason is a sentence, and no number beside a label.
    this.tell("waiting", waiting.map(([label, value]) => (label === "not known"
      ? element("p", {}, `${label}: ${value}`) : row(label, value))));
  }

  draw(canvas, counts) {
    for (const path of this.shown) {
      // What is narrower than the line would only make it jump to and fro.
      const least = NARROWEST_PX * canvas.view.span / canvas.lanesWidth;
      const points = path.segments.filter((one) => one.end - one.start >= least)
        .flatMap((one) => ends(canvas, one));
      if (!points.length) continue;
      counts.pathSegments += path.segments.length;
      stroke(canvas, points);
    }
  }

  state() {
    return { isOn: this.isOn, shown: this.shown };
  }
}

// Where a segment begins and ends on the canvas; nothing of a rank that has no lane.
function ends(canvas, { lane, row: of, start, end }) {
  const top = canvas.lanes.top(lane);
  if (top === null) return [];
  const y = canvas.rowTop(top, of) + canvas.rowHeight / 2;
  return [[canvas.x(start), y], [canvas.x(end), y]];
}

function stroke({ context: c, theme }, points) {
  c.beginPath();
  points.forEach(([x, y], i) => (i ? c.lineTo(x, y) : c.moveTo(x, y)));
  c.lineJoin = "round";
  for (const [color, width] of [[theme.background, 5], [theme.path, 2.5]]) {
    c.strokeStyle = color;
    c.lineWidth = width;
    c.stroke();
  }
  c.lineJoin = "miter";
}

function tooMany(pinned) {
  return `More than ${MOST_STEPS} steps are in view: `
    + `${pinned ? "only the pinned bucket's step has its path" : "no path is"} drawn. Zoom in to see each step's.`;
}

function stepText({ step, start, end, parts, why_unknown: why }) {
  if (why !== null) return [element("p", {}, `Step ${step} has none: ${why}.`)];
  return [element("p", {}, `Step ${step} took ${formatTime(end - start)}:`), ...bars(parts, end - start)];
}

// A row a part, with its share as a bar behind it; those below 1 % are one row.
function bars(parts, length) {
  const small = parts.filter(([, ns]) => ns < 0.01 * length);
  const left = small.reduce((sum, [, ns]) => sum + ns, 0);
  const rows = small.length < 2 ? parts : [...parts.filter((part) => !small.includes(part)),
    [`${small.length} parts below 1 % each`, left]];
  return rows.map(([text, ns]) => {
    const share = 100 * ns / length;
    const made = row(text, `${formatTime(ns)}, ${share < 1 ? "< 1" : Math.round(share)} %`);
    made.style.setProperty("--share", `${share}%`);
    return made;
  });
}

function row(label, value) {
  return element("div", { class: "row part" }, element("span", {}, label),
    element("span", {}, value));
}
