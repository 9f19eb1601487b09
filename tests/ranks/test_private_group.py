"""The job's store and a group of our own, in a job of one rank; more are in tests/distributed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from hooktrace.ranks.private_group import PrivateGroup
from hooktrace.staging.job import job_store


@pytest.mark.usefixtures("alone")
def test_a_private_group_is_not_torchs() -> None:
    """It computes, and torch.distributed does not list it; a prefix keeps keys apart."""
    job_store("a").set("key", "1")
    stores = job_store("a"), job_store("b"), job_store()
    assert [store.check(["key"]) for store in stores] == [True, False, False]
    known: Any = dist.distributed_c10d._world.pg_map
    before = len(known)
    group = PrivateGroup("ours", 0, 1, timedelta(seconds=10))
    assert len(known) == before
    tensor, rows = torch.ones(3), [torch.zeros(3)]
    group.gather(tensor, rows).wait()
    group.average(tensor).wait()
    assert torch.equal(rows[0], torch.ones(3))
    assert torch.equal(tensor, torch.ones(3))
