"""What the subcommand does: read a run, say what held it up, and give an exit code."""

from __future__ import annotations

import os
import time

import msgspec
from rich.console import Console

from ...records.hang import hang_kind
from ..document.output import json_text
from ..document.terminal import show
from ..run import Hang, Run, hangs
from ..run.files import read_run
from .view import behind, document, rank_ends

SCHEMA = 1
"""Of the JSON: changes when a field changes its name or meaning; new fields may come without."""
NONE, LASTS, APART = 0, 1, 3
"""Exit codes: no hang, or it went on; a hang of which no end is known, or whose step broke off;
none recorded, but files without their end, whose last whole steps differ.  2 is for what cannot be
read."""


def run_hang(path: str | os.PathLike[str], *, stacks: bool = False, as_json: bool = False) -> int:
    """Print what is known of the hangs of a run; returns the exit code, raises ``UsageError``.

    ``stacks``: with those of each rank.  ``as_json``: for programs, always with them.
    """
    run = read_run(path)
    found = hangs(run)
    console = Console(highlight=False, markup=False)
    if as_json:
        console.file.write(hang_json(run, found))
    else:
        if not console.is_terminal:  # in a pipe or a file each thing that is said is one line
            console.width = 10_000
        show(console, document(run, found, time.time_ns(), stacks=stacks))
    if found:
        return LASTS if not all(one.went_on for one in found) else NONE
    ends = rank_ends(run)
    return APART if behind(ends) and not all(end.closed for end in ends) else NONE


def hang_json(run: Run, found: list[Hang]) -> str:
    """Return the hangs and the ends of the files, as one JSON object with a newline at its end."""
    ends = rank_ends(run)
    hung = [_content(one) for one in found]
    return json_text(
        {"schema": SCHEMA, "run": run.info, "hangs": hung, "ranks": ends, "behind": behind(ends)}
    )


def _content(hang: Hang) -> dict[str, object]:
    record = msgspec.structs.asdict(hang.record)
    del record["failed"]
    return {
        **record,
        "sentence": hang.record.sentence,
        "fix": hang_kind(hang.record.kind).fix_of(hang.record.unit),
        "ended": hang.end is not None,
        "ended_after_ns": hang.took_ns,
        "went_on": hang.went_on,
        "outcome": hang.outcome,
        "recorded_by": hang.ranks,
    }
