"""The made-up job does what its parameters say, and the same each time."""

from __future__ import annotations

from dataclasses import replace

from hooktrace.records import AnomalyRecord, SkewRecord, StepRecord
from hooktrace.testing.synthetic import SyntheticJob, simulate

JOB = SyntheticJob(ranks=3, steps=6, jitter_ms=0.0)


def steps(job: SyntheticJob, rank: int = 0) -> list[StepRecord]:
    """Return a rank's steps."""
    return [step.completed(rank)[0] for step in simulate(job)]


def test_a_job_is_the_same_each_time() -> None:
    """To the last number; another seed is another job."""
    assert steps(JOB) == steps(JOB) != steps(replace(JOB, seed=1))


def test_ranks_have_a_step_at_once_by_clocks_that_differ() -> None:
    """Their times differ by what their clocks do, and their periods not at all."""
    zero, two = steps(JOB, 0), steps(JOB, 2)
    assert [s.step for s in zero] == [1, 2, 3, 4, 5, 6]
    assert {a.done_ns - b.done_ns for a, b in zip(zero, two, strict=True)} == {2 * 10**9}
    assert [s.period_ns for s in zero] == [s.period_ns for s in two]
    assert [s.period_ns is None for s in zero] == [True, *[False] * 5]


def test_a_late_rank_is_late_and_the_others_wait() -> None:
    """From its bucket on, in the steps that are asked for; no collective starts without it."""
    job = replace(JOB, late_ms={1: 5.0}, late_from=4, late_every=2)
    for number, step in enumerate(simulate(job)):
        others, late = step.moments(0), step.moments(1)
        lags = [b.ready + 10**9 - a.ready for a, b in zip(others, late, strict=True)]
        assert lags == [0] * 4 + [0 if number % 2 else 5_000_000] * 4
        assert all(a.arrived > b.ready + 10**9 for a, b in zip(others, late, strict=True))


def test_a_slow_step_is_longer() -> None:
    """By one collective that takes ten times as long."""
    lengths = [s.done_ns - s.first_ready_ns for s in steps(replace(JOB, slow_every=3))]
    assert min(lengths[0], lengths[3]) > max(lengths[1], lengths[2], lengths[4], lengths[5])


def test_probes_skews_and_anomalies_come_where_they_are_asked_for() -> None:
    """The buckets in turn; each rank knows who was late in a probed step."""
    job = replace(
        JOB, error=0.5, error_every=2, skews=True, late_ms={1: 5.0}, anomaly_rank=2, clocks=False
    )
    probed, events = [], []
    for step in simulate(job):
        _, buckets = step.completed(2)
        probed += [(b.step, b.bucket) for b in buckets if b.error is not None]
        events += step.events(2)
    assert probed == [(2, 1), (4, 2), (6, 3)]
    skews = [one for one in events if isinstance(one, SkewRecord)]
    assert {(skew.step, skew.late_rank, skew.lag_ns) for skew in skews} == {
        (2, 1, 0), (4, 1, 0), (6, 1, 0),
    }  # fmt: skip
    (anomaly,) = [one for one in events if isinstance(one, AnomalyRecord)]
    assert (anomaly.kind, anomaly.step, anomaly.rank) == ("nonfinite_gradient", 3, 2)
    assert job.clock_records(1) == []
