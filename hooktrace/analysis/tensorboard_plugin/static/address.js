// What the page's address keeps, so that a reload and a link that is sent show the same.  The page
// is a frame; the address that people see is TensorBoard's, which leaves values of its tabs in the
// hash:
//   http://localhost:6006/#hooktrace&p.hooktrace.run=sweep%2Flr01&p.hooktrace.t0=81200000
// It is replaced and never pushed, so back and forward lead from tab to tab as before.

const NUMBER = (text) => (text.trim() && Number.isFinite(Number(text)) ? Number(text) : null);
const TEXT = (text) => text;
const FLAG = (text) => text === "1";

// What is kept, and of which kind; in brackets what holds where it is absent.
const NAMES = {
  run: TEXT, //       the run's name; from a report also its folder (the first run)
  id: TEXT, //        run_id: a link is of this run and no other (any)
  model: TEXT, //     (the first model)
  t0: NUMBER, //      what is shown, ns since the run's origin (a typical step)
  t1: NUMBER,
  whole: FLAG, //     the whole run
  step: NUMBER, //    shown at first; t0 and t1 then stand in its place
  follow: FLAG, //    stay at the end of a run that grows
  span: NUMBER, //    how much of it, ns (the whole run)
  pinned: TEXT, //    rank/step/bucket (nothing)
  lane: NUMBER, //    how many lanes are scrolled out above (none)
  hidden: TEXT, //    stages that are not drawn, with "," between (all are drawn)
  search: TEXT, //    what is searched for (nothing)
  lit: TEXT, //       bucket or =unit/first step, lit (nothing)
  mode: TEXT, //      "heat": the heat map (the timeline)
  heat: TEXT, //      what its colour shows (exposed)
  bands: TEXT, //     what the strip of the whole run shows: period (exposed)
  sort: TEXT, //      order of the ranks: rank, lateness, exposed (rank)
  filter: TEXT, //    which ranks: "0-7, 12, host-3" (all)
  shape: TEXT, //     of lanes: rows, strips (as they fit)
  ungrouped: FLAG, // hosts are no groups
  folded: TEXT, //    hosts that are folded, with "," between (none)
};
const PREFIX = "p.hooktrace.";
// Browsers refuse more than 100 changes in 30 s.
const STILL_MS = 350;

export class Address {
  constructor(touch) {
    this.touch = touch;
    this.page = outermost();
    this.listeners = new Map();
    this.arrived = () => {}; // called when somebody has gone to another address meanwhile
    this.timer = null;
    this.values = this.read();
    const look = () => this.look();
    this.page.addEventListener("hashchange", look);
    window.addEventListener("pagehide", () => this.page.removeEventListener("hashchange", look));
  }

  get isWriting() { return this.timer !== null; }

  // A value of the kind that the table above tells, or null.
  get(name) { return this.values[name] ?? null; }

  // null, "" and false take it out of the address.
  set(name, value) {
    const kept = value === "" || value === false ? null : value ?? null;
    if (this.get(name) === kept) return;
    this.values[name] = kept;
    this.tell(name);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.write(), STILL_MS);
  }

  // f(value) now, and whenever the value has changed, by whomever; then there is a frame.
  follow(name, f) {
    this.listeners.set(name, f);
    this.tell(name);
  }

  tell(name) {
    const follower = this.listeners.get(name);
    if (!follower) return;
    follower(this.get(name));
    this.touch();
  }

  // What a newer version keeps is not known here, and left out.
  read() {
    const own = pairs(this.page).filter(([name]) => name.startsWith(PREFIX))
      .map(([name, text]) => [name.slice(PREFIX.length), text]);
    return Object.fromEntries(own.filter(([name]) => Object.hasOwn(NAMES, name))
      .map(([name, text]) => [name, NAMES[name](text)]));
  }

  look() {
    const before = this.values, found = this.read();
    const changed = Object.keys(NAMES).filter((n) => (before[n] ?? null) !== (found[n] ?? null));
    if (!changed.length) return;
    clearTimeout(this.timer);
    this.timer = null;
    this.values = found;
    this.arrived();
    changed.forEach((name) => this.tell(name));
  }

  write() {
    this.timer = null;
    const others = pairs(this.page).filter(([name]) => !name.startsWith(PREFIX));
    const own = Object.keys(NAMES).filter((name) => this.get(name) !== null).map((name) =>
      `${PREFIX}${name}=${encodeURIComponent(NAMES[name] === FLAG ? 1 : this.get(name))}`);
    const { history } = this.page;
    const hash = [...others.map(([, , raw]) => raw), ...own].join("&");
    history.replaceState(history.state, "", `#${hash}`);
  }
}

// The parts of the hash: name, value, and as it stands there.
function pairs(page) {
  return page.location.hash.slice(1).split("&").map((raw) => {
    const [name, text = ""] = raw.split("=");
    return [decoded(name), decoded(text), raw];
  });
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // a cut-off link
  }
}

// The window of TensorBoard, or where that is of another origin the frame's own.
export function outermost() {
  try {
    return window.parent.document ? window.parent : window;
  } catch {
    return window;
  }
}
