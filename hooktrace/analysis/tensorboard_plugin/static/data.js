// What the server knows of the run that is open, and when to ask it again.  A picture covers more
// than the view, half a width on each side, so that a pan has something to show at once.  It is
// asked for again when the view leaves it, or bars are much wider or narrower, and when the run has
// grown.

import { counted } from "./dom.js";
import { Latest } from "./latest.js";
import { prepare } from "./picture.js";

const POLL_MS = 1500;
const LOOK_MS = 10;
const LONGEST_MS = 3000;
// A run that grows is left alone for so many times as long as its last growth took to be shown:
// TensorBoard has others to serve.
const REST = 5;
const SETTLE_MS = 120;
const AROUND = 0.5;

export class Data {
  constructor(view, { changed, summary, failed }) {
    Object.assign(this, { view, changed, failed });
    this.run = this.model = this.info = this.picture = this.summary = this.settle = null;
    this.details = new Map();
    this.era = 0; // counts the runs and models that were opened
    this.jumps = 0;
    this.summaries = new Latest(this, "summary", (found) => summary(this.summary = found));
    this.pictures = new Latest(this, "view", (answer, asked) => {
      this.picture = prepare(answer, asked);
      this.info.read_bytes = Math.max(this.info.read_bytes, answer.read_bytes);
      failed("");
    }, (message) => {
      failed(`The picture cannot be had: ${message}`);
      setTimeout(() => { this.pictures.forget(); view.touch(); }, POLL_MS);
    });
  }

  get own() { return this.info?.models.find((m) => m.name === this.model); }

  // Of a sharded run the rows of a rank's lane, by kind of collective; [] of one with buckets.
  get titles() { return this.own?.titles ?? []; }
  // The row of collectives that belong to no bucket, null where there is none.
  get othersLane() { return this.own?.others_lane ?? null; }
  get isSharded() { return this.titles.length > 0; }
  get noun() { return this.isSharded ? "collective" : "bucket"; }

  counted(count) { return counted(count, this.noun); }

  get isRead() { return this.info !== null && this.info.read_bytes >= this.info.total_bytes; }
  get isWhole() { return this.info !== null && this.picture?.read_bytes === this.info.total_bytes; }

  // Whether a picture of what was read last is still to come.
  get isBehind() { return this.isStale || this.pictures.isPending; }

  // Whether more is on its way, the lists beside the picture included.
  get isBusy() {
    const { picture, summary } = this;
    const isListed = !picture || summary?.version >= picture.version;
    return this.pictures.isPending || this.jumps > 0 || this.settle !== null || !isListed;
  }

  async get(route, parameters = {}) {
    const url = new URL(`../${route}`, import.meta.url);
    for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, value);
    const response = await fetch(url);
    const answer = await response.json();
    if (!response.ok) throw new Error(answer.error);
    return answer;
  }

  ask(route, parameters) {
    return this.get(route, { run: this.run, model: this.model, ...parameters });
  }

  // `model`: the one to show, as soon as it is read of.
  open(run, model) {
    this.run = run;
    this.wanted = model;
    this.model = this.info = null;
    this.begin();
    clearTimeout(this.polling);
    this.poll();
  }

  begin() {
    this.era += 1;
    this.isStale = false;
    this.picture = this.summary = null;
    this.details.clear();
    this.view.reset();
  }

  // Ask what there is, again and again: at once while there is more to read, but not before what
  // was read is shown.
  async poll() {
    const { run } = this, opened = this.opened = {};
    let wait = POLL_MS;
    try {
      const began = performance.now(), info = await this.get("run", { run });
      if (opened !== this.opened) return;
      const isNew = info.version !== this.info?.version;
      this.info = info;
      if (isNew) this.take(info.models);
      this.changed();
      while (isNew && this.isBehind && performance.now() - began < LONGEST_MS) await pause(LOOK_MS);
      if (opened !== this.opened) return;
      if (isNew) wait = this.isRead ? Math.max(wait, REST * (performance.now() - began)) : 0;
    } catch (error) {
      if (opened !== this.opened) return;
      this.failed(`The run cannot be read: ${error.message}`);
    }
    this.polling = setTimeout(() => this.poll(), wait);
  }

  take(models) {
    if (!models.length) return;
    const find = (name) => models.find((m) => m.name === name);
    const { name, extent } = find(this.wanted) ?? find(this.model) ?? models[0];
    if (this.model && name !== this.model) this.begin();
    this.model = name;
    this.view.grow(extent);
    this.isStale = true;
    this.view.touch();
  }

  // Is the picture at hand good for what is looked at?
  need(width, lanes) {
    const { view, picture } = this;
    // Lists are of the whole run; the picture comes first.
    if (this.isRead && !this.isBehind) this.summaries.need();
    if (!this.model || width < 1) return;
    if (!picture && this.jumps > 0) return; // the first one is of the step that is gone to
    const zoom = picture && view.span / width / picture.px_ns;
    const isThere = picture && !this.isStale && lanes.fit(picture)
      && view.t0 >= picture.t0 && view.t1 <= picture.t1 && zoom > 1 / 1.8 && zoom < 1.8;
    if (!isThere) this.fetch(width, lanes);
    else if (Math.abs(zoom - 1) >= 0.02 && this.settle === null && !view.isMoving) {
      this.settle = setTimeout(() => { this.settle = null; this.fetch(width, lanes); }, SETTLE_MS);
    }
  }

  fetch(width, lanes) {
    if (this.pictures.isPending) return;
    this.isStale = false;
    const { goal0, goal1, goalSpan } = this.view;
    this.pictures.need({ t0: Math.floor(goal0 - AROUND * goalSpan),
      t1: Math.ceil(goal1 + AROUND * goalSpan),
      width: Math.max(1, Math.round(width * (1 + 2 * AROUND))), ...lanes.wanted() });
  }

  // Where a step is, or the nearest one, or without a number a typical one; null where none is.
  async step(number) {
    this.jumps += 1;
    const found = await this.ask("step", number === undefined ? {} : { step: number })
      .catch(() => null);
    this.jumps -= 1;
    this.view.touch();
    return found;
  }

  // A bucket as hits.js gives it, wherever it is; throws where it is not.
  async bar(rank, step, bucket) {
    const { id, start, end, call } = await this.ask("bucket", { rank, step, bucket });
    return { kind: "bar", key: `bar/${rank}/${id}`, rank, id, step, bucket, start, end, call };
  }

  // All numbers of a bucket; asked for once.
  detail(rank, id) {
    const key = `${rank}/${id}`;
    if (!this.details.has(key)) {
      if (this.details.size > 500) this.details.clear();
      this.details.set(key, this.ask("bucket", { rank, id })
        .catch((error) => { this.details.delete(key); throw error; }));
    }
    return this.details.get(key);
  }
}

function pause(ms) { return new Promise((go) => { setTimeout(go, ms); }); }
