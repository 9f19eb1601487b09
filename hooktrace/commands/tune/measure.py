"""What starts of the job say of each hook, from what their ranks wrote.

a hook's turns / those of the job's own hook, round by round
... times the own hook's turns / steps of the job as it is --against--> a ratio, 95 % interval
record files of a hook --recorded--> exposed time, bytes, error
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

import msgspec
import numpy as np

from ...analysis.run import bootstrap, load
from ...analysis.run.bootstrap import MIDDLE_HALF, Estimates, block_length, ratio_interval
from ...analysis.run.dense import known_middle, settled_steps
from ...analysis.run.source import of_step
from ...integrations.tuning import OWN, folder_of
from ...records.files import find_records

Times = Sequence[float]
"""Of the turns of one label in a start: the mean step of each, ns."""


class Setting(msgspec.Struct, frozen=True):
    """A hook and a limit of bucket sizes, of DDP, and what a step with them is like.

    ``ratio``: of the step over that of the job as it is, with the ends of its interval.
    ``exposed_ns``, ``wire_bytes``: medians.  ``error``: relative L2, the largest of a bucket.
    ``peak_bytes``: of the first rank's device memory, with the states of all hooks.
    ``starts``: of the job in which it had turns.
    """

    hook: str
    cap: float | None
    ratio: float
    low: float
    high: float
    exposed_ns: float | None = None
    wire_bytes: float | None = None
    error: float | None = None
    peak_bytes: int | None = None
    starts: int = 1


Start = Mapping[str, Any]
"""What the first rank here of a start wrote (``integrations/tuning``), and the start's ``folder``.

Turns are the same on all ranks.
"""


def step_ns(start: Start) -> float:
    """Return the step of the job's own hook: the median turn's mean."""
    return float(median(start["times"][OWN]))


def settings(turned: Sequence[Start], plain: Sequence[Start]) -> list[Setting]:
    """Return each hook and limit once, the fastest first; ``plain``: starts without hooks of ours.

    Of more starts: their mean, and an interval that holds those of all, since starts differ by more
    than the turns of one show.
    """
    found, alone = [], [one["times"][OWN] for one in plain]
    for hook, cap in dict.fromkeys((hook, one["cap"]) for one in turned for hook in one["times"]):
        of_it = [one for one in turned if one["cap"] == cap and hook in one["times"]]
        told = [against(one["times"][hook], one["times"][OWN], alone) for one in of_it]
        ratios, lows, highs = zip(*told, strict=True)
        records = recorded(folder_of(one["folder"], hook) for one in of_it)
        peak = max(one["peaks"].get(hook, 0) for one in of_it) or None
        interval = fmean(ratios), min(lows), max(highs)
        found.append(Setting(hook, cap, *interval, *records, peak, len(of_it)))
    return sorted(found, key=lambda one: one.ratio)


def against(hook: Times, own: Times, plain: Iterable[Times]) -> tuple[float, float, float]:
    """Return a hook's step over the job's as it is, and the ends of its 95 % interval.

    ``hook``, ``own``: its turns and those of the job's hook, which are compared round by round, so
    that what drifts cancels.  ``plain``: of the starts, one or two, without hooks of ours.
    """
    # Turns of a hook are a round apart, and do not depend on each other as steps do.
    ratios = [a / b for a, b in zip(hook, own, strict=False)]  # a round may not be ended
    paired, alone = _resampled(ratios, 0, length=1), _resampled(own, 1, length=1)
    found = Estimates(paired.found * alone.found, paired.drawn * alone.drawn, paired.blocks)
    bases = [_resampled(one, seed) for seed, one in enumerate(plain, 2)]
    base = Estimates(*(np.mean(parts, axis=0) for parts in zip(*bases, strict=True)))
    ratio, low, high = (1 + float(one[0]) for one in ratio_interval(base, found))
    return ratio, low, high


def _resampled(times: Times, seed: int, length: int | None = None) -> Estimates:
    values = np.array(times)
    length = length or block_length(values)
    return bootstrap.resampled(values[:, None], values, MIDDLE_HALF, length=length, seed=seed)


def recorded(folders: Iterable[Path]) -> tuple[float | None, float | None, float | None]:
    """Return exposed time, ns, bytes and error, by the record files in folders."""
    exposed, sent, errors = [np.zeros(0)], [np.zeros(0)], list[float]()
    for run in (load(find_records(folder)) for folder in folders):
        steps = settled_steps(run, run.model_names[0]) if run.model_names else None
        if steps is not None:
            exposed.append(of_step(steps.exposed).ravel())
            sent.append(steps.sent())
            errors += map(max, steps.errors_by_step().values())
    exposed_ns, wire_bytes = (known_middle(np.concatenate(one)) for one in (exposed, sent))
    return exposed_ns, wire_bytes, max(errors, default=None)
