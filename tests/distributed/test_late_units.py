"""The late rank of a sharded model on real gloo ranks, as the report tells it from their files.

Late is a matter of order, as in ``test_skew.py``.  That nobody is named where nobody is late is
told of made-up jobs (``tests/analysis/report``): on a busy machine one of four ranks on two cores
may really be late.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from hooktrace import Tracer, fsdp
from hooktrace.analysis.report.facts import ModelFacts
from hooktrace.analysis.run.late import LateRank
from hooktrace.exporters import RecordFileExporter
from tests.analysis.report.jobs import facts_of
from tests.distributed.harness import Ranks
from tests.distributed.models import shared_folder
from tests.distributed.sharded import WIDTH, Setup, one_pass, sharded
from tests.distributed.test_skew import KNOWN_S, Places, all_know, uncertainty_s

pytestmark = pytest.mark.slow

LATE = 2
LATE_S = 0.05
"""The least that it is late by: waits of one group are taken from those of another."""

STEPS = 30
"""Of each run, in which the late rank is late, from the first one whose clocks are known."""

Act = Callable[[], None]


def in_backward(model: Any, act: Act) -> None:
    """Be late in the backward pass of a unit."""
    model.blocks[1].inner.register_full_backward_pre_hook(lambda *_: act())


def before_backward(model: Any, act: Act) -> None:
    """Be late when the forward pass is over."""
    model.head.register_forward_hook(lambda *_: act())


def late_ranks(rank: int) -> dict[str, Any]:
    """Train all ranks as one group, and in two by two; return each run's files and lateness."""
    return {
        "all": _run(rank, in_backward, Setup()),
        "two by two": _run(rank, before_backward, Setup(mesh="two by two")),
    }


@pytest.fixture(scope="module")
def seen(four: Ranks) -> Iterator[dict[str, tuple[ModelFacts, int]]]:
    """What the report knows of each run, and how late the rank was in it."""
    found: dict[str, tuple[Path, int]] = four.run(late_ranks)[0]
    yield {run: (facts_of(folder), late_ns) for run, (folder, late_ns) in found.items()}
    for folder, _ in found.values():
        shutil.rmtree(folder, ignore_errors=True)


Late = tuple[LateRank, dict[int, str]]


def late_in(facts: ModelFacts, late_ns: int) -> Late:
    """Return who is late in a run by half of what the late rank is, and the units' names."""
    (late,) = [late for late in facts.late if late.margin_ns > late_ns / 2]
    return late, {bucket.bucket: str(bucket.unit) for bucket in facts.buckets}


def test_who_is_late_between_two_units(seen: dict[str, tuple[ModelFacts, int]]) -> None:
    """One rank, at the collective that comes next, and all others wait for it there."""
    late, names = late_in(*seen["all"])
    assert (late.rank, late.waiting) == (LATE, (0, 1, 3))
    assert names[late.bucket] == "blocks.1 reduce-scatter (backward)"
    assert names[late.since] == "blocks.0 all-gather (backward)"
    assert late.uncertainty_ns < seen["all"][1]


def test_with_replicas_ranks_wait_for_the_late_one_in_both_groups(
    seen: dict[str, tuple[ModelFacts, int]],
) -> None:
    """Rank 3 where parameters are gathered, rank 0 where gradients are averaged.

    Rank 1 waits for rank 3 then, which is not late by itself, and is not named.
    """
    facts, _ = seen["two by two"]
    late, names = late_in(*seen["two by two"])
    assert (late.rank, late.members, late.waiting) == (LATE, (2, 3), (3,))
    assert names[late.bucket] == "blocks.2 all-gather (backward)"
    assert names[late.since] == "blocks.2 all-gather (forward)"
    (replicas,) = late.elsewhere
    assert (replicas.members, replicas.waiting) == ((0, 2), (0,))
    assert names[replicas.bucket] == "blocks.2 all-reduce (backward)"
    # Waits are known of every unit's collectives, whoever has them.
    assert facts.wait_unknown is None
    assert all(bucket.wait_ns is not None for bucket in facts.buckets)


def _run(rank: int, where: Callable[[Any, Act], None], setup: Setup) -> tuple[Path, int]:
    """Train, while a rank is late."""
    directory = shared_folder()
    places, steps = Places(directory, rank), count()
    others = [other for other in range(dist.get_world_size()) if other != LATE]

    def act() -> None:
        place = f"step{next(steps)}"
        if rank == LATE:
            places.wait(place, others)
            time.sleep(late_s)
        else:
            places.reach(place)

    model = sharded(setup)
    exporter = RecordFileExporter(directory)
    with Tracer([exporter], error_every=0) as tracer:
        handle = fsdp.trace(model, tracer=tracer, name="net")
        end = time.monotonic() + KNOWN_S
        known = False
        while not known:
            assert time.monotonic() < end, "the clocks are not known"
            one_pass(model, lambda: torch.ones(8, WIDTH))
            known = all_know(tracer)
        late_s = max(LATE_S, 8 * uncertainty_s(tracer))
        where(model, act)
        for _ in range(STEPS):
            one_pass(model, lambda: torch.ones(8, WIDTH))
        handle.remove()
    dist.barrier()
    return directory, int(late_s * 1e9)
