"""Comparisons as a document: the sentence, what is doubtful, then what it rests on.

Comparison --> sentence, what differs besides, doubts, sides; pictures; quantities, parts, buckets
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...records.units import mb
from ..document.tree import Column, Heading, Items, Node, Pairs, Picture, Table, Text, Tone
from .comparison import BucketPair, Comparison, Difference, RunFacts, Unit, Verdict
from .pictures import bucket_picture, parts_picture, shares_picture
from .sentence import MINUS, break_even_text, share, signed, value, within

_MOST_BUCKETS = 12
_TONES: dict[Verdict, Tone] = {
    "differs": "strong",
    "not shown": "soft",
    "same": "soft",
    "unknown": "warn",
}
_UNITS = {"ns": "ms", "bytes": "MB"}


def document(found: Sequence[Comparison], *, pictures: bool) -> Iterator[Node]:
    """Yield the nodes of comparisons with one first side."""
    if len(found) > 1:
        for one in found:
            yield Text(one.sentence, "strong")
    for one in found:
        if len(found) > 1:
            yield Heading(f"{one.b.name} against {one.a.name}", 2)
        yield from _comparison(one, pictures)


def _comparison(one: Comparison, pictures: bool) -> Iterator[Node]:
    yield Text(one.sentence, "strong")
    if one.unlike:
        yield Heading("What else differs")
        yield Items(one.unlike, "soft")
    if one.doubts or one.limits:
        yield Heading("What makes this doubtful, or is not compared")
        yield Items([*one.doubts, *one.limits], "warn")
    yield Heading("What is compared")
    yield Pairs([("A", _runs(one, "a")), ("B", _runs(one, "b"))])
    if pictures:
        yield from _pictures(one)
    yield _quantities(one)
    if any(_drifts(q.difference) for q in one.quantities):
        yield Text("drifts: halves of one run differ by more than the runs do", "soft")
    yield from _why_unknown(one)
    if one.step is not None:
        yield _parts(one, one.step)
    if one.pays_below_bytes_per_second is not None:
        yield Text(break_even_text(one), "soft")
    apart = [pair for pair in one.buckets if pair.exposed.difference != 0]
    if apart:
        yield _buckets(one, apart)


def _runs(one: Comparison, side: str) -> str:
    return "; ".join(map(_run, getattr(one, side).runs))


def _run(run: RunFacts) -> str:
    ranks = "1 rank" if len(run.ranks) == 1 else f"{len(run.ranks)} ranks"
    noun, given = ("collectives of units", "given to them") if run.is_sharded else (
        "buckets", "of gradients",
    )  # fmt: skip
    return (
        f"{run.name}: {run.model}, {run.hook}, {run.steps:,} steps on {ranks}, "
        f"{len(run.buckets)} {noun}, {mb(run.gradient_bytes)} {given}, torch "
        f"{run.torch_version or 'unknown'}, {', '.join(run.hosts) or 'host unknown'}"
    )


def _noun(one: Comparison) -> str:
    return "unit" if one.is_of_units else "bucket"


def _pictures(one: Comparison) -> Iterator[Node]:
    noun = _noun(one)
    each = "How long training waits for each unit's collective."
    if not one.is_of_units:
        each = (
            "The time until a bucket is done since the one before it was, after the last "
            "gradient. Names: the bucket's largest parameter."
        )
    sides = [("side-a", f"A, {one.a.name}"), ("side-b", f"B, {one.b.name}")]
    for picture in (
        Picture(
            "How much each quantity differs", shares_picture(one),
            "In percent of A. Dot: the difference of medians; line: its 95 % interval, of each by "
            "itself. Pale: not shown to differ. Beyond 300 % it is cut off.",
        ),
        Picture(
            "What accounts for the step time", parts_picture(one),
            "Means over the middle half of the steps, which add up to the last row. Of what is "
            f"exposed, the stage of the {noun} that the step then waits for.",
        ),
        Picture(
            f"What each {noun} adds to the exposed time", bucket_picture(one), each, sides,
        ),
    ):  # fmt: skip
        if picture.svg is not None:
            yield picture


def _columns(first: str, *more: str) -> list[Column]:
    names = ("A", "B", f"B {MINUS} A", "95 %")
    return [Column(first, of="words"), *map(Column, (*names, *more))]


def _quantities(one: Comparison) -> Table:
    rows, tones = [], []
    for quantity in one.quantities:
        unit = f", {_UNITS[quantity.unit]}" if quantity.unit in _UNITS else ""
        rows.append(_row(f"{quantity.title}{unit}", quantity.difference, quantity.unit))
        tones.append(_TONES[quantity.difference.verdict])
    noun = _noun(one)
    return Table(
        "Medians of a step", [*_columns("", "of A"), Column("", of="words")], rows,
        f"of each the mean of its ranks; in a stage: with at least one {noun} in it; {noun}s "
        "overlap, so stages do not add up", tones=tones,
    )  # fmt: skip


def _parts(one: Comparison, step: Difference) -> Table:
    parts = [(part.title, part.difference) for part in one.parts]
    rows = [_row(title, found, "ns") for title, found in [*parts, ("step time", step)]]
    return Table(
        "What accounts for the step time", [*_columns("ms", "of A"), Column("", of="words")],
        rows, "means over the middle half of the steps by step time; they add up",
        tones=[_TONES[found.verdict] for _, found in [*parts, ("", step)]],
    )  # fmt: skip


def _buckets(one: Comparison, apart: Sequence[BucketPair]) -> Table:
    is_told, noun = any(pair.stage is not None for pair in apart), _noun(one)
    most = sorted(apart, key=lambda pair: -abs(pair.exposed.difference or 0.0))[:_MOST_BUCKETS]
    shown = sorted(most, key=lambda pair: pair.a)
    folded = [pair for pair in one.buckets if pair not in most]
    less = "differ less, or not at all" if len(apart) > len(most) else "do not differ"

    def row(pair: BucketPair) -> list[str]:
        stage = "" if pair.stage is None else f"{signed(pair.stage[1], 'ns')} {pair.stage[0]}"
        cells = _row(pair.title, pair.exposed, "ns")
        return [*cells[:5], cells[6], *([stage] if is_told else [])]

    return Table(
        f"What each {noun} adds to the exposed time, ms",
        [
            *_columns(noun),
            Column("", of="words"),
            *([Column("most of it", of="words")] if is_told else []),
        ],
        [row(pair) for pair in shown],
        "means over the middle half of the steps"
        f"{'' if one.is_of_units else '; index in A, and in B where it is another'}",
        folded=[row(pair) for pair in folded], folded_name=f"that {less}",
        tones=[_TONES[pair.exposed.verdict] for pair in shown],
    )  # fmt: skip


def _why_unknown(one: Comparison) -> Iterator[Node]:
    """Yield why rows are unknown, each reason once."""
    titles: dict[str, list[str]] = {}
    for quantity in one.quantities:
        if quantity.difference.verdict == "unknown" and quantity.difference.why:
            titles.setdefault(quantity.difference.why, []).append(quantity.title)
    for why, rows in titles.items():
        yield Text(f"unknown: {', '.join(rows)}, because {why}", "soft")


def _drifts(found: Difference) -> bool:
    return found.verdict == "not shown" and found.why is not None


def _row(title: str, found: Difference, unit: Unit) -> list[str]:
    cells = [value(found.a, unit), value(found.b, unit), signed(found.difference, unit)]
    verdict = "drifts" if _drifts(found) else found.verdict
    return [title, *cells, within(found, unit), share(found, unit), verdict]
