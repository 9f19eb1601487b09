// What the server knows of the run that is open, and when to ask it again.
//
// A picture covers more than the view, half a width on each side, so that a pan has something to
// show at once.  It is asked for again when the view leaves it, when bars are much wider or narrower
// than it was made for, and when the run has grown.  One request for a picture is under way at most.

import { prepare } from "./picture.js";

const POLL_MS = 1500;
const SETTLE_MS = 120;
const AROUND = 0.5;

export class Data {
  constructor(view, { changed, summary, failed }) {
    this.view = view;
    this.changed = changed;
    this.summaryChanged = summary;
    this.failed = failed;
    this.run = this.model = this.info = this.picture = this.summary = null;
    this.details = new Map();
    this.opened = 0;
    this.pending = false;
    this.jumps = 0;
    this.width = 0;
    this.settle = null;
  }

  // Of a sharded run the rows of a rank's lane, by kind of collective; [] of one with buckets.
  get titles() {
    return this.info?.models.find((m) => m.name === this.model)?.titles ?? [];
  }

  get isSharded() { return this.titles.length > 0; }

  // What bars are counted as.
  counted(count) {
    const noun = this.isSharded ? "collective" : "bucket";
    return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
  }

  get isWhole() {
    const { info, picture } = this;
    return Boolean(info && picture && picture.read_bytes === info.total_bytes);
  }

  // Whether more is on its way, the lists beside the picture included.
  get isBusy() {
    const { picture, summary } = this;
    const isListed = !picture || (summary && summary.version >= picture.version);
    return this.pending || this.jumps > 0 || this.settle !== null || !isListed;
  }

  async get(route, parameters = {}) {
    const url = new URL(`../${route}`, import.meta.url);
    for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, value);
    const response = await fetch(url);
    const answer = await response.json();
    if (!response.ok) throw new Error(answer.error);
    return answer;
  }

  async listRuns() {
    try {
      return (await this.get("runs")).runs;
    } catch (error) {
      this.failed(`TensorBoard does not answer: ${error.message}`);
      return null;
    }
  }

  // `model`: the one to show, as soon as it is read of.
  open(run, model = null) {
    this.run = run;
    this.wanted = model;
    this.opened += 1;
    this.model = this.info = this.picture = this.summary = null;
    this.details.clear();
    this.view.reset();
    this.poll(this.opened);
  }

  choose(model) {
    this.wanted = this.model = model;
    this.picture = this.summary = null;
    this.details.clear();
    this.view.reset();
    this.view.grow(this.info.models.find((m) => m.name === model).extent);
    this.refresh();
  }

  // Ask what there is, again and again: at once while there is more to read.
  async poll(opened) {
    let wait = POLL_MS;
    try {
      const info = await this.get("run", { run: this.run });
      if (opened !== this.opened) return;
      const isNew = !this.info || info.version !== this.info.version;
      this.info = info;
      if (info.read_bytes < info.total_bytes && isNew) wait = 20;
      if (isNew) this.take(info);
      this.changed();
    } catch (error) {
      if (opened !== this.opened) return;
      this.failed(`The run cannot be read: ${error.message}`);
    }
    setTimeout(() => { if (opened === this.opened) this.poll(opened); }, wait);
  }

  take(info) {
    const models = info.models;
    if (!models.length) return;
    const own = models.find((m) => m.name === this.wanted)
      ?? models.find((m) => m.name === this.model) ?? models[0];
    if (this.model && own.name !== this.model) return this.choose(own.name);
    this.model = own.name;
    this.view.grow(own.extent);
    this.refresh();
  }

  refresh() {
    this.isStale = true;
    this.view.touch();
    this.askSummary();
  }

  async askSummary() {
    if (this.isAsking) { this.askAgain = true; return; }
    this.isAsking = true;
    const { run, model } = this;
    try {
      const summary = await this.get("summary", { run, model });
      if (run === this.run && model === this.model) {
        this.summary = summary;
        this.summaryChanged();
        this.view.touch();
      }
    } catch { /* the next one tells */ }
    this.isAsking = false;
    if (this.askAgain) {
      this.askAgain = false;
      this.askSummary();
    }
  }

  // Called with each frame: is the picture at hand good for what is looked at?
  need(width, lanes) {
    const { view, picture } = this;
    if (!this.model || width < 1) return;
    if (!picture && this.jumps > 0) return; // the first one is of the step that is gone to
    this.width = width;
    this.lanes = lanes;
    const wanted = view.span / width;
    const isThere = picture && !this.isStale && lanes.fit(picture)
      && view.t0 >= picture.t0 && view.t1 <= picture.t1
      && wanted > picture.px_ns / 1.8 && wanted < picture.px_ns * 1.8;
    if (!isThere) return this.fetch();
    const isExact = Math.abs(wanted / picture.px_ns - 1) < 0.02;
    if (!isExact && this.settle === null && !view.isMoving) {
      this.settle = setTimeout(() => { this.settle = null; this.fetch(); }, SETTLE_MS);
    }
  }

  async fetch() {
    if (this.pending) return;
    this.pending = true;
    this.isStale = false;
    const { view, run, model, width } = this;
    const around = AROUND * (view.goal1 - view.goal0);
    const t0 = Math.floor(view.goal0 - around), t1 = Math.ceil(view.goal1 + around);
    const px = Math.max(1, Math.round(width * (1 + 2 * AROUND)));
    try {
      const some = this.lanes.wanted();
      const answer = await this.get("view", { run, model, t0, t1, width: px, ...some });
      if (run === this.run && model === this.model) {
        this.picture = { ...prepare(answer, (t1 - t0) / px), isStrip: Boolean(some.strips) };
        if (this.info) this.info.read_bytes = Math.max(this.info.read_bytes, answer.read_bytes);
        this.failed("");
      }
    } catch (error) {
      if (run === this.run) this.failed(`The picture cannot be had: ${error.message}`);
    }
    this.pending = false;
    view.touch();
  }

  // Where a step is, or the nearest one, and without a number a typical one; null where it cannot
  // be told.
  async step(number) {
    this.jumps += 1;
    try {
      const which = number === undefined ? {} : { step: number };
      return await this.get("step", { run: this.run, model: this.model, ...which });
    } catch {
      return null;
    } finally {
      this.jumps -= 1;
      this.view.touch();
    }
  }

  // A bucket as canvas.hit() gives it, wherever it is; throws where it is not.
  async bar(rank, step, bucket) {
    const { id, start, end, call } = await this.get("bucket",
      { run: this.run, model: this.model, rank, step, bucket });
    return { kind: "bar", key: `bar/${rank}/${id}`, rank, id, step, bucket, start, end, call };
  }

  // All numbers of a bucket; asked for once.
  detail(rank, id) {
    const key = `${rank}/${id}`;
    if (!this.details.has(key)) {
      if (this.details.size > 500) this.details.clear();
      this.details.set(key, this.get("bucket", { run: this.run, model: this.model, rank, id })
        .catch((error) => { this.details.delete(key); throw error; }));
    }
    return this.details.get(key);
  }
}
