// The scrollbar of the lanes, with marks where the late ranks are.

import { element } from "./dom.js";
import { wheelPx } from "./input.js";
import { TOP } from "./lanes.js";

export const SCROLLBAR = 13;
const SHORTEST = 28;
const PAGE = 0.9; // of the window

export class Scrollbar {
  constructor(app) {
    this.app = app;
    this.grip = null;
    this.thumb = element("div", { class: "thumb" });
    this.marks = element("div", { class: "marks" });
    const letGo = () => { this.grip = null; };
    this.track = element("div", { id: "scrollbar", role: "scrollbar", tabindex: "0",
      "aria-controls": "lanes", "aria-orientation": "vertical", "aria-label": "Ranks",
      style: `top: ${TOP}px; width: ${SCROLLBAR}px`, pointerup: letGo, pointercancel: letGo,
      pointerdown: (event) => this.press(event), pointermove: (event) => this.drag(event),
      keydown: (event) => this.key(event),
      wheel: (event) => { event.preventDefault(); this.by(wheelPx(event).y); } },
      this.marks, this.thumb);
    app.stage.after(this.track);
  }

  press(event) {
    event.preventDefault();
    this.track.focus();
    this.track.setPointerCapture(event.pointerId);
    const { top, bottom } = this.thumb.getBoundingClientRect(), y = event.clientY;
    if (y < top || y > bottom) this.by((y < top ? -PAGE : PAGE) * this.room);
    else this.grip = { y, scroll: this.app.view.scroll };
  }

  drag(event) {
    const { grip } = this;
    if (grip) this.to(grip.scroll + (event.clientY - grip.y) / this.travel * this.most);
  }

  key(event) {
    const line = this.app.canvas.laneHeight, page = PAGE * this.room;
    const by = { ArrowUp: -line, ArrowDown: line, PageUp: -page, PageDown: page, Home: -Infinity,
      End: Infinity }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    this.by(by);
  }

  by(px) { this.to(this.app.view.scroll + px); }

  to(scroll) {
    this.app.view.scroll = Math.min(Math.max(scroll, 0), this.most);
    this.app.touch();
  }

  get room() { return this.app.canvas.lanes.room; }
  get most() { return Math.max(0, this.app.canvas.lanes.height - this.room); }
  get length() { return Math.max(SHORTEST, this.room * this.room / this.app.canvas.lanes.height); }
  get travel() { return Math.max(1, this.room - this.length); }

  draw() {
    const { canvas: { lanes }, view: { scroll } } = this.app;
    this.track.hidden = !lanes.canScroll;
    if (!lanes.canScroll) return;
    this.track.style.height = `${this.room}px`;
    this.thumb.style.height = `${this.length}px`;
    this.thumb.style.transform = `translateY(${this.travel * scroll / this.most}px)`;
    const first = lanes.visible().find((item) => item.kind === "rank");
    for (const [name, value] of [["max", Math.round(this.most)], ["now", Math.round(scroll)],
      ["text", first ? `rank ${first.rank} on top` : ""]]) {
      this.track.setAttribute(`aria-value${name}`, value);
    }
    const late = lanes.items.filter((item) => item.late > 0)
      .map((item) => (item.y + item.height / 2) / lanes.height * this.room);
    if (late.join() === this.marked) return;
    this.marked = late.join();
    this.marks.replaceChildren(...late.map((y) => element("i", { style: `top: ${y - 1}px` })));
  }
}
