// Where each rank's lane is: order, groups by host, what is filtered out, heights and the scroll.
//
//   ranks [{ rank, host, late, exposed }] + choices --arrange--> items: host headers and lanes
//   items + height of the window --measure--> y of each, and how high a lane and its rows are
//
// All lanes are as high as each other.  Where rows of their own would be too flat to see, a lane is
// a strip: one row for all its buckets (`isStrip`).  y is in px from the top of all lanes; `top`
// is where one stands in the window, below TOP and shifted by the scroll.

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
    this.hosts = new Map(ranks.map(({ rank, host }) => [rank, host]));
    this.items = arrange(ranks, this.choices);
    const lanes = this.items.filter((i) => i.kind === "rank").length || 1;
    const headers = this.items.length - this.items.filter((i) => i.kind === "rank").length;
    this.#heights(rows, (room - headers * HEADER) / lanes);
    this.room = room;
    this.#place();
    if (this.sought !== null) this.#scrollToSought();
    const most = Math.max(0, this.height - room);
    this.view.scroll = Math.min(Math.max(this.view.scroll, 0), most);
    this.canScroll = most > 0;
  }

  // Rows as high as the ranks leave room for, within what can be seen and read.
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

  #place() {
    let y = 0;
    this.places.clear();
    for (const [index, item] of this.items.entries()) {
      item.index = index;
      item.y = y;
      item.height = item.kind === "rank" ? this.laneHeight : HEADER;
      if (item.kind === "rank") this.places.set(item.rank, item);
      y += item.height;
    }
    this.height = y;
  }

  // Where an item begins in the window.
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
    return this.items.filter((i) => i.y + i.height > from && i.y < to);
  }

  // The item at a height of the window, or null.
  at(y) {
    const height = y - TOP + this.view.scroll;
    if (y < TOP) return null;
    return this.items.find((i) => i.y <= height && height < i.y + i.height) ?? null;
  }

  // The header under which a folded rank is, or null.
  headerOf(rank) {
    return this.items.find((i) => i.kind === "host" && i.isFolded && i.ranks.includes(rank)) ?? null;
  }

  hostOf(rank) { return this.hosts.get(rank); }

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
    const near = this.visible(this.room).filter((i) => i.kind === "rank").map((i) => i.rank);
    return { ...strips, ranks: near.sort((a, b) => a - b).join(",") };
  }

  // Whether a picture has what is in the window.
  fit(picture) {
    return picture.isStrip === this.isStrip
      && this.visible().every((i) => i.kind !== "rank" || picture.byRank.has(i.rank));
  }

  // For tests: what is there from top to bottom, and of it what is in the window.
  state() {
    const name = (i) => (i.kind === "rank" ? i.rank : i.host);
    return { top: TOP, items: this.items.map(name), visible: this.visible().map(name), height: this.height,
      isStrip: this.isStrip, laneHeight: this.laneHeight, rowHeight: this.rowHeight };
  }

  #scrollToSought() {
    const item = this.places.get(this.sought), { view } = this;
    this.sought = null;
    if (!item) return;
    if (item.y < view.scroll || item.y + item.height > view.scroll + this.room) {
      view.scroll = item.y - (this.room - item.height) / 2;
    }
  }
}

const ORDERS = {
  rank: (a, b) => a.rank - b.rank,
  lateness: (a, b) => (b.late ?? 0) - (a.late ?? 0) || a.rank - b.rank,
  exposed: (a, b) => (b.exposed ?? -1) - (a.exposed ?? -1) || a.rank - b.rank,
};

// Lanes in their order, under headers where there are several hosts.
export function arrange(ranks, { sort, filter, grouped, folded }) {
  const isWanted = filterOf(filter);
  const order = [...ranks].filter(isWanted).sort(ORDERS[sort] ?? ORDERS.rank);
  const lanes = order.map((r) => ({ kind: "rank", ...r }));
  const hosts = new Map();
  for (const lane of lanes) {
    if (!hosts.has(lane.host)) hosts.set(lane.host, []);
    hosts.get(lane.host).push(lane);
  }
  if (!grouped || new Set(ranks.map((r) => r.host)).size < 2) return lanes;
  return [...hosts].flatMap(([host, own]) => {
    const isFolded = folded.has(host);
    const header = { kind: "host", host, isFolded, ranks: own.map((r) => r.rank) };
    return isFolded ? [header] : [header, ...own];
  });
}

// "0-7, 12, host-3": ranks by number, a range of them, or part of a host's name; nothing: all.
export function filterOf(text) {
  const parts = text.split(",").map((p) => p.trim()).filter(Boolean);
  if (!parts.length) return () => true;
  const tests = parts.map((part) => {
    const range = part.match(/^(\d+)(?:\s*-\s*(\d+))?$/);
    if (!range) return ({ host }) => (host ?? "").toLowerCase().includes(part.toLowerCase());
    const from = Number(range[1]), to = Number(range[2] ?? range[1]);
    return ({ rank }) => from <= rank && rank <= to;
  });
  return (rank) => tests.some((test) => test(rank));
}
