// The box beside the pointer: all numbers of what is under it.  describe() serves the pinned box too.

import { element, formatTime, swatch, table } from "./dom.js";
import { KINDS } from "./definitions.js";

const ASK_AFTER_MS = 60;
// The box must not be higher than the window; pinned, the panel has them all.
const FEW_NAMES = 6;

export class Tooltip {
  constructor(parent, data) {
    this.data = data;
    this.box = element("div", { id: "tooltip", role: "tooltip" });
    this.box.hidden = true;
    this.key = null;
    parent.append(this.box);
  }

  show(hit, x, y) {
    if (!hit) {
      this.key = null;
      this.box.hidden = true;
      return;
    }
    if (hit.key !== this.key) {
      this.key = hit.key;
      this.fill(hit);
    }
    this.box.hidden = false;
    this.move(x, y);
    this.at = [x, y];
  }

  fill(hit) {
    if (hit.title) {
      this.box.replaceChildren(element("b", {}, hit.title), ...hit.lines.map((l) => element("p", {}, l)));
    } else if (hit.kind === "mark") {
      const { mark, rank } = hit;
      this.box.replaceChildren(
        element("b", {}, `${mark.title.replaceAll("_", " ")}, step ${mark.step}, rank ${rank}`),
        element("p", {}, mark.text));
    } else if (hit.kind === "hang") {
      this.box.replaceChildren(...describeHang(hit.hang));
    } else if (hit.kind === "bin") {
      this.box.replaceChildren(
        element("b", {}, `${this.data.counted(hit.count)}, rank ${hit.rank}`),
        table(KINDS.map((k, i) => [k, `${hit.shares[i]} %`]).filter((_, i) => hit.shares[i])),
        element("p", {}, hit.late ? `late in ${hit.late} of them. Zoom in (w).`
          : "Too narrow to show each: zoom in (w)."), ...this.waiting(hit));
    } else {
      this.box.replaceChildren(
        element("b", {}, `${hit.call}, step ${hit.step}, rank ${hit.rank}`),
        table([[this.data.isSharded ? "begun to done" : "ready to done", formatTime(hit.end - hit.start)]]));
      setTimeout(() => this.fillDetail(hit), ASK_AFTER_MS);
    }
  }

  // A share of merged bars that is wire is transfer only where it is known what is waiting.
  waiting(hit) {
    const why = this.data.picture.waitUnknown;
    if (why === null || !hit.shares[KINDS.indexOf("wire")]) return [];
    return [element("p", {}, `How much of the wire is waiting is not known, because ${why}.`)];
  }

  async fillDetail(hit) {
    if (this.key !== hit.key) return;
    let parts;
    try {
      parts = describe(await this.data.detail(hit.rank, hit.id), FEW_NAMES);
    } catch (error) {
      parts = [element("p", {}, error.message)];
    }
    if (this.key !== hit.key) return;
    this.box.replaceChildren(...parts, ...(hit.hang ? describeHang(hit.hang) : []));
    this.move(...this.at);
  }

  // Beside the pointer, on the side that has room.
  move(x, y) {
    const { offsetWidth: w, offsetHeight: h } = this.box;
    const top = document.getElementById("main").getBoundingClientRect().top;
    const left = x + 16 + w > innerWidth ? x - w - 12 : x + 16;
    const below = top + y + 16 + h > innerHeight ? innerHeight - h - 4 : top + y + 16;
    this.box.style.left = `${Math.max(2, left)}px`;
    this.box.style.top = `${Math.max(2, below)}px`;
  }
}

function describeHang(hang) {
  return [element("b", {}, hang.title), element("p", { class: "bad" }, hang.text)];
}

// A bucket's detail as elements, with so many of its parameters at most.
export function describe(detail, most = Infinity) {
  const stages = element("table", { class: "stages" }, ...detail.stages.map(([kind, name, ms, note]) =>
    element("tr", {}, element("th", {}, swatch(KINDS[kind]), name),
      element("td", {}, ms), element("td", { class: "note" }, note))));
  const parts = [element("b", {}, detail.title), table(detail.times), stages,
    ...(detail.waiting ? [element("p", { class: "waiting" }, detail.waiting)] : []),
    table(detail.bytes)];
  if (detail.late.length) parts.push(table(detail.late));
  if (detail.exception) parts.push(element("p", { class: "bad" }, detail.exception));
  if (detail.error.length) {
    parts.push(element("h4", {}, "error"), table(detail.error));
    if (detail.worst.length) parts.push(element("h4", {}, "worst"), table(detail.worst));
  }
  parts.push(table(detail.what));
  if (detail.parameters.length) {
    const names = detail.parameters.slice(0, most);
    const left = detail.more_parameters + detail.parameters.length - names.length;
    const more = left ? [`and ${left} more`] : [];
    parts.push(element("h4", {}, "parameters"),
      element("p", { class: "names" }, [...names, ...more].join(", ")));
  }
  return parts;
}
