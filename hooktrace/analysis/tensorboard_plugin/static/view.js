// What is looked at: a stretch of time [t0, t1] in ns since the run's origin, and the scroll.  mode
// "fit": the whole run, also while it grows.  "follow": its end, as wide as chosen.  "free": where
// the user went.  Moves are eased over a few frames, unless the system asks for less motion.

const EASE_MS = 110;
const NARROWEST_NS = 200;
// Of what is shown, on each side of the run at most.
const BEYOND = 0.03;

export class View {
  constructor(touch) {
    this.touch = touch;
    this.t0 = this.goal0 = 0;
    this.t1 = this.goal1 = 1e9;
    this.from = null;
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.reset();
  }

  get span() { return this.t1 - this.t0; }
  get goalSpan() { return this.goal1 - this.goal0; }
  get widest() { return this.extent / (1 - 2 * BEYOND) || 1e9; }
  get isMoving() { return this.from !== null; }

  sees(start, end = start) { return end >= this.t0 && start <= this.t1; }

  reset() {
    this.mode = "fit";
    this.extent = this.scroll = 0;
  }

  grow(extent) {
    const isFirst = this.extent === 0;
    this.extent = extent;
    const margin = BEYOND * this.widest;
    if (this.mode === "fit") this.aim(-margin, extent + margin, isFirst);
    else if (this.mode === "follow") this.toEnd();
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
    const span = Math.min(this.goalSpan, this.widest), end = this.extent + BEYOND * span;
    this.aim(end - span, end);
  }

  // Within the run and a small margin: there is nothing before and after it.
  show(t0, t1, atOnce = false) {
    this.mode = "free";
    const span = Math.min(Math.max(t1 - t0, NARROWEST_NS), this.widest), margin = BEYOND * span;
    const from = Math.max(-margin, Math.min(t0, this.extent + margin - span));
    this.aim(from, from + span, atOnce);
  }

  // With a margin, which is a share of it.
  showAround(start, end, share) {
    const margin = share * (end - start) + 1000;
    this.show(start - margin, end + margin);
  }

  // As it was before, at once and wherever the run ends by now.
  restore(t0, t1) {
    this.mode = "free";
    this.aim(t0, t1, true);
  }

  center(at) { this.show(at - this.goalSpan / 2, at + this.goalSpan / 2); }

  // Pan by a share of the width; at once when a pointer drags.
  pan(share, atOnce = false) {
    const by = share * this.goalSpan;
    this.show(this.goal0 + by, this.goal1 + by, atOnce);
  }

  // Zoom by a factor below 1 to see less time; `at` stays where it is.
  zoom(factor, at = (this.goal0 + this.goal1) / 2, atOnce = false) {
    const follows = this.mode === "follow";
    const wanted = Math.max(Math.min(this.goalSpan * factor, this.widest), NARROWEST_NS);
    const share = (at - this.goal0) / this.goalSpan;
    this.show(at - share * wanted, at + (1 - share) * wanted, atOnce);
    if (follows) this.setFollow(true);
  }

  aim(t0, t1, atOnce = false) {
    this.goal0 = t0;
    this.goal1 = t1;
    if (atOnce || this.still.matches) this.jump();
    else this.from = { t0: this.t0, t1: this.t1, began: null };
    this.touch();
  }

  jump() {
    this.from = null;
    this.t0 = this.goal0;
    this.t1 = this.goal1;
    this.touch();
  }

  // Move towards the goal; returns whether there is more to go.
  advance(now) {
    if (!this.from) return false;
    const { t0, t1, began } = this.from, part = Math.min(1, (now - (began ?? now)) / EASE_MS);
    const eased = 1 - (1 - part) ** 3;
    this.from.began ??= now;
    this.t0 = t0 + (this.goal0 - t0) * eased;
    this.t1 = t1 + (this.goal1 - t1) * eased;
    if (part >= 1) this.jump();
    return this.from !== null;
  }
}
