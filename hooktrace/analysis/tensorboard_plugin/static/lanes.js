// Where each rank's lane is: order, groups by host, what is filtered out, heights and the scroll.
// All lanes are as high as each other; where rows of their own would be too flat to see, a lane is
// a strip, one row for all its buckets.  y is in px from the top of all lanes; `top` is where one
// stands in the window, below TOP and shifted by the scroll.

export const OVERVIEW = 48;
export const TOP = OVERVIEW + 38;
export const HEADER = 20;
export const GUTTER = 132;
export const TITLES = 88; // more, where the rows of a lane have titles
const PAD = 6;
const STRIP_PAD = 1;
const FLATTEST_ROW = 4;
const FLATTEST_STRIP = 13;
const HIGHEST_ROW = 40;
const ASKED_TOGETHER = 64;

export class Lanes {
  constructor(view) {
    this.view = view;
    this.choices = { sort: "rank", filter: "", grouped: true, shape: "auto", folded: new Set() };
    this.items = [];
    this.sought = null;
    this.places = new Map();
    this.hosts = new Map();
    this.laneHeight = this.rowHeight = this.height = this.room = 0;
    this.isStrip = this.canScroll = false;
  }

  // `rows`: how many rows of buckets a rank has; `room`: px below TOP.
  measure(ranks, rows, room) {
    this.room = room;
    this.hosts = new Map(ranks.map(({ rank, host }) => [rank, host]));
    this.items = arrange(ranks, this.choices);
    const lanes = this.items.filter((item) => item.kind === "rank");
    const headers = this.items.length - lanes.length;
    this.#heights(rows, (room - headers * HEADER) / Math.max(1, lanes.length));
    this.places = new Map(lanes.map((item) => [item.rank, item]));
    this.height = 0;
    for (const [index, item] of this.items.entries()) {
      const height = item.kind === "rank" ? this.laneHeight : HEADER;
      Object.assign(item, { index, height, y: this.height });
      this.height += height;
    }
    this.#scroll();
  }

  #heights(rows, each) {
    const { shape } = this.choices;
    const high = Math.floor((each - 2 * PAD) / rows);
    this.isStrip = shape === "strips" || (shape === "auto" && rows > 1 && high < FLATTEST_ROW);
    this.pad = this.isStrip ? STRIP_PAD : PAD;
    const [count, flattest] = this.isStrip ? [1, FLATTEST_STRIP] : [rows, FLATTEST_ROW];
    const room = Math.floor((each - 2 * this.pad) / count);
    this.rowHeight = Math.min(HIGHEST_ROW, Math.max(flattest, room));
    this.laneHeight = count * this.rowHeight + 2 * this.pad;
  }

  // To the lane that is sought, if it is not in the window; and never beyond the last one.
  #scroll() {
    const { view, room } = this, sought = this.places.get(this.sought);
    const most = Math.max(0, this.height - room);
    this.sought = null;
    if (sought && (sought.y < view.scroll || sought.y + sought.height > view.scroll + room)) {
      view.scroll = sought.y - (room - sought.height) / 2;
    }
    view.scroll = Math.min(Math.max(view.scroll, 0), most);
    this.canScroll = most > 0;
  }

  screen(item) { return TOP + item.y - this.view.scroll; }

  // Where a rank's lane begins in the window; null where the rank is filtered out or folded away.
  top(rank) {
    const item = this.places.get(rank);
    return item ? this.screen(item) : null;
  }

  // Where a row begins of the lane that begins at `y`.
  rowTop(y, row) { return y + this.pad + (this.isStrip ? 0 : row) * this.rowHeight; }

  // The items that reach into the window, or into `more` px above and below it.
  visible(more = 0) {
    const from = this.view.scroll - more, to = this.view.scroll + this.room + more;
    return this.items.filter((item) => item.y + item.height > from && item.y < to);
  }

  at(y) {
    const height = y - TOP + this.view.scroll;
    if (y < TOP) return null;
    return this.items.find((item) => item.y <= height && height < item.y + item.height) ?? null;
  }

  // Scroll so far that a rank's lane is in the window, once it is laid out.
  reveal(rank) {
    this.sought = rank;
    this.view.touch();
  }

  // What to ask the server for: of many ranks those in the window and around it, so that detail,
  // which is bounded, is spent on what is seen.
  wanted() {
    const strips = this.isStrip ? { strips: 1 } : {};
    if (this.hosts.size <= ASKED_TOGETHER) return strips;
    const near = this.visible(this.room).filter((item) => item.kind === "rank");
    return { ...strips, ranks: near.map((item) => item.rank).sort((a, b) => a - b).join(",") };
  }

  // Whether a picture has what is in the window.
  fit(picture) {
    return picture.isStrip === this.isStrip
      && this.visible().every((item) => item.kind === "host" || picture.byRank.has(item.rank));
  }

  // For tests: what is there from top to bottom, and of it what is in the window.
  state() {
    const { height, isStrip, laneHeight, rowHeight } = this;
    const names = (items) => items.map((item) => item.rank ?? item.host);
    return { top: TOP, items: names(this.items), visible: names(this.visible()), height, isStrip,
      laneHeight, rowHeight };
  }
}

const ORDERS = {
  rank: (a, b) => a.rank - b.rank,
  lateness: (a, b) => b.late - a.late || a.rank - b.rank,
  exposed: (a, b) => b.exposed - a.exposed || a.rank - b.rank,
};

// Lanes in their order, under headers where there are several hosts.
function arrange(ranks, { sort, filter, grouped, folded }) {
  const lanes = ranks.filter(filterOf(filter)).sort(ORDERS[sort])
    .map((rank) => ({ kind: "rank", ...rank }));
  if (!grouped || new Set(ranks.map((rank) => rank.host)).size < 2) return lanes;
  return [...new Set(lanes.map((lane) => lane.host))].flatMap((host) => {
    const own = lanes.filter((lane) => lane.host === host), isFolded = folded.has(host);
    const header = { kind: "host", host, isFolded, ranks: own.map((lane) => lane.rank) };
    return isFolded ? [header] : [header, ...own];
  });
}

// "0-7, 12, host-3": ranks by number, a range of them, or part of a host's name; nothing: all.
function filterOf(text) {
  const parts = text.split(",").map((part) => part.trim()).filter(Boolean);
  const tests = parts.map((part) => {
    const range = part.match(/^(\d+)(?:\s*-\s*(\d+))?$/);
    if (!range) return ({ host }) => (host ?? "").toLowerCase().includes(part.toLowerCase());
    const from = Number(range[1]), to = Number(range[2] ?? range[1]);
    return ({ rank }) => from <= rank && rank <= to;
  });
  return (rank) => !tests.length || tests.some((test) => test(rank));
}
