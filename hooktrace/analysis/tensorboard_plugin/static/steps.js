// Goes to a step, or to when something happened, and tells which step is looked at.

export class Steps {
  constructor(app) {
    this.app = app;
    this.arrived = null;
  }

  // Returns the step that is shown, the nearest one; null where there is none.  With a rank its lane
  // is in the window too.
  async go(number, rank = null) {
    if (!Number.isFinite(number)) return null;
    return this.arrive(await this.app.data.step(Math.round(number)), rank);
  }

  // To begin with; not where another run was chosen or somebody has moved meanwhile.
  async goTypical() {
    const { data, view } = this.app, { opened, model } = data;
    const found = await data.step();
    if (data.opened !== opened || data.model !== model || view.mode !== "fit") return;
    if (this.arrive(found)) view.jump();
  }

  arrive(found, rank = null) {
    if (!found) return null;
    const { view, page } = this.app;
    this.show(found.start, found.end, rank);
    page.stepBox.value = found.step;
    this.arrived = { step: found.step, t0: view.goal0, t1: view.goal1 };
    return found;
  }

  by(by) {
    const { value } = this.app.page.stepBox;
    const here = value === "" ? this.app.canvas.stepInMiddle()?.step : Number(value);
    if (here !== undefined) this.go(here + by);
  }

  // What happened in a step, or in one that has no end, or in none at all.
  async goToMoment(at, step, rank = null) {
    const found = await this.app.data.step(step);
    const usual = found ? found.end - found.start : 1e8;
    const isIn = found && found.step === step && at > found.start - usual && at < found.end + usual;
    if (isIn) this.show(Math.min(found.start, at), Math.max(found.end, at), rank);
    else this.show(at - usual, at + usual, rank);
  }

  show(start, end, rank) {
    const { view, ranks } = this.app;
    ranks.showLanes(rank ?? null);
    const margin = 0.15 * (end - start) + 1000;
    view.show(start - margin, end + margin);
  }

  // The step that was gone to, or once one has moved on that in the middle; null where there is none.
  get here() {
    const { canvas, view } = this.app, at = this.arrived;
    if (at && at.t0 === view.goal0 && at.t1 === view.goal1) return at.step;
    return canvas.stepInMiddle()?.step ?? null;
  }

  // The box has the step that was gone to, and once one has moved on that in the middle; of the
  // whole run none.
  tell() {
    const { canvas, view, page: { stepBox } } = this.app;
    if (view.isMoving || document.activeElement === stepBox) return;
    if (view.mode === "fit") {
      stepBox.value = "";
      stepBox.placeholder = "step";
      return;
    }
    const at = this.arrived, isThere = at && at.t0 === view.goal0 && at.t1 === view.goal1;
    const middle = isThere ? { step: at.step, isExact: true } : canvas.stepInMiddle();
    if (!middle) return;
    stepBox.value = middle.isExact ? middle.step : "";
    stepBox.placeholder = middle.isExact ? "step" : `≈ ${middle.step}`;
  }
}
