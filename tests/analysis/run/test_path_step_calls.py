"""The calls of one step: as the records have them, in rank 0's clock."""

from __future__ import annotations

from pathlib import Path

from hooktrace.analysis.run.path import StepCalls
from hooktrace.testing.synthetic import SyntheticJob, simulate
from tests.analysis.runs import job_run


def test_calls_are_those_of_the_records_in_one_clock(tmp_path: Path) -> None:
    job = SyntheticJob(ranks=3, steps=3, late_ms={1: 5.0})
    calls = StepCalls(job_run(job, tmp_path), job.model)
    step = list(simulate(job))[1]
    for rank, times in enumerate(calls.times(2)):
        found = calls.of(rank, 2)
        moments = step.moments(rank)
        offset = job.offset_ns(rank)
        assert sorted(found) == list(range(8))
        for bucket, at in enumerate(moments):
            call = found[bucket]
            (wire,) = call.wires
            own = call.called, call.ready, call.launched, wire.start, wire.end, call.done
            assert own == tuple(
                one + offset
                for one in (at.ready, at.ready, at.encoded, at.sent, at.arrived, at.done)
            )
        first, last = min(one.ready for one in moments), max(one.done for one in moments)
        assert (times.first_ready, times.done) == (first + offset, last + offset)
        assert (times.unsure > 0) == (rank > 0)


def test_a_step_that_is_not_there_has_no_calls(tmp_path: Path) -> None:
    job = SyntheticJob(ranks=2, steps=2)
    calls = StepCalls(job_run(job, tmp_path), job.model)
    assert [calls.of(rank, 7) for rank in range(2)] == [{}, {}]
    assert calls.times(7) == []
