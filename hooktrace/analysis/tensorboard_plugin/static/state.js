// What tests read, as window.hooktraceTimeline: the viewport (ns since the run's origin), counts of
// what the last frame drew in it, what is hovered and pinned, and times in ms since navigation.

import { locate } from "./hits.js";

export function tellTests(app) {
  window.hooktraceTimeline = {
    state: () => stateOf(app),
    locate: (rank, step, bucket) => locate(app.canvas, rank, step, bucket),
    locateHeat: (rank, step) => app.ranks.heat.locate(rank, step),
    goToStep: (number) => app.steps.go(number),
  };
}

function stateOf(app) {
  const { view, data, canvas, ranks } = app;
  return {
    run: data.run, model: data.model, version: data.info ? data.info.version : null,
    t0: view.t0, t1: view.t1, target: [view.goal0, view.goal1], extent: view.extent,
    mode: view.mode, scroll: view.scroll, drawn: { ...app.drawn }, frames: app.frames,
    hovered: app.hovered && { ...app.hovered }, pinned: app.pinned && { ...app.pinned },
    hangs: canvas.hangsAt.map(({ hang, ...box }) => ({ ...box, ...hang })),
    others: canvas.othersAt.map(({ other, ...box }) => ({ ...box, ...other })),
    lanesWidth: canvas.lanesWidth, theme: canvas.theme.name, isWhole: data.isWhole,
    // `drawn` is of the last frame: not of one that is asked for.
    isBusy: app.isWaiting || data.isBusy || view.isMoving || app.restore.isWanting
      || app.address.isWriting || ranks.isBusy,
    heat: ranks.heat.state(), lanes: canvas.lanes.state(),
    lateOutOfSight: canvas.edges,
    told: app.page.told.textContent, ...app.times, notice: app.page.notice.textContent,
  };
}
