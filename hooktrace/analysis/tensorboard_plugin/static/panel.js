// The lists beside the lanes, a click on whose rows jumps.

import { button, element, paragraph } from "./dom.js";
import { describe } from "./tooltip.js";

const LISTS = [
  ["pinned", "Pinned bucket", true],
  ["waiting", "Straggler wait", true], ["slowest", "Slowest steps", true],
  ["exposed", "Most exposed steps", false], ["late", "Late ranks", true],
  ["anomalies", "Anomalies", true], ["notes", "Notes", true],
];

export class Panel {
  constructor(app) {
    this.app = app;
    this.lists = new Map(LISTS.map(([id, title, open]) => [id, element("details",
      { id, hidden: "", ...(open ? { open: "" } : {}) }, element("summary", {}, title),
      element("div", { class: "body" }))]));
    app.page.side.append(...this.lists.values());
  }

  fill(id, children) {
    const list = this.lists.get(id);
    list.lastChild.replaceChildren(...children);
    list.hidden = !children.length;
  }

  title(id, text) { this.lists.get(id).firstChild.textContent = text; }

  clear() {
    for (const id of this.lists.keys()) this.fill(id, []);
  }

  async pin(hit) {
    this.hit = hit;
    if (!hit) return this.fill("pinned", []);
    const parts = await this.app.data.detail(hit.rank, hit.id).then(describe,
      (error) => [paragraph(error.message)]);
    if (this.hit === hit) this.fill("pinned", parts);
  }

  tell({ lists }) {
    for (const [id, rows] of Object.entries(lists)) this.fill(id, rows.map((one) => this.row(one)));
    this.title("pinned", `Pinned ${this.app.data.noun}`);
  }

  // A row that leads somewhere is a button: reached by keyboard too.
  row({ note, label, value, text, step, rank, at }) {
    if (note) return paragraph(note);
    const { steps } = this.app, told = [element("span", {}, label), element("span", {}, value)];
    if (step === undefined) return element("div", { class: "row" }, ...told);
    const go = () => (at === undefined ? steps.go(step, rank) : steps.goToMoment(at, step, rank));
    return button(told, go, { class: "row", title: text });
  }

  notes(lines) { this.fill("notes", lines.map((line) => paragraph(line))); }
}
