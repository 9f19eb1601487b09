"""All checks on real devices, by one NCCL rank and by two; ``checks.py`` says what they are."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

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

Results = list[dict[str, str | None]]
"""Of each rank, why a check failed, or ``None``; one that it did not reach is not there."""


@pytest.fixture(scope="session")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Results]:
    """Return what runs all checks once on so many ranks, and gives each rank's results."""
    done: dict[int, Results] = {}

    def results(size: int) -> Results:
        if size not in done:
            done[size] = run(size, tmp_path_factory.mktemp(f"ranks{size}"))
        return done[size]

    return results


def run(size: int, folder: Path) -> Results:
    """Start the ranks, and end them at the deadline."""
    ranks = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.cuda.checks", str(rank), str(size)),
                *(str(folder / "store"), str(folder / f"{rank}.json")),
            ],
            cwd=REPOSITORY,
        )
        for rank in range(size)
    ]
    try:
        for rank in ranks:
            rank.wait(DEADLINE_S)
    except subprocess.TimeoutExpired:
        pass  # what they have written says how far they came
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    outs = [folder / f"{rank}.json" for rank in range(size)]
    return [json.loads(out.read_text()) if out.exists() else {} for out in outs]


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("name", CHECKS)
def test_on_devices(name: str, size: int, ran: Callable[[int], Results]) -> None:
    """Each check, on every rank."""
    if torch.cuda.device_count() < size:
        pytest.skip("needs two devices")
    for rank, results in enumerate(ran(size)):
        assert name in results, f"rank {rank} did not come to it; its output says why"
        assert results[name] is None, f"rank {rank}: {results[name]}"
