"""What a start of the job says of each hook, from what its ranks wrote.

begins of steps, whose turn each was --turns--> ns a step, by label, (rounds,)
a hook's turns / those of the job's own hook, round by round
... times the own hook's turns / steps of the job as it is --against--> a ratio, 95 % interval
record files of a hook --recorded--> exposed time, bytes, error
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ...analysis.run import load
from ...analysis.run.bootstrap import MIDDLE_HALF, Estimates, block_length, interval, resampled
from ...analysis.run.columns import UNKNOWN
from ...analysis.run.counts import COUNTS, reasons
from ...analysis.run.dense import known, middle
from ...integrations.tuning.plan import OWN, folder_of, turn_times
from ...records.files import find_records

Floats = npt.NDArray[np.float64]
Seen = Mapping[str, Any]
"""What one rank wrote of a model (``integrations/tuning/turns.py``)."""


class Setting(msgspec.Struct, frozen=True):
    """A hook and a limit of bucket sizes, of DDP, and what a step with them is like.

    ``ratio``: of the step over that of the job as it is, with the ends of its interval.
    ``exposed_ns``: the mean of the ranks' medians.  ``wire_bytes``: the first rank's median.
    ``error``: relative L2, the largest of a bucket.
    """

    hook: str
    cap: float | None
    step_ns: float
    ratio: float
    low: float
    high: float
    exposed_ns: float | None = None
    wire_bytes: float | None = None
    error: float | None = None


class Start(NamedTuple):
    """A start of the job, in a folder: what each rank here wrote of the model.

    ``trouble``: a sentence on how it ended, where that was not as it was asked.
    """

    folder: Path
    ranks: Sequence[Seen]
    cap: float | None = None
    trouble: str = ""

    @property
    def turns(self) -> dict[str, Floats]:
        """The mean step of each hook's turns, ns, by label, (rounds,), the mean over ranks.

        A hook that has left has fewer; where a round was not ended, none has more than ``OWN``.
        """
        per_rank = [turn_times(one["begins"], one["turns"]) for one in self.ranks]
        own = min(len(one.get(OWN, ())) for one in per_rank)
        found = {}
        for label in sorted(set.intersection(*map(set, per_rank))):
            count = min(own, *(len(one[label]) for one in per_rank))
            found[label] = np.mean([one[label][:count] for one in per_rank], axis=0)
        return found

    def settings(self, plain: Sequence[Floats]) -> list[Setting]:
        """Return what it says of each of its hooks; ``plain``: as in ``against``."""
        turns = self.turns
        return [
            Setting(
                label, self.cap, *against(turns[label], turns[OWN], plain),
                *recorded(folder_of(self.folder, label)),
            )
            for label in turns
        ]  # fmt: skip


def against(
    hook: Floats, own: Floats, plain: Sequence[Floats]
) -> tuple[float, float, float, float]:
    """Return a hook's step, ns, and that over the job's as it is, with the ends of its interval.

    ``hook``, ``own``: its turns and those of the job's hook, which are compared round by round, so
    that what drifts cancels.  ``plain``: of the starts, one or two, without hooks of ours.
    """
    # Turns of a hook are a round apart, and do not depend on each other as steps do.
    paired = _resampled(np.log(hook) - np.log(own[: len(hook)]), 1, 0)
    alone = _resampled(np.log(own), 1, 1)
    logs = [np.log(one) for one in plain]
    bases = [_resampled(one, block_length(one), 2 + seed) for seed, one in enumerate(logs)]
    base = Estimates(
        np.mean([one.found for one in bases], axis=0),
        np.mean([one.drawn for one in bases], axis=0),
        sum(one.blocks for one in bases),
    )
    found = Estimates(paired.found + alone.found, paired.drawn + alone.drawn, paired.blocks)
    ratio, low, high = (float(np.exp(one[0])) for one in interval(base, found))
    return float(np.exp(base.found[0])) * ratio, ratio, low, high


def _resampled(values: Floats, length: int, seed: int) -> Estimates:
    return resampled(values[:, None], values, MIDDLE_HALF, length=length, seed=seed)


def recorded(folder: Path) -> tuple[float | None, float | None, float | None]:
    """Return exposed time, ns, bytes and error, by the record files in a folder."""
    run = load(find_records(folder))
    exposed, sent = [], []
    for track, why in zip(run.tracks, reasons(run), strict=True):
        exposed.append(_median(track.steps.exposed[why == COUNTS]))
        sent.append(_median(track.steps.wire_bytes[why == COUNTS]))
    errors = (one.relative_l2 for track in run.tracks for one in track.errors.values())
    error = max((one for one in errors if one is not None), default=None)
    return known(float(np.mean(exposed or [nan]))), known([*sent, nan][0]), error


def _median(values: npt.NDArray[Any]) -> float:
    return middle(np.where(values == UNKNOWN, nan, values))
