"""What the turns of hooks took, from what the ranks of some starts wrote.

each rank's begins of steps, whose turn each was --turns_of--> (rounds, hooks), ns a step
a hook's turns / those of the job's own hook, round by round
+ the own hook's turns / steps of the job as it is --against--> step time and 95 % interval
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...analysis.compare.bootstrap import (
    MIDDLE_HALF,
    Estimates,
    block_length,
    estimate,
    interval,
    resampled,
)
from ...integrations.tuning.rounds import OWN, turn_times

Floats = npt.NDArray[np.float64]
Seen = Mapping[str, Any]
"""What one rank wrote of a model (``integrations/tuning/turns.py``)."""


class Found(NamedTuple):
    """A step's time, ns, and that over the job's as it is, with the ends of its interval."""

    step_ns: float
    ratio: float
    low: float
    high: float


def turns_of(ranks: Sequence[Seen], turn: int) -> dict[str, Floats]:
    """Return the mean step of each hook's turns, ns, by label, (rounds,), the mean over ranks.

    A hook that has left has fewer; where a round was not ended, none has more than ``OWN``.  A job
    as it is has turns of ``OWN``.
    """
    per_rank = [turn_times(one["begins"], one["turns"], turn) for one in ranks]
    own = min(len(one.get(OWN, ())) for one in per_rank)
    found = {}
    for label in sorted(set.intersection(*map(set, per_rank))):
        rounds = min(own, *(len(one[label]) for one in per_rank))
        found[label] = np.mean([one[label][:rounds] for one in per_rank], axis=0)
    return found


def against(turns: Mapping[str, Floats], label: str, plain: Sequence[Floats]) -> Found:
    """Return a hook's step against the job's as it is, of one start of that or two.

    Within a start hooks are compared round by round, so that what drifts cancels; the start's own
    hook is compared with the starts that had no hook of ours.
    """
    # Turns of a hook are a round apart, and do not depend on each other as steps do.
    hook = _sum([_resampled(_by_round(turns, label), 1, 0), _resampled(np.log(turns[OWN]), 1, 1)])
    starts = [np.log(one) for one in plain]
    base = _sum([_resampled(one, block_length(one), 2 + i) for i, one in enumerate(starts)])
    count = len(starts)
    base = Estimates(base.found / count, base.drawn / count, base.blocks * count)
    hook = hook._replace(blocks=float(len(turns[label])))
    ratio, low, high = (float(np.exp(one[0])) for one in interval(base, hook))
    return Found(float(np.exp(base.found[0])) * ratio, ratio, low, high)


def _sum(parts: Sequence[Estimates]) -> Estimates:
    """Return the sum of what was drawn independently, with the mean number of blocks."""
    return Estimates(
        np.sum([one.found for one in parts], axis=0),
        np.sum([one.drawn for one in parts], axis=0),
        sum(one.blocks for one in parts) / len(parts),
    )


def within(turns: Mapping[str, Floats], label: str) -> float:
    """Return a hook's step over the own hook's, in the same start."""
    return float(np.exp(_middle(_by_round(turns, label))))


def _by_round(turns: Mapping[str, Floats], label: str) -> Floats:
    """Return the logarithms of a hook's steps over the own hook's, of the rounds that it had."""
    mine = turns[label]
    return np.log(mine) - np.log(turns[OWN][: len(mine)])


def _middle(values: Floats) -> float:
    return float(estimate(values[:, None], values, MIDDLE_HALF)[0])


def _resampled(values: Floats, length: int, seed: int) -> Estimates:
    return resampled(values[:, None], values, MIDDLE_HALF, length=length, seed=seed)
