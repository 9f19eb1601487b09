"""When gradients become ready if no hook takes any time, and what is around the backward pass.

    ComputeRecords --minus the calls of hooks before each gradient--> samples (ranks and steps)
    settled steps --> end of backward, rest: from the end of a step to the next first gradient
    both --scaled--> gradients as they become ready in a settled step

A hook runs on the thread that computes gradients: what its earlier calls took (``launched -
ready``) delays every later gradient of the step, and is taken off once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...records import ComputeRecord
from ...records.errors import UsageError
from ..report.step_arrays import StepArrays, medians
from ..timeline import Ints, RankTrack, Timeline
from .work import Floats

NO_CALIBRATION = (
    "the run has no calibration; record it again with Tracer(calibrate=True), or "
    "HOOKTRACE_CALIBRATE=1 in the job"
)


_LEAST_SPAN = 0.2
"""Of a backward pass: between the first bucket and the last one, to tell how long it takes."""


@dataclass(frozen=True, slots=True)
class GradientTimes:
    """``names`` in the order of medians; ``ready_ns``: (samples, names), ns after each's first.

    ``to_next_ns``: of each sample, from its step's last result to the next step's first bucket, NaN
    where that is not known.
    """

    names: tuple[str, ...]
    ready_ns: Floats
    to_next_ns: Floats

    @property
    def medians(self) -> Floats:
        """Of each gradient over ranks and steps, ascending."""
        middle: Floats = np.median(self.ready_ns, axis=0)
        found: Floats = middle - middle[0]
        return found


def gradient_times(timeline: Timeline, model: str, generation: int) -> GradientTimes:
    """Return the calibrated steps of the last generation.

    Raises ``UsageError`` where there is none, naming what to record.
    """
    found = [
        (record, net_ready(track, record), to_next_ns(track, record))
        for track in timeline.tracks
        for record in track.records.computes
        if record.model == model and record.generation == generation and record.parameters
    ]
    if not found:
        raise UsageError(NO_CALIBRATION)
    names = max((record.parameters for record, _, _ in found), key=len)
    whole = [one for one in found if set(one[0].parameters) == set(names)]
    rows = [dict(zip(record.parameters, net.tolist(), strict=True)) for record, net, _ in whole]
    ready = np.array([[row[name] for name in names] for row in rows])
    ready -= ready.min(axis=1, keepdims=True)
    order = np.argsort(np.median(ready, axis=0), kind="stable")
    ordered = np.maximum.accumulate(ready[:, order], axis=1)
    after = np.array([to_next for _, _, to_next in whole])
    return GradientTimes(tuple(names[i] for i in order), ordered, after)


def net_ready(track: RankTrack, record: ComputeRecord) -> Floats:
    """Return when gradients would have been ready without hooks, ns after the first of them."""
    columns = track.buckets
    rows = np.flatnonzero((columns.step == record.step) & track.is_of(columns, record.model))
    rows = rows[np.argsort(columns.called[rows], kind="stable")]
    ready = np.asarray(record.ready_ns, np.int64)
    took = np.concatenate([[0], np.cumsum(columns.launched_after[rows].astype(np.int64))])
    net = ready - took[np.searchsorted(columns.called[rows], ready)]
    found: Floats = (net - net[0]).astype(np.float64)
    return found


def to_next_ns(track: RankTrack, record: ComputeRecord) -> float:
    """Return from the last result of a calibrated step to the next one's first bucket."""
    steps = track.steps
    rows = np.flatnonzero(track.is_of(steps, record.model))
    own, after = (rows[steps.step[rows] == record.step + i] for i in (0, 1))
    if len(own) != 1 or len(after) != 1:
        return float("nan")
    return float(steps.first_ready[after[0]] - steps.done[own[0]])


def scaled(times: GradientTimes, first: int, last: int, steps: Around) -> GradientTimes:
    """Return the times as in settled steps, each sample brought to what these take.

    A calibrated step may be slower than others: its gradients are looked at, and the machine is as
    busy as it is just then.  ``first``, ``last``: rows of the gradients that the first and the last
    bucket wait for.  What settled steps tell is the time from one to the other; with one bucket it
    is the time to the first one from the step before, of which backward has the share that it has
    in calibrated steps.
    """
    ready = times.ready_ns
    span = ready[:, last] - ready[:, first]
    if np.median(span) >= _LEAST_SPAN * np.median(ready[:, -1]):
        wanted, had = steps.span_ns, span
    else:
        had = times.to_next_ns
        wanted = steps.rest_ns
    known = wanted[~np.isnan(wanted)]
    usable = had > 0
    if not len(known) or not usable.any():
        return times
    by = float(np.median(known)) / np.where(usable, had, np.median(had[usable]))
    return GradientTimes(times.names, ready * by[:, None], times.to_next_ns * by)


@dataclass(frozen=True, slots=True)
class Around:
    """Of settled steps, (ranks, steps), NaN where unknown.

    Without what hooks took, from the first bucket's call: ``span_ns`` to the last one's, ``end_ns``
    to the end of backward.  ``rest_ns``: from the step's end to the next first bucket.
    ``step_ns``: the period.
    """

    span_ns: Floats
    end_ns: Floats
    rest_ns: Floats
    step_ns: Floats


def around(arrays: StepArrays) -> Around:
    """Return what is around the gradients.

    A step's exposed time counts from the end of backward, less the last hook's call: so where
    something was exposed, the end is known.
    """
    took = arrays.column("launched_after")
    last = np.take_along_axis(took, _last_called(arrays), axis=2)[:, :, 0]
    before = np.where(np.isnan(took).any(axis=2), np.nan, np.nansum(took, axis=2) - last)
    first, done = arrays.by_step("first_ready"), arrays.by_step("done")
    hidden_to = np.where(arrays.exposed > 0, done - arrays.exposed, np.nan)
    end = hidden_to - first - before
    # Where nothing was exposed, backward ended as it does in other steps.
    middle = medians(end, 1)[:, None]
    span = arrays.by_step("last_ready") - first - before
    known = np.where(np.isnan(end), np.where(np.isnan(middle), span, middle), end)
    over = np.fmax(done - first, known + before + last)
    return Around(span, end, arrays.period - over, arrays.period)


def _last_called(arrays: StepArrays) -> Ints:
    """Return the place of the bucket that was called last, (ranks, steps, 1)."""
    called = np.where(np.isnan(arrays.called), -np.inf, arrays.called)
    found: Ints = np.argmax(called, axis=2, keepdims=True)
    return found


def jitter_of(times: Floats, mean: float) -> float:
    """Return how far ranks differ in a step, one standard deviation, as a share of ``mean``.

    ``times``: (ranks, steps) of computing.  What makes all ranks slow at once is no difference.
    """
    apart = times - np.mean(times, axis=0)
    known = apart[~np.isnan(apart)]
    if len(times) < 2 or not len(known) or mean <= 0:
        return 0.0
    deviation = 1.4826 * float(np.median(abs(known)))
    return deviation * float(np.sqrt(len(times) / (len(times) - 1))) / mean
