// Bars by keyboard: Alt and the arrows move the pinned bucket, and what it is is spoken.
//
//   Alt ← →   the bucket before and after it on its rank, by when they were ready
//   Alt ↑ ↓   the same bucket on the rank above and below
//
// `#spoken` is a region that screen readers read out when it changes.

import { element } from "./dom.js";

export class BarCursor {
  constructor(app) {
    this.app = app;
    this.spoken = element("div", { id: "spoken", "aria-live": "polite", class: "unseen" });
    document.body.append(this.spoken);
  }

  async move(key) {
    const { app } = this, { pinned } = app;
    const target = !pinned ? this.first()
      : key === "ArrowUp" || key === "ArrowDown" ? await this.onRank(key === "ArrowUp" ? -1 : 1)
        : this.beside(key === "ArrowLeft" ? -1 : 1);
    if (!target) return this.say(this.whyNot(pinned));
    app.pin(target);
    this.show(target);
    try {
      this.say((await app.data.detail(target.rank, target.id)).spoken);
    } catch (error) {
      this.say(error.message);
    }
  }

  say(text) { this.spoken.textContent = text; }

  whyNot(pinned) {
    const noun = this.app.data.isSharded ? "collective" : "bucket";
    if (pinned) return `there is no ${noun} there`;
    return `no ${noun} is wide enough to be shown: zoom in with w, or go to a step`;
  }

  // The bars of a rank that has a lane, by when they begin.
  bars(rank) {
    const own = this.app.data.picture?.byRank.get(rank);
    if (!own) return [];
    return [...own.id.keys()].sort((a, b) => own.start[a] - own.start[b])
      .map((i) => this.app.canvas.bar(own, i));
  }

  get lanes() { return this.app.canvas.lanes.items.filter((item) => item.kind === "rank"); }

  first() {
    const { t0, t1 } = this.app.view;
    for (const { rank } of this.lanes) {
      const found = this.bars(rank).find((bar) => bar.end >= t0 && bar.start <= t1);
      if (found) return found;
    }
    return null;
  }

  beside(by) {
    const { pinned } = this.app, own = this.bars(pinned.rank);
    const at = own.findIndex((bar) => bar.id === pinned.id);
    // Where it is not in the picture any more one begins anew from what is.
    return at < 0 ? this.first() : own[at + by] ?? null;
  }

  async onRank(by) {
    const { app, lanes } = this, { pinned } = app;
    const next = lanes[lanes.findIndex((item) => item.rank === pinned.rank) + by];
    if (!next) return null;
    try {
      return await app.data.bar(next.rank, pinned.step, pinned.bucket);
    } catch {
      return null;
    }
  }

  // Pan and scroll so far that it is in the window.
  show(bar) {
    const { view, canvas } = this.app;
    canvas.lanes.reveal(bar.rank);
    if (bar.start < view.goal0 || bar.end > view.goal1) view.center((bar.start + bar.end) / 2);
  }
}
