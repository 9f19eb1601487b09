// The search box (key /): a list of what a text finds (search.py), and one bucket lit on all ranks.

import { element, paragraph } from "./dom.js";

const STILL_MS = 150;
const WIDTH = 370;

export class Search {
  constructor(app) {
    this.app = app;
    this.results = [];
    this.chosen = this.asked = 0;
    this.box = element("input", { id: "search", type: "search", placeholder: "search (/)",
      size: "14", title: "Parameter, bucket 3, step 12, rank 2, anomaly (/)", role: "combobox",
      "aria-expanded": "false", "aria-controls": "found", "aria-autocomplete": "list",
      autocomplete: "off", maxlength: "200", input: () => this.typed(),
      keydown: (event) => this.key(event), blur: () => this.close(),
      focus: () => { if (this.box.value) this.ask(); } });
    this.list = element("div", { id: "found", role: "listbox", "aria-label": "Search results",
      hidden: "" });
    app.page.status.before(this.box);
    document.body.append(this.list);
    app.address.follow("search", (text) => { this.box.value = text ?? ""; });
  }

  typed() {
    if (!this.box.value) this.clear();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.ask(), STILL_MS);
  }

  key(event) {
    const act = { Enter: () => this.enter(), Escape: () => this.leave(),
      ArrowDown: () => this.move(1), ArrowUp: () => this.move(-1) }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  focus() {
    this.box.focus();
    this.box.select();
  }

  clear() {
    this.close();
    this.app.address.set("search", null);
    this.app.address.set("lit", null);
  }

  leave() {
    if (this.list.hidden) this.clear();
    this.close();
    this.app.stage.focus();
  }

  close() {
    this.list.hidden = true;
    this.box.setAttribute("aria-expanded", "false");
    this.box.removeAttribute("aria-activedescendant");
  }

  async ask() {
    const text = this.box.value.trim(), asked = this.asked += 1, { data } = this.app;
    clearTimeout(this.timer);
    if (!text || !data.model) return this.close();
    const found = await data.ask("search", { text })
      .catch((error) => ({ results: [], more: false, why: error.message }));
    if (asked === this.asked && document.activeElement === this.box) this.show(found);
  }

  show({ results, more, why = "nothing found" }) {
    this.results = results;
    this.chosen = 0;
    const rows = results.map((one, i) => this.row(one, i));
    if (!results.length) rows.push(paragraph(why));
    if (more) rows.push(paragraph(`the first ${results.length}: a longer text finds fewer`));
    this.list.replaceChildren(...rows);
    const at = this.box.getBoundingClientRect();
    this.list.style.left = `${Math.max(4, Math.min(at.left, innerWidth - WIDTH))}px`;
    this.list.style.top = `${at.bottom + 3}px`;
    this.list.hidden = false;
    this.box.setAttribute("aria-expanded", "true");
    this.move(0);
  }

  row(one, i) {
    return element("div", { role: "option", id: `found-${i}`, class: "row",
      // Before the box loses the focus, which closes the list.
      pointerdown: (event) => { event.preventDefault(); this.go(one); } },
      element("b", {}, one.title), element("span", {}, one.note));
  }

  move(by) {
    if (!this.results.length) return;
    this.chosen = (this.chosen + by + this.results.length) % this.results.length;
    this.results.forEach((_, i) =>
      this.list.children[i].setAttribute("aria-selected", String(i === this.chosen)));
    this.list.children[this.chosen].scrollIntoView({ block: "nearest" });
    this.box.setAttribute("aria-activedescendant", `found-${this.chosen}`);
  }

  async enter() {
    if (this.list.hidden) await this.ask();
    if (this.results[this.chosen]) this.go(this.results[this.chosen]);
  }

  go(one) {
    const { address, steps, ranks, stage } = this.app;
    this.close();
    address.set("search", this.box.value.trim());
    const what = one.unit === undefined ? one.bucket : `=${one.unit}`;
    const isBucket = what !== undefined;
    address.set("lit", isBucket ? `${what}/${one.first}` : null);
    if (one.kind === "anomaly") steps.goToMoment(one.at, one.step, one.rank);
    else if (one.kind === "rank") ranks.showLanes(one.rank);
    else steps.go(isBucket ? this.nearStep(one) : one.step);
    stage.focus();
  }

  // The step that is looked at, or the nearest that has the bucket.
  nearStep({ first }) {
    return Math.max(first, this.app.steps.middle?.step ?? first);
  }
}
