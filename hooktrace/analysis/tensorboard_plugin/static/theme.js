// Colours, told apart with any colour vision, in light and in dark: tests/browser/test_theme.py has
// the distances, also as people with deuteranopia see them.
//
// TensorBoard's own switch counts where the frame can see it, the system's setting elsewhere.

// The stages by their number in the record file; "wait" is what a wire stage waits for the last rank,
// "other" is time in no stage.
export const KINDS = [
  "probe", "turn", "compress", "queue", "wire", "decompress", "hook", "pending", "wait", "other",
];

const LIGHT = {
  name: "light", background: "#ffffff", lane: "#f5f6f8", text: "#1f2328", muted: "#5b636d",
  line: "#d8dce1", step: "rgba(31,35,40,0.045)", exposed: "rgba(213,94,0,0.17)", last: "#b84d00",
  anomaly: "#b3005e", hang: "#b00020", path: "#7a1fa2", rebuild: "#5b636d",
  kinds: ["#57452a", "#e2bdf7", "#e69f00", "#b3a096", "#0072b2", "#2b8f15", "#9e5275", "#00a6ff",
    "#0072b2", "#ece6c4"],
};
const DARK = {
  name: "dark", background: "#212121", lane: "#282a2d", text: "#e8eaed", muted: "#a0a6ad",
  line: "#43474c", step: "rgba(255,255,255,0.05)", exposed: "rgba(255,140,60,0.22)",
  last: "#ff9d57", anomaly: "#ff6fb5", hang: "#ff6b6b", path: "#d9a8ff", rebuild: "#a0a6ad",
  kinds: ["#867e3c", "#47428d", "#f0b133", "#69666d", "#2f8fd8", "#5df9be", "#ec61a3", "#8decff",
    "#2f8fd8", "#483c1f"],
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
    theme.kinds.forEach((color, i) =>
      document.documentElement.style.setProperty(`--kind${i}`, color));
    use(theme);
  };
  if (outer) {
    new MutationObserver(apply).observe(outer, { attributes: true, attributeFilter: ["class"] });
  }
  system.addEventListener("change", apply);
  apply();
}
