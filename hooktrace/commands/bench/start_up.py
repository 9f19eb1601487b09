"""How soon hooktrace is there: its import beyond torch's, and the commands that answer at once.

Each sample is a new interpreter, with the bytecode that the first one left.  The clock's time is
what a user waits; processor time is what another machine's load does not stretch.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from ...testing.synthetic import SyntheticJob, write_job
from .table import Row, row_of

_IMPORT = """
import time, torch, torch.distributed, torch.nn.parallel
start, cpu = time.perf_counter(), time.process_time()
import hooktrace
hooktrace.trace, hooktrace.Tracer, hooktrace.instrument
print(time.perf_counter() - start, time.process_time() - cpu)
"""
_COMMANDS = (("--help",), ("hooks",))
_IMPORT_BUDGET_MS = 50.0
_COMMAND_BUDGET_S = 1.0


def run(*, quick: bool) -> Iterator[Row]:
    """Yield two rows each, by the clock and of processor time."""
    count = 3 if quick else 15
    clock, cpu = _columns(_import_ms, count)
    what = "import hooktrace, Tracer and trace, after torch"
    yield row_of(what, clock, "ms", budget=_IMPORT_BUDGET_MS)
    yield row_of("the same, processor time", cpu, "ms")
    with tempfile.TemporaryDirectory() as logdir:
        write_job(SyntheticJob(ranks=2, steps=100), Path(logdir), processes=1)
        for arguments in (*_COMMANDS, ("report", logdir)):
            clock, cpu = _columns(partial(_command_s, arguments), count)
            what = f"hooktrace {arguments[0]}"
            what += " of 2 ranks x 100 steps" if arguments[0] == "report" else ""
            yield row_of(what, clock, "s", budget=_COMMAND_BUDGET_S)
            yield row_of("the same, processor time", cpu, "s")


def _columns(
    measure: Callable[[], tuple[float, float]], count: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the times by the clock, and of the processor, of all but a first measurement."""
    measure()
    clock, cpu = zip(*(measure() for _ in range(count)), strict=True)
    return clock, cpu


def _caching() -> dict[str, str]:
    """Return an environment in which bytecode is kept, as it is where nobody forbids it."""
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def _import_ms() -> tuple[float, float]:
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT], capture_output=True, text=True, check=True, env=_caching()
    )
    clock, cpu = map(float, done.stdout.split())
    return clock * 1e3, cpu * 1e3


def _command_s(arguments: tuple[str, ...]) -> tuple[float, float]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "hooktrace", *arguments],
        stdout=subprocess.DEVNULL, check=True, env=_caching(),
    )  # fmt: skip
    clock = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return clock, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
