"""What the subcommand does: read runs, compare, print and write; raises ``UsageError``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from rich.console import Console
from rich.text import Text

from ...records.errors import UsageError
from ..document.html import check_writable, write_page
from ..document.terminal import show
from ..run.engines import LOCAL
from ..run.files import fetched, is_url, read_run
from .compare_runs import compare_runs
from .comparison import Comparison
from .measure import Measures, losses, measure
from .view import document

SCHEMA = 1
"""Of the JSON: changes when a field changes its name or meaning; new fields may come without."""


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
    found = compare_sides([paths_of(side) for side in sides], model, on=on, every=every)
    console = Console(highlight=False, markup=False)
    if as_json:
        console.file.write(comparisons_json(found))
    else:
        show(console, document(found, pictures=False))
    if html is not None:
        write_page(html, "hooktrace compare", document(found, pictures=True))
        if not as_json:
            console.print(Text(f"\nwith pictures: {html}"), soft_wrap=True)


def paths_of(side: str) -> list[Path]:
    """Return the runs of a side: a path that is there, else paths between commas, also ``*``.

    Of a URL the folder of a copy.
    """
    if Path(side).exists():
        return [Path(side)]
    found: list[Path] = []
    for part in (part for part in side.split(",") if part):
        if is_url(part):
            found.append(fetched(part))
            continue
        path = Path(part)
        many = sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
        found += [path] if path.exists() or "*" not in part else many
        if "*" in part and not many:
            raise UsageError(f"nothing is called {part}; pass the logdirs of runs")
    if len(set(found)) < len(found):
        raise UsageError(f"a run is twice in {side}; pass each once")
    return found


class _Run(NamedTuple):
    """A run that was read: all its models, and what is compared of each of them."""

    name: str
    models: Sequence[str]
    measured: Callable[[str], Measures | None]


def _read(name: str, path: Path, on: str, every: int) -> _Run:
    run = read_run(path, on=on, every=every)
    return _Run(name, run.model_names, lambda model: measure(run, model, name, losses(path)))


def compare_sides(
    sides: Sequence[Sequence[Path]], model: str | None, *, on: str = LOCAL, every: int = 1
) -> list[Comparison]:
    """Return the comparisons of all sides but the first with it, one a model."""
    runs = [[_read(_name(path, sides), path, on, every) for path in side] for side in sides]
    found = []
    for other in runs[1:]:
        for ours, theirs in _models(runs[0], other, model):
            first, second = _measured(runs[0], ours), _measured(other, theirs)
            found.append(compare_runs(first, second))
    return found


def _name(path: Path, sides: Sequence[Sequence[Path]]) -> str:
    """Return the last part of a run's path where that tells it from all others."""
    same = [one for side in sides for one in side if one.name == path.name]
    return path.name if len(same) == 1 and path.name else str(path)


def _models(a: Sequence[_Run], b: Sequence[_Run], wanted: str | None) -> list[tuple[str, str]]:
    """Return the models of both sides that are compared."""
    ours, theirs = (_common(side) for side in (a, b))
    if wanted is not None:
        names = tuple(wanted.split("=", 1)) if "=" in wanted and wanted not in ours else (wanted,)
        pair = (names[0], names[-1])
        if pair[0] in ours and pair[1] in theirs:
            return [pair]
    shared = [(name, name) for name in ours if name in theirs]
    if wanted is None and shared:
        return shared
    raise UsageError(
        f"{'no model is in both' if wanted is None else f'no model is called {wanted!r} in both'}: "
        f"{a[0].name} has {', '.join(ours)}, {b[0].name} has {', '.join(theirs)}; pass "
        + (f"--model {shared[0][0]}" if shared else f"--model {ours[0]}={theirs[0]}")
    )


def _common(side: Sequence[_Run]) -> list[str]:
    """Return the models that all runs of a side have."""
    names = [run.models for run in side]
    found = [name for name in names[0] if all(name in others for others in names)]
    if not found:
        raise UsageError(
            f"the runs of one side, {', '.join(one.name for one in side)}, have no model in "
            "common; join runs of one set-up by commas, and pass others as further runs"
        )
    return found


def _measured(side: Sequence[_Run], model: str) -> list[Measures]:
    found = list(_measures(side, model))
    hooks = {one.facts.hook for one in found}
    if len(hooks) > 1:
        raise UsageError(
            f"the runs of one side have different hooks, {', '.join(sorted(hooks))}; join runs of "
            "one set-up by commas, and pass others as further runs"
        )
    return found


def _measures(side: Sequence[_Run], model: str) -> Iterator[Measures]:
    for name, _, measured in side:
        one = measured(model)
        if one is None:
            raise UsageError(
                f"no step of {model} in {name} has settled, or all were probed, so there is "
                "nothing to compare; train for some more steps"
            )
        yield one


def comparisons_json(found: Sequence[Comparison]) -> str:
    """Return comparisons for programs, as one JSON object with a newline at its end."""
    content = {"schema": SCHEMA, "comparisons": list(found)}
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode() + "\n"
