// Puts the parts together and keeps one loop of frames, with each of which the parts' need() and
// draw() are called.  TensorBoard imports this module in an empty frame and calls render().

import { Address } from "./address.js";
import { Bands } from "./bands.js";
import { BarCursor } from "./bar_cursor.js";
import { Canvas } from "./canvas.js";
import { Data } from "./data.js";
import { counted, element, formatTime } from "./dom.js";
import { hitAt } from "./hits.js";
import { listen } from "./input.js";
import { keysDialog } from "./keys.js";
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

const LOOK_MS = 5000;
const FRAMES_KEPT = 600;

// The style sheet comes first: it has the canvas's colours.
export function render() {
  document.head.append(element("link", { rel: "stylesheet", load: () => new App().lookForRuns(),
    href: new URL("style.css", import.meta.url) }));
  document.title = "Comm Timeline";
  document.documentElement.lang = "en";
}

class App {
  constructor() {
    this.hovered = this.hoveredAt = this.pinned = null;
    this.isWaiting = false;
    this.drawn = {};
    this.frames = 0;
    this.times = { frameMs: [], firstPictureMs: null, wholePictureMs: null };
    this.page = build(this);
    this.stage = this.page.stage;
    this.view = new View(() => this.touch());
    this.data = new Data(this.view, { changed: () => this.changed(),
      summary: (found) => this.panel.tell(found), failed: (message) => this.say(message) });
    this.address = new Address(() => this.touch());
    this.restore = new Restore(this);
    this.canvas = new Canvas(this.stage, this.view, this.data);
    this.canvas.bands = new Bands(this);
    this.steps = new Steps(this);
    this.tooltip = new Tooltip(this.data);
    this.ranks = new RankTools(this);
    this.panel = new Panel(this);
    this.search = new Search(this);
    this.cursor = new BarCursor(this);
    this.keys = keysDialog(this.stage);
    this.legend = new Legend(this);
    this.address.follow("lit", (text) => { this.lit = text; });
    followTheme((theme) => {
      this.canvas.theme = theme;
      this.touch();
    });
    listen(this);
    tellTests(this);
    new ResizeObserver(() => {
      this.canvas.resize();
      this.touch();
    }).observe(this.stage.parentElement);
    this.stage.focus();
  }

  // Again and again: a job that starts while the page is open appears by itself.
  async lookForRuns() {
    const { page, data } = this;
    const names = await data.get("runs").then(({ runs }) => runs, (error) => {
      this.say(`TensorBoard does not answer: ${error.message}`);
    });
    if (names && fillOptions(page.runs, names)) {
      if (data.run && names.includes(data.run)) page.runs.value = data.run;
      else if (names.length) this.openRun(this.restore.choose(names), this.address.get("model"));
    }
    if (names && !names.length) {
      this.say("There is no record file under this logdir yet. A run writes them with "
        + 'hooktrace.Tracer(exporters=[RecordFileExporter("<logdir>/<run>")]) or '
        + "HOOKTRACE_RECORD_DIR=<logdir>/<run>; they appear here by themselves.");
    }
    setTimeout(() => this.lookForRuns(), LOOK_MS);
  }

  // As somebody chooses it: what the address keeps of another run goes.
  choose(name, model) {
    this.restore.forget();
    this.openRun(name, model);
  }

  openRun(name, model) {
    this.leave();
    this.pin(null);
    this.panel.clear();
    this.page.runs.value = name;
    this.page.models.replaceChildren();
    this.data.open(name, model);
  }

  changed() {
    const { data: { info, model, isRead }, page } = this;
    const names = info.models.map((m) => m.name);
    fillOptions(page.models, names);
    if (model) page.models.value = model;
    this.panel.notes(info.notes);
    this.say(names.length ? "" : !isRead ? "Reading …"
      : ["This run's files hold no bucket yet.", ...info.notes].join(" "));
    this.restore.look();
    this.touch();
  }

  // In the middle, where there is no picture.
  say(message) { show(this.page.notice, message); }

  // In a line above the picture.
  tell(message) { show(this.page.told, message); }

  // Somebody may ask for the whole run before it is read.
  fit() {
    this.restore.wants.delete("typical");
    this.view.fit();
  }

  // What is under the pointer, also when the picture has moved below a pointer that rests.
  hover(x, y) {
    this.hoveredAt = [x, y];
    const hit = hitAt(this.canvas, x, y) ?? this.canvas.bands.hit(x, y, this.canvas);
    if (hit?.key !== this.hovered?.key) {
      this.hovered = hit;
      this.touch();
    }
    this.stage.style.cursor = hit ? "pointer" : "default";
    this.tooltip.show(hit, x, y);
  }

  leave() {
    this.hovered = this.hoveredAt = null;
    this.tooltip.show(null);
    this.touch();
  }

  pin(hit) {
    this.pinned = hit?.kind === "bar" ? hit : null;
    this.panel.pin(this.pinned);
    this.touch();
  }

  // Ask for one frame; the loop stops by itself when nothing moves.
  touch() {
    if (this.isWaiting) return;
    this.isWaiting = true;
    requestAnimationFrame((now) => this.frame(now));
  }

  frame(now) {
    const { canvas, view, data } = this;
    this.isWaiting = false;
    const began = performance.now();
    const moving = view.advance(now);
    canvas.lit = litOf(this.lit, this.pinned);
    this.drawn = canvas.draw(this.hovered, this.pinned);
    this.ranks.draw();
    this.legend.draw();
    if (this.hovered) this.hover(...this.hoveredAt);
    this.clock(performance.now() - began);
    this.page.follow.checked = view.mode === "follow";
    if (data.info) this.tellStatus(data.info);
    this.steps.tell();
    this.restore.look();
    this.restore.keep();
    data.need(canvas.lanesWidth, canvas.lanes);
    if (moving) this.touch();
  }

  clock(took) {
    const { times, drawn } = this;
    this.frames += 1;
    times.frameMs.push(took);
    if (times.frameMs.length > FRAMES_KEPT) times.frameMs.shift();
    const hasPicture = drawn.bars + drawn.bins + drawn.hangs > 0;
    if (hasPicture) times.firstPictureMs ??= performance.now();
    if (hasPicture && this.data.isWhole) times.wholePictureMs ??= performance.now();
  }

  tellStatus(info) {
    const { page, stage, data, drawn, view: { t0, t1, extent } } = this;
    const ranks = counted(info.ranks.length, "rank");
    const span = formatTime(Math.max(0, Math.min(t1, extent) - Math.max(t0, 0)));
    page.status.textContent = `${ranks} · ${span} shown of ${formatTime(extent)}`
      + (data.isRead ? "" : ` · read ${Math.floor(100 * info.read_bytes / info.total_bytes)} %`);
    stage.setAttribute("aria-label",
      `Timeline of ${ranks}: ${data.counted(drawn.bars)} and ${drawn.bins} merged bars; `
      + `${drawn.hangs} waits of hangs; the lists beside it hold the slowest steps and anomalies.`);
  }
}

function show(box, message) {
  box.textContent = message;
  box.hidden = !message;
}
