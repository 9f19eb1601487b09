"""Whose turn is next: rounds in an order drawn anew, from which slow hooks leave early.

    labels --rounds--> a label, until the plan is done
    begins of steps, turns so far --turn_times--> ns a step, by label, a value a round

Successive halving (Jamieson and Talwalkar, AISTATS 2016): after FEWEST rounds, twice as many, ...
the slower half leaves.  Only what was slower than the fastest in each round so far does: by chance
alone that happens once in 2^FEWEST times.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from statistics import median

from .plan import Plan

OWN = "as it is"
"""The label of what the job has: its script's hook, or torch's own average."""
TURN = 8
"""Steps of a turn."""
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
Times = Mapping[str, Sequence[float]]


def turn_times(begins: Sequence[int], turns: Sequence[Turn]) -> dict[str, list[float]]:
    """Return the mean step of each turn that is over, ns, by label.

    In the first turn, which nobody has, DDP settles its buckets.
    """
    found: dict[str, list[float]] = {}
    for label, first in turns[1:]:
        if first + TURN < len(begins):
            spent = begins[first + TURN] - begins[first + LEFT_OUT]
            found.setdefault(label, []).append(spent / (TURN - LEFT_OUT))
    return found


def rounds(
    labels: Sequence[str], plan: Plan, seconds: Callable[[], float], times: Callable[[], Times]
) -> Iterator[str]:
    """Yield whose turn is next, on rank 0; ``seconds`` since the first step, ``times`` so far."""
    alive, halved_at = [*labels], FEWEST
    draw = random.Random()  # not the script's own
    for over in count():
        if over >= plan.rounds and seconds() >= plan.seconds:
            return
        if over >= FEWEST and seconds() >= plan.limit_s:
            return
        if over == halved_at:
            halved_at *= 2
            alive = _halved(alive, times())
        for label in draw.sample(alive, len(alive)):
            if seconds() >= _PATIENCE * plan.limit_s:
                return
            yield label


def _halved(alive: Sequence[str], times: Times) -> list[str]:
    others = sorted((one for one in alive if one != OWN), key=lambda one: median(times[one]))
    stay = max(SURVIVORS, (len(others) + 1) // 2)
    best = times[others[0]] if others else ()
    slow = [
        label
        for label in others[stay:]
        if all(mine > its for mine, its in zip(times[label], best, strict=True))
    ]
    return [one for one in alive if one not in slow]
