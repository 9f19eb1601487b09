"""The harness itself: a bad scenario fails alone, is named, and no process outlives it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

from tests import leaks
from tests.distributed.harness import (
    Ranks,
    Scenario,
    ScenarioError,
    scenario,
)

pytestmark = pytest.mark.slow


def fine(rank: int) -> tuple[int, int, float]:
    """Return the process, the number of ranks, and a random number."""
    os.environ["HOOKTRACE_TEST"] = "left"
    return os.getpid(), dist.get_world_size(), torch.rand(1).item()


@pytest.fixture(scope="module")
def own() -> Iterator[Ranks]:
    """Two ranks that nobody else's tests depend on."""
    ranks = Ranks(2)
    yield ranks
    ranks.close()


def environment_left(rank: int) -> bool:
    """Return whether an earlier scenario's environment is still there."""
    return "HOOKTRACE_TEST" in os.environ


def raises_on_one(rank: int) -> None:
    """Fail on rank 1 while rank 0 waits for it."""
    if rank == 1:
        raise ValueError("boom")
    dist.barrier()


@scenario(deadline_s=6)  # by then the other rank is done
def hangs(rank: int) -> None:
    """Never end on rank 0."""
    if rank == 0:
        time.sleep(1000)


def exits(rank: int) -> None:
    """End rank 1's process."""
    if rank == 1:
        print("on its way out", flush=True)  # noqa: T201  # what a test must show
        os._exit(7)
    dist.barrier()


def alive(pid: int) -> bool:
    """Return whether a process runs, whoever started it."""
    return bool(leaks.command(pid))  # a zombie has none


BAD: dict[Scenario, str] = {
    raises_on_one: r"rank 1 failed in .*raises_on_one: (.|\n)*ValueError: boom",
    hangs: r"hangs was not done after 6 s on ranks \[0\]\n(.|\n)*in hangs",
    exits: r"rank 1 failed in .*exits: its process ended\n(.|\n)*on its way out",
}


@pytest.mark.parametrize("scenario", BAD)
def test_a_bad_scenario_fails_alone(own: Ranks, scenario: Scenario) -> None:
    """Named, with what was printed or where it stands; what comes next runs in a fresh group."""
    before = [pid for pid, *_ in own.run(fine)]
    for _ in range(2):  # the second test that asks for it is told the same
        with pytest.raises(ScenarioError, match=BAD[scenario]):
            own.run(scenario)
    assert not any(map(alive, before))
    first, second = own.run(environment_left)
    assert (first, second) == (False, False)
    assert own.run(fine)[0][0] == before[0]  # kept from the first time
    own.forget()


@scenario(apart=True)
def alone(rank: int) -> int:
    """Return the process."""
    return os.getpid()


def test_scenarios_share_processes_and_start_alike(own: Ranks) -> None:
    """The same ranks run all, with the same random numbers; those apart have their own."""
    first = own.run(fine)
    own.forget()
    assert own.run(fine) == first
    assert {world for _, world, _ in first} == {2}
    assert own.run(environment_left) == [False, False]
    apart = own.run(alone)
    assert {pid for pid, *_ in first} & set(apart) == set()
    assert not any(map(alive, apart))
