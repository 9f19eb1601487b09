"""Two runs to their comparison: a pure function.

Measures --quantities, parts, buckets: tables of series--> differences.py --> Comparison
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isnan

import numpy as np
from msgspec.structs import replace

from ...records.hook_names import how_to_see
from ..run.bootstrap import MEAN, MEDIAN, MIDDLE_HALF
from ..run.dense import Floats
from ..run.parts import KINDS, break_even
from .comparison import BucketPair, Comparison, Difference, Quantity, Unit
from .differences import Table, differences
from .measure import TITLES, Grouping, Measures, grouping, step_table
from .pairing import Pair, doubts, is_same_model, limits, pairs, unlike
from .sentence import run_names, sentence

_QUANTITIES: tuple[tuple[str, str, Unit, float], ...] = (
    ("period", "step time", "ns", MEDIAN),
    ("period_mean", "step time, mean", "ns", MEAN),
    ("exposed", "exposed", "ns", MEDIAN),
    ("overlap", "overlap", "share", MEDIAN),
    ("busy", "communication time", "ns", MEDIAN),
    ("wire_bytes", "sent", "bytes", MEDIAN),
    ("error", "relative error", "error", MEDIAN),
)


def compare_runs(a: Measures, b: Measures) -> Comparison:
    """Return the comparison of ``b`` with ``a``; intervals are of the steps of these two runs."""
    is_same = is_same_model(a.facts, b.facts)
    of = grouping(a, b)
    step, *parts = _parts(a, b, of)
    paired = pairs(a.facts, b.facts) if is_same else []
    found = Comparison(
        a=a.facts,
        b=b.facts,
        names=run_names(a.facts, b.facts),
        sentence="",
        unlike=tuple(unlike(a.facts, b.facts)),
        limits=(*limits(a.facts, b.facts), *_unseen(a, b)),
        doubts=(),
        quantities=tuple(_quantities(a, b, of, is_same)),
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


def _unseen(a: Measures, b: Measures) -> Iterator[str]:
    for hook in sorted({one.facts.hook for one in (a, b) if one.is_opaque}):
        yield (
            f"{hook} is a plain hook: its stages are not seen, so they are not compared; to see "
            f"them, {how_to_see(hook)}"
        )


def _pays_below(found: Comparison) -> float | None:
    """Return the break-even: bytes sent less over what compress and decompress add by parts."""
    sent, added = found.quantity("wire_bytes"), [found.part("compress"), found.part("decompress")]
    if sent is None or 1 in (found.a.world_size, found.b.world_size):  # which has no link
        return None
    return break_even(-sent.apart, sum(one.apart for one in added if one is not None))


def _quantities(a: Measures, b: Measures, of: Grouping, is_same: bool) -> Iterator[Quantity]:
    for key, title, unit, share in _QUANTITIES if is_same else _QUANTITIES[:2]:
        found = _of_series(a, b, key.removesuffix("_mean"), share)
        if key != "error" or (found.a, found.b) != (None, None):  # else nothing was probed
            yield Quantity(key=key, title=title, unit=unit, difference=found)
    for key in of if is_same and "exposed" not in of else ():
        found = _of_series(a, b, key, MEDIAN)
        if found.a or found.b:
            yield Quantity(key=key, title=f"in {TITLES.get(key, key)}", difference=found)


def _of_series(a: Measures, b: Measures, key: str, share: float) -> Difference:
    def table(one: Measures) -> Table:
        """Return the series; zeros of a stage that a run does not have."""
        found = one.series[key].values if key in one.series else np.zeros_like(one.parts.period)
        return Table.of(found)

    return differences(table(a), table(b), share)[0]


def _parts(a: Measures, b: Measures, of: Grouping) -> list[Quantity]:
    """Return the whole step first, then its parts."""
    runs = [step_table(one, of) for one in (a, b)]
    keys = [key for key in runs[0] if key == "period" or any(run[key].any() for run in runs)]
    of_a, of_b = (Table(np.stack([run[x] for x in keys], axis=1), run["period"]) for run in runs)
    found = differences(of_a, of_b, MIDDLE_HALF)
    return [
        Quantity(key=key, title=TITLES.get(key, key), difference=one)
        for key, one in zip(keys, found, strict=True)
    ]


def _buckets(a: Measures, b: Measures, of: Grouping, paired: list[Pair]) -> Iterator[BucketPair]:
    at = [pair.a for pair in paired], [pair.b for pair in paired]

    def tables(kinds: Sequence[str]) -> tuple[Table, Table]:
        of_a, of_b = (
            Table(one.exposed(kinds)[:, places], one.parts.period)
            for one, places in zip((a, b), at, strict=True)
        )
        return of_a, of_b

    moved: dict[str, Floats] = {}
    for key, kinds in of.items() if "exposed" not in of else ():
        of_a, of_b = (table.estimate(MIDDLE_HALF) for table in tables(kinds))
        moved[key] = of_b - of_a
    whole = differences(*tables(KINDS), MIDDLE_HALF)
    for i, (pair, found) in enumerate(zip(paired, whole, strict=True)):
        one = a.facts.buckets[pair.a]
        stages = [(name, float(ns[i])) for name, ns in moved.items() if ns[i] and not isnan(ns[i])]
        yield BucketPair(
            a=one.bucket, b=b.facts.buckets[pair.b].bucket, by=pair.by,
            gradient_bytes=one.gradient_bytes, exposed=found, unit=one.unit,
            stage=max(stages, key=lambda item: abs(item[1]), default=None),
        )  # fmt: skip
