"""One finding of a report."""

from __future__ import annotations

import msgspec


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence, what it rests on, and what to do.

    ``rule``: the name of the rule that found it, or the kind of an anomaly.  ``bucket``, ``rank``:
    the one that it is about.  ``gain_ns``: at most so much of each step's time, ``None`` where it
    cannot be computed.  ``is_wrong``: training itself is not as it should be.  ``is_kept``: said
    however little there is to gain.
    """

    rule: str = ""
    sentence: str
    bucket: int | None = None
    rank: int | None = None
    gain_ns: float | None = None
    evidence: tuple[str, ...] = ()
    remedy: str = ""
    is_wrong: bool = False
    is_kept: bool = False
