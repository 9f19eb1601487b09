"""Hangs as slices of a row of their own: of each rank that waits, and of each that is waited for.

A hang of which no end is known is a slice that begins and does not end: Perfetto draws it to the
end of the trace, and says that it did not end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..timeline import Hang


@dataclass(frozen=True, slots=True)
class HangSlice:
    """A hang on one rank; times in ns of rank 0's clock, ``end`` is ``None`` where none is known.

    ``row``: from 0, the first one in which it does not overlap another.
    """

    name: str
    row: int
    start: int
    end: int | None
    args: dict[str, Any]


def hang_slices(hangs: Sequence[Hang], rank: int) -> Iterator[HangSlice]:
    """Yield a rank's part in each hang, by when they began."""
    ends: list[int | None] = []
    for hang in sorted(hangs, key=lambda one: one.start):
        record = hang.record
        parts = [part for part, ranks in _PARTS if rank in getattr(record, ranks)]
        if not parts:
            continue
        free = (i for i, end in enumerate(ends) if end is not None and end <= hang.start)
        row = next(free, len(ends))
        ends[row : row + 1] = [hang.end]
        args = {
            "message": hang.sentence, "outcome": hang.outcome, "kind": record.kind,
            "model": record.model, "step": record.step, "bucket": record.bucket,
        }  # fmt: skip
        if record.unit:
            args["unit"] = record.unit
        yield HangSlice(f"hang: {' and '.join(parts)}", row, hang.start, hang.end, args)


_PARTS = (("waits", "waiting"), ("is waited for", "ranks"))
