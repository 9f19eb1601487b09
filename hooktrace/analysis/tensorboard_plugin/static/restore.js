// Brings the page to what its address says, and the address to what the page shows.  One that tells
// no place leads to a typical step.  What it names and the run does not have is told in a line, but
// not before all of the run is read.

// What is of one run only, and goes with it.
const OF_A_RUN = ["id", "t0", "t1", "step", "whole", "span", "lane", "pinned", "lit"];
// What is looked for, in this order: each has a method, which returns whether it is done with.
const WANTED = ["id", "model", "zoom", "step", "follow", "typical", "pinned", "lane"];

export class Restore {
  constructor(app) {
    this.app = app;
    this.address = app.address;
    this.wants = new Set();
    this.address.arrived = () => this.arrive();
  }

  get isWanting() { return this.wants.size > 0; }

  choose(names) {
    const wanted = this.address.get("run");
    const found = wanted === null ? names[0] : named(names, wanted);
    if (found !== undefined) this.want();
    else {
      this.forget();
      this.app.tell(`There is no run “${wanted}” under this logdir; “${names[0]}” is shown.`);
    }
    return found ?? names[0];
  }

  want() {
    const has = (name) => this.address.get(name) !== null;
    this.wants = new Set(WANTED.filter((name) => has(name)));
    if (has("t0") && has("t1")) this.wants.add("zoom");
    const isPlaced = ["zoom", "step", "follow"].some((name) => this.wants.has(name));
    if (!isPlaced && !has("whole")) this.wants.add("typical");
  }

  // Of another run or model nothing of this one is kept.
  forget() {
    OF_A_RUN.forEach((name) => this.address.set(name, null));
    this.wants = new Set(["typical"]);
    this.app.tell("");
  }

  // Somebody went to another address while the page was open.
  arrive() {
    const { app } = this;
    const names = [...app.page.runs.options].map((o) => o.value);
    if (!names.length) return;
    app.tell("");
    const name = this.choose(names), model = this.address.get("model");
    const isOther = name !== app.data.run || (model !== null && model !== app.data.model);
    if (isOther) return app.openRun(name, model);
    if (!this.wants.has("zoom") && !this.wants.has("step")) app.view.fit();
    if (!this.wants.has("pinned")) app.pin(null);
    this.look();
  }

  // Called when there is news of the run.
  look() {
    const { model, isRead } = this.app.data;
    if (!model) return;
    for (const name of WANTED) {
      const isDone = this.wants.has(name) && this[name](this.address.get(name), isRead);
      if (isDone) this.wants.delete(name);
    }
  }

  id(wanted, isRead) {
    const { run_id: found } = this.app.data.info;
    if (found === null) return isRead;
    if (found !== wanted) {
      this.app.tell(`The link is of run ${wanted}; under this name is ${found} now, `
        + "so its steps are others.");
    }
    return true;
  }

  model(wanted, isRead) {
    const { model } = this.app.data;
    if (wanted !== model && isRead) {
      this.app.tell(`This run has no model “${wanted}”; “${model}” is shown.`);
    }
    return wanted === model || isRead;
  }

  zoom(_, isRead) {
    const { view } = this.app, t0 = this.address.get("t0"), t1 = this.address.get("t1");
    const isThere = t0 < view.extent && t1 > 0 && t1 > t0;
    if (isThere) view.restore(t0, t1);
    else if (isRead) {
      this.app.tell("What the address shows is not in this run; all of it is shown.");
    }
    return isThere || isRead;
  }

  step(wanted, isRead) {
    if (!isRead) return false;
    this.address.set("step", null);
    this.app.steps.go(wanted).then((found) => {
      if (found && found.step !== wanted) {
        this.app.tell(`There is no step ${wanted} in this run; step ${found.step} is the nearest.`);
      }
    });
    return true;
  }

  follow() {
    const { view } = this.app, span = this.address.get("span");
    if (span !== null) view.restore(view.extent - span, view.extent);
    view.setFollow(true);
    return true;
  }

  // Not where somebody has moved while the run was read.
  typical(_, isRead) {
    const isUntouched = this.app.view.mode === "fit";
    if (isRead && isUntouched) this.app.steps.goTypical();
    return isRead || !isUntouched;
  }

  pinned(wanted, isRead) {
    const { app } = this, place = wanted.split("/").map(Number);
    if (isRead) {
      app.data.bar(...place).then((bar) => app.pin(bar),
        (error) => app.tell(`The pinned bucket is not here: ${error.message}.`));
    }
    return isRead;
  }

  lane(wanted) {
    const { view, canvas: { lanes } } = this.app;
    if (!lanes.laneHeight) return false;
    view.scroll = wanted * lanes.laneHeight;
    view.touch();
    return true;
  }

  keep() {
    const { view, data, pinned, canvas: { lanes } } = this.app;
    if (!data.model || this.isWanting || view.isMoving) return;
    const isFree = view.mode === "free", follows = view.mode === "follow";
    for (const [name, value] of Object.entries({
      run: data.run, model: data.model, whole: view.mode === "fit", follow: follows,
      t0: isFree ? Math.round(view.t0) : null, t1: isFree ? Math.round(view.t1) : null,
      span: follows ? Math.round(view.span) : null,
      lane: view.scroll > 0 ? Math.round(100 * view.scroll / lanes.laneHeight) / 100 : null,
      pinned: pinned && `${pinned.rank}/${pinned.step}/${pinned.bucket}`,
    })) this.address.set(name, value);
  }
}

// The run of that name, or whose name is the longest that the folder ends in; "." is a logdir that
// is a run itself, which may be anywhere.
function named(names, wanted) {
  if (names.includes(wanted)) return wanted;
  const fits = names.filter((name) => wanted.endsWith(`/${name}`));
  if (fits.length) return fits.reduce((a, b) => (b.length > a.length ? b : a));
  return wanted.startsWith("/") && names.includes(".") ? "." : undefined;
}
