// The page of the tab: puts the parts together and keeps one loop of frames.
//
//   data.js (server) --> view.js (what is looked at) --> canvas.js (draws) --> input.js (moves)
//                                                    \-> panel.js, tooltip.js (text)
//
// TensorBoard imports this module in an empty frame and calls render().  For tests,
// window.hooktraceTimeline.state() tells what is drawn; see `state` below.

import { Data } from "./data.js";
import { element, formatTime } from "./dom.js";
import { Canvas } from "./canvas.js";
import { listen } from "./input.js";
import { Panel } from "./panel.js";
import { followTheme, legend } from "./theme.js";
import { Tooltip } from "./tooltip.js";
import { View } from "./view.js";

const KEYS = "w s zoom · a d ← → pan · ↑ ↓ scroll · [ ] step · 0 all · f focus · l follow · Esc unpin";

export function render() {
  const sheet = element("link", { rel: "stylesheet", href: new URL("style.css", import.meta.url) });
  document.head.append(sheet);
  document.title = "Comm Timeline";
  document.documentElement.lang = "en";
  sheet.addEventListener("load", () => app.resize());
  const app = new App();
  app.start();
}

class App {
  constructor() {
    this.runs = element("select", { id: "run", title: "Run" });
    this.models = element("select", { id: "model", title: "Model" });
    this.stepBox = element("input", {
      id: "step", type: "number", title: "Go to a step", placeholder: "step",
    });
    this.follow = element("input", { id: "follow", type: "checkbox" });
    this.status = element("span", { id: "status", role: "status" });
    this.stage = element("canvas", { id: "lanes", tabindex: "0", role: "img" });
    this.legend = element("span", { id: "legend" });
    this.notice = element("div", { id: "notice" });
    const button = (id, text, title, act) => {
      const made = element("button", { id, title, type: "button" }, text);
      made.addEventListener("click", () => { act(); this.stage.focus(); });
      return made;
    };
    const bar = element(
      "div", { id: "bar" },
      element("label", {}, "run ", this.runs), element("label", {}, "model ", this.models),
      element("span", { class: "group" },
        button("previous", "‹", "Previous step ([)", () => this.stepBy(-1)), this.stepBox,
        button("next", "›", "Next step (])", () => this.stepBy(1))),
      button("fit", "all", "Show the whole run (0)", () => this.view.fit()),
      element("label", { title: "Stay at the end of a running job (l)" }, this.follow, " follow"),
      this.status,
    );
    const main = element("div", { id: "main" }, this.stage, this.notice);
    const foot = element("div", { id: "foot" }, this.legend, element("span", { id: "keys" }, KEYS));
    const side = element("div", { id: "side" });
    document.body.append(bar, element("div", { id: "middle" }, main, side), foot);

    this.view = new View(() => this.touch());
    this.data = new Data(this.view, {
      changed: () => this.changed(), summary: () => this.panel.lists(this.data.summary),
      failed: (message) => this.say(message),
    });
    this.canvas = new Canvas(this.stage, this.view, this.data);
    this.tooltip = new Tooltip(document.body, this.data);
    this.panel = new Panel(side, this.data, {
      step: (number) => this.goToStep(number), time: (at) => this.view.center(at),
    });
    this.hovered = null;
    this.pinned = null;
    this.drawn = {};
    this.frames = 0;
    this.frameMs = [];
    this.firstPictureMs = null;
    this.wholePictureMs = null;
    this.isWaiting = false;
    followTheme((theme) => {
      this.canvas.theme = theme;
      this.legend.replaceChildren(...legend(theme));
      this.touch();
    });
    listen(this);
    window.hooktraceTimeline = {
      state: () => this.state(),
      locate: (rank, step, bucket) => this.canvas.locate(rank, step, bucket),
      goToStep: (number) => this.goToStep(number),
    };
  }

  async start() {
    new ResizeObserver(() => this.resize()).observe(this.stage.parentElement);
    this.runs.addEventListener("change", () => this.chooseRun(this.runs.value));
    this.models.addEventListener("change", () => this.chooseModel(this.models.value));
    this.stepBox.addEventListener("change", () => this.goToStep(Number(this.stepBox.value)));
    this.follow.addEventListener("change", () => this.view.setFollow(this.follow.checked));
    this.stage.focus();
    await this.lookForRuns();
  }

  async lookForRuns() {
    const names = await this.data.listRuns();
    const known = [...this.runs.options].map((o) => o.value);
    if (names && names.join("\n") !== known.join("\n")) {
      this.runs.replaceChildren(...names.map((n) => element("option", { value: n }, n)));
      if (this.data.run && names.includes(this.data.run)) this.runs.value = this.data.run;
      else if (names.length) this.chooseRun(names[0]);
    }
    if (names && !names.length) this.tellEmpty();
    // A job that starts while the page is open appears by itself.
    setTimeout(() => this.lookForRuns(), 5000);
  }

  tellEmpty() {
    this.say("There is no record file under this logdir yet. A run writes them with "
      + 'hooktrace.Tracer(exporters=[RecordFileExporter("<logdir>/<run>")]) or '
      + "HOOKTRACE_RECORD_DIR=<logdir>/<run>; they appear here by themselves.");
    this.touch();
  }

  chooseRun(name) {
    this.unpin();
    this.panel.clear();
    this.runs.value = name;
    this.models.replaceChildren();
    this.data.open(name);
  }

  chooseModel(name) {
    this.unpin();
    this.panel.clear();
    this.data.choose(name);
  }

  changed() {
    const { info, model } = this.data;
    if (info) {
      const names = info.models.map((m) => m.name);
      if (names.join("\n") !== [...this.models.options].map((o) => o.value).join("\n")) {
        this.models.replaceChildren(...names.map((n) => element("option", { value: n }, n)));
      }
      if (model) this.models.value = model;
      this.panel.notes(info);
      if (!names.length) {
        this.say(info.read_bytes < info.total_bytes
          ? "Reading …" : "This run's files hold no bucket yet." + this.panel.noteText(info));
      } else this.say("");
    }
    this.touch();
  }

  say(message) {
    this.notice.textContent = message;
    this.notice.hidden = !message;
  }

  async goToStep(number) {
    if (!Number.isFinite(number)) return;
    const found = await this.data.step(Math.round(number));
    if (!found) return;
    this.stepBox.value = found.step;
    const margin = 0.15 * (found.end - found.start) + 1000;
    this.view.show(found.start - margin, found.end + margin);
  }

  stepBy(by) {
    const here = this.stepBox.value === "" ? this.canvas.stepInMiddle() : Number(this.stepBox.value);
    if (here !== null) this.goToStep(here + by);
  }

  hover(x, y) {
    const hit = this.canvas.hit(x, y);
    const key = hit ? hit.key : null;
    if (key !== (this.hovered ? this.hovered.key : null)) {
      this.hovered = hit;
      this.touch();
    }
    this.stage.style.cursor = hit ? "pointer" : "default";
    this.tooltip.show(hit, x, y);
  }

  leave() {
    this.hovered = null;
    this.tooltip.show(null);
    this.touch();
  }

  pin(hit) {
    if (!hit || hit.kind !== "bar") return this.unpin();
    this.pinned = hit;
    this.panel.pin(hit);
    this.touch();
  }

  unpin() {
    this.pinned = null;
    this.panel.pin(null);
    this.touch();
  }

  resize() {
    this.canvas.resize();
    this.touch();
  }

  // Ask for one frame; the loop stops by itself when nothing moves.
  touch() {
    if (this.isWaiting) return;
    this.isWaiting = true;
    requestAnimationFrame((now) => this.frame(now));
  }

  frame(now) {
    this.isWaiting = false;
    const began = performance.now();
    const moving = this.view.advance(now);
    this.drawn = this.canvas.draw(this.hovered, this.pinned);
    this.frames += 1;
    this.frameMs.push(performance.now() - began);
    if (this.frameMs.length > 600) this.frameMs.shift();
    const hasPicture = this.drawn.bars + this.drawn.bins > 0;
    if (hasPicture) this.firstPictureMs ??= performance.now();
    if (hasPicture && this.data.isWhole) this.wholePictureMs ??= performance.now();
    this.follow.checked = this.view.mode === "follow";
    this.tellStatus();
    this.data.need(this.canvas.lanesWidth);
    if (moving) this.touch();
  }

  tellStatus() {
    const { info } = this.data;
    if (!info) return;
    const share = info.total_bytes ? info.read_bytes / info.total_bytes : 1;
    const ranks = `${info.ranks.length} rank${info.ranks.length === 1 ? "" : "s"}`;
    const span = formatTime(this.view.t1 - this.view.t0);
    this.status.textContent = `${ranks} · ${span} shown of ${formatTime(this.view.extent)}`
      + (share < 1 ? ` · read ${Math.floor(100 * share)} %` : "");
    this.stage.setAttribute("aria-label",
      `Timeline of ${ranks}: ${this.drawn.bars} buckets and ${this.drawn.bins} merged bars; `
      + "the lists beside it hold the slowest steps and anomalies.");
  }

  // What tests read: the viewport (ns since the run's origin), counts of what the last frame drew
  // inside the visible part, what is hovered and pinned, and times in ms since navigation.
  state() {
    const { view, data } = this;
    return {
      run: data.run, model: data.model, version: data.info ? data.info.version : null,
      t0: view.t0, t1: view.t1, target: [view.goal0, view.goal1], extent: view.extent,
      mode: view.mode, scroll: view.scroll, drawn: { ...this.drawn }, frames: this.frames,
      hovered: this.hovered && { ...this.hovered }, pinned: this.pinned && { ...this.pinned },
      theme: this.canvas.theme.name, isBusy: data.isBusy || view.isMoving, isWhole: data.isWhole,
      firstPictureMs: this.firstPictureMs, wholePictureMs: this.wholePictureMs,
      frameMs: [...this.frameMs], notice: this.notice.textContent,
    };
  }
}
