"""Real ranks whose store does not answer any more: they close, and end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.distributed.harness import REPOSITORY

SCRIPT = Path(__file__).with_name("hanging_store_script.py")

SERVER = """
import time, torch.distributed as dist
store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
print(store.port, flush=True)
time.sleep(300)
"""


@pytest.mark.slow
def test_a_tracer_closes_where_the_store_hangs() -> None:
    """Without waiting for it; and the process ends."""
    with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        port = server.stdout.readline().decode().strip()
        ranks = [
            subprocess.Popen(
                [sys.executable, str(SCRIPT), str(rank), port, str(server.pid)],
                stdout=subprocess.PIPE,
                cwd=REPOSITORY,
                env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            )
            for rank in range(2)
        ]
        try:
            said = [rank.communicate(timeout=240)[0].decode() for rank in ranks]
        finally:
            for process in (*ranks, server):
                process.kill()
    assert [rank.returncode for rank in ranks] == [0, 0]
    assert said == ["True", "True"]
