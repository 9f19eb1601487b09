"""How a hang is said: lists of ranks as people read them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from ...records.units import named_ranks


def stamped(rank: int, wall_ns: int, text: str) -> str:
    """Return a line for the log: "[rank 1, 01:46:40 UTC] hang: ..."."""
    return f"[rank {rank}, {time.strftime('%H:%M:%S', time.gmtime(wall_ns // 10**9))} UTC] {text}"


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
