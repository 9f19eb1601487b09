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
from ..run.parts import break_even
from .bootstrap import MEAN, MEDIAN, MIDDLE_HALF, estimate
from .comparison import (
    BucketKey,
    BucketPair,
    Comparison,
    Difference,
    Part,
    Quantity,
    Side,
    Unit,
)
from .differences import Table, differences
from .measure import (
    TITLES,
    Grouping,
    Measures,
    exposed_parts,
    grouping,
    is_opaque,
    loss_difference,
    step_table,
)
from .pairing import Pair, doubts, is_same_model, limits, pairs, unlike
from .sentence import sentence, side_names

_QUANTITIES: tuple[tuple[str, str, Unit, float], ...] = (
    ("period", "step time", "ns", MEDIAN),
    ("period", "step time, mean", "ns", MEAN),
    ("exposed", "exposed", "ns", MEDIAN),
    ("overlap", "overlap", "share", MEDIAN),
    ("busy", "busy", "ns", MEDIAN),
    ("wire_bytes", "sent", "bytes", MEDIAN),
    ("error", "relative error", "error", MEDIAN),
)


def compare_runs(a: Sequence[Measures], b: Sequence[Measures]) -> Comparison:
    """Return the comparison of ``b`` with ``a``, each one or several runs of one set-up.

    Of one run a side intervals are of its steps; of several, of the runs.  Runs of one side are
    described by the first.
    """
    first, second = a[0].facts, b[0].facts
    is_same = is_same_model(first, second)
    of = grouping([*a, *b])
    step, *parts = _parts(a, b, of)
    loss, no_loss = _loss(a, b) if is_same else ((), ())
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
        buckets=tuple(_buckets(a, b, of, paired)),
    )
    return replace(
        found,
        sentence=sentence(found),
        doubts=tuple(doubts(found)),
        pays_below_bytes_per_second=_pays_below(found),
    )


def _other_buckets(side: Sequence[Measures]) -> Iterator[str]:
    first = side[0].facts
    for one in side[1:]:
        if one.facts.buckets != first.buckets:
            yield f"{one.facts.name} has other buckets than {first.name}; totals alone are compared"


def _pays_below(found: Comparison) -> float | None:
    sent = found.quantity("wire_bytes")
    parts = {part.key: part.difference.difference for part in found.parts}
    added = [parts.get(key) for key in ("compress", "decompress")]
    known = [ns for ns in added if ns is not None]
    if sent is None or sent.a is None or sent.b is None or not known:
        return None
    if any(run.world_size == 1 for side in (found.a, found.b) for run in side.runs):
        return None  # there is no link
    return break_even(sent.a - sent.b, sum(known))


def _unseen(sides: Sequence[Measures]) -> Iterator[str]:
    for hook in sorted({one.facts.hook for one in sides if is_opaque(one)}):
        yield (
            f"{hook} is opaque: of its stages nothing is seen, so they are not compared; to see "
            f"them, {how_to_see(hook)}"
        )


def _quantities(
    a: Sequence[Measures], b: Sequence[Measures], of: Grouping, is_same: bool
) -> Iterator[Quantity]:
    for key, title, unit, share in _QUANTITIES if is_same else _QUANTITIES[:2]:
        found = _of_series(a, b, key, share)
        if key == "error" and found.a is None and found.b is None:
            continue  # nothing was probed
        name = "period_mean" if share == MEAN else key
        yield Quantity(key=name, title=title, unit=unit, difference=found)
    for key in of if is_same and "exposed" not in of else ():
        found = _of_series(a, b, key, MEDIAN)
        if found.a or found.b:
            yield Quantity(key=key, title=f"in {TITLES[key]}", unit="ns", difference=found)


def _of_series(a: Sequence[Measures], b: Sequence[Measures], key: str, share: float) -> Difference:
    tables = [[Table.of(_values(one, key)) for one in side] for side in (a, b)]
    return differences(tables[0], tables[1], share)[0]


def _values(one: Measures, key: str) -> Floats:
    """Return a series of a run; zeros of a stage that it does not have."""
    if key in one.series:
        return one.series[key].values
    return np.zeros_like(one.parts.period)


def _parts(a: Sequence[Measures], b: Sequence[Measures], of: Grouping) -> list[Part]:
    """Return the whole step first, then its parts."""
    columns = [[{"period": m.parts.period, **step_table(m, of)} for m in side] for side in (a, b)]
    of_step = list(columns[0][0])[1:]
    every = [run for side in columns for run in side]
    keys = ["period", *(k for k in of_step if any(run[k].any() for run in every))]
    tables = [
        [Table(np.stack([run[key] for key in keys], axis=1), run["period"]) for run in side]
        for side in columns
    ]
    found = differences(tables[0], tables[1], MIDDLE_HALF)
    return [
        Part(key=key, title=TITLES.get(key, "step time"), difference=one)
        for key, one in zip(keys, found, strict=True)
    ]


def _buckets(
    a: Sequence[Measures], b: Sequence[Measures], of: Grouping, paired: list[Pair]
) -> Iterator[BucketPair]:
    if not paired:
        return
    sides = [(a, [pair.a for pair in paired]), (b, [pair.b for pair in paired])]
    whole = [
        [Table(m.parts.exposed_in.sum(axis=0)[:, at], m.parts.period) for m in side]
        for side, at in sides
    ]
    by_stage = {
        key: [_middle([exposed_parts(m, kinds)[:, at] for m in side], side) for side, at in sides]
        for key, kinds in of.items()
    }
    exposed = differences(whole[0], whole[1], MIDDLE_HALF)
    for i, (pair, found) in enumerate(zip(paired, exposed, strict=True)):
        key = a[0].facts.buckets[pair.a]
        moved = {name: float(y[i] - x[i]) for name, (x, y) in by_stage.items()}
        known = [(name, ns) for name, ns in moved.items() if ns and not isnan(ns)]
        most = max(known, key=lambda item: abs(item[1]), default=None)
        most = None if "exposed" in of else most
        yield BucketPair(
            a=key.bucket, b=b[0].facts.buckets[pair.b].bucket, by=pair.by,
            gradient_bytes=key.gradient_bytes, largest=_largest(key), exposed=found, stage=most,
            unit=key.unit,
        )  # fmt: skip


def _middle(values: list[Floats], side: Sequence[Measures]) -> Floats:
    """Return the mean over runs of the mean over the middle half of the steps, (buckets,)."""
    found = [
        estimate(one, m.parts.period, MIDDLE_HALF)
        for one, m in zip(values, side, strict=True)
        if len(m.parts.period)
    ]
    return np.mean(found, axis=0) if found else np.full(values[0].shape[1], np.nan)


def _largest(key: BucketKey) -> str | None:
    return max(key.parameters, key=lambda p: prod(p[1]))[0] if key.parameters else None


def _loss(
    a: Sequence[Measures], b: Sequence[Measures]
) -> tuple[tuple[Quantity, ...], tuple[str, ...]]:
    """Return the loss of the first run a side, or why it is not known.

    No other run has been trained on the same steps.
    """
    tag, found, why = loss_difference(a[0].losses, b[0].losses)
    if found is None:
        return (), (f"loss: unknown, because {why}",)
    title = f"{tag}, later half"
    return (Quantity(key="loss", title=title, unit="loss", difference=found),), ()
