// One bucket lit on all ranks: the search's, in the steps that have it, and the pinned one, in its step.
//
// Whatever is not lit is dimmed; where nothing is lit all is as ever.

// What is lit: [{ bucket, first, last }], by steps.
export function litOf(address, pinned) {
  const found = [], text = address.get("lit");
  if (text !== null) {
    const [bucket, first, last] = text.split("/");
    found.push({ bucket: Number(bucket), first: Number(first ?? 0), last: last ? Number(last) : Infinity });
  }
  if (pinned) found.push({ bucket: pinned.bucket, first: pinned.step, last: pinned.step });
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
    const isLit = lit.some(({ bucket, first, last }) => rank.bucket[i] === bucket
      && first <= rank.step[i] && rank.step[i] <= last);
    if (isLit) {
      counts.lit += 1;
      continue;
    }
    counts.dimmed += 1;
    const x = canvas.x(rank.start[i]) - 0.5;
    c.fillRect(x, y + rank.lane[i] * h - 0.5, Math.max(1.5, canvas.x(rank.end[i]) - x + 0.5), h);
  }
  c.globalAlpha = 1;
}
