// The page of the tab: puts the parts together and keeps one loop of frames.
//
//   data.js (server) --> view.js (what is looked at) --> canvas.js (draws) --> input.js (moves)
//                                                    \-> panel.js, tooltip.js (text)
//   address.js (what is kept) <--restore.js--> all of it
//
// TensorBoard imports this module in an empty frame and calls render().  For tests,
// window.hooktraceTimeline.state() tells what is drawn; see state.js.

import { Address } from "./address.js";
import { BarCursor } from "./bar_cursor.js";
import { CriticalPath } from "./critical_path.js";
import { Data } from "./data.js";
import { element, formatTime } from "./dom.js";
import { Canvas } from "./canvas.js";
import { listen } from "./input.js";
import { KeysDialog } from "./keys.js";
import { Legend } from "./legend.js";
import { litOf } from "./lit.js";
import { build, fillOptions } from "./page.js";
import { Panel } from "./panel.js";
import { RankTools } from "./rank_tools.js";
import { Restore } from "./restore.js";
import { Search } from "./search.js";
import { tellTests } from "./state.js";
import { Steps } from "./steps.js";
import { followTheme } from "./theme.js";
import { Tooltip } from "./tooltip.js";
import { View } from "./view.js";

export function render() {
  // The style sheet comes first: it has the canvas's colours.
  document.head.append(element("link", { rel: "stylesheet", load: () => new App().start(),
    href: new URL("style.css", import.meta.url) }));
  document.title = "Comm Timeline";
  document.documentElement.lang = "en";
}

class App {
  constructor() {
    this.page = build({
      chooseRun: (name) => this.chooseRun(name), chooseModel: (name) => this.chooseModel(name),
      goToStep: (number) => this.goToStep(number), stepBy: (by) => this.steps.by(by),
      fit: () => this.fit(), follow: (on) => this.view.setFollow(on),
      togglePath: () => this.path.toggle(),
    });
    this.stage = this.page.stage;
    this.view = new View(() => this.touch());
    this.data = new Data(this.view, {
      changed: () => this.changed(), summary: () => this.panel.lists(this.data.summary),
      failed: (message) => this.say(message),
    });
    this.viewState = new Address();
    this.restore = new Restore(this, this.viewState);
    this.canvas = new Canvas(this.stage, this.view, this.data);
    this.steps = new Steps(this);
    this.tooltip = new Tooltip(document.body, this.data);
    this.ranks = new RankTools(this);
    this.panel = new Panel(this.page.side, this.data, {
      step: (number, rank) => this.goToStep(number, rank),
      moment: (at, step, rank) => this.steps.goToMoment(at, step, rank),
    });
    this.path = new CriticalPath(this);
    this.search = new Search(this);
    this.cursor = new BarCursor(this);
    this.keys = new KeysDialog(this.stage);
    this.legend = new Legend(this);
    this.hovered = this.hoveredAt = null;
    this.pinned = null;
    this.drawn = {};
    this.frames = 0;
    this.times = { frameMs: [], firstPictureMs: null, wholePictureMs: null };
    this.isWaiting = false;
    followTheme((theme) => {
      this.canvas.theme = theme;
      this.touch();
    });
    listen(this);
    tellTests(this);
  }

  async start() {
    new ResizeObserver(() => this.resize()).observe(this.stage.parentElement);
    this.stage.focus();
    await this.lookForRuns();
  }

  async lookForRuns() {
    const names = await this.data.listRuns();
    if (names && fillOptions(this.page.runs, names)) {
      if (this.data.run && names.includes(this.data.run)) this.page.runs.value = this.data.run;
      else if (names.length) this.openRun(this.restore.choose(names), this.viewState.get("model"));
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

  // As somebody chooses it: what the address keeps of another run goes.
  chooseRun(name) {
    this.restore.forget();
    this.tell("");
    this.openRun(name);
  }

  openRun(name, model = null) {
    this.leave();
    this.unpin();
    this.panel.clear();
    this.page.runs.value = name;
    this.page.models.replaceChildren();
    this.data.open(name, model);
  }

  chooseModel(name) {
    this.restore.forget();
    this.tell("");
    this.leave();
    this.unpin();
    this.panel.clear();
    this.data.choose(name);
  }

  changed() {
    const { info, model } = this.data;
    if (info) {
      const names = info.models.map((m) => m.name);
      fillOptions(this.page.models, names);
      if (model) this.page.models.value = model;
      this.panel.notes(info);
      if (!names.length) {
        this.say(info.read_bytes < info.total_bytes
          ? "Reading …" : "This run's files hold no bucket yet." + this.panel.noteText(info));
      } else this.say("");
      this.restore.look();
    }
    this.touch();
  }

  // In the middle, where there is no picture.
  say(message) {
    this.page.notice.textContent = message;
    this.page.notice.hidden = !message;
  }

  // In a line above the picture.
  tell(message) {
    this.page.told.textContent = message;
    this.page.told.hidden = !message;
  }

  // Returns the step that is shown, the nearest one; null where there is none.
  goToStep(number, rank) { return this.steps.go(number, rank); }

  fit() {
    this.restore.stay();
    this.view.fit();
  }

  // What is under the pointer, also when the picture has moved below a pointer that rests.
  hover(x, y) {
    this.hoveredAt = { x, y, ...this.looked() };
    const hit = this.canvas.hit(x, y) ?? this.canvas.bands.hit(x, y, this.canvas);
    const key = hit ? hit.key : null;
    if (key !== (this.hovered ? this.hovered.key : null)) {
      this.hovered = hit;
      this.touch();
    }
    this.stage.style.cursor = hit ? "pointer" : "default";
    this.tooltip.show(hit, x, y);
  }

  looked() {
    const { t0, t1, scroll } = this.view;
    return { t0, t1, scroll };
  }

  hoverAgain() {
    const at = this.hoveredAt, now = this.looked();
    if (at && Object.keys(now).some((name) => now[name] !== at[name])) this.hover(at.x, at.y);
  }

  leave() {
    this.hovered = this.hoveredAt = null;
    this.tooltip.show(null);
    this.touch();
  }

  pin(hit) {
    if (!hit || hit.kind !== "bar") return this.unpin();
    this.pinned = hit;
    this.panel.pin(hit);
    this.touch();
  }

  // The bucket that an address names.
  async pinAt(rank, step, bucket) {
    try {
      this.pin(await this.data.bar(rank, step, bucket));
    } catch (error) {
      this.tell(`The pinned bucket is not here: ${error.message}.`);
    }
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
    this.canvas.lit = litOf(this.viewState, this.pinned);
    this.path.need();
    this.drawn = this.canvas.draw(this.hovered, this.pinned, this.path);
    this.ranks.draw();
    this.legend.draw();
    if (this.hovered) this.hoverAgain();
    this.frames += 1;
    this.clock(performance.now() - began);
    this.page.follow.checked = this.view.mode === "follow";
    this.tellStatus();
    this.steps.tell();
    this.restore.look();
    this.restore.keep();
    this.data.need(this.canvas.lanesWidth, this.canvas.lanes);
    if (moving) this.touch();
  }

  clock(took) {
    const { times, drawn } = this;
    times.frameMs.push(took);
    if (times.frameMs.length > 600) times.frameMs.shift();
    const hasPicture = drawn.bars + drawn.bins + drawn.hangs > 0;
    if (hasPicture) times.firstPictureMs ??= performance.now();
    if (hasPicture && this.data.isWhole) times.wholePictureMs ??= performance.now();
  }

  tellStatus() {
    const { info } = this.data;
    if (!info) return;
    const share = info.total_bytes ? info.read_bytes / info.total_bytes : 1;
    const ranks = `${info.ranks.length} rank${info.ranks.length === 1 ? "" : "s"}`;
    const { t0, t1, extent } = this.view;
    const span = formatTime(Math.max(0, Math.min(t1, extent) - Math.max(t0, 0)));
    this.page.status.textContent = `${ranks} · ${span} shown of ${formatTime(extent)}`
      + (share < 1 ? ` · read ${Math.floor(100 * share)} %` : "");
    this.stage.setAttribute("aria-label",
      `Timeline of ${ranks}: ${this.data.counted(this.drawn.bars)} and ${this.drawn.bins} merged bars; `
      + `${this.drawn.hangs} waits of hangs; `
      + "the lists beside it hold the slowest steps and anomalies.");
  }
}
