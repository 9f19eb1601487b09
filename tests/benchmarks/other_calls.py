"""What tracing adds to calls that are not of one small bucket of many, on a CPU.

    hooks --in turns, step by step--> processor time of each step --> differences

As ``per bucket`` of ``hooktrace bench``.  *Few large buckets*: half of all calls are the last of
their step, which also watch the backward pass.  *On a simulated device*: the same small buckets,
each of whose stamps is an event too, one that costs nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

from hooktrace import hooks
from hooktrace.commands.bench.cost import steps_in_turns
from hooktrace.commands.bench.harness import done
from hooktrace.commands.bench.table import Row
from hooktrace.staging import devices, slots
from hooktrace.testing.ranks import run_ranks

LARGE, SMALL = (512, 2), (64, 40)
"""Width and number of the buckets: 2 of 1 MB, 40 of 16 KB."""


def other_calls(*, quick: bool) -> Iterator[Row]:
    """Yield the rows of few large buckets, and of device calls."""
    for what, size, simulated in (
        ("few large buckets", LARGE, False),
        ("on a simulated device", SMALL, True),
    ):
        rounds = run_ranks(1, _measure, 7.0 if quick else 25.0, size, simulated)[0]
        for name in HOOKS:
            added = [(one[f"traced {name}"] - one[name]) / size[1] / 1e3 for one in rounds]
            yield Row(f"{what}: {name}, traced - untraced", added, "µs/bucket")


def _instant(state: Any, bucket: Any) -> Any:
    return done(bucket.buffer())


HOOKS = {"staged hook": hooks.allreduce_hook, "hook done at once": _instant}


def _measure(seconds: float, size: tuple[int, int], simulated: bool) -> list[dict[str, float]]:
    width, number = size
    with simulated_device() if simulated else contextlib.nullcontext():
        return steps_in_turns(seconds, HOOKS, {}, width=width, buckets=number)


class _Event:
    """An event that the device has passed."""

    def record(self, stream: object) -> None:
        """Do nothing."""

    def query(self) -> bool:
        return True

    def elapsed_time(self, end_event: object) -> float:
        """Return 0."""
        return 0.0


@contextlib.contextmanager
def simulated_device() -> Iterator[None]:
    """Take each bucket for one on a device, whose events cost nothing."""
    with (
        mock.patch.multiple(slots, has_events=lambda device: True),
        mock.patch.multiple(
            devices, new_event=lambda device: _Event(), stream_of=lambda device: None
        ),
    ):
        yield
