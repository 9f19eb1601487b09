"""Real ranks of a sharded model that wait for ever: the unit is named, and who is at what."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import torch

from hooktrace import fsdp
from hooktrace.exporters import RecordFileExporter
from tests.distributed.sharded import WIDTH, Setup, one_pass, sharded
from tests.distributed.test_hangs import (
    DEADLINE_S,
    FOLDER,
    HANGS_AT,
    LATE,
    begun,
    for_ever,
    meet,
    observed,
    read,
)
from tests.ranks.channel.jobs import wait_for

pytestmark = pytest.mark.slow


def next_batch(*_: object) -> None:
    """A data loader that does not come back."""
    for_ever()


def dumps(rank: int) -> None:
    """Rank 1 is busy in the forward pass of one unit; all write down what they know."""
    model = sharded(Setup())
    exporter = RecordFileExporter(logdir=os.environ[FOLDER])
    fsdp.trace(model, tracer=observed(rank, on_hang="dump", exporters=[exporter]), name="net")
    for step in range(HANGS_AT + 1):
        if step == HANGS_AT:
            meet(rank)
            time.sleep(0.5)
        if step == HANGS_AT and rank == LATE:  # when the unit's parameters are there
            model.blocks[1].inner.register_forward_pre_hook(next_batch)
        one_pass(model, lambda: torch.ones(8, WIDTH))


def test_a_rank_that_is_busy_in_a_unit(tmp_path: Path) -> None:
    """It is named, and a file of each rank beside the records says where its threads are."""
    files = [tmp_path / f"plugins/hooktrace/hang000-rank0000{rank}.txt" for rank in range(2)]

    def are_there() -> bool:
        all_are = all(p.exists() and "MainThread" in p.read_text() for p in files)
        return all_are and bool(read(tmp_path / "0"))

    with begun(dumps, tmp_path) as group:
        assert wait_for(are_there, DEADLINE_S), group.output()
    waits, late = (path.read_text() for path in files)
    record = read(tmp_path / "0")[0]
    assert (record.kind, record.ranks, record.waiting) == ("busy", (1,), (0,)), record.message
    gather = "blocks.2 all-gather (forward)"
    begins = f"{gather} of step 3 has waited "
    assert record.message.startswith(begins), record.message
    assert "for_ever`, 1 collective behind;" in record.message, record.message
    assert waits.startswith(begins)
    assert f"net: step 3, {gather}\n  {gather} of" in waits
    assert "net: step 3, blocks.1 all-gather (forward)\n" in late
    assert " next_batch" in late
