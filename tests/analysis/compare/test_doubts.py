"""Which models are the same, what else two set-ups differ in, and what speaks against them."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from hooktrace.analysis.compare import Measures, compare_runs
from hooktrace.analysis.compare.doubts import is_same_model, limits, unlike
from tests.analysis.report.sharded_jobs import ShardedJob

from .jobs import as_facts, measured, measures

A = measures("base").facts


@pytest.mark.parametrize(
    ("fields", "is_same"),
    [
        ({}, True),
        ({"shapes": A.shapes[:-1]}, False),
        ({"shapes": (), "gradient_bytes": A.gradient_bytes + 4}, False),
        ({"shapes": ()}, True),
    ],
)
def test_models_are_the_same_by_their_parameters(
    fields: dict[str, object], *, is_same: bool
) -> None:
    """Where one file has none, by the bytes of their gradients."""
    other = replace(A, **fields)
    assert is_same_model(A, other) == is_same
    text = "".join(limits(A, other))
    assert ("are not the same model, so step times are compared and nothing" in text) != is_same


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


def test_a_sharded_model_has_each_parameter_once(tmp_path: Path) -> None:
    """However often it is gathered; and nothing speaks of buckets."""
    again = measured(ShardedJob(steps=5), tmp_path / "again", "again").facts
    kept = measured(ShardedJob(steps=5, again=False), tmp_path / "kept", "kept").facts
    assert is_same_model(again, kept)
    assert not [*limits(again, kept)]
    assert not any("bucket" in line or "gradients" in line for line in unlike(again, kept))
    assert any(line.startswith("collectives of units: 14") for line in unlike(again, kept))


def doubts_of(other: Measures) -> str:
    return "; ".join(compare_runs(measures("base"), other).doubts)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"missing": ("rank 1: no record file",)}, "other: rank 1: no record file"),
        ({"left_out": {"checked": 3}}, "left out of all times: 3 of 63 in other"),
        ({"least_wire_bytes": 0.0}, "steps are of several kinds: they send 32.00 MB at the median"),
        ({"steps": 600}, "60 steps of base and 600 of other are included"),
        ({"beside": ("a", "b")}, "other: a and b communicate within the steps of "),
        ({"name": "base"}, "both are the same run"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_is_doubtful_is_said(fields: dict[str, object], words: str) -> None:
    assert words in doubts_of(as_facts(measures("other", seed=1), **fields))
