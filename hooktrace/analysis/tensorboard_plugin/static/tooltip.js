// The box beside the pointer: all numbers of what is under it.  describe() serves the pinned box
// too.

import { KINDS } from "./definitions.js";
import { element, paragraph, swatch, table } from "./dom.js";

const ASK_AFTER_MS = 60;
// The box must not be higher than the window; pinned, the panel has them all.
const FEW_NAMES = 6;

export class Tooltip {
  constructor(data) {
    this.data = data;
    this.box = element("div", { id: "tooltip", role: "tooltip", hidden: "" });
    this.key = null;
    document.body.append(this.box);
  }

  // `hit`: null, or { key, title, rows, lines, hang } of which some may be left out.
  show(hit, x, y) {
    this.box.hidden = !hit;
    if (hit && hit.key !== this.key) this.fill(hit);
    this.key = hit?.key ?? null;
    this.at = [x, y];
    if (hit) this.move();
  }

  fill({ kind, key, rank, id, title, rows, lines = [], hang }) {
    this.box.replaceChildren(...(title ? [element("b", {}, title)] : []),
      ...(rows ? [table(rows)] : []), ...lines.map((line) => paragraph(line)), ...hangText(hang));
    if (kind === "bar") setTimeout(() => this.fillDetail(key, rank, id, hang), ASK_AFTER_MS);
  }

  async fillDetail(key, rank, id, hang) {
    if (this.key !== key) return;
    const parts = await this.data.detail(rank, id).then((detail) => describe(detail, FEW_NAMES),
      (error) => [paragraph(error.message)]);
    if (this.key !== key) return;
    this.box.replaceChildren(...parts, ...hangText(hang));
    this.move();
  }

  // Beside the pointer, on the side that has room.
  move() {
    const { offsetWidth: w, offsetHeight: h } = this.box, [x, y] = this.at;
    const top = document.getElementById("main").getBoundingClientRect().top;
    const left = x + 16 + w > innerWidth ? x - w - 12 : x + 16;
    const below = top + y + 16 + h > innerHeight ? innerHeight - h - 4 : top + y + 16;
    this.box.style.left = `${Math.max(2, left)}px`;
    this.box.style.top = `${Math.max(2, below)}px`;
  }
}

function hangText(hang) {
  return hang ? [element("b", {}, hang.title), paragraph(hang.text, { class: "bad" })] : [];
}

// A bucket's detail as elements, with so many of its parameters at most.
export function describe(detail, most = Infinity) {
  const stages = detail.stages.map(([kind, name, ms, note]) => element("tr", {},
    element("th", {}, swatch(KINDS[kind]), name), element("td", {}, ms),
    element("td", { class: "note" }, note)));
  const section = (title, rows) => (rows.length ? [element("h4", {}, title), table(rows)] : []);
  return [element("b", {}, detail.title), table(detail.times),
    element("table", { class: "stages" }, ...stages),
    ...(detail.waiting ? [paragraph(detail.waiting, { class: "waiting" })] : []),
    table(detail.bytes), ...(detail.late.length ? [table(detail.late)] : []),
    ...(detail.exception ? [paragraph(detail.exception, { class: "bad" })] : []),
    ...section("error", detail.error), ...section("worst", detail.worst),
    table(detail.what), ...parameters(detail, most)];
}

function parameters({ parameters: every, more_parameters: others }, most) {
  if (!every.length) return [];
  const names = every.slice(0, most), left = others + every.length - names.length;
  const text = [...names, ...(left ? [`and ${left} more`] : [])].join(", ");
  return [element("h4", {}, "parameters"), paragraph(text, { class: "names" })];
}
