"""Real ranks of sharded models that wait for ever: the unit is named, and who is at what."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hooktrace import fsdp
from hooktrace.exporters import RecordFileExporter
from hooktrace.records import HangRecord
from tests.distributed.sharded import WIDTH, Setup, one_pass, sharded
from tests.distributed.test_hangs import (
    FOLDER,
    HANGS_AT,
    LATE,
    Scenario,
    dumped,
    for_ever,
    meet,
    next_batch,
    observed,
    read,
    told_at_once,
)

pytestmark = pytest.mark.slow


def batch() -> torch.Tensor:
    return torch.ones(8, WIDTH)


def trained(rank: int, setup: Setup | None = None, steps: int = HANGS_AT, **options: Any) -> Any:
    """Return a traced model that has made some steps, and whose ranks know each other."""
    model = sharded(Setup() if setup is None else setup)
    fsdp.trace(model, tracer=observed(rank, **options), name="net")
    for _ in range(steps):
        one_pass(model, batch)
    meet(rank)
    time.sleep(0.5)
    return model


def before(block: nn.Module, act: Callable[[], None]) -> None:
    """Do something in a block's forward pass, when its parameters are there."""
    block.inner.register_forward_pre_hook(lambda *_: act())


def dumps(rank: int) -> None:
    """Rank 1 is busy in the forward pass of one unit; all write down what they know."""
    exporter = RecordFileExporter(logdir=os.environ[FOLDER])
    model = trained(rank, on_hang="dump", exporters=[exporter])
    if rank == LATE:
        before(model.blocks[1], next_batch)
    one_pass(model, batch)


def skips_a_unit(rank: int) -> None:
    """Rank 1 leaves a block out in one step."""
    model = trained(rank)
    if rank == LATE:
        blocks = model.blocks
        model.forward = lambda x: model.head(blocks[2](blocks[0](x)))
    one_pass(model, batch)
    if rank == LATE:
        del model.forward
    one_pass(model, batch)
    for_ever()


def all_reduce_lacks(rank: int) -> None:
    """The second replica does not reduce over the replicas."""
    model = trained(rank, Setup(mesh="two by two"))
    if rank >= 2:
        model.set_requires_all_reduce(False)
    one_pass(model, batch)
    for_ever()


def in_evaluation(rank: int) -> None:
    """Rank 1 does not come to an evaluation."""
    model = trained(rank)
    if rank == LATE:
        next_batch()
    with torch.no_grad():
        model(batch())


RANKS: dict[Scenario, int] = {skips_a_unit: 2, in_evaluation: 2, all_reduce_lacks: 4}
"""How many ranks each has."""

NEXT_GATHER = "blocks.2 all-gather (forward) of step 3 has waited "


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[Scenario, HangRecord]:
    return told_at_once(RANKS.items(), tmp_path_factory.mktemp("hangs"))


def test_ranks_that_run_something_else(seen: dict[Scenario, HangRecord]) -> None:
    """Both wait, each in a unit of its own, which is the same place of the step; none is blamed."""
    record = seen[skips_a_unit]
    assert (record.kind, record.ranks) == ("different_collectives", ()), record.message
    assert record.waiting == (0, 1)
    assert ": as the 6th collective of the step these do not match" in record.message
    said = (
        "rank 1 made as the 3rd blocks.2 all-gather (forward), where step 2 had blocks.1 "
        "all-gather (forward); have all ranks run the same modules"
    )
    assert said in record.message, record.message


def test_replicas_that_are_not_reduced_on_some(seen: dict[Scenario, HangRecord]) -> None:
    """FSDP issues the all-reduce of replicas itself; it is named while it waits."""
    record = seen[all_reduce_lacks]
    assert record.kind == "different_collectives", record.message
    assert record.unit == "blocks.2 all-reduce (backward)"
    (waiting,), (lacking,) = record.waiting, record.ranks
    assert lacking == waiting + 2  # with whom it shares its part
    assert f"which rank {lacking} has not issued" in record.message


def test_an_evaluation_that_one_does_not_come_to(seen: dict[Scenario, HangRecord]) -> None:
    """What is gathered there is of no step and no unit's record; it is seen all the same."""
    record = seen[in_evaluation]
    assert (record.kind, record.ranks, record.unit) == ("busy", (1,), ""), record.message
    assert record.message.startswith("rank 0 waits in all_gather in `test_sharded_hangs.py:")


def test_a_rank_that_is_busy_in_a_unit(tmp_path: Path) -> None:
    """It is named, and the file of each rank says in which unit it is."""
    waits, late = dumped(dumps, tmp_path)
    record = read(tmp_path / "0")[0]
    assert (record.kind, record.ranks, record.waiting) == ("busy", (1,), (0,)), record.message
    assert record.message.startswith(NEXT_GATHER), record.message
    assert "for_ever`, 1 collective behind;" in record.message, record.message
    assert waits.startswith(NEXT_GATHER)
    unit = "blocks.2 all-gather (forward)"
    assert f"net: step 3, {unit}\n  {unit} of" in waits
    assert "net: step 3, blocks.1 all-gather (forward)\n" in late
