"""Record files of a calibrated run to a Calibration: all that predictions are made of.

    ComputeRecords, settled steps --compute_samples--> Compute, samples
    TrialRecords --costs--> HookCosts by label; of the run's own hook, scaled to its own stages
    launched - ready, processor time, cores --machine--> Machine
    what of its core the training thread got --machine--> all of these as if it had had the core

Medians over ranks and steps: ranks do the same work; what they differ by is jitter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ...records import TrialRecord
from ..report.step_arrays import medians
from ..timeline import Timeline
from .compute_samples import Around, GradientTimes, around, gradient_times, jitter_of, scaled
from .costs import HookCosts, PartOf, costs_of
from .hook_rules import Parameters
from .machine import core_share, machine_of
from .own_costs import as_in_steps
from .own_run import OwnRun, layouts_of, own_run, parameters_in
from .work import Compute, Floats, Machine, Parameter


@dataclass(frozen=True, slots=True)
class Calibration:
    """What is known of a run, and of what other hooks would cost in it.

    ``hook``: the label of the run's own, which is in ``costs``.  ``compute``: medians over ranks
    and steps; ``samples``: one of each calibrated step and rank.  ``buckets``: the run's own, as
    rows of ``compute.parameters``.  ``bucket_cap_bytes``: its limit, ``None`` where nobody knows.
    ``steps_ns``: times of its settled steps, medians over ranks, (steps,); ``rests_ns``: of each,
    ``compute.rest_ns``.
    """

    model: str
    hook: str
    ranks: int
    backend: str
    per_host: int
    compute: Compute
    samples: tuple[Compute, ...]
    machine: Machine
    costs: Mapping[str, HookCosts]
    buckets: tuple[tuple[int, ...], ...]
    bucket_cap_bytes: int | None
    steps_ns: Floats
    rests_ns: Floats

    @property
    def step_ns(self) -> float:
        """The run's own step: the median of its settled ones."""
        return float(np.median(self.steps_ns))


def read_calibration(timeline: Timeline, model: str) -> Calibration:
    """Return the calibration of a model's run.

    Raises ``UsageError``, which ends in the remedy, for a run without one, of one rank, of an
    opaque hook or one whose bytes are not known, or on a device.
    """
    own = own_run(timeline, model)
    times = gradient_times(timeline, model, own.layout.generation)
    known = _parameters(own)
    parameters = tuple(known[name] for name in times.names)
    steps = around(own.arrays)
    first, last = _edges(own, times)
    times = scaled(times, first, last, steps)
    first_bucket = float(times.medians[first])
    compute, samples, rests = _compute(parameters, times, steps, first_bucket)
    share = core_share(timeline, own)
    costs = costs_of(_trials(timeline, model), _parts(timeline, model), own.ranks)
    row = {name: i for i, name in enumerate(times.names)}
    own_steps = medians(steps.step_ns, 0)
    return Calibration(
        model=model,
        hook=own.label,
        ranks=own.ranks,
        backend=own.run.backend,
        per_host=own.per_host,
        compute=_on_a_whole_core(compute, share),
        samples=tuple(_on_a_whole_core(one, share) for one in samples),
        machine=machine_of(timeline, own, share),
        costs=as_in_steps(costs, own, share),
        buckets=tuple(
            tuple(sorted(row[p.name] for p in parameters_in(bucket) if p.name in row))
            for bucket in sorted(own.layout.buckets, key=lambda bucket: bucket.bucket)
        ),
        bucket_cap_bytes=own.layout.bucket_cap_bytes,
        steps_ns=own_steps[~np.isnan(own_steps)],
        rests_ns=rests,
    )


def _on_a_whole_core(compute: Compute, share: float) -> Compute:
    """Return the backward pass as long as it is where its thread has a core to itself."""
    return replace(compute, ready_ns=compute.ready_ns * share, end_ns=compute.end_ns * share)


def _parameters(own: OwnRun) -> dict[str, Parameter]:
    return {one.name: one for bucket in own.layout.buckets for one in parameters_in(bucket)}


def _edges(own: OwnRun, times: GradientTimes) -> tuple[int, int]:
    """Return the rows of the gradients that complete the first bucket, and the last one."""
    row = {name: i for i, name in enumerate(times.names)}
    buckets = sorted(own.layout.buckets, key=lambda bucket: bucket.bucket)
    complete = [max(row.get(p.name, 0) for p in parameters_in(bucket)) for bucket in buckets]
    return complete[0], max(complete)


def _compute(
    parameters: Parameters, times: GradientTimes, steps: Around, first_bucket: float
) -> tuple[Compute, tuple[Compute, ...], Floats]:
    """Return the medians, the samples, and of each settled step the rest."""
    ready = times.medians
    end_known = steps.end_ns[~np.isnan(steps.end_ns)]
    end = max(float(ready[-1]), float(np.median(end_known)) + first_bucket if len(end_known) else 0)
    rest = medians(steps.rest_ns, 0) - first_bucket
    rests = np.maximum(rest[~np.isnan(rest)], 0.0)
    middle = float(np.median(rests)) if len(rests) else 0.0
    jitter = jitter_of(np.nan_to_num(steps.end_ns) + steps.rest_ns, end + middle)
    samples = tuple(
        Compute(tuple(parameters), row, end - ready[-1] + float(row[-1]), middle, jitter)
        for row in times.ready_ns
    )
    return Compute(tuple(parameters), ready, end, middle, jitter), samples, rests


def _trials(timeline: Timeline, model: str) -> list[TrialRecord]:
    return [t for track in timeline.tracks for t in track.records.trials if t.model == model]


def _parts(timeline: Timeline, model: str) -> PartOf:
    return {
        (layout.generation, bucket.bucket): parameters_in(bucket)
        for layout in layouts_of(timeline, model).values()
        for bucket in layout.buckets
    }
