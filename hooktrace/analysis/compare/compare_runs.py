"""Two runs to their comparison: a pure function.

Measures --quantities, parts: tables of series--> differences.py --> Comparison
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from ..run.bootstrap import MEAN, MEDIAN, MIDDLE_HALF
from ..run.parts import break_even
from .comparison import Comparison, Quantity, Unit
from .differences import Table, differences
from .doubts import doubts, is_same_model, limits, unlike
from .measure import TITLES, Grouping, Measures, grouping, step_table
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
        is_known = (found.a, found.b) != (None, None)  # else nothing was probed
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
