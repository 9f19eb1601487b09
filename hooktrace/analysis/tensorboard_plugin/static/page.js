// The page's elements: the bar on top, the plot, the lists beside it, the legend below.

import { button, element } from "./dom.js";
import { HINT } from "./keys.js";

export function build(app) {
  const act = (text, does, attributes) =>
    button(text, () => { does(); page.stage.focus(); }, attributes);
  const page = {
    runs: element("select", { id: "run", title: "Run",
      change: () => app.choose(page.runs.value, null) }),
    models: element("select", { id: "model", title: "Model",
      change: () => app.choose(page.runs.value, page.models.value) }),
    stepBox: element("input", { id: "step", type: "number", title: "Go to a step",
      placeholder: "step", change: () => app.steps.go(Number(page.stepBox.value)) }),
    follow: element("input", { id: "follow", type: "checkbox",
      change: () => app.view.setFollow(page.follow.checked) }),
    status: element("span", { id: "status", role: "status" }),
    told: element("div", { id: "told", role: "status", hidden: "" }),
    stage: element("canvas", { id: "lanes", tabindex: "0", role: "img" }),
    legend: element("span", { id: "legend" }),
    notice: element("div", { id: "notice" }),
    side: element("div", { id: "side" }),
  };
  const bar = element("div", { id: "bar" },
    element("label", {}, "run ", page.runs), element("label", {}, "model ", page.models),
    element("span", { class: "group" },
      act("‹", () => app.steps.by(-1), { id: "previous", title: "Previous step ([)" }),
      page.stepBox,
      act("›", () => app.steps.by(1), { id: "next", title: "Next step (])" })),
    act("whole run", () => app.fit(), { id: "fit", title: "Show the whole run (0)" }),
    element("label", { title: "Stay at the end of a running job (l)" }, page.follow, " follow"),
    page.status);
  const main = element("div", { id: "main" }, page.stage, page.notice);
  const middle = element("div", { id: "middle" }, element("div", { id: "plots" }, main), page.side);
  document.body.append(bar, page.told, middle,
    element("div", { id: "foot" }, page.legend, element("span", { id: "keys" }, HINT)));
  return page;
}

// A list of choices that the address keeps, which then are `apply`-ed; the first holds without one.
export function choice(app, name, options, attributes, apply) {
  const [[usual]] = options;
  const made = element("select", { change: () =>
    app.address.set(name, made.value === usual ? null : made.value), ...attributes },
    ...options.map(([value, text]) => element("option", { value }, text)));
  app.address.follow(name, (value) => {
    made.value = options.some(([option]) => option === value) ? value : usual;
    apply(made.value);
  });
  return made;
}

// A select's options, made anew only where they have changed.
export function fillOptions(select, names) {
  if (names.join("\n") === [...select.options].map((o) => o.value).join("\n")) return false;
  select.replaceChildren(...names.map((n) => element("option", { value: n }, n)));
  return true;
}
