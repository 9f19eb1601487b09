"""What a tuning tries: which sizes of buckets, which hooks at those, how many rounds of turns."""

from __future__ import annotations

from collections.abc import Sequence

from ...integrations.tuning.rounds import FEWEST, LEFT_OUT, OWN, SURVIVORS, TURN
from .measure import Seen, turns_of, within

CAPS = (1.0, 5.0, 10.0, 25.0, 50.0, 100.0)
"""MB that are tried where they make another number of buckets, MOST_BUCKETS at most."""
MOST_BUCKETS = 100


def caps_of(size: int, own: float, asked: Sequence[float]) -> list[float]:
    """Return the limits to try for a model of so many bytes: what is asked, or what differs.

    Two limits that cut the gradients into as many buckets are one.
    """
    if asked:
        return [cap for cap in asked if cap != own]
    counts = {_buckets(size, own)}
    found = []
    for cap in CAPS:
        count = _buckets(size, cap)
        if count not in counts and count <= MOST_BUCKETS:
            found.append(cap)
            counts.add(count)
    return found


def _buckets(size: int, cap: float) -> int:
    return -(-size // int(cap * 2**20))


def survivors(ranks: Sequence[Seen], most: int = SURVIVORS) -> list[str]:
    """Return the hooks that go on to other sizes: those with the shortest steps."""
    turns = turns_of(ranks)
    others = sorted((label for label in turns if label != OWN), key=lambda one: within(turns, one))
    return others[:most]


def rounds_for(steps: int) -> int:
    """Return how many rounds give a hook so many steps that count."""
    return max(FEWEST, -(-steps // (TURN - LEFT_OUT)))


def steps_for(rounds: int, hooks: int) -> int:
    """Return how long a start is in which so many hooks, and the job's own, have their rounds.

    Some leave before, which is not known yet.
    """
    return TURN * (1 + rounds * (hooks + 1))


def fitting(rounds: int, hooks: int, step_s: float, seconds: float) -> int:
    """Return how many rounds fit into some time, 0 where too few do."""
    fit = int((seconds / step_s / TURN - 1) / (hooks + 1))
    return min(rounds, fit) if fit >= FEWEST else 0
