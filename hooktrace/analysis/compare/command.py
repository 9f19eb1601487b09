"""What the subcommand does: read runs, compare, print and write; raises ``UsageError``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...records.errors import UsageError
from ..document.output import check_writable, json_text, put_out
from ..run import Run
from ..run.files import LOCAL, read_run
from .comparison import compare_runs
from .measure import Measures, measure
from .view import document

SCHEMA = 4
"""Of the JSON: changes when a field changes its name or meaning; new fields may come without."""

_Named = tuple[str, Run]


def run_compare(
    runs: Sequence[str],
    *,
    html: Path | None = None,
    model: str | None = None,
    as_json: bool = False,
    on: str = LOCAL,
    every: int = 1,
) -> None:
    """Compare runs, with the first one.

    ``on``, ``every``: as ``run.load``.
    """
    if len(runs) < 2:
        raise UsageError("one run alone is nothing to compare; pass two or more")
    if html is not None:
        check_writable(html)
    paths = [*map(Path, runs)]
    names = _names(paths)
    first, *others = [(names[path], read_run(path, on=on, every=every)) for path in paths]
    found = [
        compare_runs(_measured(first, ours), _measured(other, theirs))
        for other in others
        for ours, theirs in _models(first, other, model)
    ]
    content = {"schema": SCHEMA, "comparisons": [one.content() for one in found]}
    text = json_text(content) if as_json else None
    put_out("hooktrace compare", document(found), text, html)


def _names(paths: Sequence[Path]) -> dict[Path, str]:
    """Return the last part of each run's path where that tells it from all others."""
    last = [path.name for path in paths]
    return {x: x.name if x.name and last.count(x.name) == 1 else str(x) for x in paths}


def _models(a: _Named, b: _Named, wanted: str | None) -> list[tuple[str, str]]:
    """Return the models of both runs that are compared."""
    ours, theirs = a[1].model_names, b[1].model_names
    shared = [(name, name) for name in ours if name in theirs]
    if wanted is None and shared:
        return shared
    if wanted is not None:
        names = wanted.split("=", 1) if "=" in wanted and wanted not in ours else [wanted]
        if names[0] in ours and names[-1] in theirs:
            return [(names[0], names[-1])]
    raise UsageError(
        f"{'no model is in both' if wanted is None else f'no model is called {wanted!r} in both'}: "
        f"{a[0]} has {', '.join(ours)}, {b[0]} has {', '.join(theirs)}; pass "
        + (f"--model {shared[0][0]}" if shared else f"--model {ours[0]}={theirs[0]}")
    )


def _measured(named: _Named, model: str) -> Measures:
    name, run = named
    found = measure(run, model, name)
    if found is None:
        raise UsageError(
            f"no step of {model} in {name} is steady-state, or all were sampled, so there is "
            "nothing to compare; train for some more steps"
        )
    return found
