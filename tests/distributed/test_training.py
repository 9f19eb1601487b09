"""Hooks and tracer on real gloo ranks: DDP's modes, records, failures, order."""

from __future__ import annotations

import pytest

from hooktrace import BucketRecord
from tests.distributed import failure_scenarios, training_scenarios
from tests.distributed.harness import Ranks


@pytest.mark.slow
def test_gradients_are_bit_identical(two: Ranks) -> None:
    """Staged, traced staged and traced torch hooks all give torch's own bits, in every mode."""
    for facts in two.run(training_scenarios.bit_identical):
        wrong = [(case, k) for case, checks in facts.items() for k, ok in checks.items() if not ok]
        assert len(facts) == 12
        assert wrong == []


@pytest.mark.slow
def test_generations_follow_the_rebuilds(two: Ranks) -> None:
    """Buckets are rebuilt at step 1, at 2 with a static graph, never with unused parameters."""
    for facts in two.run(training_scenarios.generations):
        rebuilt = facts["plain"][-1][2]
        assert rebuilt > 1
        plain = [(0, 0, 1, True), *[(s, 1, rebuilt, False) for s in range(1, 5)]]
        assert facts["plain"] == plain
        assert facts["gradient_as_bucket_view"] == plain
        assert facts["static_graph"] == [
            (0, 0, 1, True),
            (1, 0, 1, True),
            *[(s, 1, rebuilt, False) for s in range(2, 5)],
        ]
        count = facts["find_unused_parameters"][0][2]
        assert facts["find_unused_parameters"] == [(s, 0, count, s < 2) for s in range(5)]


def test_a_rebuild_of_one_bucket_is_seen(two: Ranks) -> None:
    """The order of parameters changes although number, size and address may stay the same."""
    for facts in two.run(training_scenarios.one_bucket_rebuilt):
        assert facts == [(0, ("weight", "bias")), (1, ("bias", "weight"))]


def test_no_sync_makes_no_steps(two: Ranks) -> None:
    """Backward passes under no_sync call no hook and count as no step."""
    assert two.run(training_scenarios.no_sync) == [[0, 1], [0, 1]]


def test_join_shadows_are_marked_and_counted(two: Ranks) -> None:
    """A rank without data goes on counting steps, so that all ranks agree on the number."""
    rank0, rank1 = two.run(training_scenarios.join)
    assert [(step, shadow) for step, shadow, _ in rank1] == [(s, False) for s in range(5)]
    assert [(step, shadow) for step, shadow, _ in rank0] == [(s, s >= 3) for s in range(5)]
    assert [count for _, _, count in rank0] == [count for _, _, count in rank1]


def test_records_hold_together(two: Ranks) -> None:
    """Stages are contiguous and fill the bucket; step numbers follow from the buckets'."""
    for rank, facts in enumerate(two.run(training_scenarios.record_facts)):
        start, end = facts["window"]
        assert facts["run"].rank == rank
        assert facts["run"].world_size == 2
        assert facts["run"].backend == "gloo"
        by_step: dict[int, list[BucketRecord]] = {}
        for bucket in facts["buckets"]:
            _check_bucket(bucket, start, end)
            by_step.setdefault(bucket.step, []).append(bucket)
        for step in facts["steps"]:
            buckets = by_step[step.step]
            assert step.complete
            assert step.first_ready_ns == min(b.ready_ns for b in buckets)
            assert step.last_ready_ns == max(b.ready_ns for b in buckets)
            assert 0 <= step.exposed_ns <= step.done_ns - step.last_ready_ns  # backward went on
            assert step.wire_bytes * 2 == step.gradient_bytes
        names = [p.name for b in facts["layouts"][-1].buckets for p in b.parameters]
        assert sorted(names) == sorted(f"{i}.{p}" for i in range(6) for p in ("weight", "bias"))


def _check_bucket(bucket: BucketRecord, start: int, end: int) -> None:
    assert start < bucket.ready_ns < bucket.launched_ns < end
    assert bucket.model == "net"
    assert bucket.hook == "fp16_compress_hook"
    assert bucket.gradient_bytes == 4 * bucket.numel == 2 * (bucket.wire_bytes or 0)
    assert bucket.compression_ratio == 2.0
    assert [s.name for s in bucket.stages if s.name != "queue"] == [
        *["probe"] * bucket.probed,  # where other ranks are asked whether they probe
        "compress",
        "wire",
        "decompress",
    ]
    edges = [bucket.ready_ns, *[s.end_ns for s in bucket.stages]]
    assert [s.start_ns for s in bucket.stages] == edges[:-1]
    assert edges[-1] == bucket.done_ns < end
    assert edges == sorted(edges)
    wire = next(s for s in bucket.stages if s.name == "wire")
    assert (wire.collective, wire.dtype, wire.derived) == ("all_reduce", "float16", True)


def test_all_ranks_share_a_run_id(two: Ranks) -> None:
    """The ranks agree without a collective, and a second tracer gets the same id."""
    ids = {facts["run"].run_id for facts in two.run(training_scenarios.record_facts)}
    assert len(ids) == 1
    assert len(ids.pop()) == 32


@pytest.mark.slow
def test_a_right_result_of_unusual_shape_passes(two: Ranks) -> None:
    """DDP converts other floating-point dtypes and reads from the storage's beginning."""
    for facts in two.run(failure_scenarios.right_results):
        assert len(facts) == 7
        assert {name: alarms for name, (_, alarms) in facts.items()} == dict.fromkeys(facts, 0)
        assert {name for name, (difference, _) in facts.items() if difference > 0} == {"half"}
        assert facts["half"][0] <= 2**-11  # float16 has 11 bits


@pytest.mark.slow
def test_faults_leave_training_alone(two: Ranks) -> None:
    """With everything around it broken at once, training gets the same bits and ends in time."""
    for facts in two.run(failure_scenarios.faults):
        assert facts["same"]
        assert facts["closed"]
        assert facts["failures"] == {"raising": 1, "record_file": 1}
        unsent = {"opentelemetry_spans", "opentelemetry_metric_exports"}
        assert set(facts["losses"]) == {"ring_full", "not_exported", *unsent}
