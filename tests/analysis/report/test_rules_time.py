"""What is said of jobs whose time goes to one thing, and what it says is to be gained."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from hooktrace.analysis.report import rules_time
from hooktrace.records import Parameter
from hooktrace.records.codec import RecordEncoder
from hooktrace.records.files import record_path
from hooktrace.testing.synthetic import SyntheticJob, write_job
from tests.analysis.report.jobs import (
    HIDDEN,
    facts_of,
    found,
    found_in,
    gain_ms,
    one,
    write_changed,
)
from tests.analysis.run.files import Completed


def test_hidden_communication_is_the_only_thing_said(tmp_path: Path) -> None:
    """Nothing is to be gained where the last bucket takes 0.3 ms of 100."""
    (only,) = found(HIDDEN, tmp_path)
    assert only.sentence.startswith("Communication is hidden: 0.")
    assert gain_ms(only) == pytest.approx(0.4, abs=0.1)
    untold = replace(facts_of(tmp_path), buckets=())
    (only,) = rules_time.communication_is_exposed(untold, None)
    assert not any("what backward leaves over" in text for text in only.evidence)


def test_all_gradients_in_one_bucket(tmp_path: Path) -> None:
    """Nothing can be hidden, as it is ready when backward ends; DDP does not split a parameter."""
    job = dataclasses.replace(HIDDEN, bucket_bytes=(50_000_000,))
    assert one(found(job, tmp_path), "Exposed communication is").remedy == ""
    layout, file, encode = job.layout(), record_path(tmp_path, 0), RecordEncoder().record
    (bucket,), text = layout.buckets, file.read_bytes()
    for sizes, said in (((6_000_000, 6_500_000), True), ((12_499_000, 1_000), False)):
        two = replace(
            bucket,
            parameters=tuple(Parameter(name, (n,)) for name, n in zip("ab", sizes, strict=True)),
        )
        file.write_bytes(text.replace(encode(layout), encode(replace(layout, buckets=(two,)))))
        remedy = one(found_in(tmp_path), "Exposed communication is").remedy
        assert remedy.startswith("Lower bucket_cap_mb: all is in one bucket") == said


def test_a_large_last_bucket(tmp_path: Path) -> None:
    """16 MB take 16.2 ms after backward; a bucket of 4 MB has been seen to take 4.2."""
    job = dataclasses.replace(HIDDEN, bucket_bytes=(4_000_000,) * 7 + (16_000_000,))
    all_found = found(job, tmp_path)
    exposed = one(all_found, "Exposed communication is")
    assert gain_ms(exposed) == pytest.approx(16.4, rel=0.05)
    assert "what backward leaves over: 100 % bucket 7 (the last)" in exposed.evidence
    large = one(all_found, "Bucket 7, the last, is too large to hide: its 16.00 MB")
    assert gain_ms(large) == pytest.approx(12, rel=0.1)
    assert "layers.7.weight" in large.remedy  # one parameter: bucket_cap_mb does not help
    halved = one(all_found, "a 16-bit hook would halve")
    assert gain_ms(halved) == pytest.approx(8.3, rel=0.1)
    gains = [gain_ms(f) for f in all_found]
    assert gains == sorted(gains, reverse=True)


def test_what_is_exposed_is_waiting_transfer_and_computing(tmp_path: Path) -> None:
    """One bucket, ready as backward ends: 2 ms of codec at each end, and 8.2 ms between.

    In every other step rank 1 comes 8 ms later, and compresses for 2 ms: rank 0 waits for 10 ms,
    whatever it compresses meanwhile.  That is 2.5 ms in the mean of ranks and steps, and nothing in
    the median.
    """
    job = SyntheticJob(
        ranks=2, steps=40, bucket_bytes=(8_000_000,), codec_ms=2.0, jitter_ms=0.0,
        late_ms={1: 8.0}, late_every=2,
    )  # fmt: skip
    first = found(job, tmp_path)[0]
    assert first.rule == "communication_is_exposed"
    (said,) = [text for text in first.evidence if text.startswith("of what is exposed")]
    assert said == (
        "of what is exposed, in the mean: 58 % transfer, 25 % computing of the hook, 18 % waiting "
        "for a rank that comes later"
    )


def test_what_of_the_wire_is_waiting_may_not_be_known(tmp_path: Path) -> None:
    """A rank's file is missing: it may be the one that all others wait for."""
    write_job(SyntheticJob(ranks=3, steps=20, bucket_bytes=(8_000_000,)), tmp_path)
    record_path(tmp_path, 2).unlink()
    first = found_in(tmp_path)[0]
    (said,) = [text for text in first.evidence if text.startswith("of what is exposed")]
    assert "on the wire, of which nobody knows what is waiting" in said
    assert "later" not in said


def test_small_buckets(tmp_path: Path) -> None:
    """2 ms of latency each, 50 to 400 kB at 1 GB/s: one bucket would do in place of 30."""
    job = dataclasses.replace(
        HIDDEN, latency_ms=2.0, backward_ms=10.0, bucket_bytes=(50_000, 200_000, 400_000) * 10
    )
    finding = one(found(job, tmp_path), "The 30 buckets are too small")
    assert "of their time on the wire is latency, 2." in finding.sentence
    assert "1 would do" in finding.evidence[1]
    assert finding.remedy == "Raise bucket_cap_mb to about 8."
    exposed = one(found_in(tmp_path), "Exposed communication is")
    assert finding.gain_ns == exposed.gain_ns  # all that is exposed, less than 29 latencies


def test_a_queue(tmp_path: Path) -> None:
    """40 ms of transfers are asked for within 10 ms, two at a time."""
    job = dataclasses.replace(HIDDEN, backward_ms=10.0, bucket_bytes=(4_000_000,) * 10)
    finding = one(found(job, tmp_path), "Collectives queue behind each other")
    assert gain_ms(finding) == pytest.approx(10 / 2 * 4.2 - 10 - 4.2, rel=0.3)
    assert "2 at a time on gloo" in finding.evidence[1]


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


def test_a_smaller_last_bucket_is_not_called_large(tmp_path: Path) -> None:
    """However long it takes beside a quicker one that sends more."""
    job = dataclasses.replace(
        HIDDEN, bucket_bytes=(8_000_000,) * 7 + (7_000_000,), backward_ms=30.0, latency_ms=3.0
    )
    assert not [f for f in found(job, tmp_path) if f.rule == "last_bucket_is_large"]


@pytest.mark.parametrize(("until", "is_said"), [(10, True), (1, False)])
def test_a_hook_that_began_later_is_no_single_kind_of_step(
    until: int, is_said: bool, tmp_path: Path
) -> None:
    """As PowerSGD: the median is of the steps since, and a third of all sent 50 times as much."""

    def later(rank: int, completed: Completed) -> Completed:
        step, buckets = completed
        if step.step <= until:
            return completed
        less = tuple(replace(b, wire_bytes=(b.wire_bytes or 0) // 50) for b in buckets)
        return replace(step, wire_bytes=(step.wire_bytes or 0) // 50), less

    write_changed(tmp_path, HIDDEN, later)
    evidence = " ".join(one(found_in(tmp_path), "is exposed, so a faster").evidence)
    said = "they send 0.56 MB at the median, and 28.10 MB or more in at least 5.0 % of them"
    assert (said in evidence) is is_said
    assert ("several kinds" in evidence) is is_said
