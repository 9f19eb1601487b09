// Draws the lanes: overview and ruler on top, below them a lane a rank with its buckets in rows.
//
// draw() returns counts of what lies in the visible part; hit() and locate() are its two inverses:
// what is at a point, and where something is.  axes.js draws what is not a lane.

import { drawAxes, GUTTER, OVERVIEW, TOP } from "./axes.js";
import { KINDS } from "./theme.js";

const PAD = 6;
const BELOW = ["other", "turn", "queue"];
const DRAWN = [...BELOW, ...KINDS.filter((k) => !BELOW.includes(k))].map((k) => KINDS.indexOf(k));
const LABEL_FONT = "11px system-ui, sans-serif";

export class Canvas {
  constructor(element, view, data) {
    this.element = element;
    this.context = element.getContext("2d", { alpha: false });
    this.view = view;
    this.data = data;
    this.theme = null;
    this.width = this.height = 0;
  }

  get lanesWidth() { return Math.max(0, this.width - GUTTER); }

  resize() {
    const ratio = window.devicePixelRatio || 1;
    const { clientWidth, clientHeight } = this.element.parentElement;
    this.width = clientWidth;
    this.height = clientHeight;
    this.ratio = ratio;
    this.element.width = Math.round(clientWidth * ratio);
    this.element.height = Math.round(clientHeight * ratio);
    this.element.style.width = `${clientWidth}px`;
    this.element.style.height = `${clientHeight}px`;
  }

  // Rows as high as the ranks leave room for, within what can be seen and read.
  measure(picture) {
    const lanes = picture.lanes, ranks = picture.ranks.length || 1;
    const room = (this.height - TOP) / ranks - 2 * PAD;
    this.rowHeight = Math.min(18, Math.max(4, Math.floor(room / lanes)));
    this.laneHeight = lanes * this.rowHeight + 2 * PAD;
    const most = Math.max(0, ranks * this.laneHeight - (this.height - TOP));
    this.view.scroll = Math.min(Math.max(this.view.scroll, 0), most);
    this.canScroll = most > 0;
  }

  x(time) {
    const { view } = this;
    return GUTTER + (time - view.t0) / view.span * this.lanesWidth;
  }

  time(x) {
    const { view } = this;
    return view.t0 + (x - GUTTER) / this.lanesWidth * view.span;
  }

  top(index) { return TOP + index * this.laneHeight - this.view.scroll; }

  draw(hovered, pinned) {
    const { context: c, theme, data } = this;
    c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    c.fillStyle = theme.background;
    c.fillRect(0, 0, this.width, this.height);
    const counts = { bars: 0, bins: 0, stages: 0, steps: 0, exposed: 0, lastMarks: 0, marks: 0,
      late: 0, ranks: 0, rulerSteps: 0 };
    this.marksAt = [];
    const { picture } = data;
    if (picture) {
      this.measure(picture);
      c.save();
      c.beginPath();
      c.rect(GUTTER, TOP, this.lanesWidth, this.height - TOP);
      c.clip();
      picture.ranks.forEach((rank, index) => {
        const y = this.top(index);
        if (y > this.height || y + this.laneHeight < TOP) return;
        counts.ranks += 1;
        this.drawRank(rank, y, index, counts);
      });
      this.outline(hovered, theme.text, 1);
      this.outline(pinned, theme.last, 2);
      c.restore();
    }
    counts.rulerSteps = drawAxes(this, data);
    return counts;
  }

  drawRank(rank, y, index, counts) {
    const { context: c, theme } = this;
    if (index % 2 === 0) {
      c.fillStyle = theme.lane;
      c.fillRect(GUTTER, y, this.lanesWidth, this.laneHeight);
    }
    const before = counts.steps;
    this.drawSteps(rank.steps, y, counts);
    this.drawBins(rank.bins, y + PAD, counts);
    this.drawBars(rank, y + PAD, counts);
    this.drawLastReady(rank.steps, y, counts, before);
    this.drawMarks(rank, y, counts);
    c.fillStyle = theme.line;
    c.fillRect(GUTTER, y + this.laneHeight - 0.5, this.lanesWidth, 0.5);
  }

  drawSteps(steps, y, counts) {
    const { context: c, theme, view } = this;
    for (let i = 0; i < steps.step.length; i += 1) {
      if (steps.end[i] < view.t0 || steps.start[i] > view.t1) continue;
      counts.steps += 1;
      const x = this.x(steps.start[i]);
      c.fillStyle = theme.step;
      c.fillRect(x, y, this.x(steps.end[i]) - x, this.laneHeight);
      if (steps.exposed[i] > 0) {
        counts.exposed += 1;
        const from = this.x(steps.end[i] - steps.exposed[i]);
        c.fillStyle = theme.exposed;
        c.fillRect(from, y, Math.max(1, this.x(steps.end[i]) - from), this.laneHeight);
      }
    }
  }

  drawLastReady(steps, y, counts, before) {
    const { context: c, theme, view } = this;
    const perStep = this.lanesWidth / Math.max(1, counts.steps - before);
    if (perStep < 40) return;
    c.fillStyle = theme.last;
    for (let i = 0; i < steps.step.length; i += 1) {
      const at = steps.last_ready[i];
      if (at < view.t0 || at > view.t1) continue;
      counts.lastMarks += 1;
      const x = this.x(at);
      c.fillRect(x - 0.5, y, 1, this.laneHeight);
      c.beginPath();
      c.moveTo(x - 4, y);
      c.lineTo(x + 4, y);
      c.lineTo(x, y + 6);
      c.fill();
    }
  }

  drawBins(bins, y, counts) {
    const { context: c, theme, rowHeight: h } = this;
    const { t0, t1 } = this.view;
    const height = Math.max(1, h - 1);
    KINDS.forEach((_, kind) => {
      const rects = bins.rects[kind];
      c.fillStyle = theme.kinds[kind];
      for (let i = 0; i < rects.length; i += 5) {
        if (rects[i + 1] < t0 || rects[i] > t1) continue;
        const x = this.x(rects[i]);
        const base = y + rects[i + 2] * h + height;
        c.fillRect(x, base - rects[i + 4] * height, Math.max(0.5, this.x(rects[i + 1]) - x + 0.3),
          (rects[i + 4] - rects[i + 3]) * height);
      }
    });
    c.fillStyle = theme.text;
    for (let i = 0; i < bins.start.length; i += 1) {
      if (bins.end[i] < t0 || bins.start[i] > t1) continue;
      counts.bins += 1;
      if (bins.late[i]) {
        counts.late += 1;
        c.fillRect(this.x(bins.start[i]), y + (bins.lane[i] + 1) * h - 2,
          this.x(bins.end[i]) - this.x(bins.start[i]), 1.5);
      }
    }
  }

  drawBars(rank, y, counts) {
    const { context: c, theme, rowHeight: h } = this;
    const { t0, t1 } = this.view;
    const height = Math.max(1, h - 1);
    // What is in no stage lies below the stages, and what waits below what works.
    for (const kind of DRAWN) {
      const rects = rank.stageRects[kind];
      c.fillStyle = theme.kinds[kind];
      for (let i = 0; i < rects.length; i += 3) {
        if (rects[i + 1] < t0 || rects[i] > t1) continue;
        const x = this.x(rects[i]);
        c.fillRect(x, y + rects[i + 2] * h, Math.max(0.7, this.x(rects[i + 1]) - x), height);
        if (kind < KINDS.length - 1) counts.stages += 1;
      }
    }
    c.font = LABEL_FONT;
    c.textBaseline = "middle";
    c.textAlign = "left";
    for (let i = 0; i < rank.id.length; i += 1) {
      if (rank.end[i] < t0 || rank.start[i] > t1) continue;
      counts.bars += 1;
      const x = Math.max(this.x(rank.start[i]), GUTTER), right = this.x(rank.end[i]);
      const at = y + rank.lane[i] * h;
      if (rank.isLate[i]) {
        counts.late += 1;
        c.strokeStyle = c.fillStyle = theme.text;
        c.lineWidth = 1.5;
        // In a low row a frame would hide the stages.
        if (h < 10) c.fillRect(x, at + height - 1.5, Math.max(1, right - x), 1.5);
        else c.strokeRect(x + 0.5, at + 0.5, Math.max(1, right - x - 1), height - 1);
      }
      if (rank.failed[i]) {
        c.fillStyle = theme.anomaly;
        c.fillRect(x, at, Math.max(2, right - x), 2);
      }
      if (h >= 11 && right - x > 34) this.labelBar(rank, i, x, right, at, height);
    }
  }

  // The bucket's number, on a ground of its own: stages may begin anywhere under it.
  labelBar(rank, i, x, right, y, height) {
    const { context: c, theme } = this;
    const label = `b${rank.bucket[i]}${rank.isLast[i] ? " last" : ""}`;
    const width = c.measureText(label).width + 6;
    if (width > right - x - 4) return;
    c.globalAlpha = 0.82;
    c.fillStyle = theme.background;
    c.fillRect(x + 2, y + 1, width, height - 2);
    c.globalAlpha = 1;
    c.fillStyle = theme.text;
    c.fillText(label, x + 5, y + height / 2 + 0.5);
  }

  drawMarks(rank, y, counts) {
    const { context: c, theme, view } = this;
    for (const mark of rank.marks) {
      if (mark.at < view.t0 || mark.at > view.t1) continue;
      counts.marks += 1;
      const x = this.x(mark.at), isAnomaly = mark.kind === "anomaly";
      const at = isAnomaly ? y + 7 : y + this.laneHeight - 7;
      c.fillStyle = isAnomaly ? theme.anomaly : theme.rebuild;
      c.fillRect(x - 0.5, y, 1, this.laneHeight);
      c.beginPath();
      if (isAnomaly) {
        c.moveTo(x, at - 6);
        c.lineTo(x + 6, at);
        c.lineTo(x, at + 6);
        c.lineTo(x - 6, at);
      } else c.rect(x - 4, at - 4, 8, 8);
      c.fill();
      this.marksAt.push({ x, y: at, mark, rank: rank.rank });
    }
  }

  outline(hit, color, width) {
    if (!hit || hit.kind !== "bar") return;
    const place = this.find((rank, i) => rank.rank === hit.rank && rank.id[i] === hit.id);
    if (!place) return;
    const { context: c } = this;
    c.strokeStyle = color;
    c.lineWidth = this.rowHeight < 10 ? 1 : width + 0.5;
    c.strokeRect(place.x - 0.5, place.y - 0.5, Math.max(2, place.right - place.x) + 1,
      Math.max(2, this.rowHeight - 1) + 1);
  }

  find(matches) {
    const { picture } = this.data;
    if (!picture || !this.laneHeight) return null;
    for (const [index, rank] of picture.ranks.entries()) {
      for (let i = 0; i < rank.id.length; i += 1) {
        if (matches(rank, i)) {
          return { x: this.x(rank.start[i]), right: this.x(rank.end[i]),
            y: this.top(index) + PAD + rank.lane[i] * this.rowHeight };
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

  // What is under a point: a mark, a bar, or merged bars.
  hit(x, y) {
    const { picture } = this.data;
    if (!picture || x < GUTTER || y < TOP || !this.laneHeight) return null;
    for (const { x: at, y: level, mark, rank } of this.marksAt) {
      if (Math.abs(x - at) <= 6 && Math.abs(y - level) <= 7) {
        return { kind: "mark", key: `mark/${rank}/${mark.at}/${mark.title}`, rank, mark };
      }
    }
    const index = Math.floor((y - TOP + this.view.scroll) / this.laneHeight);
    const rank = picture.ranks[index];
    if (!rank) return null;
    const lane = Math.floor((y - this.top(index) - PAD) / this.rowHeight);
    const near = 2 * this.view.span / this.lanesWidth, time = this.time(x);
    for (let i = rank.id.length - 1; i >= 0; i -= 1) {
      if (rank.lane[i] === lane && rank.start[i] - near <= time && time <= rank.end[i] + near) {
        return { kind: "bar", key: `bar/${rank.rank}/${rank.id[i]}`, rank: rank.rank,
          id: rank.id[i], step: rank.step[i], bucket: rank.bucket[i],
          start: rank.start[i], end: rank.end[i] };
      }
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

  // The step in the middle of what is shown; null where there is none.
  stepInMiddle() {
    const { picture } = this.data;
    if (!picture || !picture.ruler.step.length) return null;
    const middle = (this.view.t0 + this.view.t1) / 2;
    let best = 0;
    picture.ruler.start.forEach((t, i) => {
      if (Math.abs(t - middle) < Math.abs(picture.ruler.start[best] - middle)) best = i;
    });
    return picture.ruler.step[best];
  }
}

export { GUTTER, OVERVIEW, TOP };
