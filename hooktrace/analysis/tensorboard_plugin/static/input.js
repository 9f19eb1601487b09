// Pointer, wheel and keys.
//
// keys.js lists the keys.
// Drag pans; on the overview it moves the view.  A wheel scrolls the lanes where they are higher than
// the window and zooms elsewhere; with Ctrl it zooms, with Shift it pans.

import { OVERVIEW, TOP } from "./lanes.js";

const PAN = 0.2;
const ZOOM = 0.7;
const CLICK_PX = 4;

export function listen(app) {
  const { canvas, view, stage } = app;
  let drag = null, pointer = null;

  const place = (event) => {
    const box = stage.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const underPointer = () => (pointer && pointer.x > canvas.left ? canvas.time(pointer.x) : undefined);
  const toOverview = (x) => view.center((x - canvas.left) / canvas.lanesWidth * view.extent);

  stage.addEventListener("pointerdown", (event) => {
    const at = place(event);
    stage.focus();
    stage.setPointerCapture(event.pointerId);
    drag = { ...at, last: at, isOverview: at.y < OVERVIEW && at.x > canvas.left, moved: false };
    if (drag.isOverview) toOverview(at.x);
  });
  stage.addEventListener("pointermove", (event) => {
    const at = pointer = place(event);
    if (!drag) return app.hover(at.x, at.y);
    drag.moved ||= Math.hypot(at.x - drag.x, at.y - drag.y) > CLICK_PX;
    if (drag.isOverview) toOverview(at.x);
    else if (drag.moved) {
      view.pan((drag.last.x - at.x) / canvas.lanesWidth, true);
      view.scroll += drag.last.y - at.y;
      app.tooltip.show(null);
    }
    drag.last = at;
  });
  stage.addEventListener("pointerup", (event) => {
    const at = place(event), was = drag;
    drag = null;
    if (!was || was.moved || was.isOverview || app.ranks.click(at.x, at.y)) return;
    if (at.y < TOP && at.x > canvas.left) {
      const { picture } = app.data;
      const index = picture ? picture.ruler.start.findLastIndex((t) => t <= canvas.time(at.x)) : -1;
      if (index >= 0) app.goToStep(picture.ruler.step[index]);
    } else app.pin(canvas.hit(at.x, at.y));
  });
  stage.addEventListener("pointercancel", () => { drag = null; });
  stage.addEventListener("pointerleave", () => { pointer = null; app.leave(); });

  stage.addEventListener("wheel", (event) => {
    event.preventDefault();
    const by = event.deltaMode === 1 ? 16 : 1;
    const dx = event.deltaX * by, dy = event.deltaY * by;
    const at = place(event);
    pointer = at;
    if (event.shiftKey || Math.abs(dx) > Math.abs(dy)) {
      view.pan((dx || dy) / canvas.lanesWidth, true);
    } else if (event.ctrlKey || event.metaKey || !canvas.canScroll || at.y < TOP) {
      view.zoom(Math.exp(Math.max(-200, Math.min(200, dy)) / 300), underPointer(), true);
    } else {
      view.scroll += dy;
      app.touch();
    }
    app.hover(at.x, at.y);
  }, { passive: false });

  const scroll = (by) => { view.scroll += by * canvas.laneHeight; app.touch(); };
  const actions = {
    w: () => view.zoom(ZOOM, underPointer()), s: () => view.zoom(1 / ZOOM, underPointer()),
    a: () => view.pan(-PAN), d: () => view.pan(PAN),
    arrowleft: () => view.pan(-PAN), arrowright: () => view.pan(PAN),
    arrowup: () => scroll(-0.5), arrowdown: () => scroll(0.5),
    pageup: () => scroll(-2), pagedown: () => scroll(2),
    "[": () => app.steps.by(-1), "]": () => app.steps.by(1),
    0: () => app.fit(), home: () => app.fit(), end: () => view.setFollow(true),
    l: () => view.setFollow(view.mode !== "follow"),
    escape: () => { app.unpin(); app.search.clear(); },
    "/": () => app.search.focus(), "?": () => app.keys.open(),
    c: () => app.path.toggle(),
    h: () => app.ranks.toggleHeat(),
    x: () => app.ranks.selection.toggle(),
    f: () => {
      const target = app.pinned ?? app.hovered;
      if (!target || target.kind !== "bar") return;
      const margin = 0.5 * (target.end - target.start) + 1000;
      view.show(target.start - margin, target.end + margin);
    },
  };
  window.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || app.keys.isOpen) return;
    if (["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName)
      && event.target.type !== "checkbox") return;
    const moves = event.altKey && event.key.startsWith("Arrow");
    const act = moves ? () => app.cursor.move(event.key)
      : !event.altKey && actions[event.key.toLowerCase()];
    if (!act) return;
    event.preventDefault();
    app.tooltip.show(null);
    act();
  });
}
