// All keys, for the hint below the plot and the dialog of `?`.

import { element } from "./dom.js";

const KEYS = [
  ["w s", "zoom in and out at the pointer; Ctrl and wheel too"],
  ["a d ← →", "pan; dragging and Shift and wheel too"],
  ["↑ ↓ PageUp PageDown", "scroll through the ranks"],
  ["[ ]", "the step before and after"],
  ["0 Home", "the whole run"],
  ["f", "zoom to the bar that is pinned or under the pointer"],
  ["l End", "follow the end of a running job"],
  ["c", "the critical path of a step"],
  ["h", "heat map of ranks by steps"],
  ["x", "drag selects a stretch of time, and its numbers"],
  ["/", "search: parameter, unit, bucket 3, step 12, rank 2, anomaly"],
  ["Alt ← →", "pin the bar before or after on the same rank"],
  ["Alt ↑ ↓", "pin the same bucket or unit on the rank above or below"],
  ["Esc", "unpin, and put out what the search has lit"],
  ["?", "this list"],
];

export class KeysDialog {
  constructor(stage) {
    this.stage = stage;
    const close = element("button", { type: "button" }, "close");
    this.box = element("dialog", { id: "keys-dialog", "aria-labelledby": "keys-title" },
      element("h3", { id: "keys-title" }, "Keys"),
      element("table", {}, ...KEYS.map(([keys, what]) => element("tr", {},
        element("th", {}, ...keys.split(" ").flatMap((key) => [element("kbd", {}, key), " "])),
        element("td", {}, what)))), close);
    close.addEventListener("click", () => this.box.close());
    this.box.addEventListener("close", () => this.stage.focus());
    // A click beside it closes it.
    this.box.addEventListener("click", (event) => { if (event.target === this.box) this.box.close(); });
    document.body.append(this.box);
  }

  get isOpen() { return this.box.open; }

  open() { this.box.showModal(); }
}
