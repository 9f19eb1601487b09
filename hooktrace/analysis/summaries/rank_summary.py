"""The pass over one rank's files: a pure function of them, and of what the ranks have in common.

files --read_track--> RankTrack --settled_steps--> StepArrays of one rank --> ModelSummary
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path

import numpy as np

from ...records import ErrorRecord, LayoutRecord
from ..report.build_facts import anomaly_facts, bucket_error, largest, rank_facts, rate
from ..report.causes import tail_sums, waits_at_end
from ..report.provenance import model_source, run_source
from ..report.run_report import missing_of
from ..report.settled import settled_steps
from ..report.step_arrays import Floats, StepArrays
from ..report.units import is_synchronous, shares_of_steps, sums_of_kinds, whole_bytes
from ..timeline import (
    Bools,
    Ints,
    RankClock,
    RankTrack,
    Timeline,
    bucket_keys,
    read_track,
)
from .race import Table, entered
from .sketch import Sketch
from .summary import Errors, Job, M, ModelSummary, RankRow, Shards, Summary

_Names = dict[str | tuple[str, int], Sketch]


def summarize(ranks: Sequence[Sequence[str | os.PathLike[str]]], job: Job) -> Summary:
    """Return the summary of some ranks, given the files of each; one at a time is in memory."""
    found = merged_ranks(ranks, job, Summary(), of_track)
    memory = {f"{os.uname().nodename}:{os.getpid()}": _peak_bytes()}
    return found.merged(Summary(memory=memory)) if ranks else found


def merged_ranks(
    ranks: Sequence[Sequence[str | os.PathLike[str]]],
    job: Job,
    found: M,
    of_rank: Callable[[RankTrack, Job], M],
) -> M:
    """Return ``found`` merged with what ``of_rank`` makes of each rank, read one at a time."""
    gc.disable()  # once a rank, and not each time that some hundred lines were decoded
    try:
        for paths in ranks:
            found = found.merged(of_rank(read_track(paths), job))
            gc.collect()
    finally:
        gc.enable()
    return found


def of_track(track: RankTrack, job: Job) -> Summary:
    """Return the summary of one rank that was read."""
    run, rank = track.records.run, track.rank
    if run is not None and job.run is not None and run.run_id != job.run.run_id:
        return Summary(other_runs=frozenset({rank}))
    clock = RankClock(run, track.records.clocks, job.reference)
    timeline, mine = Timeline([track], [clock], []), frozenset({rank})
    arrays = {name: settled_steps(timeline, name) for name in timeline.models}
    every = {(a.model, a.kind) for a in track.records.anomalies}
    return Summary(
        ranks=mine,
        hosts={} if run is None else {rank: run.host},
        begun=tuple(filter(None, (run_source(timeline, None).begun,))),
        unaligned=frozenset() if clock.is_known else mine,
        hung=mine if track.records.hangs else frozenset(),
        missing=dict.fromkeys(missing_of(track), mine),
        names=dict.fromkeys(timeline.models),
        unsampled=frozenset(model for model, _ in track.unknown_bytes),
        models={name: _model(timeline, a, job) for name, a in arrays.items() if a is not None},
        anomalies={
            (model, facts.kind): facts
            for model in dict.fromkeys(model for model, _ in every)
            for facts in anomaly_facts(timeline, [model])
        },
    )


def _model(timeline: Timeline, arrays: StepArrays, job: Job) -> ModelSummary:
    (track,) = timeline.tracks
    layouts = [x for x in track.records.layouts if x.model == arrays.model]
    own = [b for x in layouts if x.generation == arrays.generation for b in x.buckets]
    sizes = {b.bucket: [(prod(shape), name) for name, shape in b.parameters or ()] for b in own}
    buckets = arrays.buckets.tolist()
    bytes_of = np.fmax.reduce(arrays.column("gradient_bytes"), axis=(0, 1), initial=0)
    kept = arrays.steps % job.every == 0
    origin = job.origin_ns
    return ModelSummary(
        model=arrays.model,
        hook=arrays.hook,
        generation=arrays.generation,
        is_on_device=arrays.is_on_device,
        steps=len(arrays.steps),
        last=arrays.last,
        widths=frozenset(b.gradient_bytes / b.numel for x in layouts for b in x.buckets if b.numel),
        parameters={b: (len(found), largest(found)) for b, found in sizes.items()},
        gradient_bytes={b: int(count) for b, count in zip(buckets, bytes_of, strict=True)},
        sketches={**_of_steps(arrays), **_of_buckets(arrays), **_of_kinds(arrays)},
        by_bucket=_by_bucket(arrays, kept, origin),
        by_step=_by_step(arrays, kept),
        tails={b: ns for b, ns in zip(buckets, tail_sums(arrays).tolist(), strict=True) if ns >= 0},
        errors=_errors(arrays),
        ranks={track.rank: _row(timeline, arrays, kept, origin)},
        source=model_source(timeline, arrays),
        shards=_shards(arrays, layouts) if arrays.is_sharded else None,
    )


def _shards(arrays: StepArrays, layouts: list[LayoutRecord]) -> Shards:
    return Shards(
        units=arrays.units,
        is_synchronous=is_synchronous(arrays),
        is_whole=arrays.is_of_all,
        whole_bytes=whole_bytes(arrays, layouts),
        in_steps=dict(zip(arrays.buckets.tolist(), shares_of_steps(arrays).tolist(), strict=True)),
    )


def _of_steps(arrays: StepArrays) -> _Names:
    wire_busy = arrays.by_step("wire_busy")
    return {
        "period": Sketch(arrays.period),
        "exposed": Sketch(arrays.exposed),
        "overlap": Sketch(arrays.overlap),
        "busy": Sketch(arrays.busy),
        "wire_busy": Sketch(wire_busy),
        "queue": Sketch(waits_at_end(arrays, "queue")),
        "turn": Sketch(waits_at_end(arrays, "turn")),
        "gradient_bytes": Sketch(arrays.by_step("gradient_bytes")),
        "wire_bytes": Sketch(arrays.sent()),
        "busbw": Sketch(rate(arrays.by_step("bus_bytes"), wire_busy)),
    }


def _of_buckets(arrays: StepArrays) -> _Names:
    wire = arrays.stages.get("wire", np.full_like(arrays.done, np.nan))
    columns = {
        "ready": arrays.ready - arrays.first_ready[..., None],
        "duration": arrays.done - arrays.ready,
        "call": arrays.column("launched_after"),
        "busbw": rate(arrays.column("bus_bytes"), wire),
        "exposed": arrays.exposed_in,
        **{f"stage {name}": values for name, values in arrays.stages.items()},
    }
    found: _Names = {}
    for b, bucket in enumerate(arrays.buckets.tolist()):
        found |= {(name, bucket): Sketch(values[..., b]) for name, values in columns.items()}
        found["wire_bytes", bucket] = Sketch(arrays.sent(bucket))
    return found


def _of_kinds(arrays: StepArrays) -> _Names:
    """Return what a sharded model's collectives of each kind are, take, and expose, in a step."""
    found: _Names = {}
    for kind, sums in sums_of_kinds(arrays).items():
        found[f"count of {kind}"] = Sketch(sums.calls)
        found[f"payload of {kind}"] = Sketch(sums.payload)
        found[f"time of {kind}"] = Sketch(sums.duration)
        found[f"exposed of {kind}"] = Sketch(sums.exposed)
    return found


def _by_bucket(arrays: StepArrays, kept: Bools, origin: int) -> Table:
    """Return one rank's buckets, by step and bucket: when they were called, done, on the wire."""
    called, done = arrays.called[0, kept], arrays.done[0, kept]
    wire = arrays.stages.get("wire", np.full_like(arrays.done, np.nan))[0, kept]
    there = ~np.isnan(called)
    start = arrays.started[kept]
    s, b = np.nonzero(there)

    def at(values: Floats) -> Ints:
        found: Ints = start[s] + np.rint(values[there]).astype(np.int64)
        return found

    unsure = arrays.uncertainty[0, kept][there]
    known = ~np.isnan(unsure)
    off = np.where(known, unsure, 0).astype(np.int64)
    moment = at(called)
    done_at = at(np.where(np.isnan(done), called, done))
    is_sent = ~np.isnan(wire[there])
    columns = {
        "count": is_sent.astype(np.int64),
        "known": known.astype(np.int64),
        "called_sum": (moment - origin).astype(np.float64),
        "wire_sum": np.where(is_sent, wire[there], 0.0),
        "wire_least": np.where(is_sent, wire[there], np.inf),
        "first": moment,
        "done_least": done_at,
        "unsure": off,
    }
    keys = bucket_keys(arrays.steps[kept][s], arrays.buckets[b])
    return Table(keys, columns | entered(arrays.ranks[0], moment, off))


def _by_step(arrays: StepArrays, kept: Bools) -> Table:
    period, exposed = arrays.period[0, kept], arrays.exposed[0, kept]
    backward = arrays.backward[0, kept]
    columns = {
        "period_count": (~np.isnan(period)).astype(np.int64),
        "period_sum": np.nan_to_num(period),
        "exposed_sum": np.nan_to_num(exposed),
        "exposed_most": np.nan_to_num(exposed),
        "backward_sum": np.nan_to_num(backward),
    }
    return Table(arrays.steps[kept], columns)


def _errors(arrays: StepArrays) -> dict[int, Errors]:
    found = {}
    for bucket, errors in arrays.errors.items():
        if (worst := bucket_error(errors)) is not None:
            sizes, cosines = _numbers(errors, "relative_l2"), _numbers(errors, "cosine")
            found[bucket] = Errors(Sketch(sizes), Sketch(cosines), worst)
    return found


def _numbers(errors: Sequence[ErrorRecord], field: str) -> Floats:
    """Return a number of each probe; NaN of one that has none."""
    values = [getattr(error, field) for error in errors]
    return np.array([np.nan if value is None else value for value in values], np.float64)


def _row(timeline: Timeline, arrays: StepArrays, kept: Bools, origin: int) -> RankRow:
    (facts,) = rank_facts(timeline, arrays)
    call = arrays.column("launched_after")[0]
    called = arrays.called[0, kept] + (arrays.started[kept] - origin)[:, None]
    count, sums = (~np.isnan(called)).sum(axis=0), np.nansum(called, axis=0)
    buckets = arrays.buckets.tolist()
    means = np.nansum(call, axis=0) / np.maximum((~np.isnan(call)).sum(axis=0), 1)
    return RankRow(
        facts=facts,
        called={b: (int(n), float(x)) for b, n, x in zip(buckets, count, sums, strict=True)},
        calls=dict(zip(buckets, means.tolist(), strict=True)),
    )


def _peak_bytes() -> int:
    """Return the most memory that this process has had; 0 where nobody says it."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)
