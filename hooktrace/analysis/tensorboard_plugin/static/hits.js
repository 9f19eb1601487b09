// What is at a point of the lanes, in words for the tooltip; and the other way, where a bar is.

import { KINDS } from "./definitions.js";
import { formatTime } from "./dom.js";
import { hangAt } from "./hangs.js";
import { TOP } from "./lanes.js";
import { otherHit } from "./others.js";

const WIRE = KINDS.indexOf("wire");
const NEAR_PX = 2;

// A mark, a bar (with its hang), a hang, a collective of no bucket, merged bars, or null.
export function hitAt(canvas, x, y) {
  const { data, data: { picture }, lanes } = canvas;
  if (!picture || x < canvas.left || y < TOP) return null;
  const mark = canvas.marksAt.find((one) => Math.abs(x - one.x) <= 6 && Math.abs(y - one.y) <= 7);
  if (mark) return markHit(mark);
  const item = lanes.at(y), rank = picture.byRank.get(item?.rank);
  if (!rank) return null;
  const lane = Math.floor((y - lanes.rowTop(lanes.screen(item), 0)) / lanes.rowHeight);
  const time = canvas.time(x), near = canvas.time(x + NEAR_PX) - time;
  const isAt = ({ lane: own, start, end }, i, within) =>
    own[i] === lane && start[i] - within <= time && time <= end[i] + within;
  const hang = hangAt(canvas.hangsAt, x, y)?.hang;
  const bar = rank.id.findLastIndex((_, i) => isAt(rank, i, near));
  if (bar >= 0) return { ...barOf(rank, bar, data), hang };
  if (hang) return { kind: "hang", key: `hang/${rank.rank}/${hang.start}/${hang.waits}`, hang };
  const bin = rank.bins.lane.findIndex((_, i) => isAt(rank.bins, i, 0));
  return otherHit(canvas.othersAt, x, y) ?? (bin < 0 ? null : binHit(rank, bin, data));
}

function markHit({ mark: { at, title, step, text }, rank }) {
  return { kind: "mark", key: `mark/${rank}/${at}/${title}`,
    title: `${title.replaceAll("_", " ")}, step ${step}, rank ${rank}`, lines: [text] };
}

function binHit({ rank, bins }, i, data) {
  const { count, late, shares, lane, start } = bins, why = data.picture.waitUnknown;
  const lines = [late[i] ? `late in ${late[i]} of them. Zoom in (w).`
    : "Too narrow to show each: zoom in (w)."];
  // A share that is wire is transfer only where it is known what is waiting.
  if (why !== null && shares[i][WIRE]) {
    lines.push(`How much of the wire is waiting is not known, because ${why}.`);
  }
  return { kind: "bin", key: `bin/${rank}/${lane[i]}/${start[i]}`,
    title: `${data.counted(count[i])}, rank ${rank}`, lines,
    rows: KINDS.map((kind, k) => [kind, `${shares[i][k]} %`]).filter((_, k) => shares[i][k]) };
}

export function barOf({ rank, id, step, bucket, start, end, of }, i, { isSharded }) {
  const { call } = of[i];
  return { kind: "bar", key: `bar/${rank}/${id[i]}`, rank, id: id[i], step: step[i],
    bucket: bucket[i], start: start[i], end: end[i], call,
    title: `${call}, step ${step[i]}, rank ${rank}`,
    rows: [[isSharded ? "begun to done" : "ready to done", formatTime(end[i] - start[i])]] };
}

// The box of the bar of a rank that matches(rank, i); null where it has none of its own.
export function placeOf(canvas, number, matches) {
  const rank = canvas.data.picture?.byRank.get(number);
  const i = rank?.id.findIndex((_, at) => matches(rank, at)) ?? -1;
  const place = i < 0 ? null : canvas.place(number, rank.lane[i], rank.start[i]);
  return place && { ...place, width: canvas.x(rank.end[i]) - place.x };
}

// Where a bucket's bar is, its middle in px of the canvas; for tests.
export function locate(canvas, number, step, bucket) {
  const place = placeOf(canvas, number, (rank, i) =>
    rank.step[i] === step && rank.bucket[i] === bucket);
  return place && { x: place.x + place.width / 2, y: place.y + canvas.rowHeight / 2,
    width: place.width };
}
