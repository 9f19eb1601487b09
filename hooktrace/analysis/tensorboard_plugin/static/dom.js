// Elements, and numbers as text.  Text from files only ever becomes text nodes, never markup.

// An attribute that is a function hears the event of its name.
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

// `content`: a text or an element, or several.
export function button(content, click, attributes = {}) {
  return element("button", { type: "button", click, ...attributes }, ...[content].flat());
}

export function paragraph(text, attributes = {}) { return element("p", attributes, text); }

// A patch of a colour of the style sheet.
export function swatch(color) {
  return element("i", { class: "swatch", style: `background: var(--${color})` });
}

// A table of [label, value] rows; the label is text or an element.
export function table(rows) {
  return element("table", {}, ...rows.map(([label, value]) =>
    element("tr", {}, element("th", {}, label), element("td", {}, value))));
}

// "1 rank", "1,024 ranks".
export function counted(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

export function formatPercent(share) {
  return `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;
}

const UNITS = [[6e10, "min"], [1e9, "s"], [1e6, "ms"], [1e3, "µs"]];

// ns as text with three significant digits.
export function formatTime(ns) {
  for (const [size, unit] of UNITS) {
    if (Math.abs(ns) >= size) return `${Number((ns / size).toPrecision(3))} ${unit}`;
  }
  return `${Math.round(ns)} ns`;
}

// ns as text for an axis whose ticks are `apart` ns apart and end at `last`: one unit for all, the
// largest that needs no more than four digits after the point.
export function formatTick(ns, apart, last) {
  const units = [...UNITS.slice(1), [1, "ns"]];
  const digitsIn = (size) => Math.max(0, -Math.floor(Math.log10(apart / size) + 1e-9));
  const [size, unit] = units.find(([s]) => s <= Math.max(apart, last) && digitsIn(s) <= 4)
    ?? units.at(-1);
  const digits = digitsIn(size);
  return `${(ns / size + 0).toLocaleString("en", { minimumFractionDigits: digits,
    maximumFractionDigits: digits })} ${unit}`;
}

// The round number, 1, 2, 5, 10, 20 ..., that is at least so large.
export function roundUp(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= least);
}
