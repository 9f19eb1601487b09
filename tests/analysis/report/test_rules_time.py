"""What is said of a hook's calls, queues and slow transfers; more jobs are in ``golden/``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from hooktrace.analysis.report.facts import ModelFacts
from hooktrace.analysis.report.rules_time import (
    bucket_is_slow,
    hook_holds_the_thread,
    slow_transfers,
    workers_are_busy,
)
from hooktrace.testing.synthetic import write_job
from tests.analysis.jobs import QUIET
from tests.analysis.report.jobs import MS, facts_of


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> ModelFacts:
    """A hook whose calls hold up backward, and whose last bucket has waited for a worker."""
    folder = tmp_path_factory.mktemp("quiet")
    write_job(QUIET, folder)
    facts = facts_of(folder)
    buckets = tuple(
        replace(one, call_ns=30e6, stages={"compress": 5e6, "turn": 50e6}, wait_ns=9e6)
        for one in facts.buckets[-2:]
    )
    return replace(facts, buckets=buckets, queued_ns=2e6, exposed_share=0.5)


@pytest.mark.parametrize(
    ("hook", "stages", "evidence", "remedy"),
    [
        ("powerSGD_hook", {"compress": 5e6, "turn": 5e7}, "at most 5.00 ms of it is", "See in"),
        ("powerSGD_hook", {"compress": 25e6}, "at most 25.0 ms of it is compress", "Compress with"),
        ("ddp_allreduce", {"compress": 25e6}, "at most 25.0 ms of it is compress", "See in"),
        ("my_hook", {"hook": 30e6}, "what it does in them is not seen", "To see it, "),
    ],
)  # fmt: skip
def test_what_calls_hold_the_thread_for(
    quiet: ModelFacts, hook: str, stages: dict[str, float], evidence: str, remedy: str
) -> None:
    """But for the last, which ends after backward; a turn is not called compression."""
    buckets = tuple(replace(one, stages=stages) for one in quiet.buckets)
    (found,) = hook_holds_the_thread(replace(quiet, hook=hook, buckets=buckets))
    assert found.gain_ns == 30e6
    assert found.evidence[0].startswith(evidence)
    assert found.remedy.startswith(remedy)


def test_who_holds_a_worker_comes_first(quiet: ModelFacts) -> None:
    """A rank that is late by as much as the queue, else a bucket that waits so long."""
    late: Any = SimpleNamespace(rank=1, margin_ns=8.5e6)
    soon: Any = SimpleNamespace(rank=1, margin_ns=1e6)
    for who, begin in ((late, "Look at rank 1 first"), (soon, "Look at who comes late first")):
        (found,) = workers_are_busy(replace(quiet, late=(who,)))
        assert found.remedy.startswith(begin)
    (found,) = workers_are_busy(replace(quiet, queued_ns=10e6))
    assert found.remedy.startswith("Send fewer bytes")
    # NCCL's queue is the wire of others, which is exposed already.
    assert list(workers_are_busy(replace(quiet, clock="device"))) == []


def moving(*transfers: tuple[int, float]) -> Any:
    """Return a model with buckets of so many bytes, which take so many ms."""
    buckets = [
        SimpleNamespace(
            bucket=i, unit=None, wire_bytes=sent, transfer_ns=took * MS, tail_share=0.5
        )
        for i, (sent, took) in enumerate(transfers)
    ]  # fmt: skip
    return SimpleNamespace(has_wire=True, buckets=buckets, exposed=SimpleNamespace(p50=10 * MS))


@pytest.mark.parametrize(
    ("transfers", "slow"),
    [
        ([(1_000, 2.2), *[(2_000, 2.0)] * 3], []),  # latency rules: the smaller one is not slow
        ([*[(1_000, 2.0)] * 3, (2_000, 2.2)], []),
        ([*[(256, 1.0)] * 3, (256, 3.0)], [(3, 3.0, 1.0)]),
        ([*[(1 << 22, 1.0)] * 3, (1 << 22, 3.0)], [(3, 3.0, 1.0)]),
        ([*[(256, 1.0)] * 2, (256, 3.0)], []),  # beside two others nobody can tell
    ],
)
def test_what_is_slow(
    transfers: list[tuple[int, float]], slow: list[tuple[int, float, float]]
) -> None:
    """Which, and what it takes and would, in ms."""
    found = slow_transfers(moving(*transfers))
    assert [(one.of.bucket, one.took_ns / MS, one.usual_ns / MS) for one in found] == slow


def test_a_small_payload_is_not_said_to_have_a_bandwidth() -> None:
    """What it takes is said, and what others do."""
    (finding,) = bucket_is_slow(moving(*[(288, 0.9)] * 3, (288, 13.4)))
    assert finding.sentence == (
        "Bucket 3 takes long on the wire: 13.4 ms for 288 B, where others, no larger, would take "
        "0.90 ms."
    )
    assert finding.gain_ns == 5 * MS
