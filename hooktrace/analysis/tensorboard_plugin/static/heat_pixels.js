// The colours of a heat map: from pale to dark in light, from dark to bright in dark, so that what
// is large stands out from the ground.  Lightness alone tells the order, with any colour vision.

const RAMP = {
  light: ["#fdf6d5", "#cfe3a1", "#7cc28e", "#3a9296", "#2a5c8c", "#2b2a6b", "#1a0f3c"],
  dark: ["#1d1f3d", "#263f77", "#22698a", "#2f9384", "#79bb62", "#d5d95a", "#fffbc4"],
};
const SHADES = 256;

export function cssRamp(theme) {
  return `linear-gradient(to right, ${RAMP[theme].join(", ")})`;
}

// The colours from smallest to largest, each as a pixel of an image.
function shades(theme) {
  const c = new OffscreenCanvas(SHADES, 1).getContext("2d");
  // From the middle of the first pixel to that of the last, whose colours then are those of the
  // ramp.
  const gradient = c.createLinearGradient(0.5, 0, SHADES - 0.5, 0);
  RAMP[theme].forEach((color, i, all) => gradient.addColorStop(i / (all.length - 1), color));
  c.fillStyle = gradient;
  c.fillRect(0, 0, SHADES, 1);
  return new Uint32Array(c.getImageData(0, 0, SHADES, 1).data.buffer);
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
        largest[line + x] = Math.max(largest[line + x], cells[rank * columns + x]);
      }
    }
  });
  const image = new ImageData(columns, lines), colors = shades(theme);
  const pixels = new Uint32Array(image.data.buffer), range = Math.max(1, high - low);
  for (let i = 0; i < largest.length; i += 1) {
    if (largest[i] < 0) continue;
    const share = Math.sqrt(Math.min(1, Math.max(0, (largest[i] - low) / range)));
    pixels[i] = colors[Math.round(share * (SHADES - 1))];
  }
  const made = new OffscreenCanvas(columns, lines);
  made.getContext("2d").putImageData(image, 0, 0);
  return made;
}
