// What tests read, as window.hooktraceTimeline: the viewport (ns since the run's origin), counts of
// what the last frame drew inside the visible part, what is hovered and pinned, and times in ms since
// navigation.

export function tellTests(app) {
  window.hooktraceTimeline = {
    state: () => stateOf(app),
    locate: (rank, step, bucket) => app.canvas.locate(rank, step, bucket),
    locateHeat: (rank, step) => app.ranks.heat.locate(rank, step),
    goToStep: (number) => app.goToStep(number),
  };
}

function stateOf(app) {
  const { view, data, canvas } = app;
  return {
    run: data.run, model: data.model, version: data.info ? data.info.version : null,
    t0: view.t0, t1: view.t1, target: [view.goal0, view.goal1], extent: view.extent,
    mode: view.mode, scroll: view.scroll, drawn: { ...app.drawn }, frames: app.frames,
    hovered: app.hovered && { ...app.hovered }, pinned: app.pinned && { ...app.pinned },
    hangs: (canvas.hangsAt ?? []).map(({ hang, ...box }) => ({ ...box, ...hang })),
    lanesWidth: canvas.lanesWidth, theme: canvas.theme.name, isWhole: data.isWhole,
    // `drawn` is of the last frame: not of one that is asked for.
    isBusy: app.isWaiting || data.isBusy || view.isMoving || app.restore.isWanting
      || app.viewState.isWriting || app.ranks.isBusy || app.path.isBusy,
    heat: app.ranks.heat.state(), lanes: canvas.lanes.state(), path: app.path.state(),
    selection: app.ranks.selection.state(), lateOutOfSight: canvas.edges,
    told: app.page.told.textContent, ...app.times, notice: app.page.notice.textContent,
  };
}
