// The style sheet's colours as the canvas needs them, light or dark: as TensorBoard's own switch
// says where the frame can see it, else as the system's setting does.

import { outermost } from "./address.js";
import { KINDS } from "./definitions.js";

const NAMES = ["background", "lane", "text", "muted", "line", "step", "exposed", "late", "bad",
  "hang"];

// `use` takes the colours by their names, and `kinds` by the stages' numbers.
export function followTheme(use) {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const outer = outermost() === window ? null : outermost().document.body;
  const apply = () => {
    const isDark = outer ? outer.classList.contains("dark-mode") : system.matches;
    root.dataset.theme = isDark ? "dark" : "light";
    const style = getComputedStyle(root);
    const color = (name) => style.getPropertyValue(`--${name}`).trim();
    const named = Object.fromEntries(NAMES.map((name) => [name, color(name)]));
    use({ name: root.dataset.theme, ...named, kinds: KINDS.map(color) });
  };
  if (outer) {
    new MutationObserver(apply).observe(outer, { attributes: true, attributeFilter: ["class"] });
  }
  system.addEventListener("change", apply);
  apply();
}
