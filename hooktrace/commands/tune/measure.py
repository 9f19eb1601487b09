"""What the turns of hooks took, from what the ranks of some starts wrote.

each rank's begins of steps, whose turn each was --turns_of--> (rounds, hooks), ns a step
a hook's turns / those of the job's own hook, round by round
+ the own hook's turns / steps of the job as it is --against--> step time and 95 % interval
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from ...analysis.run.bootstrap import (
    MIDDLE_HALF,
    Estimates,
    block_length,
    estimate,
    interval,
    resampled,
)
from ...integrations.tuning.plan import OWN, turn_times

Floats = npt.NDArray[np.float64]
Seen = Mapping[str, Any]
"""What one rank wrote of a model (``integrations/tuning/turns.py``)."""
Turns = Mapping[str, Floats]
"""By label, what a step of each turn took, ns, the mean over ranks."""


class Found(msgspec.Struct, frozen=True):
    """A step's time, ns, and that over the job's as it is, with the ends of its interval."""

    step_ns: float
    ratio: float
    low: float
    high: float


def turns_of(ranks: Sequence[Seen]) -> Turns:
    """Return the mean step of each hook's turns, ns, by label, (rounds,), the mean over ranks.

    A hook that has left has fewer; where a round was not ended, none has more than ``OWN``.  A job
    as it is has turns of ``OWN``.
    """
    per_rank = [turn_times(one["begins"], one["turns"]) for one in ranks]
    own = min(len(one.get(OWN, ())) for one in per_rank)
    found = {}
    for label in sorted(set.intersection(*map(set, per_rank))):
        count = min(own, *(len(one[label]) for one in per_rank))
        found[label] = np.mean([one[label][:count] for one in per_rank], axis=0)
    return found


def within(turns: Turns, label: str) -> float:
    """Return a hook's step over the own hook's, in the same start."""
    values = _by_round(turns, label)
    return float(np.exp(estimate(values[:, None], values, MIDDLE_HALF)[0]))


def against(turns: Turns, label: str, plain: Sequence[Floats]) -> Found:
    """Return a hook's step against the job's as it is, of one start of that or two.

    Within a start hooks are compared round by round, so that what drifts cancels; the start's own
    hook is compared with the starts that had no hook of ours.
    """
    # Turns of a hook are a round apart, and do not depend on each other as steps do.
    hook, own = _resampled(_by_round(turns, label), 1, 0), _resampled(np.log(turns[OWN]), 1, 1)
    hook = Estimates(hook.found + own.found, hook.drawn + own.drawn, hook.blocks)
    bases = [
        _resampled(logs, block_length(logs), 2 + seed)
        for seed, logs in enumerate(map(np.log, plain))
    ]
    found, drawn = (
        np.mean(values, axis=0) for values in zip(*(one[:2] for one in bases), strict=True)
    )
    base = Estimates(found, drawn, sum(one.blocks for one in bases))
    ratio, low, high = (float(np.exp(one[0])) for one in interval(base, hook))
    return Found(float(np.exp(base.found[0])) * ratio, ratio, low, high)


def _by_round(turns: Turns, label: str) -> Floats:
    """Return the logarithms of a hook's steps over the own hook's, of the rounds that it had."""
    mine = turns[label]
    return np.log(mine) - np.log(turns[OWN][: len(mine)])


def _resampled(values: Floats, length: int, seed: int) -> Estimates:
    return resampled(values[:, None], values, MIDDLE_HALF, length=length, seed=seed)
