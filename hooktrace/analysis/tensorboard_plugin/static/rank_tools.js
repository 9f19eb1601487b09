// What chooses how many ranks are looked at: heat map or timeline, order, groups, filter, shape.
//
//   control --> address (sort, filter, ...) --> lanes.choices, heat map --> the next frame
//
// The address is the one place that keeps a choice, so a link shows the same.

import { element } from "./dom.js";
import { Bands } from "./bands.js";
import { HEAT_VALUES } from "./definitions.js";
import { HeatMap } from "./heat_map.js";
import { Scrollbar } from "./scrollbar.js";
import { Selection } from "./selection.js";

const SORTS = [["rank", "by rank"], ["lateness", "latest first"], ["exposed", "most exposed"]];
const SHAPES = [["auto", "rows: auto"], ["rows", "row a bucket"], ["strips", "strip a rank"]];

export class RankTools {
  constructor(app) {
    this.app = app;
    this.address = app.viewState;
    this.heat = new HeatMap(app.stage.parentElement, app, (value) => this.address.set("heat", value));
    app.canvas.bands = new Bands(app);
    this.scrollbar = new Scrollbar(app);
    this.selection = new Selection(app);
    this.button = element("button", { id: "heat-button", type: "button", title: "Ranks by steps (h)" },
      "heat map");
    this.button.addEventListener("click", () => this.toggleHeat());
    this.sort = choice("sort", "Order of the ranks", SORTS);
    this.shape = choice("shape", "How the bars of a rank are drawn", SHAPES);
    this.filter = element("input", { id: "filter", type: "search", size: "12",
      title: "Ranks by number or host, for example 0-7, 12, host-3", placeholder: "ranks, hosts" });
    this.hosts = element("input", { id: "hosts", type: "checkbox" });
    this.group = element("span", { class: "group" }, this.sort, this.shape, this.filter);
    this.label = element("label", { title: "Group the ranks by host" }, this.hosts, " hosts");
    app.page.status.before(element("span", { class: "group" }, this.button,
      this.selection.button), this.group, this.label);
    this.listen();
    this.follow();
  }

  listen() {
    const { address } = this;
    const keep = (name, control, standard) => control.addEventListener("change", () =>
      address.set(name, control.value === standard ? null : control.value));
    keep("sort", this.sort, "rank");
    keep("shape", this.shape, "auto");
    this.filter.addEventListener("input", () => address.set("filter", this.filter.value.trim()));
    this.hosts.addEventListener("change", () => address.set("ungrouped", !this.hosts.checked));
  }

  // Whatever the address says is what is shown, at first and when it changes.
  follow() {
    const { address, app } = this, { choices } = app.canvas.lanes;
    const on = (name, apply) => {
      address.on(name, (value) => { apply(value); app.touch(); });
      apply(address.get(name));
    };
    on("sort", (value) => { choices.sort = this.sort.value = known(SORTS, value); });
    on("shape", (value) => { choices.shape = this.shape.value = known(SHAPES, value); });
    on("filter", (value) => {
      choices.filter = value ?? "";
      if (this.filter.value.trim() !== choices.filter) this.filter.value = choices.filter;
    });
    on("ungrouped", (value) => { choices.grouped = this.hosts.checked = !value; });
    on("folded", (value) => { choices.folded = new Set(value ? value.split(",") : []); });
    on("heat", (value) => this.heat.choose(known(HEAT_VALUES, value)));
    on("mode", (value) => this.heat.show(value === "heat"));
  }

  toggleHeat() {
    this.address.set("mode", this.heat.isShown ? null : "heat");
    (this.heat.isShown ? this.heat.element : this.app.stage).focus();
  }

  get isBusy() { return this.heat.isBusy || this.selection.isBusy; }

  fold(host) {
    const { folded } = this.app.canvas.lanes.choices;
    const now = folded.has(host) ? [...folded].filter((h) => h !== host) : [...folded, host];
    this.address.set("folded", now.join(","));
  }

  // The lanes, where the heat map was; with a rank in the window, whatever was filtered out.
  showLanes(rank = null) {
    this.address.set("mode", null);
    this.app.stage.focus();
    if (rank === null) return;
    const { lanes } = this.app.canvas, host = lanes.hostOf(rank);
    if (lanes.choices.folded.has(host)) this.fold(host);
    else if (!lanes.places.has(rank)) this.address.set("filter", null);
    lanes.reveal(rank);
  }

  // A click on a host's header, or on the button of a late rank out of sight; whether it was one.
  click(x, y) {
    const { canvas } = this.app;
    const edge = canvas.edges.find((e) => x >= e.x && x <= e.x + e.width
      && y >= e.y && y <= e.y + e.height);
    const item = canvas.lanes.at(y);
    if (edge) this.showLanes(edge.rank);
    else if (item?.kind === "host") this.fold(item.host);
    return Boolean(edge) || item?.kind === "host";
  }

  // Called with each frame.
  draw() {
    const ranks = this.app.data.info?.ranks ?? [];
    this.group.hidden = ranks.length < 2;
    this.shape.options[1].textContent = this.app.data.isSharded ? "row a kind" : "row a bucket";
    this.label.hidden = new Set(ranks.map((r) => r.host)).size < 2;
    this.button.setAttribute("aria-pressed", String(this.heat.isShown));
    this.scrollbar.draw();
    this.selection.draw();
    this.heat.draw();
  }
}

function choice(id, title, options) {
  return element("select", { id, title },
    ...options.map(([value, text]) => element("option", { value }, text)));
}

// The value, if it is one of the options, else the first of them.
function known(options, value) {
  return options.some(([option]) => option === value) ? value : options[0][0];
}
