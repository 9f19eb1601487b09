"""In which order findings stand, and what is said of anomalies."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from msgspec.structs import replace

from hooktrace.analysis.report.facts import AnomalyFacts
from hooktrace.analysis.report.findings import anomaly_findings, findings
from hooktrace.records import AnomalyRecord, Unit
from hooktrace.records.codec import RecordEncoder
from hooktrace.testing.synthetic import SyntheticJob, write_job
from tests.analysis.report.jobs import found, found_in, one, report_of
from tests.analysis.run.files import run_of, steps_of, text_of, write_ranks
from tests.exporters.records_sample import HOOK, MODEL

OTHERS = tuple(
    Unit(name=f"layers.{i}", collective="reduce_scatter", phase="backward") for i in (2, 3, 4)
)


def test_what_is_wrong_comes_first(tmp_path: Path) -> None:
    """An anomaly of two ranks is one finding, with the first one's message.

    How often it was the case is not said: of each bucket only the first is recorded.
    """
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
    assert first.sentence.endswith("average: first seen at step 1, bucket 0, rank 1.")
    assert first.evidence[0].endswith("divide on 1")
    assert first.evidence[1] == (
        "seen on ranks 0, 1, in buckets 0-1; of each bucket a rank records the first"
    )


def test_small_gains_are_told_apart_and_nothing_lossy_is_advised(tmp_path: Path) -> None:
    """2 ms of 111 ms for half the bits, with a rank that is 7 ms late; and where it is much."""
    small = dataclasses.replace(SyntheticJob(), ranks=4, steps=40, late_ms={2: 7.0}, late_from=3)
    finding = one(found(small, tmp_path / "small"), "a 16-bit hook")
    assert (finding.is_small, finding.remedy, finding.lossy_remedy) == (True, "", "")
    large = dataclasses.replace(small, late_ms={}, bytes_per_second=2e8)
    finding = one(found(large, tmp_path / "large"), "a 16-bit hook")
    assert not finding.is_small
    assert finding.lossy_remedy.startswith("Try bf16_compress_hook")
    exposed = one(found(small, tmp_path / "again"), "Exposed communication is")
    assert not exposed.is_small, "what the report is about is never among the small ones"


def test_a_gain_below_the_noise_is_small(tmp_path: Path) -> None:
    """However large a share of the step: nobody could tell that it came true."""
    job = dataclasses.replace(SyntheticJob(), ranks=2, steps=40, bytes_per_second=2e8)
    write_job(job, tmp_path)
    (model,) = report_of(tmp_path).models
    unsure = replace(model.facts, period_noise_ns=1e9)
    assert not one(findings(model.facts), "a 16-bit hook").is_small
    assert one(findings(unsure), "a 16-bit hook").is_small


def facts_of(kind: str, bucket: int) -> AnomalyFacts:
    record = AnomalyRecord(
        kind=kind, model=MODEL, hook=HOOK, generation=0, step=4, bucket=bucket, stage="hook",
        time_ns=0, message="look at it", rank=0,
    )  # fmt: skip
    return AnomalyFacts(kind=kind, count=1, first=record, ranks=(0,), buckets=(bucket,))


def test_an_anomaly_that_leaves_gradients_right_is_not_called_wrong() -> None:
    """A compiled hook cannot be timed: the sentence says so, and nothing is wrong."""
    (finding,) = anomaly_findings((facts_of("compiled_reducer", bucket=-1),))
    assert not finding.is_wrong
    assert finding.sentence.startswith("The hook runs inside a compiled graph")


def test_of_a_unit_what_raised_is_a_collective() -> None:
    """FSDP's own, or the hook in its place; of a bucket it is a hook."""
    facts = facts_of("hook_exception", bucket=3)
    unit = Unit(name="layers.1", collective="reduce_scatter", phase="backward")
    (of_bucket,) = anomaly_findings((facts,))
    (of_unit,) = anomaly_findings((replace(facts, unit=unit),))
    assert of_bucket.sentence.startswith("The hook or a collective of it raised, or DDP could not")
    assert of_unit.sentence.startswith("A collective of a unit raised, or the hook in its place")
    assert "layers.1 reduce-scatter (backward)" in of_unit.sentence
    (of_many,) = anomaly_findings((replace(facts, unit=unit, units=(unit, *OTHERS), count=8),))
    assert of_many.evidence[1] == (
        "seen on rank 0, in layers.1 reduce-scatter (backward), layers.2 reduce-scatter "
        "(backward), layers.3 reduce-scatter (backward) and 1 more; of each of a unit's "
        "collectives a rank records the first"
    )
