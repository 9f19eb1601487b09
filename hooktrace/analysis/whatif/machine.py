"""Where a rank runs: cores, the backend's workers, and what is paid for calls and for transfers.

RunInfo --> cores that a rank has          settled steps --> what a call of the hook costs
processor time of calibrated steps - training thread - callbacks --> what transfers take
processor time of the training thread over the clock's --> what it gets of a core beside others
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...records import ComputeRecord
from ..report.step_arrays import StepArrays
from ..timeline import STAGE_NAMES, UNKNOWN, RankTrack, Timeline
from .own_run import OwnRun
from .work import Floats, Machine

_GLOO_WORKERS = 2
_TURN_NS = 2_500_000.0
"""What the threads of a collective wait for cores where all are busy: a scheduler's time slice,
once and again.  Measured on Linux 6.18, two cores and two ranks that compute: an all-reduce of 4 to
64 KB takes 3.0 to 4.1 ms in the median, a quarter of them below 0.5 and a quarter above 5.7, and
0.4 ms where cores are idle.
"""
_CALL_NS = 50_000.0
"""Where no call of the run tells."""
_MOST_WIRE_CORES = 2.0
_WHOLE_CORE = 0.85
"""A thread that gets more has a core to itself: what is missing is that of clocks and wake-ups."""


def machine_of(timeline: Timeline, own: OwnRun, share: float = 1.0) -> Machine:
    """Return where the ranks of a run are; ``share``: of ``core_share``."""
    return Machine(
        workers=_GLOO_WORKERS if own.run.backend == "gloo" else 1,
        cores=max(1.0, _cores_of_a_rank(timeline, own)) if share == 1.0 else share,
        wire_cores=_wire_cores(timeline, own),
        call_ns=_call_ns(own.arrays, own.rule.serial) * share,
        turn_ns=_TURN_NS / share,  # of a core that several ranks share each takes its slice
    )


def core_share(timeline: Timeline, own: OwnRun) -> float:
    """Return what a rank's training thread gets of a core while it computes, 1 for all of it.

    Less where a host has more ranks than cores: then what the clock says of the thread's work is
    that much longer than the work.  Ranks that are bound to a core each get all of it.
    """
    if _cores_of_a_rank(timeline, own) >= 1:
        return 1.0  # a thread that also waits, for data say, gets less of the clock, not of a core
    found = [
        record.thread_ns / working
        for track in timeline.tracks
        for record, _, working in _computing(track, own)
        if record.thread_ns is not None
    ]
    share = float(np.median(found)) if found else 1.0
    return share if 0 < share < _WHOLE_CORE else 1.0


def _cores_of_a_rank(timeline: Timeline, own: OwnRun) -> float:
    """Return the cores of a host over its ranks; of one that is bound to a core, less than that."""
    said = [t.records.run.cores for t in timeline.tracks if t.records.run is not None]
    known = [cores for cores in said if cores]
    return min(known) / own.ranks_of_a_host if known else 1.0


def _call_ns(arrays: StepArrays, serial: bool) -> float:
    """Return what a call took on the training thread beside the hook's own work."""
    took = arrays.column("launched_after")
    if serial:  # A call that had to wait for its turn did no work of its own.
        turn = arrays.stages.get("turn")
        took = np.full(took.shape, np.nan) if turn is None else np.where(turn > 0, took, np.nan)
    else:
        took = took - arrays.stages.get("compress", np.zeros(took.shape))
    known = took[~np.isnan(took)]
    return max(0.0, float(np.median(known))) if known.size else _CALL_NS


def _wire_cores(timeline: Timeline, own: OwnRun) -> float:
    """Return the share of a core that a transfer takes, as far as processor time tells.

    It is what the process took beside the training thread and callbacks, while something was on the
    wire.  With several threads of torch's an operation's own share is not known: 0 is returned.
    """
    found = [
        share
        for track in timeline.tracks
        if track.records.run is not None and track.records.run.threads == 1
        for share in _shares(track, own)
    ]
    return float(np.clip(np.median(found), 0.0, _MOST_WIRE_CORES)) if found else 0.0


def _shares(track: RankTrack, own: OwnRun) -> list[float]:
    found = []
    for record, row, working in _computing(track, own):
        busy = float(track.steps.wire_busy[row])
        if record.processor_ns is None or busy <= 0:
            continue
        callbacks, thread = _callbacks_ns(track, record.step, own.arrays.model), working
        if record.thread_ns is not None:
            # On the clock others' work is in it too, wherever cores are shared.
            callbacks *= min(1.0, record.thread_ns / working)
            thread = record.thread_ns
        found.append((record.processor_ns - thread - callbacks) / busy)
    return found


def _computing(track: RankTrack, own: OwnRun) -> Iterator[tuple[ComputeRecord, int, float]]:
    """Yield calibrated steps, their rows in ``steps``, and how long their threads computed, ns."""
    model, steps = own.arrays.model, track.steps
    ids = {name: i for i, (name, _) in enumerate(track.models)}
    for record in track.records.computes:
        wanted = np.array([record.step, record.step + 1])
        rows = steps.rows_of(np.full(2, ids.get(model, UNKNOWN)), wanted)
        if record.model != model or UNKNOWN in rows or steps.exposed[rows[0]] == UNKNOWN:
            continue
        period = float(steps.first_ready[rows[1]] - steps.first_ready[rows[0]])
        working = period - float(steps.exposed[rows[0]])
        if working > 0:
            yield record, int(rows[0]), working


def _callbacks_ns(track: RankTrack, step: int, model: str) -> float:
    """Return what a step's callbacks took, which are on other threads than the training's."""
    columns = track.buckets
    rows = np.flatnonzero((columns.step == step) & track.is_of(columns, model))
    stages, _ = track.stages_of(rows)
    own = stages[track.stages.name[stages] == STAGE_NAMES.index("decompress")]
    times: Floats = track.stages.end[own] - track.stages.start[own]
    return float(times.sum())
