// Draws what lies over and under a rank's buckets: its steps, their last bucket, and marks.

export function drawSteps(canvas, steps, y, counts) {
  const { context: c, theme, view } = canvas;
  for (let i = 0; i < steps.step.length; i += 1) {
    if (steps.end[i] < view.t0 || steps.start[i] > view.t1) continue;
    counts.steps += 1;
    const x = canvas.x(steps.start[i]);
    c.fillStyle = theme.step;
    c.fillRect(x, y, canvas.x(steps.end[i]) - x, canvas.laneHeight);
  }
}

// Where training waited; where much of it is too narrow to be told apart, as high as its share.
export function drawExposed(canvas, exposed, y, counts) {
  const { context: c, theme, view, laneHeight } = canvas;
  c.fillStyle = theme.exposed;
  for (let i = 0; i < exposed.start.length; i += 1) {
    if (exposed.end[i] < view.t0 || exposed.start[i] > view.t1) continue;
    counts.exposed += 1;
    const x = canvas.x(exposed.start[i]), height = laneHeight * exposed.share[i] / 100;
    c.fillRect(x, y + laneHeight - height, Math.max(1, canvas.x(exposed.end[i]) - x), height);
  }
}

export function drawLastReady(canvas, steps, y, counts, before) {
  const { context: c, theme, view } = canvas;
  const perStep = canvas.lanesWidth / Math.max(1, counts.steps - before);
  if (perStep < 40) return;
  c.fillStyle = theme.late;
  for (let i = 0; i < steps.step.length; i += 1) {
    const at = steps.last_ready[i];
    if (at < view.t0 || at > view.t1) continue;
    counts.lastMarks += 1;
    const x = canvas.x(at);
    c.fillRect(x - 0.5, y, 1, canvas.laneHeight);
    c.beginPath();
    c.moveTo(x - 4, y);
    c.lineTo(x + 4, y);
    c.lineTo(x, y + 6);
    c.fill();
  }
}

export function drawMarks(canvas, rank, y, counts) {
  const { context: c, theme, view } = canvas;
  for (const mark of rank.marks) {
    if (mark.at < view.t0 || mark.at > view.t1) continue;
    counts.marks += 1;
    const x = canvas.x(mark.at), isAnomaly = mark.kind === "anomaly";
    const at = isAnomaly ? y + 7 : y + canvas.laneHeight - 7;
    c.fillStyle = isAnomaly ? theme.bad : theme.muted;
    c.fillRect(x - 0.5, y, 1, canvas.laneHeight);
    c.beginPath();
    if (isAnomaly) {
      c.moveTo(x, at - 6);
      c.lineTo(x + 6, at);
      c.lineTo(x, at + 6);
      c.lineTo(x - 6, at);
    } else c.rect(x - 4, at - 4, 8, 8);
    c.fill();
    canvas.marksAt.push({ x, y: at, mark, rank: rank.rank });
  }
}
