// Draws the lanes: overview and ruler on top (axes.js), below them a lane a rank with its buckets
// in rows.  hits.js tells what is at a point.

import { drawAxes } from "./axes.js";
import { drawBars, drawBins } from "./bars.js";
import { drawHangs } from "./hangs.js";
import { placeOf } from "./hits.js";
import { dimOthers } from "./lit.js";
import { drawExposed, drawLastReady, drawMarks, drawSteps } from "./lane_marks.js";
import { GUTTER, Lanes, TITLES, TOP } from "./lanes.js";
import { drawOthers } from "./others.js";
import { SCROLLBAR } from "./scrollbar.js";
import { within } from "./shapes.js";
import { drawArrows } from "./waits.js";

const COUNTED = ["bars", "bins", "stages", "steps", "exposed", "lastMarks", "marks", "late",
  "ranks", "rulerSteps", "hangs", "missing", "open", "waits", "arrows", "lit",
  "dimmed", "others"];
const LEAST_STEP_PX = 40; // of a step whose last bucket is marked

export class Canvas {
  constructor(element, view, data) {
    this.element = element;
    this.context = element.getContext("2d", { alpha: false });
    this.view = view;
    this.data = data;
    this.lanes = new Lanes(view);
    this.edges = this.marksAt = this.hangsAt = this.othersAt = [];
    this.theme = null;
    this.lit = [];
    this.hidden = new Set();
    this.width = this.height = 0;
  }

  get left() { return GUTTER + (this.data.isSharded ? TITLES : 0); }
  get lanesWidth() { return Math.max(0, this.width - this.left); }
  get laneHeight() { return this.lanes.laneHeight; }
  get rowHeight() { return this.lanes.rowHeight; }

  inside(x) { return Math.min(Math.max(x, this.left), this.width); }

  // The places of those of several spans that are in view.
  inView({ start, end }) {
    return [...start.keys()].filter((i) => this.view.sees(start[i], end[i]));
  }

  rowTop(y, row) { return this.lanes.rowTop(y, row); }

  x(time) { return this.left + (time - this.view.t0) / this.view.span * this.lanesWidth; }

  time(x) { return this.view.t0 + (x - this.left) / this.lanesWidth * this.view.span; }

  // Where a row of a rank's lane begins, and is at a time; null where the rank has no lane.
  place(rank, row, time) {
    const top = this.lanes.top(rank);
    return top === null ? null : { x: this.x(time), y: this.rowTop(top, row) };
  }

  resize() {
    const { clientWidth, clientHeight } = this.element.parentElement;
    this.ratio = window.devicePixelRatio || 1;
    this.hasBar = this.lanes.canScroll;
    this.width = clientWidth - (this.hasBar ? SCROLLBAR : 0);
    this.height = clientHeight;
    this.element.width = Math.round(this.width * this.ratio);
    this.element.height = Math.round(clientHeight * this.ratio);
    this.element.style.width = `${this.width}px`;
    this.element.style.height = `${clientHeight}px`;
  }

  measure({ info, summary, own }) {
    const late = new Map((summary?.late ?? []).map((l) => [l.rank, l.share]));
    const exposed = new Map(summary?.usual_exposed);
    const ranks = new Map(info.ranks.toReversed().map(({ rank, host }) =>
      [rank, { rank, host, late: late.get(rank) ?? 0, exposed: exposed.get(rank) ?? -1 }]));
    this.lanes.measure([...ranks.values()], own.lanes, this.height - TOP);
  }

  draw(hovered, pinned) {
    const { context: c, theme, data, data: { picture }, lanes } = this;
    if (data.own) this.measure(data);
    if (lanes.canScroll !== this.hasBar) this.resize();
    c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    c.fillStyle = theme.background;
    c.fillRect(0, 0, this.width, this.height);
    const counts = Object.fromEntries(COUNTED.map((name) => [name, 0]));
    this.marksAt = [];
    this.hangsAt = [];
    this.othersAt = [];
    if (picture?.isStrip === lanes.isStrip) {
      within(c, this.left, TOP, this.lanesWidth, this.height - TOP, () => {
        for (const item of lanes.visible()) {
          const rank = picture.byRank.get(item.rank);
          if (rank) this.drawRank(rank, item, counts);
        }
        drawArrows(this, picture, [hovered, pinned], counts);
        this.outline(hovered, theme.text, 1);
        this.outline(pinned, theme.late, 2);
      });
    }
    counts.rulerSteps = drawAxes(this, data);
    return counts;
  }

  drawRank(rank, item, counts) {
    const { context: c, theme, lanesWidth, data: { isSharded } } = this;
    const y = this.lanes.screen(item), top = this.rowTop(y, 0);
    if (item.index % 2 === 0) {
      c.fillStyle = theme.lane;
      c.fillRect(this.left, y, lanesWidth, this.laneHeight);
    }
    const steps = drawSteps(this, rank.steps, y);
    drawExposed(this, rank.exposed, y, counts);
    drawBins(this, rank.bins, top, counts);
    drawBars(this, rank, top, counts);
    dimOthers(this, rank, top, counts);
    drawOthers(this, rank, y, counts, this.othersAt);
    drawHangs(this, rank, y, counts, this.hangsAt);
    // Of a sharded step the last unit tells nothing: training waits for each of them.
    const isWide = lanesWidth / Math.max(1, steps) >= LEAST_STEP_PX;
    if (isWide && !isSharded) drawLastReady(this, rank.steps, y, counts);
    drawMarks(this, rank, y, counts);
    c.fillStyle = theme.line;
    c.fillRect(this.left, y + this.laneHeight - 0.5, lanesWidth, 0.5);
    counts.steps += steps;
    counts.ranks += 1;
  }

  outline(hit, color, width) {
    const place = hit && placeOf(this, hit.rank, (rank, i) => rank.id[i] === hit.id);
    if (!place) return;
    const { context: c } = this;
    // Around the bar: of a narrow one a frame on it would leave nothing to see.
    const line = this.rowHeight < 10 ? 1 : width + 0.5, beside = line / 2 + 0.5;
    c.strokeStyle = color;
    c.lineWidth = line;
    c.strokeRect(place.x - beside, place.y - beside, Math.max(2, place.width) + 2 * beside,
      Math.max(2, this.rowHeight - 1) + 2 * beside);
  }
}
