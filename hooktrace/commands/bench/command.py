"""Measures the chosen groups and prints their rows."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from .groups import Group, chosen
from .table import HEADING, Row, line_of, machine_facts


def run(
    only: Sequence[str] = (), *, quick: bool = False, json_path: str | Path | None = None
) -> int:
    """Measure groups and print their rows; returns 0, or 1 when one could not be measured.

    ``only``: names of ``GROUPS``, the default ones without a name.  ``quick`` takes fewer samples;
    ``json_path`` names a file that gets all numbers.  Raises ``UsageError`` for another name.
    """
    groups = chosen(only)
    warnings.filterwarnings("ignore", module=r"torch\.")
    console = Console(highlight=False, markup=False, soft_wrap=True)
    facts = machine_facts()
    console.print(", ".join(f"{k} {v}" for k, v in facts.items()))
    console.print(HEADING, style="bold")
    rows: list[dict[str, object]] = []
    failed = False
    for name, group in groups.items():
        console.print(f"\n{name}: {group.what}", style="bold")
        try:
            for row in _measured(console, name, group, quick):
                console.print(line_of(row))
                rows.append({"group": name, **asdict(row), "verdict": row.verdict})
        except Exception as error:  # one group that cannot run must not hide the others
            console.print(f"{name} could not be measured: {error}")
            failed = True
    if json_path is not None:
        Path(json_path).write_text(json.dumps({"machine": facts, "rows": rows}, indent=1) + "\n")
    return int(failed)


def _measured(console: Console, name: str, group: Group, quick: bool) -> Iterator[Row]:
    with console.status(f"measuring {name}"):
        yield from group.run(quick=quick)
