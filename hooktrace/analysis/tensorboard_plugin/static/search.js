// The search box (key /): a list of what a text finds, and one bucket lit on all ranks.
//
//   text --server (search.py)--> results --Enter or a click--> a step, a rank's lane, a bucket is lit
//
// The bucket that is lit, and the text, are in the address; Escape puts it out.

import { element } from "./dom.js";

const STILL_MS = 150;

export class Search {
  constructor(app) {
    this.app = app;
    this.address = app.viewState;
    this.results = [];
    this.chosen = 0;
    this.asked = 0;
    this.box = element("input", { id: "search", type: "search", placeholder: "search (/)", size: "14",
      title: "Parameter, bucket 3, step 12, rank 2, anomaly (/)", role: "combobox",
      "aria-expanded": "false", "aria-controls": "found", "aria-autocomplete": "list",
      autocomplete: "off", maxlength: "200" });
    this.list = element("div", { id: "found", role: "listbox", "aria-label": "Search results" });
    this.list.hidden = true;
    app.page.status.before(this.box);
    document.body.append(this.list);
    this.listen();
    app.viewState.on("search", (text) => { this.box.value = text ?? ""; });
    this.box.value = this.address.get("search") ?? "";
  }

  listen() {
    this.box.addEventListener("input", () => {
      if (!this.box.value) this.clear();
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.ask(), STILL_MS);
    });
    this.box.addEventListener("keydown", (event) => {
      const act = { Enter: () => this.enter(), Escape: () => this.leave(),
        ArrowDown: () => this.move(1), ArrowUp: () => this.move(-1) }[event.key];
      if (!act) return;
      event.preventDefault();
      act();
    });
    this.box.addEventListener("focus", () => { if (this.box.value) this.ask(); });
    this.box.addEventListener("blur", () => this.close());
  }

  focus() {
    this.box.focus();
    this.box.select();
  }

  // Puts out what is lit.
  clear() {
    this.close();
    this.address.set("search", null);
    this.address.set("lit", null);
    this.app.touch();
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
    let found = { results: [], more: false }, why = "nothing found";
    try {
      found = await data.get("search", { run: data.run, model: data.model, text });
    } catch (error) {
      why = error.message;
    }
    if (asked !== this.asked || document.activeElement !== this.box) return;
    this.show(found, why);
  }

  show({ results, more }, why) {
    this.results = results;
    this.chosen = 0;
    const rows = results.map((one, i) => this.row(one, i));
    if (!results.length) rows.push(element("p", {}, why));
    if (more) rows.push(element("p", {}, `the first ${results.length}: a longer text finds fewer`));
    this.list.replaceChildren(...rows);
    const at = this.box.getBoundingClientRect();
    this.list.style.left = `${Math.max(4, Math.min(at.left, innerWidth - 370))}px`;
    this.list.style.top = `${at.bottom + 3}px`;
    this.list.hidden = false;
    this.box.setAttribute("aria-expanded", "true");
    this.move(0);
  }

  row(one, i) {
    const made = element("div", { role: "option", id: `found-${i}`, class: "row" },
      element("b", {}, one.title), element("span", {}, one.note));
    // Before the box loses the focus, which closes the list.
    made.addEventListener("pointerdown", (event) => { event.preventDefault(); this.go(one); });
    return made;
  }

  move(by) {
    if (!this.results.length) return;
    this.chosen = (this.chosen + by + this.results.length) % this.results.length;
    this.results.forEach((_, i) => {
      const row = this.list.children[i];
      row.setAttribute("aria-selected", String(i === this.chosen));
      if (i === this.chosen) row.scrollIntoView({ block: "nearest" });
    });
    this.box.setAttribute("aria-activedescendant", `found-${this.chosen}`);
  }

  async enter() {
    if (this.list.hidden) await this.ask();
    if (this.results[this.chosen]) this.go(this.results[this.chosen]);
  }

  go(one) {
    const { app, address } = this;
    this.close();
    address.set("search", this.box.value.trim());
    const what = one.unit === undefined ? one.bucket : `=${one.unit}`, isBucket = what !== undefined;
    address.set("lit", isBucket ? `${what}/${one.first}/${one.last ?? ""}` : null);
    if (one.kind === "anomaly") app.steps.goToMoment(one.at, one.step, one.rank);
    else if (one.kind === "rank") app.ranks.showLanes(one.rank);
    else app.goToStep(isBucket ? this.nearStep(one) : one.step);
    app.stage.focus();
    app.touch();
  }

  // The step that is looked at, or the nearest that has the bucket.
  nearStep({ first, last }) {
    const here = this.app.canvas.stepInMiddle()?.step ?? first;
    return Math.max(first, Math.min(here, last ?? Infinity));
  }
}
