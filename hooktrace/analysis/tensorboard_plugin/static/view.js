// What is looked at: a stretch of time [t0, t1] in ns since the run's origin, and the scroll.
//
// mode "fit": the whole run, also while it grows.  "follow": the end of a run that grows, as wide as
// chosen.  "free": where the user went.  Moves are eased over a few frames, unless the system asks
// for less motion.

const EASE_MS = 110;
const NARROWEST_NS = 200;
// Of what is shown, on each side of the run at most.
const BEYOND = 0.03;

export class View {
  constructor(touch) {
    this.touch = touch;
    this.mode = "fit";
    this.extent = 0;
    this.scroll = 0;
    this.t0 = this.goal0 = 0;
    this.t1 = this.goal1 = 1e9;
    this.from = null;
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
  }

  get span() { return this.t1 - this.t0; }

  get widest() { return this.extent / (1 - 2 * BEYOND) || 1e9; }

  get isMoving() { return this.from !== null; }

  reset() {
    this.mode = "fit";
    this.extent = 0;
    this.scroll = 0;
  }

  // The run is `extent` ns long now.
  grow(extent) {
    const before = this.extent;
    this.extent = extent;
    if (this.mode === "fit") {
      const margin = BEYOND * this.widest;
      this.goal0 = -margin;
      this.goal1 = extent + margin;
      if (before) this.ease();
      else this.jump();
    } else if (this.mode === "follow") this.toEnd();
  }

  fit() {
    this.mode = "fit";
    this.grow(this.extent);
  }

  setFollow(on) {
    this.mode = on ? "follow" : "free";
    if (on) this.toEnd();
    this.touch();
  }

  toEnd() {
    const span = Math.min(this.goal1 - this.goal0, this.widest);
    this.goal1 = this.extent + BEYOND * span;
    this.goal0 = this.goal1 - span;
    this.ease();
  }

  show(t0, t1) {
    this.mode = "free";
    this.goal0 = t0;
    this.goal1 = Math.max(t1, t0 + NARROWEST_NS);
    this.clamp();
    this.ease();
  }

  // As it was before, at once and wherever the run ends by now.
  restore(t0, t1) {
    this.mode = "free";
    this.goal0 = t0;
    this.goal1 = t1;
    this.jump();
  }

  center(at) {
    const half = (this.goal1 - this.goal0) / 2;
    this.show(at - half, at + half);
  }

  // Pan by a share of the width; at once when a pointer drags.
  pan(share, atOnce = false) {
    const by = share * (this.goal1 - this.goal0);
    this.show(this.goal0 + by, this.goal1 + by);
    if (atOnce) this.jump();
  }

  // Zoom by a factor below 1 to see less time; `at` stays where it is.
  zoom(factor, at = (this.goal0 + this.goal1) / 2, atOnce = false) {
    const follows = this.mode === "follow";
    const span = this.goal1 - this.goal0;
    const wanted = Math.max(Math.min(span * factor, this.widest), NARROWEST_NS);
    const share = (at - this.goal0) / span;
    this.show(at - share * wanted, at + (1 - share) * wanted);
    if (follows) this.setFollow(true);
    if (atOnce) this.jump();
  }

  // The picture shows the run and a small margin: there is nothing before and after it.
  clamp() {
    const span = Math.min(this.goal1 - this.goal0, this.widest), margin = BEYOND * span;
    this.goal0 = Math.max(-margin, Math.min(this.goal0, this.extent + margin - span));
    this.goal1 = this.goal0 + span;
  }

  jump() {
    this.from = null;
    this.t0 = this.goal0;
    this.t1 = this.goal1;
    this.touch();
  }

  ease() {
    if (this.still.matches) return this.jump();
    this.from = { t0: this.t0, t1: this.t1, began: null };
    this.touch();
  }

  // Move towards the goal; returns whether there is more to go.
  advance(now) {
    if (!this.from) return false;
    this.from.began ??= now;
    const part = Math.min(1, (now - this.from.began) / EASE_MS);
    const eased = 1 - (1 - part) ** 3;
    this.t0 = this.from.t0 + (this.goal0 - this.from.t0) * eased;
    this.t1 = this.from.t1 + (this.goal1 - this.from.t1) * eased;
    if (part >= 1) this.jump();
    return this.from !== null;
  }
}
