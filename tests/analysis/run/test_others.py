"""What else communicates in a model's steps; sentences of it are in ``golden/``."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from hooktrace.analysis.run import models_beside, other_traffic
from hooktrace.records.files import record_path
from hooktrace.testing.synthetic import SyntheticJob, write_job
from tests.analysis.run.files import collective, drop, write_others
from tests.analysis.runs import run_in


def test_what_is_not_known_of_other_collectives(tmp_path: Path) -> None:
    """More than are listed leave the time unknown; a step without its line DDP's bytes."""
    write_others(tmp_path, collective(10, 5), more=2, more_bytes=10)
    found = other_traffic(run_in(tmp_path))
    assert found is not None
    assert (found.count, found.wire_bytes, found.in_flight_ns) == (3, 4010, None)
    drop(tmp_path, [0, 1], '"kind":"step"')
    found = other_traffic(run_in(tmp_path))
    assert found is not None
    assert (found.wire_bytes, found.ddp_bytes, found.share) == (4010, None, None)


def test_a_model_that_communicates_in_few_of_the_steps_is_not_in_them(tmp_path: Path) -> None:
    """One that is trained for a moment at the beginning; one that takes turns is."""
    job = SyntheticJob(ranks=2, steps=20)
    for model, steps in (("critic", 20), ("moment", 4)):
        write_job(dataclasses.replace(job, model=model, steps=steps), tmp_path / model)
    write_job(job, tmp_path)
    for rank in range(job.ranks):
        path = record_path(tmp_path, rank)
        *lines, end = path.read_text().splitlines(keepends=True)
        for model in ("critic", "moment"):
            others = record_path(tmp_path / model, rank).read_text().splitlines(keepends=True)
            lines += [line for line in others if f'"model":"{model}"' in line]
        path.write_text("".join([*lines, end]))
    assert models_beside(run_in(tmp_path), job.model) == ("critic",)
