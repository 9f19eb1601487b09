// Draws the lanes: overview and ruler on top, below them a lane a rank with its buckets in rows.
//
// draw() returns counts of what lies in the visible part; hit() and locate() are its two inverses:
// what is at a point, and where something is.  axes.js draws what is not a lane.

import { drawAxes } from "./axes.js";
import { drawBars, drawBins } from "./bars.js";
import { drawHangs, hangAt } from "./hangs.js";
import { dimOthers } from "./lit.js";
import { drawExposed, drawLastReady, drawMarks, drawSteps } from "./lane_marks.js";
import { GUTTER, Lanes, TITLES, TOP } from "./lanes.js";
import { SCROLLBAR } from "./scrollbar.js";
import { KINDS } from "./definitions.js";
import { drawArrows } from "./waits.js";

export class Canvas {
  constructor(element, view, data) {
    this.element = element;
    this.context = element.getContext("2d", { alpha: false });
    this.view = view;
    this.data = data;
    this.lanes = new Lanes(view);
    this.edges = [];
    this.theme = null;
    this.lit = [];
    this.hidden = new Set();
    this.width = this.height = 0;
  }

  get lanesWidth() { return Math.max(0, this.width - this.left); }

  resize() {
    const ratio = window.devicePixelRatio || 1;
    const { clientWidth, clientHeight } = this.element.parentElement;
    this.hasBar = this.canScroll;
    this.width = clientWidth - (this.hasBar ? SCROLLBAR : 0);
    this.height = clientHeight;
    this.ratio = ratio;
    this.element.width = Math.round(this.width * ratio);
    this.element.height = Math.round(clientHeight * ratio);
    this.element.style.width = `${this.width}px`;
    this.element.style.height = `${clientHeight}px`;
  }

  measure() {
    const { info, model, summary } = this.data;
    const lag = new Map((summary ? summary.late : []).map((l) => [l.rank, l.times / l.of]));
    const exposed = new Map(summary ? summary.usual_exposed : []);
    const seen = new Set();
    const once = info.ranks.filter(({ rank }) => !seen.has(rank) && seen.add(rank));
    const ranks = once.map(({ rank, host }) =>
      ({ rank, host, late: lag.get(rank) ?? 0, exposed: exposed.get(rank) ?? -1 }));
    const own = info.models.find((m) => m.name === model);
    if (own) this.lanes.measure(ranks, own.lanes, this.height - TOP);
  }

  get laneHeight() { return this.lanes.laneHeight; }

  get rowHeight() { return this.lanes.rowHeight; }

  get canScroll() { return this.lanes.canScroll; }

  x(time) {
    const { view } = this;
    return this.left + (time - view.t0) / view.span * this.lanesWidth;
  }

  time(x) {
    const { view } = this;
    return view.t0 + (x - this.left) / this.lanesWidth * view.span;
  }

  get left() { return GUTTER + (this.data.titles.length ? TITLES : 0); }

  get right() { return this.width; }

  // Where a row begins of the lane that begins at `y`.
  rowTop(y, row) { return this.lanes.rowTop(y, row); }

  draw(hovered, pinned, path) {
    const { context: c, theme, data } = this;
    if (data.info) this.measure();
    if (this.canScroll !== this.hasBar) this.resize();
    c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    c.fillStyle = theme.background;
    c.fillRect(0, 0, this.width, this.height);
    const counts = { bars: 0, bins: 0, stages: 0, steps: 0, exposed: 0, lastMarks: 0, marks: 0,
      late: 0, ranks: 0, rulerSteps: 0, hangs: 0, missing: 0, open: 0, waits: 0, arrows: 0,
      pathSegments: 0, lit: 0, dimmed: 0 };
    this.marksAt = [];
    this.hangsAt = [];
    const { picture } = data;
    if (picture && picture.isStrip === this.lanes.isStrip) {
      c.save();
      c.beginPath();
      c.rect(this.left, TOP, this.lanesWidth, this.height - TOP);
      c.clip();
      for (const item of this.lanes.visible()) {
        const rank = item.kind === "rank" && picture.byRank.get(item.rank);
        if (!rank) continue;
        counts.ranks += 1;
        this.drawRank(rank, this.lanes.screen(item), item.index, counts);
      }
      drawArrows(this, picture, [hovered, pinned], counts);
      path.draw(this, counts);
      this.outline(hovered, theme.text, 1);
      this.outline(pinned, theme.late, 2);
      c.restore();
    }
    counts.rulerSteps = drawAxes(this, data);
    return counts;
  }

  drawRank(rank, y, index, counts) {
    const { context: c, theme } = this;
    if (index % 2 === 0) {
      c.fillStyle = theme.lane;
      c.fillRect(this.left, y, this.lanesWidth, this.laneHeight);
    }
    const before = counts.steps;
    drawSteps(this, rank.steps, y, counts);
    drawExposed(this, rank.exposed, y, counts);
    drawBins(this, rank.bins, this.rowTop(y, 0), counts);
    drawBars(this, rank, this.rowTop(y, 0), counts);
    dimOthers(this, rank, this.rowTop(y, 0), counts);
    drawHangs(this, rank, y, counts, this.hangsAt);
    // Of a sharded step the last unit tells nothing: training waits for each of them.
    if (!this.data.titles.length) drawLastReady(this, rank.steps, y, counts, before);
    drawMarks(this, rank, y, counts);
    c.fillStyle = theme.line;
    c.fillRect(this.left, y + this.laneHeight - 0.5, this.lanesWidth, 0.5);
  }

  outline(hit, color, width) {
    if (!hit || hit.kind !== "bar") return;
    const place = this.find((rank, i) => rank.rank === hit.rank && rank.id[i] === hit.id);
    if (!place) return;
    const { context: c } = this;
    // Around the bar: of a narrow one a frame on it would leave nothing to see.
    const line = this.rowHeight < 10 ? 1 : width + 0.5, beside = line / 2 + 0.5;
    c.strokeStyle = color;
    c.lineWidth = line;
    c.strokeRect(place.x - beside, place.y - beside,
      Math.max(2, place.right - place.x) + 2 * beside,
      Math.max(2, this.rowHeight - 1) + 2 * beside);
  }

  find(matches) {
    const { picture } = this.data;
    if (!picture) return null;
    for (const rank of picture.ranks) {
      const top = this.lanes.top(rank.rank);
      for (let i = 0; i < rank.id.length; i += 1) {
        if (top !== null && matches(rank, i)) {
          return { x: this.x(rank.start[i]), right: this.x(rank.end[i]),
            y: this.rowTop(top, rank.lane[i]) };
        }
      }
    }
    return null;
  }

  // Where a bucket's bar is, its middle in px of the canvas; null where it has no bar of its own.
  locate(rank, step, bucket) {
    const at = this.find((r, i) => r.rank === rank && r.step[i] === step && r.bucket[i] === bucket);
    return at && { x: (at.x + at.right) / 2, y: at.y + this.rowHeight / 2, width: at.right - at.x };
  }

  // A bar as hit() gives it.
  bar({ rank, id, step, bucket, start, end, call }, i) {
    return { kind: "bar", key: `bar/${rank}/${id[i]}`, rank, id: id[i], step: step[i],
      bucket: bucket[i], start: start[i], end: end[i], call: call[i] };
  }

  // What is under a point: a mark, a bar, a hang, or merged bars; a bar with the hang that it is in.
  hit(x, y) {
    const { picture } = this.data;
    if (!picture || x < this.left || y < TOP) return null;
    for (const { x: at, y: level, mark, rank } of this.marksAt) {
      if (Math.abs(x - at) <= 6 && Math.abs(y - level) <= 7) {
        return { kind: "mark", key: `mark/${rank}/${mark.at}/${mark.title}`, rank, mark };
      }
    }
    const item = this.lanes.at(y);
    const rank = item && item.kind === "rank" && picture.byRank.get(item.rank);
    if (!rank) return null;
    const lane = Math.floor((y - this.rowTop(this.lanes.screen(item), 0)) / this.rowHeight);
    const near = 2 * this.view.span / this.lanesWidth, time = this.time(x);
    const hung = hangAt(this.hangsAt, x, y);
    for (let i = rank.id.length - 1; i >= 0; i -= 1) {
      if (rank.lane[i] === lane && rank.start[i] - near <= time && time <= rank.end[i] + near) {
        return { ...this.bar(rank, i), hang: hung && hung.hang };
      }
    }
    if (hung) {
      return { kind: "hang", key: `hang/${rank.rank}/${hung.hang.start}/${hung.hang.waits}`,
        rank: rank.rank, hang: hung.hang };
    }
    const { bins } = rank;
    for (let i = 0; i < bins.start.length; i += 1) {
      if (bins.lane[i] === lane && bins.start[i] <= time && time < bins.end[i]) {
        return { kind: "bin", key: `bin/${rank.rank}/${lane}/${bins.start[i]}`, rank: rank.rank,
          count: bins.count[i], cover: bins.cover[i], late: bins.late[i],
          shares: bins.shares.slice(i * KINDS.length, (i + 1) * KINDS.length) };
      }
    }
    return null;
  }

  // The step in the middle of what is shown, and whether it is that one or one near it; null where
  // there is none.
  stepInMiddle() {
    const { picture } = this.data;
    if (!picture || !picture.ruler.step.length) return null;
    const middle = (this.view.t0 + this.view.t1) / 2;
    const at = Math.max(0, picture.ruler.start.findLastIndex((t) => t <= middle));
    return { step: picture.ruler.step[at], isExact: picture.ruler.every === 1 };
  }
}
