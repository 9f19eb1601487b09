// The search's bucket lit on all ranks, in the steps that have it, and the pinned one in its step;
// whatever is not lit is dimmed.

// What is lit, as functions of a rank and the place of a bar of its.  `text`, of the address: the
// number of a bucket or, after "=", the name of a unit of a sharded run, and the first step.
export function litOf(text, pinned) {
  const found = [];
  if (text !== null) {
    const [what, first] = text.split("/"), from = Number(first ?? 0);
    const isIt = what.startsWith("=") ? (rank, i) => rank.of[i].name === what.slice(1)
      : (rank, i) => rank.bucket[i] === Number(what);
    found.push((rank, i) => isIt(rank, i) && from <= rank.step[i]);
  }
  const isPinned = (rank, i) =>
    rank.of[i].call === pinned.call && rank.step[i] === pinned.step;
  if (pinned) found.push(isPinned);
  return found;
}

// Dims a rank's bars but for those that are lit, and counts both.
export function dimOthers(canvas, rank, y, counts) {
  const { context: c, theme, rowHeight: h, lit } = canvas;
  if (!lit.length) return;
  c.globalAlpha = 0.78;
  c.fillStyle = theme.lane;
  const seen = canvas.inView(rank);
  const others = seen.filter((i) => !lit.some((isLit) => isLit(rank, i)));
  counts.lit += seen.length - others.length;
  counts.dimmed += others.length;
  for (const i of others) {
    const x = canvas.x(rank.start[i]) - 0.5;
    c.fillRect(x, y + rank.lane[i] * h - 0.5, Math.max(1.5, canvas.x(rank.end[i]) - x + 0.5), h);
  }
  c.globalAlpha = 1;
}
