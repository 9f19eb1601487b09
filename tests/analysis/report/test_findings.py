"""What is said of jobs that have one thing wrong with them, and what it says is to be gained."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from hooktrace.analysis.report import Finding, build_report, rules_time
from hooktrace.analysis.report.facts import AnomalyFacts
from hooktrace.analysis.report.findings import anomaly_findings
from hooktrace.analysis.timeline import load
from hooktrace.records import AnomalyRecord
from hooktrace.records.codec import RecordEncoder
from hooktrace.records.files import find_records
from hooktrace.testing.synthetic import SyntheticJob, write_job
from tests.analysis.timeline.files import Completed, moved, run_of, steps_of, text_of, write_ranks
from tests.exporters.records_sample import HOOK, MODEL, make_step, probed

MS = 1_000_000
HIDDEN = SyntheticJob(ranks=3, steps=30, bucket_bytes=(4_000_000,) * 7 + (100_000,))


def found_in(folder: Path) -> list[Finding]:
    """Return what is said of the only model in a folder."""
    (model,) = build_report(load(find_records(folder))).models
    return model.findings


def found(job: SyntheticJob, folder: Path) -> list[Finding]:
    """Return what is said of a job."""
    write_job(job, folder)
    return found_in(folder)


def one(all_found: list[Finding], words: str) -> Finding:
    """Return the only finding whose sentence has these words."""
    (match,) = [f for f in all_found if words in f.sentence]
    return match


def gain_ms(finding: Finding) -> float:
    """Return the gain in ms."""
    assert finding.gain_ns is not None
    return finding.gain_ns / MS


def test_hidden_communication_is_the_only_thing_said(tmp_path: Path) -> None:
    """Nothing is to be gained where the last bucket takes 0.3 ms of 100."""
    (only,) = found(HIDDEN, tmp_path)
    assert only.sentence.startswith("Communication is hidden: 0.")
    assert gain_ms(only) == pytest.approx(0.4, abs=0.1)


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


def test_compression_that_costs_more_than_it_saves(tmp_path: Path) -> None:
    """8 buckets: 3 ms to compress and 3 to decompress each, to save half of 4.2."""
    job = dataclasses.replace(
        HIDDEN, hook="fp16_compress_hook", wire_share=0.5, codec_ms=3.0,
        bucket_bytes=(4_000_000,) * 8,
    )  # fmt: skip
    all_found = found(job, tmp_path)
    finding = one(all_found, "fp16_compress_hook costs more than it saves: 48.0 ms a step")
    assert gain_ms(finding) == pytest.approx(48 - 8 * 2.2, rel=0.05)
    thread = one(all_found, "hold up the backward pass for 24.0 ms")
    assert gain_ms(thread) == pytest.approx(24)


def test_compression_that_pays_is_not_blamed(tmp_path: Path) -> None:
    """0.1 ms to save 2."""
    job = dataclasses.replace(HIDDEN, hook="fp16_compress_hook", wire_share=0.5, codec_ms=0.05)
    assert not [f for f in found(job, tmp_path) if "costs more" in f.sentence]


def test_a_hook_that_sends_as_much_as_it_gets(tmp_path: Path) -> None:
    """Its name says that it compresses."""
    job = dataclasses.replace(HIDDEN, hook="fp16_compress_hook", codec_ms=0.5)
    finding = one(found(job, tmp_path), "fp16_compress_hook sends as much as it gets")
    assert gain_ms(finding) == pytest.approx(8)


@pytest.mark.parametrize("since", [0, 4])
def test_a_late_rank(tmp_path: Path, since: int) -> None:
    """The one, its host, the bucket, the gain, and where to look."""
    job = dataclasses.replace(HIDDEN, late_ms={1: 6.0}, late_from=since)
    finding = one(found(job, tmp_path), "Rank 1 (host-0) is late")
    assert gain_ms(finding) == pytest.approx(6, rel=0.1)
    where = "data loading" if since == 0 else "before bucket 4, layers.4.weight"
    assert where in finding.remedy


def test_waiting_is_seen_without_clocks(tmp_path: Path) -> None:
    """By durations alone: no rank is named."""
    job = dataclasses.replace(HIDDEN, late_ms={1: 6.0}, clocks=False)
    all_found = found(job, tmp_path)
    finding = one(all_found, "Ranks wait for each other")
    assert gain_ms(finding) == pytest.approx(6, rel=0.1)
    assert "the ranks' clocks are not known" in finding.evidence[1]
    assert not [f for f in all_found if "is late" in f.sentence]


def test_slow_steps(tmp_path: Path) -> None:
    """One step of 20 takes 100 ms more, outside of communication."""

    def late(host_ns: int) -> int:
        return host_ns + 100 * MS

    steps: list[Completed] = steps_of(20)
    steps[11:] = [moved(step, late) for step in steps[11:]]
    record, buckets = steps[11]
    steps[11] = replace(record, period_ns=110 * MS), buckets
    write_ranks(tmp_path, {0: text_of(run_of(0), steps)})
    finding = one(found_in(tmp_path), "1 of 19 steps takes 1.5 times the median or more")
    assert gain_ms(finding) == pytest.approx(100 / 19)
    assert finding.sentence.endswith("mostly outside of backward and communication.")
    assert finding.evidence[0].endswith("step 10")


def test_a_slow_bucket(tmp_path: Path) -> None:
    """The last one takes 7 ms where the others of its size take 1."""
    steps = []
    for i in range(6):
        step, buckets = make_step(i, bucket_count=5)
        *others, last = buckets
        wire = replace(last.stages[2], end_ns=last.stages[2].end_ns + 6 * MS)
        end = replace(
            last.stages[3], start_ns=last.stages[3].start_ns + 6 * MS,
            end_ns=last.stages[3].end_ns + 6 * MS,
        )  # fmt: skip
        slow = replace(last, stages=(*last.stages[:2], wire, end), done_ns=last.done_ns + 6 * MS)
        exposed = (step.exposed_ns or 0) + 6 * MS
        steps.append((replace(step, done_ns=slow.done_ns, exposed_ns=exposed), (*others, slow)))
    write_ranks(tmp_path, {0: text_of(run_of(0), steps)})
    finding = one(found_in(tmp_path), "Bucket 4 is slow on the wire")
    assert gain_ms(finding) == pytest.approx(6)


def test_a_large_error_has_no_gain(tmp_path: Path) -> None:
    """A quarter off, with error feedback: said, after what has a gain."""
    write_ranks(tmp_path, {0: text_of(run_of(0), [probed(make_step(i)) for i in range(3)])})
    all_found = found_in(tmp_path)
    finding = all_found[-1]
    assert finding.sentence.startswith(f"{HOOK} loses 25 % of bucket 0's gradients")
    assert finding.gain_ns is None
    assert "error feedback sends what was lost with the next steps" in finding.evidence


def test_what_is_wrong_comes_first(tmp_path: Path) -> None:
    """An anomaly of two ranks is one finding, with the first one's message."""
    for rank in range(2):
        encoder = RecordEncoder()
        records = [
            AnomalyRecord(
                kind="not_averaged", model=MODEL, hook=HOOK, generation=1, step=2 - rank,
                bucket=b, stage="hook", time_ns=10**9, message=f"divide on {rank}", rank=rank,
            )
            for b in range(2)
        ]  # fmt: skip
        text = text_of(run_of(rank), steps_of(3))
        lines = b"".join(map(encoder.record, records)).decode()
        end = '{"kind":"losses"'
        write_ranks(tmp_path, {rank: text.replace(end, lines + end)})
    first = found_in(tmp_path)[0]
    assert first.is_wrong
    assert first.gain_ns is None
    assert "the sum of the gradients" in first.sentence
    assert "seen 4 times, first at step 1, bucket 0, rank 1" in first.sentence
    assert first.evidence[0].endswith("divide on 1")
    assert first.evidence[1] == "on rank 0-1, in bucket 0-1"


def test_an_anomaly_that_leaves_gradients_right_is_not_called_wrong() -> None:
    """A compiled hook cannot be timed: the sentence says so, and nothing is wrong."""
    record = AnomalyRecord(
        kind="compiled_reducer", model=MODEL, hook=HOOK, generation=0, step=0, bucket=-1,
        stage="hook", time_ns=0, message="set optimize_ddp = True", rank=0,
    )  # fmt: skip
    facts = AnomalyFacts(kind=record.kind, count=1, first=record, ranks=(0,), buckets=())
    (finding,) = anomaly_findings((facts,))
    assert not finding.is_wrong
    assert finding.sentence.startswith("The hook runs inside a compiled graph")


def test_a_wait_for_the_rounds_before_is_not_called_compression() -> None:
    """Where little of the hook's calls is compress, the remedy does not ask for less of it."""
    bucket = SimpleNamespace(bucket=9, call_ns=80e6, stages={"compress": 1e6, "queue": 50e6})
    model: Any = SimpleNamespace(
        clock="host",
        period=SimpleNamespace(p50=800e6),
        buckets=[bucket],
        queued_ns=50e6,
        exposed_share=1.0,
    )
    (held,) = rules_time.hook_holds_the_thread(model, None)
    assert "Compress" not in held.remedy
    assert "wait for all rounds" in held.evidence[0]
    (queued,) = rules_time.workers_are_busy(model, None)
    assert "in an order that hooktrace keeps" in queued.evidence[-1]
    bucket.stages["compress"] = 60e6
    (held,) = rules_time.hook_holds_the_thread(model, None)
    assert held.remedy.startswith("Compress")
