"""Who is late, what a bucket waits, which steps are slow: from tables over all ranks.

    by_bucket: the two latest ranks of each bucket of each step --lateness--> Late
    by_step: sums over the ranks ------------------------------slow_steps--> SlowSteps

The rules are those of ``report/causes.py``.  Where these take the median rank, means are taken
here, which add up.  A rank that is late is named only where all others wait for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..report.causes import SLOW
from ..report.facts import SlowSteps
from ..report.late_facts import LateRank
from ..report.step_arrays import Floats, middle
from ..report.who_waits import SURELY, WORTH, often
from ..timeline import Bools, Ints
from .summary import ModelSummary, RankRow

_BUCKET_BITS = (1 << 20) - 1
"""Of ``bucket_keys``."""


@dataclass(slots=True)
class Late:
    """What is known of who is late.

    ``ranks``: the late ones, the worst first.  ``lags``: of each rank's last bucket the mean ns
    after the first rank.  ``shares``: of each bucket who is last most often, and how often, where
    that is more than chance.  ``unknown``: sentences.
    """

    ranks: tuple[LateRank, ...] = ()
    lags: dict[int, float] = field(default_factory=dict)
    shares: dict[int, tuple[int, float]] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)

    def wire_of(self, m: ModelSummary, bucket: int) -> tuple[float | None, float | None]:
        """Return transfer and wait of a bucket, ns: median and mean of steps that all ranks have.

        A collective ends on all ranks at once, so the shortest wire time is the transfer, and what
        the ranks' mean is longer is what they wait.
        """
        columns = m.by_bucket.columns
        rows = (m.by_bucket.keys & _BUCKET_BITS == bucket) & (columns["count"] == len(m.ranks))
        if not rows.any():
            return None, None
        least = columns["wire_least"][rows]
        wait = columns["wire_sum"][rows] / len(m.ranks) - least
        return middle(least), float(wait.mean())


def lateness(m: ModelSummary, origin: int) -> Late:
    """Return who is late; nobody where a clock is unknown, or there is one rank.

    ``origin``: of the times in ``RankRow.called``.
    """
    found = Late()
    columns, bucket = m.by_bucket.columns, m.by_bucket.keys & _BUCKET_BITS
    whole = columns["known"] == len(m.ranks)
    if len(m.ranks) < 2 or not whole.any():
        return found
    if m.shards is not None:
        found.unknown.append(
            "who comes late to its units is not known from summaries: what ranks wait for each "
            "other adds up over them"
        )
        return found
    told = whole & (columns["last"] - columns["last_unsure"] > columns["others_latest"])
    is_comparable = bool(whole.all()) and _same_steps(m)
    if is_comparable:
        found.lags = _lags(m, bucket, origin)
    for b in np.unique(bucket).tolist():
        _share(m, found, b, (bucket == b) & whole, told)
    names = np.unique(columns["last_rank"][told]).tolist()
    late = [_late_rank(m, rank, bucket, whole, told) for rank in names]
    found.ranks = tuple(sorted(filter(None, late), key=lambda one: -one.margin_ns))
    if not is_comparable:
        found.ranks = ()
        found.unknown.append(
            "not all ranks have the same steps, so that who is late, and by how much, is not known "
            "from summaries"
        )
    return found


def _same_steps(m: ModelSummary) -> bool:
    return len({tuple(n for n, _ in row.called.values()) for row in m.ranks.values()}) == 1


def _share(m: ModelSummary, found: Late, b: int, rows: Bools, told: Bools) -> None:
    ranks, counts = np.unique(m.by_bucket.columns["last_rank"][rows & told], return_counts=True)
    steps = int(np.count_nonzero(rows))
    if len(ranks) and counts.max() / max(1, steps) >= often(len(m.ranks), steps):
        most = int(counts.argmax())
        found.shares[b] = int(ranks[most]), float(counts[most] / steps)


def _lags(m: ModelSummary, bucket: Ints, origin: int) -> dict[int, float]:
    first = m.by_bucket.columns["first"][bucket == m.last] - origin
    own = {rank: row.called.get(m.last, (0, 0.0)) for rank, row in m.ranks.items()}
    if not len(first) or any(n != len(first) for n, _ in own.values()):
        return {}
    return {rank: x / n - float(first.mean()) for rank, (n, x) in own.items()}


def _late_rank(
    m: ModelSummary, rank: int, bucket: Ints, whole: Bools, told: Bools
) -> LateRank | None:
    """Return what is known of a rank that is last now and then; ``None``: no more than chance."""
    columns, own = m.by_bucket.columns, told & (m.by_bucket.columns["last_rank"] == rank)
    margin = np.where(own, columns["last"] - columns["next"], 0)
    buckets = np.unique(bucket).tolist()
    means = [_mean(margin[(bucket == b) & whole]) for b in buckets]
    at = int(np.argmax(means))
    worst, rows = buckets[at], (bucket == buckets[at]) & whole
    steps = int(np.count_nonzero(rows))
    share = float(own[rows].sum() / steps)
    before = np.count_nonzero(columns["done_least"][rows] < columns["last"][rows]) / steps
    period = m.sketches["period"].at(0.5) or 0.0
    if share < often(len(m.ranks), steps) or before > 1 - SURELY or means[at] < WORTH * period:
        return None
    behind, held = _beyond(m.ranks, rank, buckets), _held(m.ranks, rank, buckets)
    since = int(np.argmax(np.diff(behind, prepend=0.0)[: at + 1]))
    return LateRank(
        rank=rank,
        bucket=worst,
        share=share,
        margin_ns=float(means[at]),
        uncertainty_ns=middle(
            (columns["last_unsure"] + columns["unsure"])[rows].astype(np.float64)
        ),
        lag_ns=float(behind[at]),
        since=buckets[since],
        waiting=tuple(sorted(set(m.ranks) - {rank})),
        held_ns=max(0.0, float(held[:at].sum())),
        is_late_from_the_start=since == 0,
        is_of_means=True,
    )


def _mean(values: Ints) -> float:
    return float(values.mean()) if len(values) else 0.0


def _beyond(ranks: dict[int, RankRow], rank: int, buckets: list[int]) -> Floats:
    """Return by how much a rank has each bucket ready after the mean of the others, ns."""
    means = {r: [row.called[b][1] / row.called[b][0] for b in buckets] for r, row in ranks.items()}
    return _less_mean(means, rank)


def _held(ranks: dict[int, RankRow], rank: int, buckets: list[int]) -> Floats:
    """Return by how much a rank's calls of the hook take longer than the others' in the mean."""
    calls = {r: [row.calls[b] for b in buckets] for r, row in ranks.items()}
    return _less_mean(calls, rank)


def _less_mean(values: dict[int, list[float]], rank: int) -> Floats:
    """Return a rank's values less the mean of the others'."""
    others = [of_rank for other, of_rank in values.items() if other != rank]
    found: Floats = np.array(values[rank]) - np.mean(others, axis=0)
    return found


def periods(m: ModelSummary) -> Floats:
    """Return the mean period of the ranks of each step that has one, ns."""
    columns = m.by_step.columns
    count = columns["period_count"]
    found: Floats = columns["period_sum"][count > 0] / count[count > 0]
    return found


def slow_steps(m: ModelSummary) -> SlowSteps | None:
    """Return the slow steps, by the mean of the ranks; ``None`` where there are none."""
    columns = m.by_step.columns
    count = columns["period_count"]
    known = count > 0
    period = periods(m)
    usual, total = middle(period), int(np.count_nonzero(known))
    slow = np.flatnonzero(period >= SLOW * usual)
    if total < 8 or not usual > 0 or not len(slow):
        return None
    beyond = period[slow] - usual

    def excess(name: str) -> float:
        values = columns[name][known] / count[known]
        return float(np.clip(values[slow] - middle(values), 0.0, beyond).sum()) / total

    worst = slow[np.argsort(-period[slow], kind="stable")]
    return SlowSteps(
        steps=tuple(m.by_step.keys[known][worst].tolist()),
        periods=total,
        slowest_ns=float(period[worst[0]]),
        excess_ns=float(beyond.sum()) / total,
        exposed_excess_ns=excess("exposed_sum"),
        backward_excess_ns=0.0 if m.shards is not None else excess("backward_sum"),
    )
