// Hangs over the lanes: hatched where a rank waits, in its bucket's row; lined where one is waited for.
//
// A hang of which no end is known goes to the edge of the picture and is torn off there.

const HATCH = 7;
const TOOTH = 6;

// Draws a rank's hangs; `boxes` takes where they are, for the pointer.
export function drawHangs(canvas, rank, y, counts, boxes) {
  const { view } = canvas;
  for (const hang of rank.hangs) {
    if (hang.start > view.t1 || hang.end < view.t0) continue;
    const box = place(canvas, hang, y);
    if (hang.waits) counts.hangs += 1;
    else counts.missing += 1;
    if (hang.isOpen) counts.open += 1;
    // A narrow one is a line on top, which leaves the bar below it to be seen.
    hatch(canvas, box.width < HATCH ? { ...box, height: 2 } : box, hang.waits);
    if (hang.isOpen) tear(canvas, box);
    label(canvas, box, hang.waits ? "hang" : "waited for");
    boxes.push({ ...box, hang, rank: rank.rank });
  }
}

function place(canvas, { start, end, lane }, y) {
  const { left, right: edge, rowHeight: h } = canvas;
  const x = Math.max(canvas.x(start), left);
  const right = Math.max(Math.min(canvas.x(end), edge), x + 2);
  const row = lane === null ? { y, height: canvas.laneHeight - 1 }
    : { y: canvas.rowTop(y, lane), height: Math.max(2, h - 1) };
  return { x, width: right - x, ...row };
}

function hatch({ context: c, theme }, { x, y, width, height }, waits) {
  c.save();
  c.beginPath();
  c.rect(x, y, width, height);
  c.clip();
  c.globalAlpha = waits ? 0.3 : 0.1;
  c.fillStyle = theme.hang;
  c.fillRect(x, y, width, height);
  c.globalAlpha = waits ? 0.9 : 0.35;
  c.strokeStyle = theme.hang;
  c.lineWidth = waits ? 2 : 1;
  c.beginPath();
  const slant = waits ? height : -height;
  for (let at = x - height; at < x + width + height; at += HATCH) {
    c.moveTo(at, y + height);
    c.lineTo(at + slant, y);
  }
  c.stroke();
  c.globalAlpha = 1;
  c.fillStyle = theme.hang;
  c.fillRect(x, y, 2, height);
  c.restore();
}

// A zigzag of the ground's colour takes a bite out of the end.
function tear({ context: c, theme }, { x, y, width, height }) {
  const right = x + width, teeth = Math.max(1, Math.round(height / TOOTH));
  c.beginPath();
  c.moveTo(right + 1, y - 1);
  for (let i = 0; i <= teeth; i += 1) {
    c.lineTo(right - (i % 2 ? 2 : TOOTH + 2), y + (height * i) / teeth);
  }
  c.lineTo(right + 1, y + height + 1);
  c.closePath();
  c.fillStyle = theme.background;
  c.fill();
  c.strokeStyle = theme.hang;
  c.lineWidth = 1;
  c.stroke();
}

function label({ context: c, theme }, { x, y, width, height }, text) {
  c.font = "600 11px system-ui, sans-serif";
  c.textBaseline = "middle";
  c.textAlign = "left";
  const wide = c.measureText(text).width + 8;
  if (height < 11 || wide > width - 12) return;
  const at = y + Math.min(height, 16) / 2;
  c.globalAlpha = 0.88;
  c.fillStyle = theme.background;
  c.fillRect(x + 4, at - 7, wide, 14);
  c.globalAlpha = 1;
  c.fillStyle = theme.hang;
  c.fillText(text, x + 8, at + 0.5);
}

// What is at a point, the narrowest first: a row's bar lies within a lane that is marked.
export function hangAt(boxes, x, y) {
  return boxes
    .filter((b) => x >= b.x && x <= b.x + b.width && y >= b.y && y <= b.y + b.height)
    .sort((a, b) => a.height - b.height)[0] ?? null;
}
