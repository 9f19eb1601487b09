// What the colours mean; a click hides a stage or shows it again, a double or Alt click shows it alone.
//
//   address "hidden": names with "," between --> canvas.hidden --> bars.js leaves those stages out

import { element, swatch } from "./dom.js";
import { KINDS } from "./definitions.js";

const STAGES = KINDS.slice(0, -1); // time in no stage is the ground that they lie on
const OTHERS = [["exposed", "exposed"], ["late", "last bucket ready"], ["text", "late rank"],
  ["hang", "hang"], ["path", "critical path"]];

export class Legend {
  constructor(app) {
    this.app = app;
    this.address = app.viewState;
    this.stages = STAGES.map((name) => this.button(name));
    this.others = OTHERS.map(([color, text]) => element("span", {}, swatch(color), text));
    app.page.legend.append(...this.stages, ...this.others);
    this.address.on("hidden", () => this.apply());
    this.apply();
  }

  get hidden() {
    return (this.address.get("hidden") ?? "").split(",").filter((name) => STAGES.includes(name));
  }

  // Called with each frame: what is not drawn of a sharded run is not in it.
  draw() { this.others[1].hidden = this.app.data.isSharded; }

  button(name) {
    const made = element("button", { type: "button", class: "stage",
      title: `Hide ${name} or show it again; double-click or Alt: nothing else` },
      swatch(name), name);
    made.addEventListener("click", (event) => (event.altKey ? this.only(name) : this.toggle(name)));
    made.addEventListener("dblclick", () => this.only(name));
    return made;
  }

  toggle(name) {
    const { hidden } = this;
    const now = hidden.includes(name) ? hidden.filter((h) => h !== name) : [...hidden, name];
    this.address.set("hidden", now.join(","));
  }

  // Where it is the only one already, all come back.
  only(name) {
    const others = STAGES.filter((other) => other !== name);
    const isAlone = this.hidden.join() === others.join();
    this.address.set("hidden", isAlone ? null : others.join(","));
  }

  apply() {
    const { hidden } = this;
    this.stages.forEach((made, i) =>
      made.setAttribute("aria-pressed", String(!hidden.includes(STAGES[i]))));
    this.app.canvas.hidden = new Set(hidden.map((name) => KINDS.indexOf(name)));
    this.app.touch();
  }
}
