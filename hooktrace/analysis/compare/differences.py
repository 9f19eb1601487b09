"""Two runs to their comparison: a pure function.

    Measures of both --quantities, parts: a Table of series each--> Differences --> Comparison

An interval is about these two runs: how much another run of the same set-up would be off, on a
machine that does other things beside, no number of steps can tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, isnan, log, nan
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from ..run.bootstrap import (
    FEWEST_STEPS,
    MEAN,
    MEDIAN,
    MIDDLE_HALF,
    Floats,
    block_length,
    draws_for,
    estimate,
    interval,
    ratio_interval,
    resampled,
)
from ..run.parts import break_even
from .comparison import Comparison, Difference, Quantity, Unit
from .doubts import doubts, is_same_model, limits, unlike
from .measure import TITLES, Grouping, Measures, grouping, step_table
from .sentence import run_names, sentence

_QUANTITIES: tuple[tuple[str, str, Unit, float], ...] = (
    ("period", "step time", "ns", MEDIAN),
    ("period_mean", "step time, mean", "ns", MEAN),
    ("exposed", "exposed", "ns", MEDIAN),
    ("overlap", "overlap", "share", MEDIAN),
    ("communication", "communication time", "ns", MEDIAN),
    ("wire_bytes", "sent", "bytes", MEDIAN),
    ("error", "relative error", "error", MEDIAN),
)


def compare_runs(a: Measures, b: Measures) -> Comparison:
    """Return the comparison of ``b`` with ``a``; intervals are of the steps of these two runs."""
    is_same, of = is_same_model(a.facts, b.facts), grouping(a, b)
    step, *parts = _parts(a, b, of)
    found = Comparison(
        a=a.facts,
        b=b.facts,
        names=run_names(a.facts, b.facts),
        sentence="",
        unlike=tuple(unlike(a.facts, b.facts)),
        limits=tuple(limits(a.facts, b.facts)),
        doubts=(),
        quantities=tuple(_quantities(a, b, of, is_same)),
        step=step.difference if is_same else None,
        parts=tuple(parts) if is_same else (),
    )
    return replace(
        found,
        sentence=sentence(found),
        doubts=tuple(doubts(found)),
        pays_below_bytes_per_second=_pays_below(found),
    )


def _pays_below(found: Comparison) -> float | None:
    """Return the break-even: bytes sent less over what compress and decompress add by parts."""
    sent, added = found.quantity("wire_bytes"), [found.part("compress"), found.part("decompress")]
    if sent is None or 1 in (found.a.world_size, found.b.world_size):  # which has no link
        return None
    return break_even(-sent.apart, sum(one.apart for one in added if one is not None))


def _quantities(a: Measures, b: Measures, of: Grouping, is_same: bool) -> Iterator[Quantity]:
    kinds = of if is_same and "exposed" not in of else ()
    for key, title, unit, share in (
        *(_QUANTITIES if is_same else _QUANTITIES[:2]),
        *((kind, f"in {TITLES.get(kind, kind)}", "ns", MEDIAN) for kind in kinds),
    ):
        # A run that does not have a stage was in it for no time.
        of_a, of_b = (
            Table.of(one.series.get(key.removesuffix("_mean"), np.zeros_like(one.parts.period)))
            for one in (a, b)
        )
        (found,) = differences(of_a, of_b, share)
        is_known = (found.a, found.b) != (None, None)  # else nothing was checked
        if (key != "error" or is_known) and (key not in kinds or found.a or found.b):
            yield Quantity(key=key, title=title, unit=unit, difference=found)


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


_LENGTHS_APART = 1.4
"""Series of about the same block length are resampled together, in the longest one's blocks."""


_DRIFTS = "the halves of one run differ by more than the runs do"


class Table(NamedTuple):
    """Series of a run, (steps, series), and by what its steps are ordered, (steps,)."""

    values: Floats
    order: Floats

    @classmethod
    def of(cls, values: Floats) -> Table:
        """Return the table of one series, ordered by itself."""
        return cls(values[:, None], values)

    def estimate(self, share: float) -> Floats:
        """Return what ``bootstrap.estimate`` does; NaN of no steps."""
        if not len(self.order):
            return np.full(self.values.shape[1], nan)
        return estimate(self.values, self.order, share)

    def drift(self, share: float) -> Floats:
        """Return the estimate of the second half of the steps less that of the first."""
        at = len(self.order) // 2
        first, second = (Table(self.values[x], self.order[x]) for x in (np.s_[:at], np.s_[at:]))
        return second.estimate(share) - first.estimate(share)

    def block_length(self, i: int) -> int:
        """Return that of a series; at least that of the order."""
        own = block_length(self.values[:, i])
        return own if self.values.shape[1] == 1 else max(own, block_length(self.order))


def differences(a: Table, b: Table, share: float) -> list[Difference]:
    """Return the difference of each series, of two runs' tables of the same series.

    ``share``: of the ordered steps that the estimate is a mean of, as in ``bootstrap``.
    """
    fewest = min(len(a.order), len(b.order))
    why = f"{fewest} steps are too few to tell how they vary; {FEWEST_STEPS} are needed"
    why = why if fewest else "one of the runs has no such number"
    found = [
        Difference(a=_some(x), b=_some(y), difference=_some(y - x), verdict="unknown", why=why)
        for x, y in zip(a.estimate(share), b.estimate(share), strict=True)
    ]
    if not fewest:
        return found
    constant = (np.ptp(a.values, axis=0) == 0) & (np.ptp(b.values, axis=0) == 0)
    for i in np.flatnonzero(constant).tolist():
        found[i] = _exact(float(a.values[0, i]), float(b.values[0, i]))
    if fewest >= FEWEST_STEPS:
        for i, one in _with_intervals(a, b, share, np.flatnonzero(~constant).tolist()):
            found[i] = one
    return found


def _with_intervals(
    a: Table, b: Table, share: float, some: list[int]
) -> Iterator[tuple[int, Difference]]:
    """Yield the differences of some series, those of about one block length together."""
    draws = draws_for(max(len(a.order), len(b.order)))
    drifts = np.stack([a.drift(share), b.drift(share)])
    lengths = {i: (a.block_length(i), b.block_length(i)) for i in some}
    groups: dict[tuple[int, ...], list[int]] = {}
    for i, both in lengths.items():
        classes = tuple(ceil(log(one) / log(_LENGTHS_APART)) for one in both)
        groups.setdefault(classes, []).append(i)
    for group in groups.values():
        drawn_a, drawn_b = (
            resampled(
                table.values[:, group], table.order, share, seed=seed, draws=draws,
                length=max(lengths[i][seed] for i in group),
            )
            for seed, table in enumerate((a, b))
        )  # fmt: skip
        apart, ratio = interval(drawn_a, drawn_b), ratio_interval(drawn_a, drawn_b)
        for j, i in enumerate(group):
            found, low, high = float(apart.found[j]), float(apart.low[j]), float(apart.high[j])
            is_apart = not low <= 0 <= high
            drifts_more = is_apart and float(np.abs(drifts[:, i]).max()) > abs(found)
            yield i, Difference(
                a=float(drawn_a.found[j]), b=float(drawn_b.found[j]),
                difference=found, low=low, high=high, share=_some(ratio.found[j]),
                share_low=_some(ratio.low[j]), share_high=_some(ratio.high[j]),
                verdict="differs" if is_apart and not drifts_more else "not shown",
                why=_DRIFTS if drifts_more else None,
            )  # fmt: skip


def _exact(a: float, b: float) -> Difference:
    share = (b - a) / a if a else None
    return Difference(
        a=a, b=b, difference=b - a, low=b - a, high=b - a, share=share, share_low=share,
        share_high=share, verdict="same" if a == b else "differs",
    )  # fmt: skip


def _some(value: float) -> float | None:
    return None if isnan(value) else float(value)
