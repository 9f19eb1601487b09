// What the page's address keeps: a reload shows the same, and so does a link that is sent.
//
//   address.get(name)   address.set(name, value)   address.on(name, f)
//
// The page is a frame; the address that people see and copy is TensorBoard's, which leaves values of
// its tabs in the hash alone, also while another tab is open:
//
//   http://localhost:6006/#hooktrace&p.hooktrace.run=sweep%2Flr01&p.hooktrace.t0=81200000
//
// It is replaced and never pushed, so back and forward lead from tab to tab as before, and written
// once things are still.  Where the frame cannot reach TensorBoard its own address serves.
//
//   name        what                                             kind     when absent
//   run         the run's name; from a report also its folder     text     the first run
//   id          run_id: a link is of this run and no other        text     any
//   model                                                         text     the first model
//   t0, t1      what is shown, ns since the run's origin          number   a typical step
//   whole       the whole run                                    flag     no
//   step        shown at first; t0 and t1 then stand in its place number   -
//   follow      stay at the end of a run that grows               flag     no
//   span        how much of it, ns                                number   the whole run
//   pinned      rank/step/bucket                                  text     nothing
//   lane        how many lanes are scrolled out above             number   none
//   hidden      stages that are not drawn, with "," between       text     all are drawn
//   search      what is searched for                              text     nothing
//   lit         bucket or =unit/first step/last step, lit        text     nothing
//   selection   "t0..t1", ns since the run's origin               text     none
//   mode        "heat": the heat map                              text     the timeline
//   heat        what its colour shows                             text     exposed
//   bands       what the strip of the whole run shows: period     text     exposed
//   sort        order of the ranks: rank, lateness, exposed       text     rank
//   filter      which ranks: "0-7, 12, host-3"                    text     all
//   shape       of lanes: rows, strips                            text     as they fit
//   ungrouped   hosts are no groups                               flag     they are
//   folded      hosts that are folded, with "," between           text     none
//
// To keep one more, give it a line here and in NAMES.

const NUMBER = {
  read: (text) => (text.trim() && Number.isFinite(Number(text)) ? Number(text) : null), write: String,
};
const TEXT = { read: (text) => text, write: String };
const FLAG = { read: (text) => text === "1", write: (is) => (is ? "1" : "") };
const NAMES = {
  run: TEXT, id: TEXT, model: TEXT, t0: NUMBER, t1: NUMBER, step: NUMBER, whole: FLAG, follow: FLAG, span: NUMBER,
  lane: NUMBER,
  pinned: TEXT, hidden: TEXT, search: TEXT, lit: TEXT, selection: TEXT, mode: TEXT,
  sort: TEXT, filter: TEXT, heat: TEXT, bands: TEXT, shape: TEXT, ungrouped: FLAG, folded: TEXT,
};
const PREFIX = "p.hooktrace.";
// Browsers refuse more than 100 changes in 30 s.
const STILL_MS = 350;

export class Address {
  // `page`: the window whose address it is.
  constructor(page = outermost()) {
    this.page = page;
    this.listeners = new Map();
    this.arrivals = [];
    this.timer = null;
    this.values = this.read();
    const look = () => this.look();
    page.addEventListener("hashchange", look);
    window.addEventListener("pagehide", () => page.removeEventListener("hashchange", look));
  }

  get isWriting() { return this.timer !== null; }

  // A value of the kind that the table above tells, or null.
  get(name) {
    kindOf(name);
    return this.values[name] ?? null;
  }

  // null, "" and false take it out of the address.
  set(name, value) {
    kindOf(name);
    const kept = value === "" || value === false ? null : value ?? null;
    if (this.get(name) === kept) return;
    this.values[name] = kept;
    this.tell(name);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.write(), STILL_MS);
  }

  // f(value) whenever the value has changed, by whomever.
  on(name, f) {
    kindOf(name);
    this.listeners.set(name, [...this.listeners.get(name) ?? [], f]);
  }

  // f() when somebody has gone to another address while the page is open.
  onArrival(f) { this.arrivals.push(f); }

  tell(name) {
    for (const f of this.listeners.get(name) ?? []) f(this.get(name));
  }

  read() {
    const found = {};
    for (const [name, text] of pairs(this.page).filter(([key]) => key.startsWith(PREFIX))) {
      const own = name.slice(PREFIX.length);
      // What a newer version keeps is not known here, and left out.
      if (Object.hasOwn(NAMES, own)) found[own] = NAMES[own].read(text);
    }
    return found;
  }

  look() {
    const before = this.values;
    const found = this.read();
    const changed = Object.keys(NAMES).filter((n) => (before[n] ?? null) !== (found[n] ?? null));
    if (!changed.length) return;
    clearTimeout(this.timer);
    this.timer = null;
    this.values = found;
    for (const f of this.arrivals) f();
    changed.forEach((name) => this.tell(name));
  }

  write() {
    this.timer = null;
    const others = pairs(this.page).filter(([key]) => !key.startsWith(PREFIX)).map(([, , raw]) => raw);
    const own = Object.keys(NAMES).filter((name) => this.get(name) !== null).map((name) =>
      `${PREFIX}${name}=${encodeURIComponent(NAMES[name].write(this.get(name)))}`);
    const { history } = this.page;
    history.replaceState(history.state, "", `#${[...others, ...own].join("&")}`);
  }
}

function kindOf(name) {
  if (!Object.hasOwn(NAMES, name)) throw new Error(`the address keeps no ${name}; see address.js`);
  return NAMES[name];
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
