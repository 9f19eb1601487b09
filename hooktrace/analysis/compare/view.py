"""Comparisons as a document: the sentence, what is doubtful, then what it rests on.

Comparison --> sentence, what differs besides, doubts, both runs; quantities, parts
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ...records.errors import UsageError
from ...records.units import counted, mb
from ..document.output import check_writable, json_text, put_out
from ..document.tree import Column, Heading, Items, Node, Pairs, Table, Text, Tone
from ..run import Run
from ..run.files import LOCAL, read_run
from .comparison import MINUS, Comparison, Difference, Unit, Verdict, compare_runs, signed, value
from .measure import Measures, RunFacts, measure

SCHEMA = 5
"""Of the JSON: changes when a field changes its name or meaning; new fields may come without."""

_TONES: dict[Verdict, Tone] = {
    "differs": "strong", "not shown": "soft", "same": "soft", "unknown": "warn",
}  # fmt: skip
_UNITS = {"ns": ", ms", "bytes": ", MB"}
_LEAST_SHARE = 0.0005
"""Below, one digit after the point says nothing but 0."""
_Named = tuple[str, Run]
_Row = tuple[str, Difference, Unit]


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


def document(found: Sequence[Comparison]) -> Iterator[Node]:
    """Yield the nodes of comparisons with one first run."""
    if len(found) > 1:
        for one in found:
            yield Text(one.sentence, "strong")
    for one in found:
        if len(found) > 1:
            yield Heading(f"{one.names[1]} against {one.names[0]}", 2)
        yield from _comparison(one)


def _comparison(one: Comparison) -> Iterator[Node]:
    yield Text(one.sentence, "strong")
    if one.unlike:
        yield Heading("What else differs")
        yield Items(one.unlike, "soft")
    yield Heading("What makes this doubtful, or is not compared")
    yield Items(one.doubts, "warn")
    yield Heading("What is compared")
    yield Pairs([("A", _run(one.a)), ("B", _run(one.b))])
    yield _quantities(one)
    if any(q.difference.drifts for q in one.quantities):
        yield Text("drifts: halves of one run differ by more than the runs do", "soft")
    yield from _why_unknown(one)
    if one.step is not None:
        yield _parts(one, one.step)


def _run(run: RunFacts) -> str:
    given = "given to them" if run.is_sharded else "of gradients"
    return (
        f"{run.name}: {run.model}, {run.hook}, {run.steps:,} steps on "
        f"{counted(len(run.ranks), 'rank')}, {run.bucket_count} {run.noun}, "
        f"{mb(run.gradient_bytes)} {given}, torch {run.torch_version or 'unknown'}, "
        f"{', '.join(run.hosts) or 'host unknown'}"
    )


def _table(title: str, first: str, rows: Sequence[_Row], caption: str) -> Table:
    """Return the table of some differences; ``first``: what the column of their names is called."""
    numbers = map(Column, ("A", "B", f"B {MINUS} A", "95 %", "of A"))
    columns = [Column(first, of="words"), *numbers, Column("", of="words")]
    tones = [_TONES[found.verdict] for _, found, _ in rows]
    return Table(title, columns, [_cells(*row) for row in rows], caption, tones=tones)


def _cells(title: str, found: Difference, unit: Unit) -> list[str]:
    cells = [value(found.a, unit), value(found.b, unit), signed(found.difference, unit)]
    verdict = "drifts" if found.drifts else found.verdict
    return [title, *cells, _within(found, unit), _share(found, unit), verdict]


def _within(found: Difference, unit: Unit) -> str:
    """Return the interval of a difference; ``-`` where none is known."""
    if found.low is None or found.high is None:
        return "-"
    if found.low == found.high:
        return "exact"
    return f"{signed(found.low, unit)} to {signed(found.high, unit)}"


def _share(found: Difference, unit: Unit) -> str:
    """Return the difference as a share of the first side."""
    if found.share is None or unit == "share" or found.verdict == "unknown":
        return "-"
    return "< 0.1 %" if 0 < abs(found.share) < _LEAST_SHARE else signed(found.share, "share")


def _quantities(one: Comparison) -> Table:
    noun = "unit" if one.a.is_sharded and one.b.is_sharded else "bucket"
    return _table(
        "The median step, ranks averaged",
        "",
        [(q.title + _UNITS.get(q.unit, ""), q.difference, q.unit) for q in one.quantities],
        f"in a stage: with at least one {noun} in it; {noun}s overlap, so stages do not add up",
    )


def _parts(one: Comparison, step: Difference) -> Table:
    rows: list[_Row] = [(part.title, part.difference, part.unit) for part in one.parts]
    caption = "means over the middle half of the steps by step time; they add up"
    rows.append(("step time", step, "ns"))
    return _table("What accounts for the step time", "ms", rows, caption)


def _why_unknown(one: Comparison) -> Iterator[Node]:
    """Yield why rows are unknown, each reason once."""
    titles: dict[str, list[str]] = {}
    for quantity in one.quantities:
        if quantity.difference.verdict == "unknown" and quantity.difference.why:
            titles.setdefault(quantity.difference.why, []).append(quantity.title)
    for why, rows in titles.items():
        yield Text(f"unknown: {', '.join(rows)}, because {why}", "soft")
