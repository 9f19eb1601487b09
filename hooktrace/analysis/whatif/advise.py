"""The best of all that was predicted, and whether it is worth it.

    Calibration.costs --space--> choices --predict--> Answer --advise--> at most five, ranked

What is advised gains 3 % of the step or more over what is, and more than the prediction may be off
by.  Among the changes that are worth it, the expected step decides: what loses more of the
gradients has to be 3 % faster than what loses less.  What is left is time against error, each hook
with its best limit of bucket sizes, and one that is as good as the first, if there is one.  Hooks
whose results are not the average of all ranks (``local``) are not advised at all, nor lossy ones of
which nobody knows what they lose.  Where the replay of the run itself is far from what was
measured, nothing is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from .answer import Answer
from .choice import Choice, Prediction

CAPS_MB = (1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0)
LEAST_SHARE = 0.03
"""Of a step: what gains less is not worth a change."""
MOST_MISFIT = 0.1
"""Of a step: a replay that is further off than most gains tells nothing of what would help."""
MOST = 5
AGARWAL = (
    "Agarwal et al. (MLSys 2022) found gradient compression to be faster in 6 of more than 200 "
    "data-centre set-ups."
)


@dataclass(frozen=True, slots=True)
class Advice:
    """One change: how much less a step would take, in ms with a 95 % interval, and as a share."""

    prediction: Prediction
    gain_ms: float
    low_ms: float
    high_ms: float
    share: float

    @property
    def is_enough(self) -> bool:
        """Whether it is expected to gain enough."""
        return self.share >= LEAST_SHARE

    @property
    def is_worth_it(self) -> bool:
        """Whether it gains enough, and certainly something."""
        return self.is_enough and self.low_ms > 0.0


@dataclass(frozen=True, slots=True)
class Advised:
    """What to change, the fastest first; none: leave it as it is.

    ``best``: what would be fastest, whether it is worth it or not; ``None`` where nothing is faster
    than what is.
    """

    answer: Answer
    lines: tuple[Advice, ...]
    best: Advice | None

    @property
    def is_compression_no_help(self) -> bool:
        """Whether a run without compression was tried with it, and that is not worth it."""
        answer = self.answer
        lossy = [p for p in answer.predictions if p.lossy and not is_loss_unknown(p)]
        tried = [p for p in lossy if answer.hook(p.choice) != _today(self)]
        is_plain = not answer.baseline.lossy
        return is_plain and bool(tried) and not any(one.prediction.lossy for one in self.lines)


def _today(advised: Advised) -> str:
    return advised.answer.today.hook


def space(hooks: Iterable[str], today: str, cap_mb: float | None) -> list[Choice]:
    """Return all hooks by all limits of bucket sizes, but for what the run has itself."""
    caps = [None, *(cap for cap in CAPS_MB if cap != cap_mb)]
    every = [(None if hook == today else hook, cap) for hook in (today, *hooks) for cap in caps]
    return [Choice(hook, cap) for hook, cap in dict.fromkeys(every) if (hook, cap) != (None, None)]


def advise(answer: Answer) -> Advised:
    """Return what of an answer is worth doing."""
    usable = [p for p in answer.predictions if _averages(answer, p) and not is_loss_unknown(p)]
    found = sorted((_gain(answer.baseline, p) for p in usable), key=_step)
    best = found[0] if found and found[0].gain_ms > 0 else None
    worth = [one for one in found if one.is_worth_it and answer.misfit <= MOST_MISFIT]
    front = _in_front(_one_a_hook(answer, worth))
    return Advised(answer, tuple(_with_one_as_good(front, worth)[:MOST]), best)


def is_loss_unknown(one: Prediction) -> bool:
    """Return whether a hook loses nobody knows how much."""
    return one.lossy and one.error is None


def _averages(answer: Answer, one: Prediction) -> bool:
    return answer.kinds.get(answer.hook(one.choice)) != "local"


def _step(one: Advice) -> float:
    return one.prediction.step_ms


def _gain(before: Prediction, after: Prediction) -> Advice:
    gain = before.step_ms - after.step_ms
    low, high = gain_interval(before, after)
    share = gain / before.step_ms if before.step_ms else 0.0
    return Advice(after, gain, min(low, gain), max(high, gain), share)


def gain_interval(before: Prediction, after: Prediction) -> tuple[float, float]:
    """Return how much less ``after`` takes, 95 %, ms: of pairs of draws, which share their noise.

    Without draws: as if the two predictions were wrong in opposite ways.
    """
    if before.draws_ms.size and before.draws_ms.size == after.draws_ms.size:
        low, high = np.percentile(before.draws_ms - after.draws_ms, (2.5, 97.5)).tolist()
        return low, high
    return before.low_ms - after.high_ms, before.high_ms - after.low_ms


def _one_a_hook(answer: Answer, found: Sequence[Advice]) -> list[Advice]:
    """Return the best limit of bucket sizes of each hook: the run's own, unless others are faster.

    ``found``: the fastest first.
    """
    best: dict[str, Advice] = {}
    for one in found:
        hook = answer.hook(one.prediction.choice)
        first = best.setdefault(hook, one)
        as_it_is = one.prediction.choice.bucket_cap_mb is None
        if as_it_is and not _gain(one.prediction, first.prediction).is_enough:
            best[hook] = one
    return sorted(best.values(), key=_step)


def _in_front(found: Sequence[Advice]) -> list[Advice]:
    """Return those that are in front: faster than all that lose as much, and well than all others.

    So nothing that loses more is advised for a small gain over what loses less.  Here the expected
    step decides alone: each of them is worth it, and most of what two predictions may be off by
    they share with what is.
    """
    return [one for one in found if not any(_is_behind(one, other) for other in found)]


def _with_one_as_good(front: list[Advice], found: Sequence[Advice]) -> list[Advice]:
    """Add what is expected to be as fast as the first, loses no more, and changes no more of a run.

    Nobody knows which of the two is faster; whoever verifies advice runs both.  ``found``: the
    fastest first.
    """
    if not front:
        return front
    first, *rest = front
    for one in found:
        if one not in front and _is_as_good(one, first):
            return [first, *sorted([one, *rest], key=_step)]
    return front


def _is_as_good(one: Advice, first: Advice) -> bool:
    first_keeps, keeps = (x.prediction.choice.bucket_cap_mb is None for x in (first, one))
    return (
        loss(one.prediction) <= loss(first.prediction)
        and (keeps or not first_keeps)
        and not _gain(one.prediction, first.prediction).is_enough
    )


def _is_behind(one: Advice, other: Advice) -> bool:
    ours, theirs = loss(one.prediction), loss(other.prediction)
    if theirs < ours:
        return not _gain(other.prediction, one.prediction).is_enough
    return theirs == ours and _step(other) < _step(one)


def loss(one: Prediction) -> float:
    """Return how much is lost, to compare: 0 for nothing."""
    return max(one.error or 0.0, 1e-12) if one.lossy else 0.0
