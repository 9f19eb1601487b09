// Goes to a step, or to when something happened, and tells which step is looked at.

const MARGIN = 0.15;

export class Steps {
  constructor(app) {
    this.app = app;
    this.arrived = null;
  }

  // Returns the step that is shown, the nearest one; null where there is none.  With a rank its
  // lane is in the window too.
  async go(number, rank = null) {
    if (!Number.isFinite(number)) return null;
    return this.arrive(await this.app.data.step(Math.round(number)), rank);
  }

  goAt(time) {
    const { start, step } = this.app.data.picture?.ruler ?? { start: [] };
    const at = start.findLastIndex((t) => t <= time);
    if (at >= 0) this.go(step[at]);
  }

  // To begin with; not where another run was chosen or somebody has moved meanwhile.
  async goTypical() {
    const { data, view } = this.app, { era } = data;
    const found = await data.step();
    if (data.era === era && view.mode === "fit" && this.arrive(found)) view.jump();
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
    const here = value === "" ? this.middle?.step : Number(value);
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
    this.app.ranks.showLanes(rank);
    this.app.view.showAround(start, end, MARGIN);
  }

  // The step in the middle of what is shown, or one near it; null where there is none.
  get middle() {
    const { view, data: { picture } } = this.app;
    if (!picture || !picture.ruler.step.length) return null;
    const { start, step, every } = picture.ruler;
    const at = Math.max(0, start.findLastIndex((t) => t <= (view.t0 + view.t1) / 2));
    return { step: step[at], isExact: every === 1 };
  }

  // the box has the step that was gone to, and once one has moved on that in
  // the middle; of the whole run none.
  tell() {
    const { view, page: { stepBox } } = this.app, at = this.arrived;
    if (view.isMoving || document.activeElement === stepBox) return;
    const isThere = at && at.t0 === view.goal0 && at.t1 === view.goal1;
    const here = view.mode === "fit" ? { step: "", isExact: true }
      : isThere ? { step: at.step, isExact: true } : this.middle;
    if (!here) return;
    stepBox.value = here.isExact ? here.step : "";
    stepBox.placeholder = here.isExact ? "step" : `≈ ${here.step}`;
  }
}
