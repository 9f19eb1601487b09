// The page's elements: the bar on top, the plot, the lists beside it, the legend below.
//
//   build(act) --> the elements that the app fills and asks; act: what the buttons and boxes do

import { element } from "./dom.js";

const KEYS = "w s zoom · a d pan · [ ] step · 0 whole run · c path · f focus · / search · ? all keys";

export function build(act) {
  const page = {
    runs: element("select", { id: "run", title: "Run" }),
    models: element("select", { id: "model", title: "Model" }),
    stepBox: element("input", {
      id: "step", type: "number", title: "Go to a step", placeholder: "step",
    }),
    follow: element("input", { id: "follow", type: "checkbox" }),
    path: element("button", { id: "critical", type: "button", "aria-pressed": "false",
      title: "Show the critical path of the steps in view (c)" }, "critical path"),
    status: element("span", { id: "status", role: "status" }),
    told: element("div", { id: "told", role: "status" }),
    stage: element("canvas", { id: "lanes", tabindex: "0", role: "img" }),
    legend: element("span", { id: "legend" }),
    notice: element("div", { id: "notice" }),
    side: element("div", { id: "side" }),
  };
  page.told.hidden = true;
  const main = page.main = element("div", { id: "main" }, page.stage, page.notice);
  const foot = element("div", { id: "foot" }, page.legend, element("span", { id: "keys" }, KEYS));
  document.body.append(bar(page, act), page.told,
    page.middle = element("div", { id: "middle" }, element("div", { id: "plots" }, main), page.side), foot);
  page.path.addEventListener("click", () => { act.togglePath(); page.stage.focus(); });
  page.runs.addEventListener("change", () => act.chooseRun(page.runs.value));
  page.models.addEventListener("change", () => act.chooseModel(page.models.value));
  page.stepBox.addEventListener("change", () => act.goToStep(Number(page.stepBox.value)));
  page.follow.addEventListener("change", () => act.follow(page.follow.checked));
  return page;
}

function bar({ runs, models, stepBox, follow, path, status, stage }, act) {
  const button = (id, text, title, does) => {
    const made = element("button", { id, title, type: "button" }, text);
    made.addEventListener("click", () => { does(); stage.focus(); });
    return made;
  };
  return element(
    "div", { id: "bar" },
    element("label", {}, "run ", runs), element("label", {}, "model ", models),
    element("span", { class: "group" },
      button("previous", "‹", "Previous step ([)", () => act.stepBy(-1)), stepBox,
      button("next", "›", "Next step (])", () => act.stepBy(1))),
    path,
    button("fit", "whole run", "Show the whole run (0)", () => act.fit()),
    element("label", { title: "Stay at the end of a running job (l)" }, follow, " follow"),
    status,
  );
}

// A select's options, made anew only where they have changed.
export function fillOptions(select, names) {
  if (names.join("\n") === [...select.options].map((o) => o.value).join("\n")) return false;
  select.replaceChildren(...names.map((n) => element("option", { value: n }, n)));
  return true;
}
