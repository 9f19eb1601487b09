// Bars by keyboard: Alt ← → pins the one before or after on its rank, by when they were ready, Alt
// ↑ ↓ the same one on the rank above or below; `#spoken` is read out by screen readers.

import { element } from "./dom.js";
import { barOf } from "./hits.js";

const ASIDE = { ArrowLeft: -1, ArrowRight: 1 };
const ACROSS = { ArrowUp: -1, ArrowDown: 1 };

export class BarCursor {
  constructor(app) {
    this.app = app;
    this.spoken = element("div", { id: "spoken", "aria-live": "polite", class: "unseen" });
    document.body.append(this.spoken);
  }

  async move(key) {
    const { app } = this, { pinned, data } = app;
    const target = !pinned ? this.first()
      : ASIDE[key] ? this.beside(pinned, ASIDE[key]) : await this.onRank(pinned, ACROSS[key]);
    if (!target) {
      return this.say(pinned ? `there is no ${data.noun} there`
        : `no ${data.noun} is wide enough to be shown: zoom in with w, or go to a step`);
    }
    app.pin(target);
    this.show(target);
    const { spoken } = await data.detail(target.rank, target.id)
      .catch((error) => ({ spoken: error.message }));
    this.say(spoken);
  }

  say(text) { this.spoken.textContent = text; }

  bars(rank) {
    const { data } = this.app, own = data.picture?.byRank.get(rank);
    const bars = [...own?.id.keys() ?? []].map((i) => barOf(own, i, data));
    return bars.sort((a, b) => a.start - b.start);
  }

  // The ranks that have lanes, from top to bottom.
  get ranks() { return [...this.app.canvas.lanes.places.keys()]; }

  first() {
    return this.ranks.flatMap((rank) => this.bars(rank))
      .find((bar) => this.app.view.sees(bar.start, bar.end)) ?? null;
  }

  beside(pinned, by) {
    const own = this.bars(pinned.rank), at = own.findIndex((bar) => bar.id === pinned.id);
    // Where it is not in the picture any more one begins anew from what is.
    return at < 0 ? this.first() : own[at + by] ?? null;
  }

  async onRank({ rank, step, bucket }, by) {
    const { ranks } = this, next = ranks[ranks.indexOf(rank) + by];
    return next === undefined ? null : this.app.data.bar(next, step, bucket).catch(() => null);
  }

  show(bar) {
    const { view, canvas } = this.app;
    canvas.lanes.reveal(bar.rank);
    if (bar.start < view.goal0 || bar.end > view.goal1) view.center((bar.start + bar.end) / 2);
  }
}
