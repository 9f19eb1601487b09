// The scrollbar of the lanes: drag, click beside the thumb, wheel, and the keys of a scrollbar.
//
// Marks on it tell where the late ranks are.

import { element } from "./dom.js";
import { TOP } from "./lanes.js";

export const SCROLLBAR = 13;
const SHORTEST = 28;

export class Scrollbar {
  constructor(app) {
    this.app = app;
    this.thumb = element("div", { class: "thumb" });
    this.marks = element("div", { class: "marks" });
    this.track = element("div", { id: "scrollbar", role: "scrollbar", tabindex: "0",
      "aria-controls": "lanes", "aria-orientation": "vertical", "aria-label": "Ranks" },
      this.marks, this.thumb);
    this.track.style.top = `${TOP}px`;
    this.track.style.width = `${SCROLLBAR}px`;
    app.stage.after(this.track);
    this.listen();
  }

  listen() {
    const { track, thumb } = this, { view } = this.app;
    let grip = null;
    track.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      track.focus();
      track.setPointerCapture(event.pointerId);
      const box = thumb.getBoundingClientRect(), y = event.clientY;
      if (y >= box.top && y <= box.bottom) grip = { y, scroll: view.scroll };
      else this.to(view.scroll + (y < box.top ? -1 : 1) * 0.9 * this.room);
    });
    track.addEventListener("pointermove", (event) => {
      if (grip) this.to(grip.scroll + (event.clientY - grip.y) / this.travel * this.most);
    });
    const let_go = () => { grip = null; };
    track.addEventListener("pointerup", let_go);
    track.addEventListener("pointercancel", let_go);
    track.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.to(view.scroll + event.deltaY * (event.deltaMode === 1 ? 16 : 1));
    }, { passive: false });
    track.addEventListener("keydown", (event) => {
      const line = this.app.canvas.laneHeight;
      const to = { ArrowUp: view.scroll - line, ArrowDown: view.scroll + line, Home: 0, End: this.most,
        PageUp: view.scroll - 0.9 * this.room, PageDown: view.scroll + 0.9 * this.room }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      event.stopPropagation();
      this.to(to);
    });
  }

  to(scroll) {
    this.app.view.scroll = Math.min(Math.max(scroll, 0), this.most);
    this.app.touch();
  }

  get room() { return this.app.canvas.lanes.room; }

  get most() { return Math.max(0, this.app.canvas.lanes.height - this.room); }

  get length() { return Math.max(SHORTEST, this.room * this.room / this.app.canvas.lanes.height); }

  get travel() { return Math.max(1, this.room - this.length); }

  // Called with each frame.
  draw() {
    const { lanes, canScroll } = this.app.canvas;
    this.track.hidden = !canScroll;
    if (!canScroll) return;
    const { scroll } = this.app.view;
    this.track.style.height = `${this.room}px`;
    this.thumb.style.height = `${this.length}px`;
    this.thumb.style.transform = `translateY(${this.travel * scroll / this.most}px)`;
    this.track.setAttribute("aria-valuemax", String(Math.round(this.most)));
    this.track.setAttribute("aria-valuenow", String(Math.round(scroll)));
    const first = lanes.visible().find((i) => i.kind === "rank");
    this.track.setAttribute("aria-valuetext", first ? `rank ${first.rank} on top` : "");
    this.mark(lanes);
  }

  mark(lanes) {
    const late = lanes.items.filter((i) => i.kind === "rank" && i.late > 0);
    const places = late.map((i) => (i.y + i.height / 2) / lanes.height * this.room);
    if (places.join() === this.marked) return;
    this.marked = places.join();
    this.marks.replaceChildren(...places.map((y) => {
      const made = element("i", {});
      made.style.top = `${y - 1}px`;
      return made;
    }));
  }
}
