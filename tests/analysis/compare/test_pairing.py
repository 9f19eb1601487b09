"""Which buckets are the same, and what else two set-ups differ in."""

from __future__ import annotations

from msgspec.structs import replace

from hooktrace.analysis.compare.comparison import BucketKey, RunFacts
from hooktrace.analysis.compare.pairing import (
    is_same_model,
    limits,
    missing_ranks,
    pairs,
    unlike,
)

from .jobs import measures

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
