"""The channel over starts of a job: torchrun's restarts, one process group after another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.distributed.harness import WORKER
from tests.distributed.test_run import TORCHRUN, call

pytestmark = pytest.mark.slow

SCRIPT = str(WORKER.with_name("restart_script.py"))


def test_each_start_and_each_tracer_finds_its_own_ranks(tmp_path: Path) -> None:
    """Nobody asks ranks of the start before, and one that comes 3 s late is found."""
    launch = [*TORCHRUN, "--nproc-per-node", "2", "--max-restarts", "1", SCRIPT, str(tmp_path)]
    code, said = call(launch, tmp_path)
    assert code == 0, said
    turns = {file.stem: json.loads(file.read_text()) for file in tmp_path.glob("*.json")}
    assert sorted(turns) == ["0-0", "1-0", "1-1", "1-2"]
    for name, facts in turns.items():
        assert facts["found"] == [name.replace("-", " ")] * 2
    assert "no channel" not in said
    assert "is not reached" not in said
