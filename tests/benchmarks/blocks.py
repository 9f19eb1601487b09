"""Blocks of training steps in turns, until the ratio of two sides is known well enough.

sides --in turns--> block(tracer, recording, train) --until_enough--> rounds --ratios--> samples
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from hooktrace.commands.bench.table import interval_of_median
from hooktrace.tracing.tracer import Tracer

from .harness import on_all_ranks

_LEAD_IN_STEPS = 4
_TIMED_STEPS = 10
_LEAST_PAIRS = 20
_LOOK_EVERY = 10
_LIMIT = 1.02

Block = tuple[float, float]
"""Mean ns of a step: by the clock, and processor time of the process."""


def train(model: Any, optimizer: Any, data: torch.Tensor, steps: int) -> None:
    """Train so many steps on the same data."""
    for _ in range(steps):
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()


def block(tracer: Tracer, recording: bool, steps: partial[None]) -> Block:
    """Return what one of ten steps took, after some that are not timed; all ranks begin together.

    ``recording``: of the tracer, meanwhile.  ``steps``: called with their number.
    """
    tracer.recording = recording
    dist.barrier()
    steps(_LEAD_IN_STEPS)
    cpu, wall = time.process_time_ns(), time.perf_counter_ns()
    steps(_TIMED_STEPS)
    wall, cpu = time.perf_counter_ns() - wall, time.process_time_ns() - cpu
    tracer.flush()
    return wall / _TIMED_STEPS, cpu / _TIMED_STEPS


def until_enough(blocks: Iterator[list[Block]], longest_s: float) -> list[list[Block]]:
    """Return rounds of blocks: enough to tell the first two's ratio from 1.02, or what fits.

    That is where the 99 % interval of the median ratio leaves it out, after 20 rounds or more.
    """
    end = time.monotonic() + longest_s
    rounds: list[list[Block]] = []
    while not on_all_ranks(_is_enough(rounds) or time.monotonic() > end):
        rounds += islice(blocks, _LOOK_EVERY)
    return rounds


def ratios(rounds: list[list[Block]], side: int = 0, other: int = 1) -> list[list[float]]:
    """Return the ratios of one side to another by the clock, and those of processor time."""
    sides = np.array(rounds).transpose(1, 2, 0)
    found: list[list[float]] = (sides[side] / sides[other]).tolist()
    return found


def _is_enough(rounds: list[list[Block]]) -> bool:
    if len(rounds) < _LEAST_PAIRS:
        return False
    least, most = interval_of_median(ratios(rounds)[0], 2.58)
    return most < _LIMIT or least > _LIMIT
