"""How a hang is said: lists of ranks, times and places as people read them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ...records.units import named_ranks

if TYPE_CHECKING:
    from .messages import RankStatus

_MOST_LISTED = 4
"""Ranks of which each is told where it is; of more, how many."""


def seconds(ns: int) -> str:
    """Return a time: "31 s", "4.2 s", "12 min"."""
    value = ns / 1e9
    if value < 9.95:
        return f"{value:.1f} s"
    return f"{value:.0f} s" if value < 600 else f"{value / 60:.0f} min"


def stamped(rank: int, wall_ns: int, text: str) -> str:
    """Return a line for the log: "[rank 1, 01:46:40 UTC] hang: ..."."""
    return f"[rank {rank}, {time.strftime('%H:%M:%S', time.gmtime(wall_ns // 10**9))} UTC] {text}"


def each(said: Mapping[int, str]) -> str:
    """Return " for ranks 2 to 4: each of ranks 2, 3 is here; rank 4 is there".

    ``said``: "is here" of each; equal ones stand together.
    """
    different = grouped(said)
    if len(different) == 1:
        which = "which" if len(said) == 1 else "each of which"
        return f" for {named_ranks(said)}, {which} {next(iter(different))}"
    parts = [
        f"{'each of ' if len(who) > 1 else ''}{named_ranks(who)} {text}"
        for text, who in different.items()
    ]
    more = [f"and {len(parts) - _MOST_LISTED} more"] if len(parts) > _MOST_LISTED else []
    return f" for {named_ranks(said)}: " + "; ".join([*parts[:_MOST_LISTED], *more])


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
    """Return "1 bucket", "2 buckets"."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def at(status: RankStatus) -> str:
    """Return where a rank's training thread is."""
    return "at an unknown place" if status.main is None else f"in `{status.main.where}`"
