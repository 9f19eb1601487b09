// Elements and numbers as text.  Text from files only ever becomes text nodes, never markup.

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// A table of [label, value] rows.
export function table(rows) {
  return element("table", {}, ...rows.map(([label, value]) =>
    element("tr", {}, element("th", {}, String(label)), element("td", {}, String(value)))));
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
