"""What is said of jobs whose compression costs, saves or loses too much."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from msgspec.structs import replace

from hooktrace.analysis.report.rules_compression import error_is_large
from hooktrace.records import CompletedStep, ErrorRecord
from tests.analysis.report.jobs import (
    HIDDEN,
    facts_of,
    found,
    found_in,
    gain_ms,
    one,
    write_changed,
)
from tests.analysis.report.sharded_jobs import ShardedJob, write_sharded
from tests.analysis.run.files import run_of, text_of, write_ranks
from tests.exporters.records_sample import HOOK, make_step, probed


def test_compression_that_costs_more_than_it_saves(tmp_path: Path) -> None:
    """8 buckets: 3 ms to compress and 3 to decompress each, to save half of 4.2."""
    job = dataclasses.replace(
        HIDDEN, hook="fp16_compress_hook", wire_share=0.5, codec_ms=3.0,
        bucket_bytes=(4_000_000,) * 8,
    )  # fmt: skip
    all_found = found(job, tmp_path)
    finding = one(all_found, "fp16_compress_hook costs more than it saves: 48.0 ms a step")
    assert gain_ms(finding) == pytest.approx(48 - 8 * 2.2, rel=0.05)
    # The last one's 3 ms come after all gradients: they are exposed.
    thread = one(all_found, "hold up the backward pass for 21.0 ms")
    assert gain_ms(thread) == pytest.approx(21)


def test_compression_that_pays_is_not_blamed(tmp_path: Path) -> None:
    """0.1 ms to save 2."""
    job = dataclasses.replace(HIDDEN, hook="fp16_compress_hook", wire_share=0.5, codec_ms=0.05)
    assert not [f for f in found(job, tmp_path) if "costs more" in f.sentence]


def test_half_of_what_is_not_known_is_not_known(tmp_path: Path) -> None:
    """Without the last bucket's transfer, which may be all that is exposed, there is no gain."""
    job = dataclasses.replace(HIDDEN, bucket_bytes=(4_000_000,) * 8)

    def unseen(rank: int, completed: CompletedStep) -> CompletedStep:
        step, (*others, last) = completed
        stages = tuple(stage for stage in last.stages if stage.name != "wire")
        return step, (*others, replace(last, stages=stages))

    assert one(found(job, tmp_path / "known"), "in 32 bits")
    write_changed(tmp_path / "unseen", job, unseen)
    assert not [f for f in found_in(tmp_path / "unseen") if "in 32 bits" in f.sentence]


@pytest.mark.parametrize(
    ("hook", "remedy"),
    [
        ("allreduce_hook", "Try bf16_compress_hook or fp16_compress_hook, and look at the error."),
        ("ddp_allreduce", "Try bf16_compress_hook or fp16_compress_hook, and look at the error."),
        ("my_hook", "Try it inside bf16_compress_wrapper, and look at the error."),
    ],
)
def test_what_nobody_registered_is_not_wrapped(tmp_path: Path, hook: str, remedy: str) -> None:
    """DDP's own average goes where a hook comes; a hook of one's own may have its reasons."""
    job = dataclasses.replace(HIDDEN, hook=hook, bucket_bytes=(4_000_000,) * 7 + (16_000_000,))
    assert one(found(job, tmp_path), "a 16-bit hook would halve").lossy_remedy == remedy


def test_a_large_error_has_no_gain(tmp_path: Path) -> None:
    """A quarter off, with error feedback: said, after what has a gain."""
    write_ranks(tmp_path, {0: text_of(run_of(0), [probed(make_step(i)) for i in range(3)])})
    all_found = found_in(tmp_path)
    finding = all_found[-1]
    assert finding.sentence == (
        f"What {HOOK} makes of bucket 0's gradients has relative error 0.25, cosine 0.75."
    )
    assert finding.gain_ns is None
    assert "error feedback sends what was lost with the next steps" in finding.evidence


def test_small_gradients_in_float16_are_told_of(tmp_path: Path) -> None:
    """What a cast rounds to zero is not compressed too much: it is out of its range."""

    def lossy(rank: int, completed: CompletedStep) -> CompletedStep:
        step, (first, *others) = completed
        error = ErrorRecord(
            relative_l2=0.5, cosine=0.9, max_absolute=1e-8, flipped_share=0.0, reference_l2=1e-6
        )
        return step, (replace(first, error=error), *others)

    write_changed(tmp_path, dataclasses.replace(HIDDEN, hook="fp16_compress_hook"), lossy)
    finding = one(found_in(tmp_path), "bucket 0's gradients has relative error 0.5, cosine 0.9")
    assert "scale the loss, or send bfloat16" in finding.remedy


@pytest.mark.parametrize(("cosine", "is_of_scale"), [(1.0, True), (0.9995, True), (0.9, False)])
def test_an_error_that_points_the_same_way_is_one_of_scale(
    cosine: float, is_of_scale: bool, tmp_path: Path
) -> None:
    """As of a hook for units that forgets to divide, which compresses nothing."""
    write_sharded(ShardedJob(error=1.0), tmp_path)
    facts = facts_of(tmp_path)
    buckets = [
        replace(b, error=replace(b.error, cosine=cosine)) if b.error else b for b in facts.buckets
    ]
    (finding,) = error_is_large(replace(facts, buckets=tuple(buckets)), None)
    assert ("reduction.divisor" in finding.remedy) == is_of_scale
    assert ("compress less" in finding.remedy) != is_of_scale
