"""Processor time that tracing adds per bucket to the training thread, and what the driver takes.

Two ranks, where callbacks run on gloo's threads as in a real job.  The time is the training
thread's own in backward: what it computes, waits left out.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from torch.distributed.algorithms.ddp_comm_hooks import default_hooks as torch_hooks

from ... import hooks
from ...exporters import Exporter
from .backends import all_exporters, otlp_sink
from .ranks import run_ranks
from .sides import Costs, added_us, measure_sides, ratios
from .table import Row, row_of

_PAIRS = {
    "allreduce": (torch_hooks.allreduce_hook, hooks.allreduce_hook),
    "fp16": (torch_hooks.fp16_compress_hook, hooks.fp16_compress_hook),
}
_BUDGETS_US = {"staged": 5.0, "opaque": 10.0}


def run(*, quick: bool) -> Iterator[Row]:
    """Yield the rows of all hooks, with a tracer in memory and with all exporters."""
    rounds = 100 if quick else 500
    with otlp_sink() as endpoint:
        for name in _PAIRS:
            for where, suffix in (("", ""), (endpoint, ", all exporters")):
                ranks = run_ranks(2, _measure, name, rounds, where, deadline_s=300)
                yield from _rows(name, ranks, suffix, with_ratio=not where)


def _rows(name: str, ranks: list[Costs], suffix: str, *, with_ratio: bool) -> Iterator[Row]:
    for kind, budget in _BUDGETS_US.items():
        added = [us for costs in ranks for us in added_us(costs, f"traced {kind}", kind, "own")]
        what = f"{name}, {kind}: traced - untraced{suffix}"
        yield row_of(what, added, "µs/bucket", budget=budget)
    if with_ratio:
        shares = [share for costs in ranks for share in ratios(costs, "staged", "opaque", "own")]
        yield row_of(f"{name}: untraced staged hook / torch's own", shares, "ratio", budget=1.0)


def _measure(name: str, rounds: int, endpoint: str) -> Costs:
    opaque, staged = _PAIRS[name]
    with tempfile.TemporaryDirectory() as directory:
        numbers = count()

        def exporters() -> list[Exporter]:
            return all_exporters(Path(directory, str(next(numbers))), endpoint)

        sides: dict[str, Callable[..., Any]] = {"opaque": opaque, "staged": staged}
        return measure_sides(sides, rounds, exporters=exporters if endpoint else list)
