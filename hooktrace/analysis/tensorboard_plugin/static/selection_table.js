// The rows of a selection as tables and as CSV.

import { element, formatTime } from "./dom.js";

const HEIGHT = 16;
const BAR = 4;

export function tableOf(noun, rows) {
  const head = [noun, "count", "busy", "sum", "mean", "p95", "lengths", "exposed"];
  return element("table", {},
    element("thead", {}, element("tr", {}, ...head.map((h) => element("th", { scope: "col" }, h)))),
    element("tbody", {}, ...rows.map((r) => element("tr", {},
      element("th", { scope: "row" }, r.name), cell(r.count.toLocaleString("en")),
      ...[r.busy, r.sum, r.mean, r.p95].map((ns) => cell(formatTime(ns))),
      element("td", {}, histogram(r)),
      cell(r.exposed === null ? "–" : `${(100 * r.exposed).toFixed(r.exposed < 0.0995 ? 1 : 0)} %`)))));
}

function cell(text) { return element("td", {}, text); }

// Small bars from the shortest to the longest.
function histogram({ histogram: counts, low, high }) {
  const most = Math.max(...counts);
  const bars = counts.map((count) => {
    const bar = element("i", {});
    bar.style.height = `${count ? Math.max(1.5, HEIGHT * count / most) : 0}px`;
    bar.style.width = `${BAR}px`;
    return bar;
  });
  const text = `from ${formatTime(low)} to ${formatTime(high)}`;
  return element("span", { class: "histogram", role: "img", title: text,
    "aria-label": `lengths ${text}` }, ...bars);
}

const COLUMNS = ["count", "busy", "sum", "mean", "p95", "low", "high"];

// Lengths in ns; `exposed_share` is empty where nothing is exposed.  `noun`: of what is no stage.
export function csvOf({ stages, buckets }, noun) {
  const head = ["kind", "name", ...COLUMNS.map((c) => (c === "count" ? c : `${c}_ns`)), "exposed_share"];
  const line = (kind) => (row) => [kind, quoted(row.name), ...COLUMNS.map((c) => row[c]),
    row.exposed ?? ""].join(",");
  return `${[head.join(","), ...stages.map(line("stage")), ...buckets.map(line(noun))].join("\n")}\n`;
}

function quoted(text) {
  return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

// To the clipboard; where the browser lets no frame write there, into a box to copy from.
export async function offer(text, parent) {
  try {
    await navigator.clipboard.writeText(text);
    return "copied";
  } catch {
    const box = element("textarea", { rows: "6", readonly: "", "aria-label": "CSV" }, text);
    parent.querySelector("textarea")?.remove();
    parent.append(box);
    box.focus();
    box.select();
    return "the browser keeps its clipboard from this frame: copy it from the box below";
  }
}
