"""A job that is ended for a hang, that torchrun starts again, and that goes on over new groups."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hooktrace.records.files import record_path
from hooktrace.records.reader import read_parts
from tests.distributed.harness import WORKER
from tests.distributed.programs import TORCHRUN, call

pytestmark = pytest.mark.slow

SCRIPT = str(WORKER.with_name("restart_script.py"))


def test_what_is_aborted_starts_again_and_each_tracer_finds_its_own_ranks(tmp_path: Path) -> None:
    """A check is a hang as any other; nobody asks the ranks before, and a late one is found."""
    launch = [*TORCHRUN, "--nproc-per-node", "2", "--max-restarts", "1", SCRIPT, str(tmp_path)]
    code, said = call(launch, tmp_path)
    assert code == 0, said
    told = [line for line in said.splitlines() if "hooktrace ends rank" in line]
    # Once one has ended, the launcher ends the other: on a busy machine before it says so.
    assert len(told) == 2 or (told and "closing signal SIGTERM" in said)
    for line in told:
        waited = re.search(r"has waited ([0-9.]+) s on rank 0 for rank 1, which is in", line)
        assert waited, line
        assert float(waited[1]) < 10  # for which the probes themselves would wait
    for rank in range(2):
        assert read_parts([record_path(tmp_path, rank)]).hangs
    assert said.count("20 steps in start 1") == 2
    turns = {file.stem: json.loads(file.read_text()) for file in tmp_path.glob("*.json")}
    assert sorted(turns) == ["0-0", "1-0", "1-1", "1-2"]
    for name, found in turns.items():
        assert found == [name.replace("-", " ")] * 2
    assert "no channel" not in said
    assert "is not reached" not in said
