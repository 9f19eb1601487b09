"""``examples/fsdp.py`` as a user runs it: what it prints, and the files that it leaves."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hooktrace.ranks.job import loopback
from hooktrace.records.reader import read_parts

from .harness import REPOSITORY

pytestmark = pytest.mark.slow

STEPS = 30
LAYERS = 4
DEADLINE_S = 120

T = r"[\d.]+"
LINES = {
    "": rf"fully_shard, medians of 2[78] steps .*0.79 MB, 0.79 on the wire, {T} ms: wire {T}",
    "--eight-bit": (
        rf"eight_bit_reduce_scatter\(.*\), medians of 2[78] steps .*"
        rf"0.79 MB, 0.20 on the wire, {T} ms: compress {T}, wire {T}, decompress {T}"
    ),
}


@pytest.mark.parametrize("option", LINES)
def test_the_example_prints_a_line_a_unit_and_leaves_its_records(
    tmp_path: Path, option: str
) -> None:
    """A layer is gathered in forward and in backward; what is sent is all of it, or a quarter."""
    said = _run(option, tmp_path)
    head, *units = said.splitlines()
    (reduced,) = [u for u in units if u.startswith("  unit layers.2 reduce-scatter (backward): ")]
    assert re.fullmatch(rf"model0: {LINES[option]}", f"{head} {reduced}")
    assert len(units) == 2 + 3 * LAYERS
    files = sorted(tmp_path.rglob("*.jsonl"))
    assert [file.name for file in files] == ["rank00000.jsonl", "rank00001.jsonl"]
    for file in files:
        found = read_parts([file])
        assert found.closed
        assert [step.step for step in found.steps] == list(range(STEPS))
        assert all(step.sharded and step.complete for step in found.steps)


def _run(option: str, folder: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("HOOKTRACE_", "OTEL_"))}
    environment |= {
        "PYTHONPATH": str(REPOSITORY),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": loopback(),
        "HOOKTRACE_RECORD_DIR": str(folder),
    }
    with subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1",
         "--nproc-per-node", "2", "examples/fsdp.py", *option.split()],
        cwd=REPOSITORY, env=environment, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            said, errors = process.communicate(timeout=DEADLINE_S)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, errors[-6000:]
    assert errors == ""
    return said
