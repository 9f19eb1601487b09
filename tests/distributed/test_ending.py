"""A job that is ended for a hang, and that torchrun starts again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.distributed.harness import WORKER
from tests.distributed.test_run import TORCHRUN, call

pytestmark = pytest.mark.slow

LAUNCH = [*TORCHRUN, "--nproc-per-node", "2", "--max-restarts", "1"]
SCRIPT = str(WORKER.with_name("ending_script.py"))


def test_what_is_aborted_starts_again_also_where_hooktrace_itself_waits(tmp_path: Path) -> None:
    """A probe waits there too, aside: it is a hang as any other."""
    code, said = call([*LAUNCH, SCRIPT], tmp_path)
    assert code == 0, said
    told = [line for line in said.splitlines() if "hooktrace ends rank" in line]
    assert len(told) == 2
    for line in told:
        waited = re.search(r"has waited ([0-9.]+) s on rank 0 for rank 1, which is in", line)
        assert waited, line
        assert float(waited[1]) < 10  # for which the probes themselves would wait
    assert said.count("20 steps in start 1") == 2
