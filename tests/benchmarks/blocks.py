"""Blocks of training steps in turns, until the ratio of two sides is known well enough.

sides --in turns--> a block each, as hooktrace bench has them --until_enough--> rounds --ratios-->
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch

from hooktrace.commands.bench.harness import on_all_ranks
from hooktrace.commands.bench.table import interval_of_median

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
