"""``hooktrace bench``: what hooktrace costs and how true its times are, measured on this machine.

Machines are shared and noisy, so each number is a ratio or a difference of two things measured side
by side in one run, given as the median with its 95 % confidence interval and the quartiles.  A row
is printed as soon as it is measured.  A benchmark reports; it never fails a build.

    per_bucket.py   time added to the training thread by tracing, and by the driver itself
    whole_step.py   a training step on two ranks, traced over untraced
    wire.py         wire stages against torch.profiler
    probes.py       a probe of the compression error, and its share of training time
    memory.py       a tracer that is left on
    trace_file.py   trace files that are left on

``hooktrace bench --hooks`` runs ``hooks.py`` instead: each standard hook beside torch's own, and
``--timeline`` runs ``timeline.py``: Comm Timeline on a million stages, in Chromium.  ``--report``
runs ``report.py``: a report on the files of 64 ranks.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .rows import Row, machine_facts

__all__ = ["main"]


def main(
    quick: bool = False,
    json_path: str | Path | None = None,
    *,
    hooks: bool = False,
    timeline: bool = False,
    report: bool = False,
) -> int:
    """Run all benchmarks and print their rows; returns 0, or 1 when one could not be run.

    ``hooks``, ``timeline``, ``report``: run the benchmark of the standard hooks, of Comm Timeline,
    or of a report on a large job, in their place.  ``quick`` takes fewer
    samples; ``json_path`` names a file that gets all numbers.
    """
    from rich.console import Console
    from rich.markup import escape

    benchmarks: tuple[Any, ...]
    if hooks:
        from . import hooks as hook_speed

        benchmarks = (hook_speed,)
    elif timeline:
        from . import timeline as timeline_speed

        benchmarks = (timeline_speed,)
    elif report:
        from . import report as report_speed

        benchmarks = (report_speed,)
    else:
        from . import memory, per_bucket, probes, trace_file, whole_step, wire

        benchmarks = (per_bucket, whole_step, wire, probes, memory, trace_file)
    warnings.filterwarnings("ignore", module=r"torch\.")
    console = Console(highlight=False)
    facts = machine_facts()
    console.print(", ".join(f"{k} {v}" for k, v in facts.items()), markup=False, soft_wrap=True)
    console.print(_HEADER, markup=False, soft_wrap=True, style="bold")
    rows: list[Row] = []
    exit_code = 0
    for benchmark in benchmarks:
        run: Callable[..., Iterable[Row]] = benchmark.run
        name = benchmark.__name__.rpartition(".")[2]
        try:
            with console.status(f"measuring {name}"):
                for row in run(quick=quick):
                    rows.append(row)
                    console.print(_line(row), markup=False, soft_wrap=True)
        except Exception as error:  # one benchmark that cannot run must not hide the others
            console.print(f"{name} could not be run: {escape(str(error))}", soft_wrap=True)
            exit_code = 1
    if json_path is not None:
        numbers = {"machine": facts, "rows": [asdict(r) | {"verdict": r.verdict} for r in rows]}
        Path(json_path).write_text(json.dumps(numbers, indent=1) + "\n")
    return exit_code


_COLUMNS = "{:<77}{:>9}{:>18}{:>18}{:>8}  {:<11}{:<6}{}"
_HEADER = _COLUMNS.format("what", "median", "its 95 %", "p25-p75", "budget", "unit", "", "")


def _number(value: float) -> str:
    """Return three digits, and of a larger number all before the point."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _line(row: Row) -> str:
    return _COLUMNS.format(
        row.what,
        _number(row.value),
        f"{_number(row.least)} to {_number(row.most)}",
        f"{_number(row.low)} to {_number(row.high)}",
        "" if row.budget is None else _number(row.budget),
        row.unit,
        row.verdict,
        row.note,
    ).rstrip()
