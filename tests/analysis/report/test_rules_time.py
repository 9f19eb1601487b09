"""What is said of a hook's calls, queues and slow transfers; more jobs are in ``golden/``."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from hooktrace.analysis.report import rules_time
from hooktrace.analysis.report.rules_time import bucket_is_slow, slow_transfers
from tests.analysis.report.jobs import HIDDEN, MS, model_of


def test_what_no_bucket_tells_is_not_said(tmp_path: Path) -> None:
    """Of files whose limit left all detail out."""
    untold = replace(model_of(HIDDEN, tmp_path), buckets=())
    (only,) = rules_time.communication_is_exposed(untold, None)
    assert not any("what backward leaves over" in text for text in only.evidence)


def test_a_wait_for_the_rounds_before_is_not_called_compression() -> None:
    """The last call ends with all rounds, after backward; what the others take holds it up."""
    stages = {"compress": 5e6, "turn": 50e6, "queue": 2e6}
    calls = [SimpleNamespace(rank=0, call_ns=30e6), SimpleNamespace(rank=1, call_ns=70e6)]
    model: Any = SimpleNamespace(
        ranks=calls,
        hook="powerSGD_hook",
        clock="host",
        period=SimpleNamespace(p50=800e6),
        buckets=[
            SimpleNamespace(bucket=8, is_last=False, call_ns=30e6, wait_ns=9e6, stages=stages),
            SimpleNamespace(bucket=9, is_last=True, call_ns=80e6, wait_ns=None, stages=stages),
        ],
        queued_ns=2e6,
        exposed_share=1.0,
        late=(),
    )
    (held,) = rules_time.hook_holds_the_thread(model, None)
    assert (held.gain_ns, held.bucket) == (30e6, None)
    assert "at most 5.00 ms of it is compress" in held.evidence[0]
    assert "Compress" not in held.remedy
    assert held.evidence[-1] == "from 30.0 ms on rank 0 to 70.0 ms on rank 1"
    (queued,) = rules_time.workers_are_busy(model, None)
    assert "2.00 ms for those before it" in queued.sentence
    assert (
        "bucket 8 holds up the next ones for 9.00 ms until the last rank is there" in queued.remedy
    )
    model.late = (SimpleNamespace(rank=1, margin_ns=8.5e6),)
    (queued,) = rules_time.workers_are_busy(model, None)
    assert queued.remedy.startswith("Look at rank 1 first, which is late: collectives that wait")
    model.late = (SimpleNamespace(rank=1, margin_ns=1e6),)
    (queued,) = rules_time.workers_are_busy(model, None)
    assert "bucket 8 holds up the next ones" in queued.remedy
    model.clock = "device"  # NCCL's queue is the wire of others, which is exposed already
    assert list(rules_time.workers_are_busy(model, None)) == []
    model.clock = "host"
    stages["compress"] = 25e6
    (held,) = rules_time.hook_holds_the_thread(model, None)
    assert held.remedy.startswith("Compress")
    model.hook = "ddp_allreduce"  # DDP's own, which compresses nothing
    (held,) = rules_time.hook_holds_the_thread(model, None)
    assert "ompress" not in held.remedy
    stages.clear()
    stages.update(hook=30e6, pending=10e6)
    model.hook = "my_hook"
    (held,) = rules_time.hook_holds_the_thread(model, None)
    assert held.evidence[0].startswith("what it does in them is not seen")  # it may compress
    assert "staged" in held.remedy
    model.hook = "powerSGD_hook"
    (held,) = rules_time.hook_holds_the_thread(model, None)
    assert held.remedy == "To see it, use hooktrace.hooks.powerSGD_hook in place of torch's."


def buckets(*transfers: tuple[int, float]) -> list[Any]:
    """Return buckets of so many bytes, which take so many ms."""
    return [
        SimpleNamespace(bucket=i, wire_bytes=sent, transfer_ns=took * MS, tail_share=0.5)
        for i, (sent, took) in enumerate(transfers)
    ]


def slow(*transfers: tuple[int, float]) -> list[tuple[int, float, float]]:
    """Return which are slow, with what they take and would, in ms."""
    found = slow_transfers(buckets(*transfers), lambda _, __: True)
    return [(one.of.bucket, one.took_ns / MS, one.usual_ns / MS) for one in found]


def test_where_latency_rules_the_smaller_payload_is_not_slow() -> None:
    """2.2 ms where payloads of twice its size take 2.0: at their rate it would take 1.0."""
    assert slow((1_000, 2.2), *[(2_000, 2.0)] * 3) == []
    assert slow(*[(1_000, 2.0)] * 3, (2_000, 2.2)) == []


def test_one_that_takes_thrice_as_long_is_slow() -> None:
    """Of a few bytes as of many; beside two others nobody can tell."""
    for sent in (1 << 8, 1 << 22):
        assert slow(*[(sent, 1.0)] * 3, (sent, 3.0)) == [(3, 3.0, 1.0)]
        assert slow(*[(sent, 1.0)] * 2, (sent, 3.0)) == []


def test_a_small_payload_is_not_said_to_have_a_bandwidth() -> None:
    """What it takes is said, and what others do."""
    model: Any = SimpleNamespace(
        has_wire=True,
        buckets=buckets(*[(288, 0.9)] * 3, (288, 13.4)),
        exposed=SimpleNamespace(p50=10 * MS),
    )
    (finding,) = bucket_is_slow(model, None)
    assert finding.sentence == (
        "Bucket 3 takes long on the wire: 13.4 ms for 288 B, where others, no larger, would take "
        "0.90 ms."
    )
    assert finding.gain_ns == 5 * MS
    model.exposed = SimpleNamespace(p50=100 * MS)
    assert [one.gain_ns for one in bucket_is_slow(model, None)] == [12.5 * MS]
