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
def test_a_prefix_keeps_keys_apart() -> None:
    """The same key under two prefixes is two keys."""
    job_store("a").set("key", "1")
    assert job_store("a").check(["key"])
    assert not job_store("b").check(["key"])
    assert not job_store().check(["key"])


def test_without_a_job_there_is_no_store() -> None:
    """Torch says that a process group is missing."""
    with pytest.raises(ValueError, match="process group"):
        job_store()


@pytest.mark.usefixtures("alone")
def test_a_private_group_is_not_torchs() -> None:
    """It computes, and torch.distributed does not list it."""
    known: Any = dist.distributed_c10d._world.pg_map
    before = len(known)
    group = PrivateGroup("ours", 0, 1, timedelta(seconds=10))
    assert len(known) == before
    tensor, rows = torch.ones(3), [torch.zeros(3)]
    group.gather(tensor, rows).wait()
    group.average(tensor).wait()
    assert torch.equal(rows[0], torch.ones(3))
    assert torch.equal(tensor, torch.ones(3))
