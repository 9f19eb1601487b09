// One bucket lit on all ranks: the search's, in the steps that have it, and the pinned one, in its step.
//
// Whatever is not lit is dimmed; where nothing is lit all is as ever.

// What is lit, as functions of a rank and the place of a bar of its: by steps, and by the number of a
// bucket, or, after "=", by the name of a unit of a sharded run.
export function litOf(address, pinned) {
  const found = [], text = address.get("lit");
  if (text !== null) {
    const [what, first, last] = text.split("/");
    const from = Number(first ?? 0), to = last ? Number(last) : Infinity;
    const isIt = what.startsWith("=") ? (rank, i) => rank.unit[i] === what.slice(1)
      : (rank, i) => rank.bucket[i] === Number(what);
    found.push((rank, i) => isIt(rank, i) && from <= rank.step[i] && rank.step[i] <= to);
  }
  if (pinned) found.push((rank, i) => rank.call[i] === pinned.call && rank.step[i] === pinned.step);
  return found;
}

// Dims a rank's bars but for those that are lit, and counts both.
export function dimOthers(canvas, rank, y, counts) {
  const { context: c, theme, rowHeight: h, view, lit } = canvas;
  if (!lit.length) return;
  c.globalAlpha = 0.78;
  c.fillStyle = theme.lane;
  for (let i = 0; i < rank.id.length; i += 1) {
    if (rank.end[i] < view.t0 || rank.start[i] > view.t1) continue;
    if (lit.some((isLit) => isLit(rank, i))) {
      counts.lit += 1;
      continue;
    }
    counts.dimmed += 1;
    const x = canvas.x(rank.start[i]) - 0.5;
    c.fillRect(x, y + rank.lane[i] * h - 0.5, Math.max(1.5, canvas.x(rank.end[i]) - x + 0.5), h);
  }
  c.globalAlpha = 1;
}
