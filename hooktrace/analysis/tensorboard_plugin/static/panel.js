// The lists beside the lanes: the pinned bucket, slowest steps, late ranks, anomalies, rebuilds, notes.
// A click jumps.

import { element, formatTime } from "./dom.js";
import { describe } from "./tooltip.js";

export class Panel {
  constructor(parent, data, go) {
    this.data = data;
    this.go = go;
    this.boxes = {};
    for (const [id, title, open] of [
      ["pinned", "Pinned bucket", true],
      ["path", "Critical path of the step", true], ["path-run", "Critical path, whole run", true],
      ["waiting", "Waiting for the last rank", true], ["slowest", "Slowest steps", true],
      ["exposed", "Most exposed steps", false], ["late", "Late ranks", true],
      ["anomalies", "Anomalies", true], ["rebuilds", "Bucket layouts", false],
      ["notes", "Notes", true],
    ]) {
      const body = element("div", { class: "body" });
      const box = element("details", { id, ...(open ? { open: "" } : {}) },
        element("summary", {}, title), body);
      box.hidden = true;
      parent.append(box);
      this.boxes[id] = { box, body };
    }
  }

  fill(id, children) {
    const { box, body } = this.boxes[id];
    body.replaceChildren(...children);
    box.hidden = !children.length;
  }

  title(id, text) { this.boxes[id].box.firstChild.textContent = text; }

  clear() {
    for (const id of Object.keys(this.boxes)) this.fill(id, []);
  }

  async pin(hit) {
    this.hit = hit;
    if (!hit) return this.fill("pinned", []);
    try {
      const detail = await this.data.detail(hit.rank, hit.id);
      if (this.hit === hit) this.fill("pinned", describe(detail));
    } catch (error) {
      this.fill("pinned", [element("p", {}, error.message)]);
    }
  }

  // A row that is a button: reached by keyboard too.
  row(label, value, act, title = "") {
    const made = element("button", { type: "button", class: "row", title },
      element("span", {}, label), element("span", {}, value));
    made.addEventListener("click", act);
    return made;
  }

  lists(summary) {
    if (!summary) return;
    const step = (s, name) => this.row(`step ${s.step}`, formatTime(s[name]),
      () => this.go.step(s.step), `rank ${s.rank} has the most exposed: ${formatTime(s.exposed)}`);
    this.fill("slowest", summary.slowest.slice(0, 12).map((s) => step(s, "period")));
    this.fill("exposed", summary.exposed.slice(0, 12).map((s) => step(s, "exposed")));
    const late = summary.late.map((l) => this.row(`rank ${l.rank}: ${l.times} of ${l.of} steps`,
      `up to ${formatTime(l.margin)}`, () => this.go.step(l.step, l.rank),
      `last at ${l.name}; the most at step ${l.step}`));
    if (summary.late_note) late.push(element("p", {}, summary.late_note));
    this.fill("late", late);
    const rows = summary.anomalies.map((a) => this.row(
      [a.kind.replaceAll("_", " "), `step ${a.step}`, a.who].filter(Boolean).join(", "), "",
      () => this.go.moment(a.at, a.step, a.rank), a.text));
    const more = summary.anomaly_count - rows.length;
    if (more > 0) rows.push(element("p", {}, `and ${more} more`));
    this.fill("anomalies", rows);
    this.fill("rebuilds", summary.rebuilds.map((r) => this.row(`generation ${r.generation}`,
      `${this.data.counted(r.buckets)}, step ${r.step}`, () => this.go.moment(r.at, r.step), r.text)));
    const { isSharded } = this.data;
    this.title("pinned", isSharded ? "Pinned collective" : "Pinned bucket");
    this.title("rebuilds", isSharded ? "Units" : "Bucket layouts");
  }

  notes(info) {
    this.fill("notes", noteLines(info).map((text) => element("p", {}, text)));
  }

  noteText(info) { return noteLines(info).map((line) => ` ${line}`).join(""); }
}

function noteLines(info) {
  const lines = [];
  if (info.unaligned) {
    lines.push(`Clock unknown: ${info.unaligned}. Placed by wall clock, `
      + "so ranks may be shifted against each other and no late rank is named.");
  }
  for (const r of info.ranks) {
    if (r.skipped) {
      const [line, why] = r.first_skipped[0];
      lines.push(`Rank ${r.rank}: ${r.skipped} line${r.skipped === 1 ? "" : "s"} not read, `
        + `the first is line ${line}: ${why}`);
    }
    const lost = Object.entries(r.lost).map(([kind, n]) => `${n} ${kind}`).join(", ");
    if (lost) lines.push(`Rank ${r.rank}: too large for its file, and not written: ${lost}.`);
    if (r.removed_steps) {
      lines.push(`Rank ${r.rank} reached its file's limit; ${r.removed_steps} steps are gone.`);
    }
  }
  for (const [name, why] of info.errors) lines.push(`${name} cannot be read: ${why}.`);
  if (info.other_runs.length) {
    lines.push(`Files of an earlier run are left out: ${info.of_other_runs}.`);
  }
  if (info.world_size && info.world_size > info.ranks.length + info.other_runs.length) {
    lines.push(`${info.ranks.length} of ${info.world_size} ranks have a file here.`);
  }
  return lines;
}
