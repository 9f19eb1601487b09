"""How a hang is said: lists of ranks, times and places as people read them.

A front, ranks, what each is at --> "bucket 5 of step 120 has waited 31 s on ranks 0, 1, 3 for ..."
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ...records.units import named_ranks

if TYPE_CHECKING:
    from .messages import RankStatus

_MOST_LISTED = 4
"""Ranks of which each is told where it is; of more, how many."""


def seconds(ns: int) -> str:
    """Return a time: "31 s", "4.2 s", "12 min".

    >>> seconds(31_400_000_000), seconds(4_210_000_000), seconds(750_000_000_000)
    ('31 s', '4.2 s', '12 min')
    """
    value = ns / 1e9
    if value < 9.95:
        return f"{value:.1f} s"
    return f"{value:.0f} s" if value < 600 else f"{value / 60:.0f} min"


def stamped(rank: int, wall_ns: int, text: str) -> str:
    """Return a line for the log: whose it is, and at what time of day it was written.

    >>> stamped(1, 1_000_000_000_000_000_000, "hang: ...")
    '[rank 1, 01:46:40 UTC] hang: ...'
    """
    return f"[rank {rank}, {time.strftime('%H:%M:%S', time.gmtime(wall_ns // 10**9))} UTC] {text}"


def each(of: Sequence[int], what: Callable[[int], str]) -> str:
    """Return " for rank 2, which ...", or of several where each is, equal ones together.

    ``what`` gives what follows "which" of each.

    >>> each([2], lambda _: "is here")
    ' for rank 2, which is here'
    >>> each([2, 3], lambda _: "is here")
    ' for ranks 2, 3, each of which is here'
    >>> each([2, 3, 4], lambda rank: "is here" if rank < 4 else "is there")
    ' for ranks 2 to 4: each of ranks 2, 3 is here; rank 4 is there'
    """
    different = grouped({rank: what(rank) for rank in of})
    if len(different) == 1:
        which = "which" if len(of) == 1 else "each of which"
        return f" for {named_ranks(of)}, {which} {next(iter(different))}"
    parts = [f"{_each_of(who)} {text}" for text, who in different.items()]
    more = [f"and {len(parts) - _MOST_LISTED} more"] if len(parts) > _MOST_LISTED else []
    return f" for {named_ranks(of)}: " + "; ".join([*parts[:_MOST_LISTED], *more])


def grouped(said: Mapping[int, str]) -> dict[str, list[int]]:
    """Return the ranks of which the same is said, by what that is."""
    found: dict[str, list[int]] = {}
    for rank, text in said.items():
        found.setdefault(text, []).append(rank)
    return found


def parties(of: Mapping[str, Sequence[int]]) -> str:
    """Return "ranks 0, 2 in all_reduce; rank 1 in broadcast"."""
    return "; ".join(f"{named_ranks(who)} in {what}" for what, who in of.items())


def have(ranks: Sequence[int]) -> str:
    """Return the verb that follows some ranks."""
    return "has" if len(ranks) == 1 else "have"


def counted(number: int | str, what: str) -> str:
    """Return "1 bucket", "2 buckets".

    >>> counted(1, "bucket"), counted(2, "bucket")
    ('1 bucket', '2 buckets')
    """
    return f"{number} {what}{'' if number == 1 else 's'}"


def _each_of(who: Sequence[int]) -> str:
    return named_ranks(who) if len(who) == 1 else f"each of {named_ranks(who)}"


def at(status: RankStatus) -> str:
    """Return where a rank's training thread is."""
    return "at an unknown place" if status.main is None else f"in `{status.main.where}`"
