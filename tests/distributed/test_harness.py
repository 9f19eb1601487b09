"""The harness itself: a bad scenario fails alone, is named, and no process outlives it."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest
import torch.distributed as dist

from tests import leaks
from tests.distributed.harness import Ranks, ScenarioError, scenario

pytestmark = pytest.mark.slow


def before(rank: int) -> int:
    return os.getpid()


def after(rank: int) -> int:
    return dist.get_world_size()


def raises_on_one(rank: int) -> None:
    """Rank 0 waits for rank 1."""
    if rank == 1:
        raise ValueError("boom")
    dist.barrier()


@scenario(deadline_s=6)  # by then the other rank is done
def hangs(rank: int) -> None:
    if rank == 0:
        time.sleep(1000)


def exits(rank: int) -> None:
    if rank == 1:
        print("on its way out", flush=True)  # noqa: T201  # what a test must show
        os._exit(7)
    dist.barrier()


BAD: dict[Any, str] = {
    raises_on_one: r"rank 1 failed in .*raises_on_one: (.|\n)*ValueError: boom",
    hangs: r"hangs was not done after 6 s on ranks \[0\]\n(.|\n)*in hangs",
    exits: r"rank 1 failed in .*exits: its process ended\n(.|\n)*on its way out",
}


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_scenario_fails_alone(bad: Any) -> None:
    """Named, with what was printed or where it stands; what comes next runs in a fresh group."""
    ranks = Ranks(2)
    try:
        processes = ranks.run(before)
        for _ in range(2):  # the second test that asks for it is told the same
            with pytest.raises(ScenarioError, match=BAD[bad]):
                ranks.run(bad)
        assert not any(map(leaks.command, processes))  # a zombie has none
        assert ranks.run(after) == [2, 2]
    finally:
        ranks.close()
