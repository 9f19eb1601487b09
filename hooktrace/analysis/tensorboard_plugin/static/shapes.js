// Shapes that several drawings on a canvas have in common.

export const FONT = "11px system-ui, sans-serif";
export const SMALL_FONT = "10px system-ui, sans-serif";

export function within(c, x, y, width, height, draw) {
  c.save();
  c.beginPath();
  c.rect(x, y, width, height);
  c.clip();
  draw();
  c.restore();
}

export function isWithin({ x, y, width, height }, atX, atY) {
  return atX >= x && atX <= x + width && atY >= y && atY <= y + height;
}

export function polygon(c, ...points) {
  c.beginPath();
  for (const [x, y] of points) c.lineTo(x, y);
  c.closePath();
  c.fill();
}

export function plateWidth(c, text) { return c.measureText(text).width + 6; }

// Text on a ground of its own, which anything may lie under; `y` is its middle.
export function plate(c, theme, text, { x, y, height, color }) {
  c.textAlign = "left";
  c.textBaseline = "middle";
  c.globalAlpha = 0.82;
  c.fillStyle = theme.background;
  c.fillRect(x, y - height / 2, plateWidth(c, text), height);
  c.globalAlpha = 1;
  c.fillStyle = color;
  c.fillText(text, x + 3, y + 0.5);
}

const hatches = new Map();

// A fill of lines `every` px apart.  `line`: colour, opacity, width in px; `grounds`: colour and
// opacity of what lies below; `falls`: from the upper left to the lower right.
export function hatch(c, ratio, { every, line, grounds = [], falls = false }) {
  const key = JSON.stringify([ratio, every, line, grounds, falls]);
  if (!hatches.has(key)) {
    const size = Math.round(every * ratio), tile = new OffscreenCanvas(size, size);
    const t = tile.getContext("2d");
    t.scale(size / every, size / every);
    drawTile(t, every, line, grounds, falls);
    const pattern = c.createPattern(tile, "repeat");
    pattern.setTransform(new DOMMatrix().scale(every / size));
    hatches.set(key, pattern);
  }
  return hatches.get(key);
}

function drawTile(c, size, [color, opacity, width], grounds, falls) {
  for (const [ground, alpha] of grounds) {
    c.fillStyle = ground;
    c.globalAlpha = alpha;
    c.fillRect(0, 0, size, size);
  }
  c.strokeStyle = color;
  c.globalAlpha = opacity;
  c.lineWidth = width;
  c.beginPath();
  for (const at of [-size, 0, size]) {
    c.moveTo(at - 2, falls ? -2 : size + 2);
    c.lineTo(at + size + 2, falls ? size + 2 : -2);
  }
  c.stroke();
}
