"""Two sides to their comparison: a pure function.

Measures --quantities, parts, buckets: tables of series--> differences.py --> Comparison
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isnan, prod

import numpy as np
from msgspec.structs import replace

from ...records.hook_names import how_to_see
from ..run.dense import Floats
from ..run.parts import KINDS, break_even
from .bootstrap import MEAN, MEDIAN, MIDDLE_HALF
from .comparison import BucketPair, Comparison, Difference, Quantity, Side, Unit
from .differences import Table, differences
from .losses import loss_difference
from .measure import TITLES, Grouping, Measures, grouping, step_table
from .pairing import Pair, doubts, is_same_model, limits, pairs, unlike
from .sentence import sentence, side_names

_Runs = Sequence[Measures]

_QUANTITIES: tuple[tuple[str, str, Unit, float], ...] = (
    ("period", "step time", "ns", MEDIAN),
    ("period_mean", "step time, mean", "ns", MEAN),
    ("exposed", "exposed", "ns", MEDIAN),
    ("overlap", "overlap", "share", MEDIAN),
    ("busy", "busy", "ns", MEDIAN),
    ("wire_bytes", "sent", "bytes", MEDIAN),
    ("error", "relative error", "error", MEDIAN),
)


def compare_runs(a: _Runs, b: _Runs) -> Comparison:
    """Return the comparison of ``b`` with ``a``, each one or several runs of one set-up.

    Of one run a side intervals are of its steps; of several, of the runs.  Runs of one side are
    described by the first.
    """
    first, second = a[0].facts, b[0].facts
    is_same = is_same_model(first, second)
    of = grouping([*a, *b])
    step, *parts = _parts(a, b, of)
    loss, no_loss = _loss(a, b) if is_same else ([], [])
    names = side_names([one.facts for one in a], [one.facts for one in b])
    mixed = [*_other_buckets(a), *_other_buckets(b)] if is_same else []
    paired = pairs(first, second) if is_same and not mixed else []
    found = Comparison(
        a=Side(names[0], tuple(one.facts for one in a)),
        b=Side(names[1], tuple(one.facts for one in b)),
        sentence="",
        unlike=tuple(unlike(first, second)),
        limits=(*limits(first, second), *mixed, *_unseen([*a, *b]), *no_loss),
        doubts=(),
        by_runs=len(a) + len(b) > 2,
        quantities=(*_quantities(a, b, of, is_same), *loss),
        step=step.difference if is_same else None,
        parts=tuple(parts) if is_same else (),
        buckets=tuple(_buckets(a, b, of, paired)) if paired else (),
    )
    return replace(
        found,
        sentence=sentence(found),
        doubts=tuple(doubts(found)),
        pays_below_bytes_per_second=_pays_below(found),
    )


def _other_buckets(side: _Runs) -> Iterator[str]:
    first = side[0].facts
    for one in side[1:]:
        if one.facts.buckets != first.buckets:
            yield f"{one.facts.name} has other buckets than {first.name}; totals alone are compared"


def _unseen(sides: _Runs) -> Iterator[str]:
    for hook in sorted({one.facts.hook for one in sides if one.is_opaque}):
        yield (
            f"{hook} is opaque: of its stages nothing is seen, so they are not compared; to see "
            f"them, {how_to_see(hook)}"
        )


def _pays_below(found: Comparison) -> float | None:
    """Return the break-even: bytes sent less over what compress and decompress add by parts."""
    sent, added = found.quantity("wire_bytes"), [found.part("compress"), found.part("decompress")]
    has_link = all(run.world_size != 1 for side in (found.a, found.b) for run in side.runs)
    if sent is None or not has_link:
        return None
    return break_even(-sent.apart, sum(one.apart for one in added if one is not None))


def _quantities(a: _Runs, b: _Runs, of: Grouping, is_same: bool) -> Iterator[Quantity]:
    for key, title, unit, share in _QUANTITIES if is_same else _QUANTITIES[:2]:
        found = _of_series(a, b, key.removesuffix("_mean"), share)
        if key != "error" or (found.a, found.b) != (None, None):  # else nothing was probed
            yield Quantity(key=key, title=title, unit=unit, difference=found)
    for key in of if is_same and "exposed" not in of else ():
        found = _of_series(a, b, key, MEDIAN)
        if found.a or found.b:
            yield Quantity(key=key, title=f"in {TITLES.get(key, key)}", difference=found)


def _of_series(a: _Runs, b: _Runs, key: str, share: float) -> Difference:
    def values(one: Measures) -> Floats:
        """Return the series; zeros of a stage that a run does not have."""
        return one.series[key].values if key in one.series else np.zeros_like(one.parts.period)

    tables = [[Table.of(values(one)) for one in side] for side in (a, b)]
    return differences(tables[0], tables[1], share)[0]


def _parts(a: _Runs, b: _Runs, of: Grouping) -> list[Quantity]:
    """Return the whole step first, then its parts."""
    columns = [[step_table(one, of) for one in side] for side in (a, b)]
    runs = [run for side in columns for run in side]
    keys = [key for key in runs[0] if key == "period" or any(run[key].any() for run in runs)]
    tables = [
        [Table(np.stack([run[key] for key in keys], axis=1), run["period"]) for run in side]
        for side in columns
    ]
    found = differences(tables[0], tables[1], MIDDLE_HALF)
    return [
        Quantity(key=key, title=TITLES.get(key, key), difference=one)
        for key, one in zip(keys, found, strict=True)
    ]


def _buckets(a: _Runs, b: _Runs, of: Grouping, paired: list[Pair]) -> Iterator[BucketPair]:
    places = [pair.a for pair in paired], [pair.b for pair in paired]

    def tables(kinds: Sequence[str]) -> list[list[Table]]:
        return [
            [Table(one.exposed(kinds)[:, at], one.parts.period) for one in side]
            for side, at in zip((a, b), places, strict=True)
        ]

    of_a, of_b = tables(KINDS)
    whole = differences(of_a, of_b, MIDDLE_HALF)
    moved = {}
    for key, kinds in of.items() if "exposed" not in of else ():
        of_a, of_b = tables(kinds)
        moved[key] = _means(of_b) - _means(of_a)
    for i, (pair, found) in enumerate(zip(paired, whole, strict=True)):
        one = a[0].facts.buckets[pair.a]
        stages = [(name, float(ns[i])) for name, ns in moved.items() if ns[i] and not isnan(ns[i])]
        yield BucketPair(
            a=one.bucket, b=b[0].facts.buckets[pair.b].bucket, by=pair.by,
            gradient_bytes=one.gradient_bytes, exposed=found, unit=one.unit,
            largest=max(one.parameters, key=lambda p: prod(p[1]), default=(None,))[0],
            stage=max(stages, key=lambda item: abs(item[1]), default=None),
        )  # fmt: skip


def _means(side: Sequence[Table]) -> Floats:
    """Return the mean over runs of the mean over the middle half of the steps, (buckets,)."""
    found = [table.estimate(MIDDLE_HALF) for table in side if len(table.order)]
    nothing = np.full(side[0].values.shape[1], np.nan)
    return np.mean(found, axis=0) if found else nothing


def _loss(a: _Runs, b: _Runs) -> tuple[list[Quantity], list[str]]:
    """Return the loss of the first run a side, or why it is not known.

    No other run has been trained on the same steps.
    """
    tag, found, why = loss_difference(a[0].losses, b[0].losses)
    if found is None:
        return [], [f"loss: unknown, because {why}"]
    return [Quantity(key="loss", title=f"{tag}, later half", unit="loss", difference=found)], []
