"""Experiment trackers: a function that takes a dict; MLflow itself where frameworks are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hooktrace import Tracer
from hooktrace.integrations import log_to
from hooktrace.integrations.trackers import numbers_of
from hooktrace.records.summary import summarize
from tests.exporters.records_sample import make_batch
from tests.fakes import Job
from tests.integrations.frameworks import needs_frameworks, run
from tests.integrations.rows import Framework, shows

TRACKERS = Framework("trackers", "`Tracer([log_to(fn)])`", "mlflow-skinny")


@shows(TRACKERS, "whatever takes a dict of numbers, as `wandb.log` does")
def test_every_so_many_steps() -> None:
    """Of timed steps; the step of the last of them, and anomalies so far; models by their names."""
    logged: list[dict[str, float]] = []
    with Tracer([log_to(logged.append, every=10)], error_every=0) as tracer:
        jobs = [Job(tracer), Job(tracer)]
        for _ in range(35):
            for job in jobs:
                job.step()
    # The first two are warm-up.
    assert [numbers["hooktrace/step"] for numbers in logged] == [11, 11, 21, 21, 31, 31]
    assert {numbers["hooktrace/anomalies"] for numbers in logged} == {0.0}
    assert "hooktrace/exposed_seconds" in logged[0]
    assert "hooktrace/model1/exposed_seconds" in logged[1]


def test_rank_0_alone_unless_all_are_wanted() -> None:
    """Trackers have one writer; of what cannot be one the fix is said."""
    for rank, all_ranks, count in ((0, False, 1), (1, False, 0), (1, True, 1)):
        logged: list[dict[str, float]] = []
        log_to(logged.append, every=2, all_ranks=all_ranks).export(make_batch(rank=rank, steps=3))
        assert len(logged) == count
    with pytest.raises(TypeError, match=r"log_to takes a function such as wandb.log, not a str"):
        log_to("wandb")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="every is 0; pass a whole number of at least 1"):
        log_to(print, every=0)


def test_the_numbers_of_a_summary() -> None:
    """In base units; what is not known is left out, rather than shown as 0 or NaN."""
    (summary,) = summarize(make_batch(steps=4).steps)
    numbers = numbers_of(summary, "x/")
    assert all(isinstance(value, float) for value in numbers.values())
    assert {name: round(value, 6) for name, value in numbers.items()} == {
        "x/step_seconds": 0.01, "x/exposed_seconds": 0.002, "x/exposed_ratio": 0.2,
        "x/overlap_ratio": 0.333333, "x/busbw_bytes_per_second": 2e6,
        "x/gradient_bytes": 8000, "x/wire_bytes": 4000,
    }  # fmt: skip
    (summary,) = summarize(make_batch(steps=1).steps)
    assert "step_seconds" not in numbers_of(summary, "")


@shows(TRACKERS, "MLflow's file store")
@needs_frameworks
@pytest.mark.slow
@pytest.mark.long
def test_mlflow(tmp_path: Path) -> None:
    """Its file store has a history of each number, at the steps of the job."""
    script = Path(__file__).parent / "scripts" / "mlflow_store.py"
    facts = json.loads(run([script, tmp_path], tmp_path).splitlines()[-1])
    assert facts["steps"] == [10, 20, 30]
    assert "hooktrace/exposed_seconds" in facts["metrics"]
