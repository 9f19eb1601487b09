"""Of many ranks and buckets the few that a reader looks for; the others are folded.

ModelFacts --> the rows that are shown, and those that are folded; the red row in words
"""

from __future__ import annotations

import numpy as np

from ...records.units import ms
from .facts import BucketFacts, ModelFacts, RankFacts
from .step_arrays import StepArrays

MOST_ROWS = 32
"""Of a table, until which nothing is folded."""

_SHOWN = 8


def split_ranks(model: ModelFacts) -> tuple[list[RankFacts], list[RankFacts]]:
    """Return the ranks to show and those to fold: shown are late ones, and the extremes."""
    ranks = list(model.ranks)
    if len(ranks) <= MOST_ROWS:
        return ranks, []
    late = {one.rank for one in model.late}
    late |= {b.waits_for.rank for b in model.buckets if b.waits_for is not None}
    by_lag = sorted(ranks, key=lambda r: -(r.lag_ns or 0.0))[:_SHOWN]
    exposed = [r for r in ranks if r.exposed_ns is not None]
    ends = sorted(exposed, key=lambda r: r.exposed_ns or 0.0)
    chosen = late | {r.rank for r in (*by_lag, *ends[:2], *ends[-2:], ranks[0])}
    return [r for r in ranks if r.rank in chosen], [r for r in ranks if r.rank not in chosen]


def split_buckets(model: ModelFacts) -> tuple[list[BucketFacts], list[BucketFacts]]:
    """Return the buckets to show and those to fold: shown are those that cost or err most."""
    buckets = list(model.buckets)
    if len(buckets) <= 2 * MOST_ROWS:
        return buckets, []
    chosen = {buckets[0].bucket, *(b.bucket for b in buckets if b.is_last)}
    for key in (
        lambda b: b.tail_share or 0.0,
        lambda b: b.wait_ns or 0.0,
        lambda b: b.transfer_ns or 0.0,
        lambda b: b.error.p50 if b.error else 0.0,
        lambda b: b.exposed.p50 if b.exposed else 0.0,
    ):
        chosen |= {b.bucket for b in sorted(buckets, key=key, reverse=True)[:_SHOWN] if key(b)}
    return [b for b in buckets if b.bucket in chosen], [
        b for b in buckets if b.bucket not in chosen
    ]


def red_row(model: ModelFacts, arrays: StepArrays) -> str:
    """Return which rank is furthest behind in the picture of lags, in words."""
    arrays = arrays.sample
    lags = arrays.lags
    if np.isnan(lags).all():
        return ""
    noun = "unit" if model.is_sharded else "bucket"
    i, b = np.unravel_index(int(np.nanargmax(lags)), lags.shape)
    rank = model.ranks[int(i)]
    of = f" ({rank.host})" if rank.host else ""
    named = {one.rank for one in model.late}
    is_told = rank.rank not in named and not (model.is_sharded and model.wait_unknown)
    said = "; the others do not wait for it often enough to say so above" if is_told else ""
    return (
        f"The reddest is rank {rank.rank}{of}: {ms(float(lags[i, b]))} after the first rank at "
        f"{noun} {int(arrays.buckets[b])}{said}."
    )
