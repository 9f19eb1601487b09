"""One finding of a report."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Finding"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A sentence, what it rests on, and what to do.

    ``gain_ns``: at most so much of each step's time, ``None`` where it cannot be computed.
    ``is_wrong``: training itself is not as it should be.  ``is_kept``: said however little there
    is to gain.
    """

    sentence: str
    gain_ns: float | None = None
    evidence: tuple[str, ...] = ()
    remedy: str = ""
    is_wrong: bool = False
    is_kept: bool = False
