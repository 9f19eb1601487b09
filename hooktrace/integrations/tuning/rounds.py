"""Whose turn is next: rounds in an order drawn anew, from which slow hooks leave early.

    labels --next--> a label, until its plan is done
    begins of steps, turns so far --turn_times--> ns a step, by label, a value a round

Successive halving (Jamieson and Talwalkar, AISTATS 2016): after FEWEST rounds, twice as many, ...
the slower half leaves.  Only what was slower than the fastest in each round so far does: by chance
alone that happens once in 2^FEWEST times.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from statistics import median

from .plan import Plan

OWN = "as it is"
"""The label of what the job has: its script's hook, or torch's own average."""

LEFT_OUT = 3
"""Steps at the begin of each turn that do not count: caches, and what a hook that has waited does
first."""

FEWEST = 5
"""Rounds below which nothing is said of a hook."""

SURVIVORS = 3
"""Hooks, beside the job's own, that stay to the end."""

_PATIENCE = 4
"""In how many times its limit a start comes to ``FEWEST`` rounds, or ends without."""

Turn = tuple[str, int]
"""Whose it is, and its first step."""


def turn_times(begins: Sequence[int], turns: Sequence[Turn], length: int) -> dict[str, list[float]]:
    """Return the mean step of each turn that is over, ns, by label.

    In the first turn, which nobody has, DDP settles its buckets.
    """
    found: dict[str, list[float]] = {}
    for label, first in turns[1:]:
        if first + length < len(begins):
            spent = begins[first + length] - begins[first + LEFT_OUT]
            found.setdefault(label, []).append(spent / (length - LEFT_OUT))
    return found


class Rounds:
    """The rounds of one start; asked on rank 0 only, for each turn."""

    def __init__(self, labels: Sequence[str], wanted: Plan) -> None:
        self._alive = [*labels]
        self._plan = wanted
        self._round: list[str] = []
        self._over = -1
        """Rounds that are over; one is when the next begins."""
        self._halved_at = FEWEST
        self._random = random.Random()  # not the script's own

    def next(self, seconds: float, times: Callable[[], Mapping[str, list[float]]]) -> str:
        """Return whose turn is next, "" at the end; ``seconds`` since the first step."""
        plan = self._plan
        if seconds >= _PATIENCE * plan.limit_s:
            return ""
        if not self._round:
            self._over += 1
            if self._over >= plan.rounds and seconds >= plan.seconds:
                return ""
            if self._over >= FEWEST and seconds >= plan.limit_s:
                return ""
            if self._over == self._halved_at:
                self._halved_at *= 2
                if len(self._alive) > SURVIVORS + 1:
                    self._halve(times())
            self._round = self._random.sample(self._alive, len(self._alive))
        return self._round.pop()

    def _halve(self, times: Mapping[str, list[float]]) -> None:
        others = sorted(
            (label for label in self._alive if label != OWN), key=lambda one: median(times[one])
        )
        best = times[others[0]]
        for label in others[max(SURVIVORS, (len(others) + 1) // 2) :]:
            if all(mine > its for mine, its in zip(times[label], best, strict=True)):
                self._alive.remove(label)
