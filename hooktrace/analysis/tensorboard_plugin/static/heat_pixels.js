// The colours of a heat map: from pale to dark in light, from dark to bright in dark, so that what is
// large stands out from the ground.  Lightness alone tells the order, with any colour vision.

const RAMP = {
  light: ["#fdf6d5", "#cfe3a1", "#7cc28e", "#3a9296", "#2a5c8c", "#2b2a6b", "#1a0f3c"],
  dark: ["#1d1f3d", "#263f77", "#22698a", "#2f9384", "#79bb62", "#d5d95a", "#fffbc4"],
};
const SHADES = 256;

export function cssRamp(theme) {
  return `linear-gradient(to right, ${RAMP[theme].join(", ")})`;
}

const tables = new Map();

// The colours from smallest to largest, four bytes each.
export function shades(theme) {
  if (!tables.has(theme)) {
    const stops = RAMP[theme].map((hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)));
    const table = new Uint8ClampedArray(SHADES * 4);
    for (let i = 0; i < SHADES; i += 1) {
      const at = i / (SHADES - 1) * (stops.length - 1), low = Math.min(Math.floor(at), stops.length - 2);
      for (let k = 0; k < 3; k += 1) {
        table[4 * i + k] = stops[low][k] + (at - low) * (stops[low + 1][k] - stops[low][k]);
      }
      table[4 * i + 3] = 255;
    }
    tables.set(theme, table);
  }
  return tables.get(theme);
}

// A canvas with a pixel a cell; rows of `rows` (indices into the answer's ranks) that share a line
// become the largest of them.  Cells that are unknown stay clear.  null where there is nothing.
export function pixelsOf({ cells, step, low, high }, rows, most, theme) {
  const columns = step.length, lines = Math.min(rows.length, Math.max(1, most));
  if (!columns || !rows.length) return null;
  const largest = new Float64Array(columns * lines).fill(-1);
  rows.forEach((ranks, row) => {
    const line = Math.floor(row * lines / rows.length) * columns;
    for (const rank of ranks) {
      for (let x = 0; x < columns; x += 1) {
        const ns = cells[rank * columns + x];
        if (ns > largest[line + x]) largest[line + x] = ns;
      }
    }
  });
  const image = new ImageData(columns, lines), table = shades(theme);
  const pixels = new Uint32Array(image.data.buffer), colors = new Uint32Array(table.buffer);
  const range = Math.max(1, high - low);
  for (let i = 0; i < largest.length; i += 1) {
    if (largest[i] < 0) continue;
    const share = Math.sqrt(Math.min(1, Math.max(0, (largest[i] - low) / range)));
    pixels[i] = colors[Math.round(share * (SHADES - 1))];
  }
  const made = new OffscreenCanvas(columns, lines);
  made.getContext("2d").putImageData(image, 0, 0);
  return made;
}

// The ground on which unknown cells lie: hatched, as no value is.
export function hatchUnknown(c, x, y, width, height, theme) {
  c.save();
  c.beginPath();
  c.rect(x, y, width, height);
  c.clip();
  c.fillStyle = theme.lane;
  c.fillRect(x, y, width, height);
  c.strokeStyle = theme.muted;
  c.lineWidth = 1;
  c.globalAlpha = 0.6;
  c.beginPath();
  for (let at = x - height; at < x + width; at += 7) {
    c.moveTo(at, y + height);
    c.lineTo(at + height, y);
  }
  c.stroke();
  c.restore();
}
