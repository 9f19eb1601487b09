"""Changes of a sharded model's steps, of which one knows what they are like."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from hooktrace.records import BucketRecord, CompletedStep, ErrorRecord, Stage
from hooktrace.testing.synthetic import rank_file
from hooktrace.testing.synthetic_shards import ShardedJob, sharded_steps, step_of_units
from tests.analysis.run.files import MS, write_ranks

Each = Callable[[CompletedStep], CompletedStep]

UNITS = ShardedJob(
    ranks=3, steps=24, model="net", units=("<root>", "blocks.0", "blocks.1"), bytes=12_000_000,
    gather_ms=8.0, scatter_ms=8.0, compute_ms=5.0,
)  # fmt: skip


def sharded(*changes: Each, **fields: Any) -> Callable[[Path], None]:
    """Return what writes a small job, each of whose steps is changed."""
    job = dataclasses.replace(UNITS, **fields)

    def write(folder: Path) -> None:
        steps = [*sharded_steps(job)]
        for rank in range(job.ranks):
            own = [
                reduce(lambda step, change: change(step), changes, ranks[rank]) for ranks in steps
            ]
            records = [job.run(rank), job.layout(rank), *job.clock_records(rank)]
            write_ranks(folder, {rank: rank_file(records, own).decode()})

    return write


def calls(change: Callable[[BucketRecord], BucketRecord]) -> Each:
    """Return the change of a step, each of whose collectives is changed."""
    return lambda completed: step_of_units(
        [change(call) for call in completed[1]], completed[0].previous_period_ns
    )


def hidden(share: float) -> Each:
    """Training does not wait for a share of each collective."""
    return calls(lambda c: replace(c, exposed_ns=int((c.done_ns - c.ready_ns) * (1 - share))))


def coded(ms: float, sends: float = 0.25) -> Each:
    """A hook compresses, and again decompresses, around each reduce-scatter."""

    def change(call: BucketRecord) -> BucketRecord:
        if call.unit is None or call.unit.collective != "reduce_scatter":
            return call
        begin, end = call.ready_ns + int(ms * MS), call.done_ns - int(ms * MS)
        sent = int((call.wire_bytes or 0) * sends)
        stages = (
            Stage(name="compress", start_ns=call.ready_ns, end_ns=begin),
            replace(call.stages[0], start_ns=begin, end_ns=end, wire_bytes=sent),
            Stage(name="decompress", start_ns=end, end_ns=call.done_ns),
        )
        bus = (call.bus_bytes or 0.0) * sends
        return replace(call, stages=stages, wire_bytes=sent, bus_bytes=bus)

    return calls(change)


def off(relative_l2: float, cosine: float = 0.9) -> Each:
    """Every tenth step's reduce-scatters are checked, and off by so much."""
    error = ErrorRecord(
        relative_l2=relative_l2, cosine=cosine, max_absolute=0.1, flipped_share=0.0,
        reference_l2=3.0,
    )  # fmt: skip

    def change(call: BucketRecord) -> BucketRecord:
        is_checked = call.step % 10 == 0 and call.stages[0].collective != "all_gather"
        return replace(call, error=error, checked=True) if is_checked else call

    return calls(change)


def slow(completed: CompletedStep) -> CompletedStep:
    """Every seventh step waits for 400 ms more, which the lines of steps alone say."""
    step, own = completed
    if step.step % 7 == 0:
        exposed = (step.exposed_ns or 0) + 400 * MS
        step = replace(step, done_ns=step.done_ns + 400 * MS, exposed_ns=exposed)
    elif step.step % 7 == 1 and step.previous_period_ns is not None:
        step = replace(step, previous_period_ns=step.previous_period_ns + 400 * MS)
    return step, own


def of_two_kinds(completed: CompletedStep) -> CompletedStep:
    """All steps but two make one pass."""
    step, own = completed
    if step.step in (8, 16):
        return completed
    once = [call for call in own if call.unit is not None and not call.unit.repeat]
    return step_of_units(once, step.previous_period_ns)


def not_all_seen(completed: CompletedStep) -> CompletedStep:
    """It is not known what training waited for the last collective."""
    step, (*others, last) = completed
    return replace(step, exposed_ns=None), (*others, replace(last, exposed_ns=None))
