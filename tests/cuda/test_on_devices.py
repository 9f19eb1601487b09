"""All checks on real devices, by one NCCL rank and by two; ``checks.py`` says what they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from .checks import CHECKS

REPOSITORY = Path(__file__).resolve().parents[2]
DEADLINE_S = 900

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.timeout(DEADLINE_S + 60),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


ON_ONE_DEVICE = {"NCCL_SOCKET_IFNAME": "lo"}
"""With a host's name of its own each, NCCL lets ranks share a device, and connects them by TCP."""


class Ran(NamedTuple):
    """A rank: why each check failed, or ``None``, of those that it came to; and how it ended."""

    results: dict[str, str | None]
    how: str


@pytest.fixture(scope="session")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], list[Ran]]:
    """Return what runs all checks once on so many ranks, and gives what came of each rank."""
    return cache(lambda size: run(size, tmp_path_factory.mktemp(f"ranks{size}")))


def run(size: int, folder: Path) -> list[Ran]:
    """Start the ranks, and end them at the deadline."""
    deadline, shared = time.monotonic() + DEADLINE_S, torch.cuda.device_count() < size
    ranks = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.cuda.checks", str(rank), str(size)),
                *(str(folder / "store"), str(folder / f"{rank}.json")),
            ],
            cwd=REPOSITORY,
            env=os.environ | (ON_ONE_DEVICE | {"NCCL_HOSTID": f"host {rank}"} if shared else {}),
        )
        for rank in range(size)
    ]
    try:
        hows = [_ended(rank, deadline) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    outs = [folder / f"{rank}.json" for rank in range(size)]
    results = [json.loads(out.read_text()) if out.exists() else {} for out in outs]
    return [Ran(*each) for each in zip(results, hows, strict=True)]


def _ended(rank: subprocess.Popen[bytes], deadline: float) -> str:
    """Wait for a rank until the deadline, and say how it ended."""
    try:
        return f"ended with exit code {rank.wait(max(0.0, deadline - time.monotonic()))}"
    except subprocess.TimeoutExpired:
        return f"was not done after {DEADLINE_S} s"


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("name", CHECKS)
def test_on_devices(name: str, size: int, ran: Callable[[int], list[Ran]]) -> None:
    """Each check, on every rank."""
    for rank, (results, how) in enumerate(ran(size)):
        assert name in results, f"rank {rank} did not come to it: it {how}; its output says why"
        assert results[name] is None, f"rank {rank}: {results[name]}"


@pytest.mark.parametrize("size", [1, 2])
def test_ranks_come_to_their_end(size: int, ran: Callable[[int], list[Ran]]) -> None:
    """None hangs, or crashes, after its last check."""
    assert {how for _, how in ran(size)} == {"ended with exit code 0"}
