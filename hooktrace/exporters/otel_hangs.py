"""What a span says of a hang; nothing here imports opentelemetry.

HangRecord --hang_attributes--> attributes, with the stacks cut to what backends take
"""

from __future__ import annotations

from ..records import HangRecord

_LONGEST = 8192
"""Characters of the stacks of all ranks: many backends refuse longer attributes."""


def hang_attributes(hang: HangRecord) -> dict[str, str | bool | int | float]:
    """Return a hang's attributes; ranks as text, ``0, 1, 3``, as lists have no place in some."""
    stacks = "\n\n".join(f"rank {one.rank} ({one.state})\n{one.text}" for one in hang.stacks)
    found: dict[str, str | bool | int | float] = {
        "hooktrace.hang.kind": hang.kind,
        "hooktrace.hang.message": hang.message,
        "hooktrace.hang.waiting": ", ".join(map(str, hang.waiting)),
        "hooktrace.hang.ranks": ", ".join(map(str, hang.ranks)),
        "hooktrace.hang.ended": hang.ended_after_ns is not None,
        "hooktrace.model": hang.model,
        "hooktrace.hook": hang.hook,
        "hooktrace.step": hang.step,
    }
    if hang.bucket >= 0:
        found["hooktrace.bucket.index"] = hang.bucket
    if hang.unit:
        found["hooktrace.unit"] = hang.unit
    if stacks:
        found["hooktrace.hang.stacks"] = stacks[:_LONGEST]
    return found
