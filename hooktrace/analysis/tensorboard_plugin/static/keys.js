// All keys, for the dialog of `?`, and some of them for the hint below the plot.

import { button, element } from "./dom.js";

export const HINT =
  "w s zoom · a d pan · [ ] step · 0 whole run · h heat map · f focus · / search · ? all keys";
const KEYS = [
  ["w s", "zoom in and out at the pointer; Ctrl and wheel too"],
  ["a d ← →", "pan; dragging and Shift and wheel too"],
  ["↑ ↓ PageUp PageDown", "scroll through the ranks"],
  ["[ ]", "the step before and after"],
  ["0 Home", "the whole run"],
  ["f", "zoom to the bar that is pinned or under the pointer"],
  ["l End", "follow the end of a running job"],
  ["h", "heat map of ranks by steps"],
  ["/", "search: parameter, unit, bucket 3, step 12, rank 2, anomaly"],
  ["Alt ← →", "pin the bar before or after on the same rank"],
  ["Alt ↑ ↓", "pin the same bucket or unit on the rank above or below"],
  ["Esc", "unpin, and put out what the search has lit"],
  ["?", "this list"],
];

// A click beside the dialog closes it, too.
export function keysDialog(stage) {
  const rows = KEYS.map(([keys, what]) => element("tr", {},
    element("th", {}, ...keys.split(" ").flatMap((key) => [element("kbd", {}, key), " "])),
    element("td", {}, what)));
  const dialog = element("dialog", { id: "keys-dialog", "aria-labelledby": "keys-title",
    close: () => stage.focus(),
    click: (event) => { if (event.target === dialog) dialog.close(); } },
    element("h3", { id: "keys-title" }, "Keys"), element("table", {}, ...rows),
    button("close", () => dialog.close()));
  document.body.append(dialog);
  return dialog;
}
