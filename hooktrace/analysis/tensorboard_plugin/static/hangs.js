// Hangs over the lanes: hatched where a rank waits, lined where one is waited for.  One of which no
// end is known goes to the edge of the picture and is torn off there.

import { FONT, hatch, isWithin, plate, plateWidth, polygon } from "./shapes.js";

const HATCH = 7;
const TOOTH = 6;

// Draws a rank's hangs; `boxes` takes where they are, for the pointer.
export function drawHangs(canvas, rank, y, counts, boxes) {
  const { context: c, theme, view } = canvas;
  for (const hang of rank.hangs.filter(({ start, end }) => view.sees(start, end))) {
    const box = place(canvas, hang, y);
    if (hang.waits) counts.hangs += 1;
    else counts.missing += 1;
    if (hang.isOpen) counts.open += 1;
    const [line, ground] = hang.waits ? [[theme.hang, 0.9, 2], [theme.hang, 0.3]]
      : [[theme.hang, 0.35, 1.2], [theme.hang, 0.1]];
    c.fillStyle = hatch(c, canvas.ratio,
      { every: HATCH, line, grounds: [ground], falls: !hang.waits });
    // A narrow one is a line on top, which leaves the bar below it to be seen.
    const height = box.width < HATCH ? 2 : box.height;
    c.fillRect(box.x, box.y, box.width, height);
    c.fillStyle = theme.hang;
    c.fillRect(box.x, box.y, 2, height);
    if (hang.isOpen) tear(canvas, box);
    label(canvas, box, hang.waits ? "hang" : "waited for");
    boxes.push({ ...box, hang, rank: rank.rank });
  }
}

function place(canvas, { start, end }, y) {
  const x = Math.max(canvas.x(start), canvas.left);
  const right = Math.max(Math.min(canvas.x(end), canvas.width), x + 2);
  return { x, y, width: right - x, height: canvas.laneHeight - 1 };
}

// A zigzag of the ground's colour takes a bite out of the end.
function tear({ context: c, theme }, { x, y, width, height }) {
  const right = x + width, teeth = Math.max(1, Math.round(height / TOOTH));
  const zigzag = Array.from({ length: teeth + 1 }, (_, i) =>
    [right - (i % 2 ? 2 : TOOTH + 2), y + (height * i) / teeth]);
  c.fillStyle = theme.background;
  polygon(c, [right + 1, y - 1], ...zigzag, [right + 1, y + height + 1]);
  c.strokeStyle = theme.hang;
  c.lineWidth = 1;
  c.stroke();
}

function label({ context: c, theme }, { x, y, width, height }, text) {
  c.font = `600 ${FONT}`;
  if (height < 11 || plateWidth(c, text) > width - 10) return;
  const middle = y + Math.min(height, 16) / 2;
  plate(c, theme, text, { x: x + 4, y: middle, height: 14, color: theme.hang });
}

export function hangAt(boxes, x, y) {
  return boxes.find((box) => isWithin(box, x, y)) ?? null;
}
