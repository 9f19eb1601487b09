"""What the subcommand does: read runs, compare, print and write; raises ``UsageError``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ...records.errors import UsageError
from ..document.html import check_writable
from ..document.output import json_text, put_out
from ..run import Run
from ..run.engines import LOCAL
from ..run.files import fetched, is_url, read_run
from .compare_runs import compare_runs
from .losses import Series, losses
from .measure import Measures, measure
from .view import document

SCHEMA = 1
"""Of the JSON: changes when a field changes its name or meaning; new fields may come without."""


class _Read(NamedTuple):
    """A run that was read, and the losses beside it."""

    name: str
    run: Run
    losses: dict[str, Series]


def run_compare(
    sides: Sequence[str],
    *,
    html: Path | None = None,
    model: str | None = None,
    as_json: bool = False,
    on: str = LOCAL,
    every: int = 1,
) -> None:
    """Compare runs with the first one, each a path or several of one set-up, joined by commas.

    ``on``, ``every``: as ``run.load``.
    """
    if len(sides) < 2:
        raise UsageError("one run alone is nothing to compare; pass two or more")
    if html is not None:
        check_writable(html)
    paths = [paths_of(side) for side in sides]
    names = _names([path for side in paths for path in side])
    first, *others = [
        [_Read(names[path], read_run(path, on=on, every=every), losses(path)) for path in side]
        for side in paths
    ]
    found = [
        compare_runs(_measured(first, ours), _measured(other, theirs))
        for other in others
        for ours, theirs in _models(first, other, model)
    ]
    text = json_text({"schema": SCHEMA, "comparisons": found}) if as_json else None
    put_out("hooktrace compare", partial(document, found), text, html)


def paths_of(side: str) -> list[Path]:
    """Return the runs of a side: a path that is there, else paths between commas, also ``*``.

    Of a URL the folder of a copy.
    """
    if Path(side).exists():
        return [Path(side)]
    found: list[Path] = []
    for part in filter(None, side.split(",")):
        path = fetched(part)
        if is_url(part) or path.exists() or "*" not in part:
            found.append(path)
            continue
        many = sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
        if not many:
            raise UsageError(f"nothing is called {part}; pass the logdirs of runs")
        found += many
    if len(set(found)) < len(found):
        raise UsageError(f"a run is twice in {side}; pass each once")
    return found


def _names(paths: Sequence[Path]) -> dict[Path, str]:
    """Return the last part of each run's path where that tells it from all others."""
    last = [path.name for path in paths]
    return {x: x.name if x.name and last.count(x.name) == 1 else str(x) for x in paths}


def _models(a: Sequence[_Read], b: Sequence[_Read], wanted: str | None) -> list[tuple[str, str]]:
    """Return the models of both sides that are compared."""
    ours, theirs = (_common(side) for side in (a, b))
    shared = [(name, name) for name in ours if name in theirs]
    if wanted is None and shared:
        return shared
    if wanted is not None:
        names = wanted.split("=", 1) if "=" in wanted and wanted not in ours else [wanted]
        if names[0] in ours and names[-1] in theirs:
            return [(names[0], names[-1])]
    raise UsageError(
        f"{'no model is in both' if wanted is None else f'no model is called {wanted!r} in both'}: "
        f"{a[0].name} has {', '.join(ours)}, {b[0].name} has {', '.join(theirs)}; pass "
        + (f"--model {shared[0][0]}" if shared else f"--model {ours[0]}={theirs[0]}")
    )


def _common(side: Sequence[_Read]) -> list[str]:
    """Return the models that all runs of a side have."""
    models = [one.run.model_names for one in side]
    found = [name for name in models[0] if all(name in others for others in models)]
    if not found:
        raise UsageError(
            f"the runs of one side, {', '.join(one.name for one in side)}, have no model in "
            "common; join runs of one set-up by commas, and pass others as further runs"
        )
    return found


def _measured(side: Sequence[_Read], model: str) -> list[Measures]:
    found = list(_measures(side, model))
    hooks = {one.facts.hook for one in found}
    if len(hooks) > 1:
        raise UsageError(
            f"the runs of one side have different hooks, {', '.join(sorted(hooks))}; join runs of "
            "one set-up by commas, and pass others as further runs"
        )
    return found


def _measures(side: Sequence[_Read], model: str) -> Iterator[Measures]:
    for name, run, beside in side:
        one = measure(run, model, name, beside)
        if one is None:
            raise UsageError(
                f"no step of {model} in {name} has settled, or all were probed, so there is "
                "nothing to compare; train for some more steps"
            )
        yield one
