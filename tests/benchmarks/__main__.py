"""The groups of rows: measures the chosen ones and prints their rows."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich.console import Console

from hooktrace.commands.bench.cost import per_bucket
from hooktrace.commands.bench.table import HEADING, Row, line_of, machine_facts

from .drain import drain, memory
from .hooks import hooks_beside_torchs
from .other_calls import other_calls
from .programs import large_report, start_up
from .ranks import ranks
from .sharded import sharded
from .timeline import timeline
from .tune import tune
from .whole_step import probes, whole_step, without_a_hook
from .wire import wire

GROUPS: dict[str, tuple[Callable[..., Iterator[Row]], str]] = {
    "per-bucket": (per_bucket, "added by tracing to a step of 40 small buckets"),
    "other-calls": (other_calls, "added to calls of large buckets, and on a device"),
    "drain": (drain, "processor time of the drain, 25 buckets a step"),
    "whole-step": (whole_step, "a step of 12.6 M parameters, 2 ranks, all exporters"),
    "without-a-hook": (without_a_hook, "the same, no hook: hooktrace run, DDP alone, any hook"),
    "fsdp": (sharded, "a model that fully_shard has sharded: a unit's collective, a step"),
    "wire": (wire, "all-reduces of 8 MB, against torch.profiler"),
    "probes": (probes, "a probe of the error, an 8 MB bucket, 2 ranks"),
    "memory": (memory, "a tracer that is left on"),
    "start-up": (start_up, "import and commands, new interpreters"),
    "hooks": (hooks_beside_torchs, "step time with a standard hook / with torch's own"),
    "timeline": (timeline, "Comm Timeline of a million stages, in Chromium"),
    "ranks": (ranks, "a hub with 10,000 simulated ranks on 1,250 hosts"),
    "tune": (tune, "what tune names, beside each setting alone, 2 ranks"),
    "report": (large_report, "a report on a large job's files"),
}
"""By the name that ``--only`` takes, in the order of the table: what yields rows as they are known,
with fewer samples if it is ``quick``, and the heading."""

DEFAULT = list(GROUPS)[:10]
"""Measured where no group is asked for."""


def run(only: Sequence[str], *, quick: bool, json_path: Path | None) -> int:
    """Measure groups, the default ones without a name; 1 when one could not be measured, else 0."""
    warnings.filterwarnings("ignore", module=r"torch\.")
    console = Console(highlight=False, markup=False, soft_wrap=True)
    facts = machine_facts()
    console.print(", ".join(f"{k} {v}" for k, v in facts.items()))
    console.print(HEADING, style="bold")
    rows: list[dict[str, object]] = []
    failed = False
    for name in dict.fromkeys(only or DEFAULT):
        measure, what = GROUPS[name]
        console.print(f"\n{name}: {what}", style="bold")
        try:
            with console.status(f"measuring {name}"):
                for row in measure(quick=quick):
                    console.print(line_of(row))
                    rows.append({"group": name, **row.numbers()})
        except Exception as error:  # one group that cannot run must not hide the others
            console.print(f"{name} could not be measured: {error}")
            failed = True
    if json_path is not None:
        _write(json_path, rows, facts)
    return int(failed)


def _write(path: Path, rows: list[dict[str, object]], facts: dict[str, str]) -> None:
    """Write rows, and keep those of other groups that are there (``docs/benchmarks.json``)."""
    measured = {row["group"] for row in rows}
    kept = json.loads(path.read_text()) if path.exists() else []
    machine = {"cpu": f"{facts['cores']} cores ({facts['cpu']})", "load": facts["load"]}
    names = ("group", "what", "value", "least", "most", "unit", "budget")
    found = [
        *(row for row in kept if row["group"] not in measured),
        *({n: row[n] for n in names} | machine | {"date": facts["date"]} for row in rows),
    ]
    order = list(GROUPS)
    found.sort(key=lambda row: order.index(row["group"]))
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks")
    parser.add_argument("--only", action="append", choices=GROUPS, help="this group; or several")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--json", type=Path, help="write the numbers to this file too")
    options = parser.parse_args()
    sys.exit(run(options.only or [], quick=options.quick, json_path=options.json))
