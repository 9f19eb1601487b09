// Pointer, wheel and keys on the lanes (keys.js lists them).  Drag pans; on the overview it moves
// the view.  A wheel scrolls the lanes where they are higher than the window and zooms elsewhere;
// with Ctrl it zooms, with Shift it pans.

import { hitAt } from "./hits.js";
import { OVERVIEW, TOP } from "./lanes.js";

const PAN = 0.2;
const ZOOM = 0.7;
const CLICK_PX = 4;
const LINE_PX = 16;

export function listen(app) {
  const { canvas, view, stage } = app;
  let drag = null, pointer = null;

  const place = (event) => ({ x: event.offsetX, y: event.offsetY });
  const underPointer = () => (pointer?.x > canvas.left ? canvas.time(pointer.x) : undefined);
  const toOverview = (x) => view.center((x - canvas.left) / canvas.lanesWidth * view.extent);

  stage.addEventListener("pointerdown", (event) => {
    const at = place(event);
    stage.focus();
    stage.setPointerCapture(event.pointerId);
    drag = { ...at, last: at, moved: false, isOverview: at.x > canvas.left && at.y < OVERVIEW };
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
    if (at.y < TOP && at.x > canvas.left) app.steps.goAt(canvas.time(at.x));
    else app.pin(hitAt(canvas, at.x, at.y));
  });
  stage.addEventListener("pointercancel", () => { drag = null; });
  stage.addEventListener("pointerleave", () => { pointer = null; app.leave(); });

  stage.addEventListener("wheel", (event) => {
    event.preventDefault();
    const at = pointer = place(event), by = wheelPx(event);
    if (event.shiftKey || Math.abs(by.x) > Math.abs(by.y)) {
      view.pan((by.x || by.y) / canvas.lanesWidth, true);
    } else if (event.ctrlKey || event.metaKey || !canvas.lanes.canScroll || at.y < TOP) {
      view.zoom(Math.exp(Math.max(-200, Math.min(200, by.y)) / 300), underPointer(), true);
    } else scroll(by.y);
    app.hover(at.x, at.y);
  });

  const scroll = (px) => { view.scroll += px; view.touch(); };
  const scrollBy = (lanes) => () => scroll(lanes * canvas.laneHeight);
  const pan = (share) => () => view.pan(share);
  const whole = () => app.fit();
  const actions = {
    w: () => view.zoom(ZOOM, underPointer()), s: () => view.zoom(1 / ZOOM, underPointer()),
    a: pan(-PAN), d: pan(PAN), arrowleft: pan(-PAN), arrowright: pan(PAN),
    arrowup: scrollBy(-0.5), arrowdown: scrollBy(0.5), pageup: scrollBy(-2), pagedown: scrollBy(2),
    "[": () => app.steps.by(-1), "]": () => app.steps.by(1),
    0: whole, home: whole, end: () => view.setFollow(true),
    l: () => view.setFollow(view.mode !== "follow"),
    escape: () => { app.pin(null); app.search.clear(); },
    "/": () => app.search.focus(), "?": () => app.keys.showModal(),
    h: () => app.ranks.toggleHeat(),
    f: () => {
      const target = app.pinned ?? app.hovered;
      if (target?.kind === "bar") view.showAround(target.start, target.end, 0.5);
    },
  };
  window.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || app.keys.open) return;
    if (event.target.matches("input:not([type=checkbox]), select, textarea")) return;
    const moves = event.altKey && event.key.startsWith("Arrow");
    const act = moves ? () => app.cursor.move(event.key)
      : !event.altKey && actions[event.key.toLowerCase()];
    if (!act) return;
    event.preventDefault();
    act();
  });
}

// How far a wheel was turned, whichever unit the browser tells it in.
export function wheelPx({ deltaX, deltaY, deltaMode }) {
  const unit = deltaMode === 1 ? LINE_PX : 1;
  return { x: deltaX * unit, y: deltaY * unit };
}
