// Colours, told apart with any colour vision (after Okabe and Ito), in light and in dark.
//
// TensorBoard's own switch counts where the frame can see it, the system's setting elsewhere.

import { element } from "./dom.js";

// The stages by their number in the record file; "other" is time in none of them.
export const KINDS = [
  "probe", "turn", "compress", "queue", "wire", "decompress", "hook", "pending", "other",
];

const LIGHT = {
  name: "light", background: "#ffffff", lane: "#f5f6f8", text: "#1f2328", muted: "#5b636d",
  line: "#d8dce1", step: "rgba(31,35,40,0.045)", exposed: "rgba(213,94,0,0.17)", last: "#b84d00",
  anomaly: "#b3005e", rebuild: "#5b636d",
  kinds: ["#8c6d46", "#cbbfe0", "#e69f00", "#b4bbc5", "#0072b2", "#009e73", "#cc79a7", "#56b4e9",
    "#d9cfc0"],
};
const DARK = {
  name: "dark", background: "#212121", lane: "#282a2d", text: "#e8eaed", muted: "#a0a6ad",
  line: "#43474c", step: "rgba(255,255,255,0.05)", exposed: "rgba(255,140,60,0.22)",
  last: "#ff9d57", anomaly: "#ff6fb5", rebuild: "#a0a6ad",
  kinds: ["#a58a63", "#5d5475", "#f0b133", "#79818b", "#2f8fd8", "#27c79a", "#dd93bb", "#7cc9f5",
    "#5f574c"],
};

export function followTheme(use) {
  const system = matchMedia("(prefers-color-scheme: dark)");
  let outer = null;
  try {
    outer = window.parent !== window ? window.parent.document.body : null;
  } catch { /* another origin: only the system's setting is known */ }
  const apply = () => {
    const theme = (outer ? outer.classList.contains("dark-mode") : system.matches) ? DARK : LIGHT;
    document.documentElement.dataset.theme = theme.name;
    use(theme);
  };
  if (outer) {
    new MutationObserver(apply).observe(outer, { attributes: true, attributeFilter: ["class"] });
  }
  system.addEventListener("change", apply);
  apply();
}

// What the colours mean, as elements.
export function legend(theme) {
  const swatch = (color, text) => {
    const box = element("i", {});
    box.style.background = color;
    return element("span", {}, box, text);
  };
  return [
    ...KINDS.slice(0, -1).map((kind, i) => swatch(theme.kinds[i], kind)),
    swatch(theme.exposed, "exposed"), swatch(theme.last, "last bucket ready"),
    swatch(theme.text, "last rank"),
  ];
}
