"""The late rank of a sharded model on real gloo ranks, as the report tells it from their files.

That nobody is named where nobody is late is told of made-up jobs (``tests/analysis/report``): on a
busy machine one of four ranks on two cores may really be late.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hooktrace.analysis.run.late import LateRank
from tests.analysis.report.jobs import facts_of
from tests.distributed import sharded_skew_scenarios
from tests.distributed.harness import Ranks
from tests.distributed.sharded_skew_scenarios import LATE, LATE_IN_PARTS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def seen(four: Ranks) -> Iterator[dict[str, tuple[str, int]]]:
    """Where the files of each run are, and how late the rank was in it."""
    found: list[Any] = four.run(sharded_skew_scenarios.late_ranks)
    yield found[0]
    for directory, _ in found[0].values():
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="module")
def in_parts(four: Ranks) -> Iterator[dict[str, tuple[str, int]]]:
    """The same where collectives have a part of the ranks."""
    found: list[Any] = four.run(sharded_skew_scenarios.late_in_parts)
    yield found[0]
    for directory, _ in found[0].values():
        shutil.rmtree(directory, ignore_errors=True)


def late_in(seen: dict[str, tuple[str, int]], run: str) -> list[tuple[LateRank, str, str]]:
    """Return who is late in a run by half of what the late rank is, where, and after what."""
    directory, late_ns = seen[run]
    facts = facts_of(Path(directory))
    names = {bucket.bucket: str(bucket.unit) for bucket in facts.buckets}
    return [
        (late, names[late.bucket], names[late.since])
        for late in facts.late
        if late.margin_ns > late_ns / 2
    ]


@pytest.mark.parametrize(
    ("run", "bucket", "since"),
    [
        ("in_forward", "blocks.2 all-gather (forward)", "blocks.1 all-gather (forward)"),
        ("in_backward", "blocks.1 reduce-scatter (backward)", "blocks.0 all-gather (backward)"),
    ],
)
def test_who_is_late_between_two_units(
    seen: dict[str, tuple[str, int]], run: str, bucket: str, since: str
) -> None:
    """One rank, at the collective that comes next, and all others wait for it there."""
    ((late, at, after),) = late_in(seen, run)
    assert (late.rank, at, after) == (LATE, bucket, since)
    assert late.waiting == (0, 2, 3)
    assert late.uncertainty_ns < seen[run][1]


def test_with_replicas_ranks_wait_for_the_late_one_in_both_groups(
    in_parts: dict[str, tuple[str, int]],
) -> None:
    """Rank 3 where parameters are gathered, rank 0 where gradients are averaged.

    Rank 1 waits for rank 3 then, which is not late by itself, and is not named.
    """
    ((late, at, after),) = late_in(in_parts, "hybrid, before_backward")
    assert (late.rank, late.members, late.waiting) == (LATE_IN_PARTS, (2, 3), (3,))
    assert (at, after) == (
        "blocks.2 all-gather (backward)",
        "blocks.2 all-gather (forward)",
    )
    (replicas,) = late.elsewhere
    assert (replicas.members, replicas.waiting) == ((0, 2), (0,))
    facts = facts_of(Path(in_parts["hybrid, before_backward"][0]))
    units = {bucket.bucket: str(bucket.unit) for bucket in facts.buckets}
    assert units[replicas.bucket] == "blocks.2 all-reduce (backward)"


def test_gathers_of_some_ranks_name_the_late_one(in_parts: dict[str, tuple[str, int]]) -> None:
    """Of ``reshard_after_forward=2``: rank 3 waits in the gather, the others where all reduce."""
    ((late, at, after),) = late_in(in_parts, "resharded, before_backward")
    assert (late.rank, late.members, late.waiting) == (LATE_IN_PARTS, (2, 3), (3,))
    assert (at, after) == ("<root> all-gather (backward)", "blocks.2 all-gather (forward)")
    (reduced,) = late.elsewhere
    assert (reduced.members, reduced.waiting) == ((0, 1, 2, 3), (0, 1))


@pytest.mark.parametrize("name", ["hybrid", "resharded"])
def test_waits_in_parts_are_known(in_parts: dict[str, tuple[str, int]], name: str) -> None:
    """Of every unit's collectives, whoever has them."""
    facts = facts_of(Path(in_parts[f"{name}, before_backward"][0]))
    assert facts.wait_unknown is None
    assert all(bucket.wait_ns is not None for bucket in facts.buckets)
