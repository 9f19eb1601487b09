"""No hang is told of where there is none: real ranks, a thousand steps, all sorts of waits.

One rank at a time sleeps, collects garbage, compiles, is stopped by a signal, all for less than a
bucket may wait; and saves a file or has announced that it takes long, for longer than that, until
it was looked at.  Where the machine itself holds a step up for too long, that is a hang.
"""

from __future__ import annotations

import gc
import io
import os
import random
import subprocess
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import hooktrace
from hooktrace import Tracer, hooks
from hooktrace.ranks.hang.messages import STATUS
from hooktrace.records import HangRecord
from tests.distributed.harness import Ranks, scenario
from tests.ranks.channel.jobs import wait_for

RANKS, STEPS = 3, 1200
HANG_AFTER_S = 2.0
_BELOW_S = 0.5 * HANG_AFTER_S


class Seen(NamedTuple):
    """The hangs of a rank: ``calm`` until the last step but one, ``held_up`` in that.

    ``took_s``: its longer steps; ``excused_s``: of a step, for how long this rank was excused.
    """

    took_s: dict[int, float]
    excused_s: dict[int, float]
    calm: list[HangRecord]
    held_up: list[HangRecord]


class Looks:
    """How often the hub has asked this rank what it is at."""

    def __init__(self, tracer: Tracer) -> None:
        assert tracer._channel is not None
        handlers = tracer._channel.handlers
        self.count = 0
        self._answer = handlers[STATUS]
        handlers[STATUS] = self._asked

    def _asked(self, question: bytes) -> Any:
        self.count += 1
        return self._answer(question)

    def wait(self) -> None:
        """Wait until the hub has looked twice more: somebody suspects, and it finds an excuse."""
        before = self.count
        wait_for(lambda: self.count >= before + 2)


class SlowFile(io.BytesIO):
    """A file of which the first write takes some seconds."""

    def __init__(self, looks: Looks) -> None:
        super().__init__()
        self._looks: Looks | None = looks

    def write(self, data: object) -> int:
        looks, self._looks = self._looks, None
        if looks is not None:
            looks.wait()
        return super().write(data)  # type: ignore[arg-type]


def sleeps(*_: object) -> None:
    time.sleep(_BELOW_S)


def compiles(*_: object) -> None:
    """Compile a function, as often as there is something new to compile."""
    factor = random.random()
    torch.compile(lambda tensor: tensor * factor, backend="eager", dynamic=False)(torch.ones(2))


def is_stopped(*_: object) -> None:
    """Be stopped by another process, and go on in time."""
    me = os.getpid()
    script = f"kill -STOP {me}; sleep {_BELOW_S}; kill -CONT {me}"
    subprocess.run(["sh", "-c", script], check=True)


def saves(_: Tracer, looks: Looks) -> None:
    """Write a checkpoint to a disk that is slow: longer than a bucket may wait, unannounced."""
    torch.save(nn.Linear(64, 64).state_dict(), SlowFile(looks))


def holds_the_interpreter(*_: object) -> None:
    """Compute without a pause, or have the garbage collector look at everything, for a while."""
    end = time.monotonic() + _BELOW_S / 2
    while time.monotonic() < end:
        sorted(range(100_000), key=lambda number: -number)
        gc.collect()


def announces(tracer: Tracer, looks: Looks) -> None:
    """Take longer than a bucket may wait, as was said before."""
    with tracer.pause_watchdog():
        looks.wait()


TROUBLES: list[Callable[[Tracer, Looks], None]] = [
    sleeps, holds_the_interpreter, compiles, saves, announces, is_stopped,
]  # fmt: skip
EXCUSED = {compiles, saves, announces}


@scenario(deadline_s=210.0, apart=True)
def calm(rank: int) -> Seen:
    """Make ``STEPS`` steps, and one more that waits for too long: somebody was watching."""
    ddp = DistributedDataParallel(nn.Linear(8, 8))
    took_s: dict[int, float] = {}
    excused_s: dict[int, float] = {}
    apart = STEPS // len(TROUBLES)
    with Tracer(hang_after_s=HANG_AFTER_S, on_hang="record") as tracer:
        hooktrace.instrument(ddp, hooks.allreduce_hook, tracer=tracer)
        tracer.start()
        looks = Looks(tracer)
        for step in range(STEPS):
            number, between = divmod(step, apart)
            if between == apart // 2 and number % RANKS == rank:
                began = time.monotonic()
                TROUBLES[number](tracer, looks)
                if TROUBLES[number] in EXCUSED:
                    excused_s[step] = time.monotonic() - began
            began = time.monotonic()
            _step(ddp)
            if time.monotonic() - began > _BELOW_S:
                took_s[step] = time.monotonic() - began
        time.sleep(1)  # what was suspected last
        hangs = tracer.hangs()
        if rank == 1:
            wait_for(lambda: len(tracer.hangs()) > len(hangs))
        _step(ddp)
        wait_for(lambda: any(h.ended_after_ns is not None for h in tracer.hangs()[len(hangs) :]))
        held_up = tracer.hangs()[len(hangs) :]
        _step(ddp)
    return Seen(took_s, excused_s, hangs, held_up)


@pytest.mark.slow
@pytest.mark.long
def test_no_hang_is_told_where_there_is_none() -> None:
    """And one at the end, which is one; a machine that holds a step up makes one too."""
    ranks = Ranks(RANKS)
    try:
        seen = ranks.run(calm)
    finally:
        ranks.close()
    late = {
        step
        for one in seen
        for step, took_s in one.took_s.items()
        if took_s - sum(rank.excused_s.get(step, 0.0) for rank in seen) >= HANG_AFTER_S
    }
    untrue = [[hang.message for hang in one.calm if hang.step not in late] for one in seen]
    assert untrue == [[]] * RANKS
    for one in seen:
        assert {(hang.kind, hang.ranks) for hang in one.held_up} == {("busy", (1,))}
        assert one.held_up[-1].ended_after_ns is not None


def _step(ddp: nn.Module) -> None:
    ddp(torch.ones(2, 8)).sum().backward()
