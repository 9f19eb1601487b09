"""Which buckets are the same, what else two set-ups differ in, and what speaks against them."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from hooktrace.analysis.compare import Measures, compare_runs
from hooktrace.analysis.compare.comparison import BucketKey, RunFacts
from hooktrace.analysis.compare.pairing import is_same_model, limits, pairs, unlike
from tests.analysis.report.sharded_jobs import ShardedJob

from .jobs import as_facts, measured, measures

A = measures("base").facts


def having(*buckets: tuple[str, int]) -> RunFacts:
    """Return facts with buckets of these parameters and sizes; nameless ones have none."""
    keys = tuple(
        BucketKey(i, size, tuple((name, (10, 10)) for name in names))
        for i, (names, size) in enumerate(buckets)
    )
    return replace(A, buckets=keys, gradient_bytes=sum(size for _, size in buckets))


@pytest.mark.parametrize(
    ("a", "b", "expected", "is_same", "said"),
    [
        # By parameters, in whatever order; it says how many are, where others are not.
        ("ab c d", "c ba d", [(0, 1), (1, 0), (2, 2)], True, ""),
        (
            "ab c d", "abc d", [(2, 1)], True,
            "1 of 3 buckets of base have the same parameters as one of the 2 of base; all others "
            "enter totals only",
        ),
        ("ab", "abc", [], False, "are not the same model, so step times are compared and nothing"),
    ],
)  # fmt: skip
def test_buckets_are_paired_by_their_parameters(
    a: str, b: str, expected: list[tuple[int, int]], *, is_same: bool, said: str
) -> None:
    sides = [having(*((names, 400 * len(names)) for names in x.split())) for x in (a, b)]
    assert [pair[:2] for pair in pairs(*sides)] == expected
    assert is_same_model(*sides) == is_same
    text = "".join(limits(*sides))
    assert said in text
    assert bool(text) == bool(said)


def test_nameless_buckets_are_paired_by_size() -> None:
    """Only if all are equal; and so are models."""
    a, b = having(("", 800), ("", 400)), having(("", 800), ("", 500))
    assert [pair.by for pair in pairs(a, a)] == ["size", "size"]
    assert pairs(a, b) == []
    assert is_same_model(a, a)
    assert not is_same_model(a, b)


def test_what_else_differs() -> None:
    other = replace(
        A, ranks=(0, 1), hosts=("b",), torch_version="2.14", name="other",
        hook_options=(("rank", 2),), bucket_cap_bytes=5 << 20,
    )  # fmt: skip
    assert list(unlike(A, A)) == []
    assert list(unlike(A, other)) == [
        "options of the hook: none known in base, rank=2 in other",
        "bucket_cap_mb: unknown in base, 5 in other",
        "ranks: 3 in base, 2 in other",
        "hosts: host-0 in base, b in other",
        "torch: 2.13.0 in base, 2.14 in other",
    ]


def test_units_are_paired_by_what_they_do(tmp_path: Path) -> None:
    """Each communicates the same parameters in several collectives; not all are in both runs."""
    again = measured(ShardedJob(steps=5), tmp_path / "again", "again").facts
    kept = measured(ShardedJob(steps=5, again=False), tmp_path / "kept", "kept").facts
    assert is_same_model(again, kept)
    found = pairs(again, kept)
    assert len(found) == 10
    assert all(again.buckets[p.a].unit == kept.buckets[p.b].unit for p in found)
    (text,) = limits(again, kept)
    assert text.startswith("10 of 14 collectives of units of again have the same unit")
    assert not any("bucket" in line or "gradients" in line for line in unlike(again, kept))
    assert any(line.startswith("collectives of units: 14") for line in unlike(again, kept))


def doubts_of(other: Measures) -> str:
    return "; ".join(compare_runs(measures("base"), other).doubts)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"missing": ("rank 1: no record file",)}, "other: rank 1: no record file"),
        ({"left_out": {"probed": 3}}, "left out of all times: 3 of 63 in other"),
        ({"least_wire_bytes": 0.0}, "steps are of several kinds: they send 32.00 MB at the median"),
        ({"steps": 600}, "60 steps of base and 600 of other are included"),
        ({"beside": ("a", "b")}, "other: a and b communicate within the steps of "),
        ({"name": "base"}, "both are the same run"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_is_doubtful_is_said(fields: dict[str, object], words: str) -> None:
    assert words in doubts_of(as_facts(measures("other", seed=1), **fields))
