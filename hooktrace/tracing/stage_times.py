"""Where one call's time went, in one clock: from the stamps or events of a ``BucketCall``."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..capture.calls import BucketCall

__all__ = ["Times", "host_times", "launched", "times_of"]


@dataclass
class Times:
    """One call's times in one clock, in ns; ``rounds`` are (issued, arrived)."""

    ready: int
    started: int
    rounds: list[tuple[int, int]]
    done: int
    launched: int | None = None
    starts: list[int | None] = field(default_factory=list)


def host_times(call: BucketCall) -> Times:
    """Return what the host's stamps say."""
    marks = call.marks if len(call.marks) % 2 == 0 else (*call.marks, call.done)
    rounds = list(zip(marks[::2], marks[1::2], strict=True))
    return Times(call.ready, call.started, rounds, call.done, launched(call))


def launched(call: BucketCall) -> int:
    """Return when the hook had returned, host ns."""
    # The result was there first, and the hook is about to return.
    return call.done if call.launched is None else call.launched


def times_of(at: list[int]) -> Times:
    """Make times of device offsets: ready, two marks a round, done."""
    marks = at[1:-1] if len(at) % 2 == 0 else [*at[1:-1], at[-1]]
    return Times(at[0], at[0], list(zip(marks[::2], marks[1::2], strict=True)), at[-1])
