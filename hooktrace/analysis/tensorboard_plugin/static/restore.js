// Brings the page to what its address says, and the address to what the page shows.
//
//   address --run--> Data --news--> Restore.look() --t0 t1 | step | follow | whole, pinned--> page
//   page --each frame--> Restore.keep() --> address
//
// An address that tells no place leads to a typical step.  What an address names and the run does not have is told in a line, and what is there is shown.  A
// run that is still being read may have it later, so nothing is missed before all is read.

// What is of one run only, and goes with it.
const OF_A_RUN = ["id", "t0", "t1", "step", "whole", "span", "lane", "pinned", "selection", "lit"];

export class Restore {
  constructor(app, address) {
    this.app = app;
    this.address = address;
    this.wants = new Set();
    address.onArrival(() => this.arrive());
  }

  get isWanting() { return this.wants.size > 0; }

  // The run to begin with, of those that there are.
  choose(names) {
    const wanted = this.address.get("run");
    const found = wanted === null ? names[0] : named(names, wanted);
    if (found === undefined) {
      this.app.tell(`There is no run “${wanted}” under this logdir; “${names[0]}” is shown.`);
      this.forget();
      return names[0];
    }
    this.want();
    return found;
  }

  want() {
    const has = (name) => this.address.get(name) !== null;
    this.wants = new Set([...["model", "id", "step", "pinned", "lane"].filter(has),
      ...(has("t0") && has("t1") ? ["zoom"] : []), ...(has("follow") ? ["follow"] : [])]);
    const isPlaced = ["zoom", "step", "follow"].some((name) => this.wants.has(name));
    if (!isPlaced && !has("whole")) this.wants.add("typical");
  }

  // Of another run or model nothing of this one is kept.
  forget() {
    OF_A_RUN.forEach((name) => this.address.set(name, null));
    this.wants = new Set(["typical"]);
  }

  // Somebody asks for the whole run before it is read.
  stay() { this.wants.delete("typical"); }

  // Somebody went to another address while the page was open.
  arrive() {
    const { app } = this;
    const names = [...app.page.runs.options].map((o) => o.value);
    if (!names.length) return;
    app.tell("");
    const name = this.choose(names);
    const model = this.address.get("model");
    const isOther = name !== app.data.run || (model !== null && model !== app.data.model);
    if (isOther) return app.openRun(name, model);
    if (!this.wants.has("zoom") && !this.wants.has("step")) app.view.fit();
    if (!this.wants.has("pinned")) app.unpin();
    this.look();
  }

  // Called when there is news of the run.
  look() {
    const { info, model } = this.app.data;
    if (!info || !model || !this.isWanting) return;
    const isRead = info.read_bytes >= info.total_bytes;
    for (const [name, act] of Object.entries({
      id: () => this.checkId(info, isRead), model: () => this.checkModel(model, isRead),
      zoom: () => this.zoom(isRead), step: () => this.step(isRead), follow: () => this.follow(),
      typical: () => this.typical(isRead),
      pinned: () => this.pin(isRead), lane: () => this.scroll(),
    })) {
      if (this.wants.has(name) && act()) this.wants.delete(name);
    }
  }

  // Each of these returns whether it is done with.
  checkId(info, isRead) {
    if (info.run_id === null) return isRead;
    if (info.run_id !== this.address.get("id")) {
      this.app.tell(`The link is of run ${this.address.get("id")}; under this name is ${info.run_id} now, `
        + "so its steps are others.");
    }
    return true;
  }

  checkModel(model, isRead) {
    const wanted = this.address.get("model");
    if (wanted !== model && isRead) {
      this.app.tell(`This run has no model “${wanted}”; “${model}” is shown.`);
    }
    return wanted === model || isRead;
  }

  zoom(isRead) {
    const { address, app } = this;
    const t0 = address.get("t0"), t1 = address.get("t1");
    if (t0 < app.view.extent && t1 > 0 && t1 > t0) app.view.restore(t0, t1);
    else if (!isRead) return false;
    else app.tell("What the address shows is not in this run; all of it is shown.");
    return true;
  }

  step(isRead) {
    const wanted = this.address.get("step");
    if (!isRead) return false;
    this.address.set("step", null);
    this.app.goToStep(wanted).then((found) => {
      if (found && found.step !== wanted) {
        this.app.tell(`There is no step ${wanted} in this run; step ${found.step} is the nearest.`);
      }
    });
    return true;
  }

  // Not where somebody has moved while the run was read.
  typical(isRead) {
    const isUntouched = this.app.view.mode === "fit";
    if (isRead && isUntouched) this.app.steps.goTypical();
    return isRead || !isUntouched;
  }

  follow() {
    const span = this.address.get("span");
    if (span !== null) this.app.view.restore(this.app.view.extent - span, this.app.view.extent);
    this.app.view.setFollow(true);
    return true;
  }

  pin(isRead) {
    if (!isRead) return false;
    this.app.pinAt(...this.address.get("pinned").split("/").map(Number));
    return true;
  }

  scroll() {
    const { lanes } = this.app.canvas;
    if (!lanes.laneHeight) return false;
    this.app.view.scroll = this.address.get("lane") * lanes.laneHeight;
    this.app.touch();
    return true;
  }

  // Called with each frame.
  keep() {
    const { app, address } = this;
    const { view, data } = app;
    if (!data.model || this.isWanting || view.isMoving) return;
    address.set("run", data.run);
    address.set("model", data.model);
    const isFree = view.mode === "free", follows = view.mode === "follow";
    address.set("t0", isFree ? Math.round(view.t0) : null);
    address.set("t1", isFree ? Math.round(view.t1) : null);
    address.set("whole", view.mode === "fit");
    const { laneHeight } = app.canvas.lanes;
    address.set("lane", view.scroll > 0 ? Math.round(100 * view.scroll / laneHeight) / 100 : null);
    address.set("follow", follows);
    address.set("span", follows ? Math.round(view.span) : null);
    const { pinned } = app;
    address.set("pinned", pinned && `${pinned.rank}/${pinned.step}/${pinned.bucket}`);
  }
}

// The run of that name, or whose name is the longest that the folder ends in; "." is a logdir that
// is a run itself, which may be anywhere.
export function named(names, wanted) {
  if (names.includes(wanted)) return wanted;
  const fits = names.filter((name) => wanted.endsWith(`/${name}`));
  if (fits.length) return fits.reduce((a, b) => (b.length > a.length ? b : a));
  return wanted.startsWith("/") && names.includes(".") ? "." : undefined;
}
