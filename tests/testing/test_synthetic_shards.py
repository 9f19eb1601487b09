"""The files of the made-up sharded job; who waits for whom in it is in golden documents."""

from __future__ import annotations

from pathlib import Path

from hooktrace.records import StepRecord
from hooktrace.records.files import find_records
from hooktrace.records.reader import read_parts
from hooktrace.testing.synthetic_shards import ShardedJob, sharded_steps, write_sharded_job

HYBRID = ShardedJob(ranks=4, replicas=2, steps=2, units=("<root>", "a"), late_ms={3: 10.0})


def test_steps_are_the_sum_of_their_collectives_and_files_hold_them(tmp_path: Path) -> None:
    """Exposed is what the units waited; a reader finds the same records."""
    write_sharded_job(HYBRID, tmp_path)
    made = list(sharded_steps(HYBRID))
    for rank, paths in find_records(tmp_path).items():
        found = read_parts(paths)
        assert found.steps == [step for ranks in made for step in [ranks[rank][0]]]
        assert found.buckets == [b for ranks in made for b in ranks[rank][1]]
        step: StepRecord = found.steps[0]
        assert step.exposed_ns == sum(b.exposed_ns or 0 for b in found.buckets if b.step == 1)
        assert step.sharded
        assert found.skipped == []
