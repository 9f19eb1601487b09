"""The made-up sharded job: its collectives, who waits for whom, its files."""

from __future__ import annotations

from pathlib import Path

from hooktrace.records import StepRecord
from hooktrace.records.files import find_records
from hooktrace.records.reader import read_parts
from hooktrace.testing.synthetic_shards import ShardedJob, sharded_steps, write_sharded_job

MS = 1_000_000
HYBRID = ShardedJob(ranks=4, replicas=2, steps=2, units=("<root>", "a"), late_ms={3: 10.0})


def test_a_step_is_every_units_collectives() -> None:
    """In FSDP's order: what the root keeps is not gathered again."""
    assert [str(unit) for unit in HYBRID.slots()] == [
        "<root> all-gather (forward)", "a all-gather (forward)", "a all-gather (backward)",
        "a reduce-scatter (backward)", "a all-reduce (backward)",
        "<root> reduce-scatter (backward)", "<root> all-reduce (backward)",
    ]  # fmt: skip
    twice = ShardedJob(micro_steps=2, units=("<root>",)).slots()
    assert [str(unit) for unit in twice] == [
        "<root> all-gather (forward)", "<root> all-gather (forward) #2",
        "<root> reduce-scatter (backward)",
    ]  # fmt: skip


def test_a_rank_waits_for_those_of_its_group_alone() -> None:
    """Rank 3 is late: rank 2 shares its shards, and the others its gradients only."""
    waited = [[b.exposed_ns for b in buckets] for _, buckets in next(sharded_steps(HYBRID))]
    assert [own[0] for own in waited] == [1 * MS, 1 * MS, 11 * MS, 1 * MS]
    reduced = HYBRID.slots().index(HYBRID.slots()[4])
    assert [own[reduced] for own in waited] == [11.5 * MS, 11.5 * MS, 1.5 * MS, 1.5 * MS]


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
