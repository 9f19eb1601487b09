"""Which buckets are the same, what else two set-ups differ in, and what speaks against them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from hooktrace.analysis.compare import Measures, compare_runs
from hooktrace.analysis.compare.comparison import BucketKey, RunFacts
from hooktrace.analysis.compare.measure import Series
from hooktrace.analysis.compare.pairing import (
    is_same_model,
    limits,
    missing_ranks,
    pairs,
    unlike,
)
from tests.analysis.report.sharded_jobs import ShardedJob

from .jobs import as_facts, measured, measures

A = measures("base").facts
NAMED = {name: ((name, (10, 10)),) for name in "abcd"}


def having(*buckets: tuple[str, int]) -> RunFacts:
    """Return facts with buckets of these parameters and sizes; nameless ones have none."""
    keys = [
        BucketKey(i, size, sum((NAMED[n] for n in names), ()))
        for i, (names, size) in enumerate(buckets)
    ]
    return replace(A, buckets=tuple(keys), gradient_bytes=sum(size for _, size in buckets))


def test_buckets_are_paired_by_their_parameters() -> None:
    """Whatever their order, in the run and in the bucket."""
    a, b = having(("ab", 800), ("c", 400), ("d", 400)), having(("c", 400), ("ba", 800), ("d", 400))
    assert [pair[:2] for pair in pairs(a, b)] == [(0, 1), (1, 0), (2, 2)]
    assert not list(limits(a, b))


def test_what_is_cut_otherwise_is_not_paired() -> None:
    """And it says how many are."""
    a, b = having(("ab", 800), ("c", 400), ("d", 400)), having(("abc", 1200), ("d", 400))
    assert [pair[:2] for pair in pairs(a, b)] == [(2, 1)]
    assert is_same_model(a, b)
    (text,) = limits(a, b)
    assert text.startswith("1 of 3 buckets of base hold the same parameters as one of the 2")


def test_nameless_buckets_are_paired_by_size() -> None:
    """Only if all are equal."""
    a, b = having(("", 800), ("", 400)), having(("", 800), ("", 500))
    assert [pair.by for pair in pairs(a, a)] == ["size", "size"]
    assert pairs(a, b) == []


def test_another_model_is_said() -> None:
    """By shapes where known, else by bytes."""
    a, b = having(("ab", 800)), having(("abc", 1200))
    assert not is_same_model(a, b)
    assert "are not the same model, so step times are compared and nothing else" in " ".join(
        limits(a, b)
    )
    assert not is_same_model(having(("", 800)), having(("", 900)))


def test_what_else_differs() -> None:
    """Ranks, buckets, hosts, torch."""
    other = replace(A, ranks=(0, 1), hosts=("b",), torch_version="2.14", name="other")
    assert list(unlike(A, A)) == []
    assert [text.partition(":")[0] for text in unlike(A, other)] == ["ranks", "hosts", "torch"]
    assert "torch: 2.13.0 in base, 2.14 in other" in list(unlike(A, other))
    rank_2 = replace(A, name="other", hook_options=(("rank", 2),), bucket_cap_bytes=5 << 20)
    assert list(unlike(A, rank_2)) == [
        "options of the hook: none known in base, rank=2 in other",
        "bucket_cap_mb: unknown in base, 5 in other",
    ]


def test_missing_ranks() -> None:
    """Of those that the run says it had."""
    assert missing_ranks(A) == ""
    assert missing_ranks(replace(A, ranks=(0,))) == "ranks 1, 2"


def test_units_are_paired_by_what_they_do(tmp_path: Path) -> None:
    """Each communicates the same parameters in several collectives; not all are in both runs."""
    again = measured(ShardedJob(steps=5), tmp_path / "again", "again").facts
    kept = measured(ShardedJob(steps=5, again=False), tmp_path / "kept", "kept").facts
    assert is_same_model(again, kept)
    found = pairs(again, kept)
    assert len(found) == 10
    assert all(again.buckets[p.a].unit == kept.buckets[p.b].unit for p in found)
    (text,) = limits(again, kept)
    assert text.startswith(
        "10 collectives of units are in both runs, of 14 in again and 10 in kept"
    )
    assert not any("bucket" in line or "gradients" in line for line in unlike(again, kept))
    assert any(line.startswith("collectives of units: 14") for line in unlike(again, kept))


def doubts_of(other: Measures) -> str:
    return "; ".join(compare_runs([measures("base")], [other]).doubts)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"hosts": ("elsewhere",)}, "other hosts: host-0 and elsewhere"),
        ({"torch_version": "2.14"}, "other versions of torch: 2.13.0 and 2.14"),
        ({"ranks": (0, 2)}, "other: no file of rank 1 is there or readable"),
        ({"unaligned": (1,)}, "the clock of rank 1 is unknown"),
        ({"probed": 3}, "left out of all times: 3 of 63 in other"),
        ({"least_wire_bytes": 0.0}, "steps are of several kinds, which send from 0.00 to 32.00 MB"),
        ({"closed": False}, "a file has no end"),
        ({"steps": 600}, "60 steps of base and 600 of other count"),
        ({"beside": ("critic",)}, "other: critic communicates within the steps of "),
        ({"beside": ("a", "b")}, "other: a and b communicate within the steps of "),
        ({"name": "base"}, "both are the same run"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_is_doubtful_is_said(fields: dict[str, object], words: str) -> None:
    """Each by itself."""
    assert words in doubts_of(as_facts(measures("other", seed=1), **fields))


def test_a_run_that_still_warms_up_is_said() -> None:
    """Where its halves differ by more than the runs do."""
    one = measures("other", seed=1)
    period = one.series["period"]
    slower = period.values * np.where(np.arange(len(period.values)) < 30, 1.2, 1.0)
    changed = {**one.series, "period": Series(period.steps, slower)}
    assert "other: steps of its second half take 17 % less" in doubts_of(
        Measures(one.facts, changed, one.parts)
    )
