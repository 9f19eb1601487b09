// The controls of many ranks: heat map or timeline, order, groups, filter, shape.  Choices are kept
// in the address alone, so a link shows the same.

import { button, element } from "./dom.js";
import { HeatMap } from "./heat_map.js";
import { choice } from "./page.js";
import { Scrollbar } from "./scrollbar.js";
import { isWithin } from "./shapes.js";

const SORTS = [["rank", "by rank"], ["lateness", "latest first"], ["exposed", "most exposed"]];
const SHAPES = [["auto", "rows: auto"], ["rows", "row a bucket"], ["strips", "strip a rank"]];

export class RankTools {
  constructor(app) {
    const { address, canvas: { lanes: { choices } } } = app;
    this.app = app;
    this.heat = new HeatMap(app);
    this.scrollbar = new Scrollbar(app);
    this.button = button("heat map", () => this.toggleHeat(),
      { id: "heat-button", title: "Ranks by steps (h)" });
    const sort = choice(app, "sort", SORTS, { id: "sort", title: "Order of the ranks" },
      (value) => { choices.sort = value; });
    this.shape = choice(app, "shape", SHAPES,
      { id: "shape", title: "How the bars of a rank are drawn" },
      (value) => { choices.shape = value; });
    const filter = element("input", { id: "filter", type: "search", size: "12",
      title: "Ranks by number or host, for example 0-7, 12, host-3", placeholder: "ranks, hosts",
      input: () => address.set("filter", filter.value.trim()) });
    const hosts = element("input", { id: "hosts", type: "checkbox",
      change: () => address.set("ungrouped", !hosts.checked) });
    this.group = element("span", { class: "group" }, sort, this.shape, filter);
    this.label = element("label", { title: "Group the ranks by host" }, hosts, " hosts");
    app.page.status.before(this.button, this.group, this.label);
    address.follow("filter", (value) => {
      choices.filter = value ?? "";
      if (filter.value.trim() !== choices.filter) filter.value = choices.filter;
    });
    address.follow("ungrouped", (value) => { choices.grouped = hosts.checked = !value; });
    address.follow("folded", (value) => { choices.folded = new Set(value?.split(",")); });
  }

  toggleHeat() {
    this.app.address.set("mode", this.heat.isShown ? null : "heat");
    (this.heat.isShown ? this.heat.element : this.app.stage).focus();
  }

  get isBusy() { return this.heat.isBusy; }

  fold(host) {
    const { folded } = this.app.canvas.lanes.choices;
    const now = folded.has(host) ? [...folded].filter((h) => h !== host) : [...folded, host];
    this.app.address.set("folded", now.join(","));
  }

  // The lanes, where the heat map was; with a rank in the window, whatever was filtered out.
  showLanes(rank = null) {
    const { address, stage, canvas: { lanes } } = this.app;
    address.set("mode", null);
    stage.focus();
    if (rank === null) return;
    const host = lanes.hosts.get(rank);
    if (lanes.choices.folded.has(host)) this.fold(host);
    else if (!lanes.places.has(rank)) address.set("filter", null);
    lanes.reveal(rank);
  }

  // A click on a host's header, or on the button of a late rank out of sight; whether it was one.
  click(x, y) {
    const { lanes, edges } = this.app.canvas, item = lanes.at(y);
    const edge = edges.find((e) => isWithin(e, x, y));
    if (edge) this.showLanes(edge.rank);
    else if (item?.kind === "host") this.fold(item.host);
    else return false;
    return true;
  }

  draw() {
    const { data } = this.app, ranks = data.info?.ranks ?? [];
    this.group.hidden = ranks.length < 2;
    this.shape.options[1].textContent = data.isSharded ? "row a kind" : "row a bucket";
    this.label.hidden = new Set(ranks.map((r) => r.host)).size < 2;
    this.button.setAttribute("aria-pressed", String(this.heat.isShown));
    this.scrollbar.draw();
    this.heat.draw();
  }
}
