// What the colours mean.  A click hides a stage or shows it, a double or Alt click it alone.

import { KINDS } from "./definitions.js";
import { button, element, swatch } from "./dom.js";
import { OTHERS } from "./others.js";

const STAGES = KINDS.slice(0, -1); // time in no stage is the ground that they lie on
const REST = [["exposed", "exposed"], ["late", "last bucket ready"], ["text", "late rank"],
  ["hang", "hang"], ["other", "in no stage"], ["muted", OTHERS]];

export class Legend {
  constructor(app) {
    this.app = app;
    this.stages = STAGES.map((name) => this.entry(name));
    this.others = REST.map(([color, text]) => element("span", {}, swatch(color), text));
    app.page.legend.append(...this.stages, ...this.others);
    app.address.follow("hidden", (text) => {
      this.hidden = (text ?? "").split(",").filter((name) => STAGES.includes(name));
      this.stages.forEach((made, i) =>
        made.setAttribute("aria-pressed", String(!this.hidden.includes(STAGES[i]))));
      app.canvas.hidden = new Set(this.hidden.map((name) => KINDS.indexOf(name)));
    });
  }

  // what is not drawn of a sharded run is not in it.
  draw() {
    this.others[1].hidden = this.app.data.isSharded;
    this.others.at(-1).hidden = this.app.data.othersLane === null;
  }

  entry(name) {
    const act = (event) => (event.altKey ? this.only(name) : this.toggle(name));
    return button([swatch(name), name], act, { dblclick: () => this.only(name),
      title: `Hide ${name} or show it again; double-click or Alt: nothing else` });
  }

  toggle(name) {
    const { hidden } = this;
    this.hide(hidden.includes(name) ? hidden.filter((h) => h !== name) : [...hidden, name]);
  }

  // Where it is the only one already, all come back.
  only(name) {
    const others = STAGES.filter((other) => other !== name);
    this.hide(this.hidden.join() === others.join() ? [] : others);
  }

  hide(names) { this.app.address.set("hidden", names.join(",")); }
}
