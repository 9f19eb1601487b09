"""What starts of the job say of each hook, from what their ranks wrote.

a hook's turns / those of the job's own hook, round by round
... times the own hook's turns / steps of the job as it is --against--> a ratio, 95 % interval
record files of a hook --recorded--> exposed time, bytes, error
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ...analysis.run import bootstrap, load
from ...analysis.run.bootstrap import MIDDLE_HALF, Estimates, block_length, ratio_interval
from ...analysis.run.columns import Floats
from ...analysis.run.dense import known_middle, settled_steps
from ...analysis.run.source import of_step
from ...integrations.tuning import OWN, folder_of
from ...records.files import find_records


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


class Start(NamedTuple):
    """A start of the job, in a folder; ``said``: by its first rank here, turns are the same on all.

    ``trouble``: a sentence on how it ended, where that was not as it was asked.
    """

    folder: Path
    said: Mapping[str, Any]
    trouble: str = ""

    @property
    def turns(self) -> dict[str, Floats]:
        """The mean step of each hook's turns, ns, by label, (rounds,).

        A hook that has left has fewer; where a round was not ended, none has more than ``OWN``.
        """
        found = self.said["times"]
        own = len(found.get(OWN, ()))
        return {label: np.array(times[:own]) for label, times in found.items()}

    @property
    def rounds(self) -> int:
        """How many rounds each hook had at least."""
        return min(map(len, self.turns.values()), default=0)

    @property
    def step_s(self) -> float:
        """A step of the job's own hook: the median turn's mean."""
        return float(np.median(self.turns[OWN])) / 1e9


def settings(turned: Iterable[Start], plain: Sequence[Floats]) -> list[Setting]:
    """Return each hook and limit once, the fastest first; ``plain``: as in ``against``.

    Of more starts: their mean, and an interval that holds those of all, since starts differ by more
    than the turns of one show.
    """
    starts = dict[tuple[str, float | None], list[Start]]()
    for start in turned:
        for label in start.turns:
            starts.setdefault((label, start.said["cap"]), []).append(start)
    found = []
    for (hook, cap), of_it in starts.items():
        told = [against(one.turns[hook], one.turns[OWN], plain) for one in of_it]
        ratios, lows, highs = zip(*told, strict=True)
        records = recorded(folder_of(one.folder, hook) for one in of_it)
        peak = max((one.said["peaks"].get(hook, 0) for one in of_it), default=0) or None
        interval = fmean(ratios), min(lows), max(highs)
        found.append(Setting(hook, cap, *interval, *records, peak, len(of_it)))
    return sorted(found, key=lambda one: one.ratio)


def against(hook: Floats, own: Floats, plain: Sequence[Floats]) -> tuple[float, float, float]:
    """Return a hook's step over the job's as it is, and the ends of its 95 % interval.

    ``hook``, ``own``: its turns and those of the job's hook, which are compared round by round, so
    that what drifts cancels.  ``plain``: of the starts, one or two, without hooks of ours.
    """
    # Turns of a hook are a round apart, and do not depend on each other as steps do.
    paired, alone = _resampled(hook / own[: len(hook)], 1, 0), _resampled(own, 1, 1)
    found = Estimates(paired.found * alone.found, paired.drawn * alone.drawn, paired.blocks)
    bases = [_resampled(one, block_length(one), 2 + seed) for seed, one in enumerate(plain)]
    base = Estimates(*(np.mean(parts, axis=0) for parts in zip(*bases, strict=True)))
    ratio, low, high = (1 + float(one[0]) for one in ratio_interval(base, found))
    return ratio, low, high


def _resampled(values: Floats, length: int, seed: int) -> Estimates:
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
