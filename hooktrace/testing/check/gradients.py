"""Chosen gradients, by phase: the same numbers wherever they are made, for all ranks.

    phase            gradients                                         what shows in them
    rest, end        zeros                                             what is owed, what is added
    fresh            nothing in common from step to step               weights, older results
    same             the same ones again and again                     random numbers, drift
    ordinary         like real ones, that point the same way           usual errors
    large            ordinary ones of up to 100                        what leaves its range
    zeros, huge, nan zeros, up to 1e5, one NaN on the last rank        what odd values leave behind
    after, later     ordinary ones after these; later ones may differ  -

Chosen gradients are uniform, up to 0.004, and the first and the last element of each parameter are
5.5 times as large.  They are of one rank alone, while all others have zeros, or the same on all
ranks: the weight of one rank's gradients, and whether all values come, then needs no fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

import torch

Who = int | Literal["alike", "each"]
"""One rank, whose gradients alone are not zero, or all ranks: alike, or each with its own."""

Shapes = Sequence[tuple[int, ...]]

Phases = Iterable[tuple[str, int]]
"""Names, and for how many steps."""

MANY = tuple(shape for _ in range(8) for shape in ((48, 48), (48,)))
"""The shapes of eight linear layers, a bucket each."""

ODD = ((1,), (13, 7), (101,), (0,), (1009,), (3, 1, 5), (2,), (31, 37))
"""Shapes: 1 element, prime lengths, an empty parameter."""

CHOSEN: Phases = (("rest", 2), ("fresh", 1), ("rest", 3), ("fresh", 10), ("same", 16), ("end", 4))

_SIZE, _ENDS, _NOISE = 4e-3, 5.5, 0.2
_LARGE = {"large": 100.0, "huge": 1e5}


def lengths_of_shapes(shapes: Shapes) -> tuple[int, ...]:
    """Return the number of elements of each parameter."""
    return tuple(math.prod(shape) for shape in shapes)


def gradients(phase: str, number: int, shapes: Shapes, ranks: int, who: Who) -> torch.Tensor:
    """Return all ranks' gradients of a step, (ranks, numel) float32.

    ``number``: of the step, which draws other numbers, but in phase ``same``.
    """
    lengths = lengths_of_shapes(shapes)
    rows = torch.zeros(ranks, sum(lengths))
    if phase in ("fresh", "same"):
        made = _chosen(lengths, 0 if phase == "same" else number)
        rows[slice(None) if isinstance(who, str) else who] = made
    elif phase not in ("rest", "end", "zeros"):
        rows = torch.stack([_ordinary(shapes, rank, number) for rank in range(ranks)])
    if phase in _LARGE:
        rows *= _LARGE[phase] / rows.abs().max()
    elif phase == "nan":
        rows[-1, 0] = torch.nan
    return rows


def _chosen(lengths: Sequence[int], seed: int) -> torch.Tensor:
    """Return uniform gradients, (numel,), with larger ones at the ends of each parameter."""
    draw = torch.Generator().manual_seed(seed + 1)
    parts = []
    for length in lengths:
        part = torch.rand(length, generator=draw) * 2 - 1
        part[:1], part[-1:] = _ENDS * (torch.rand(2, 1, generator=draw) - 0.5).sign()
        parts.append(part * _SIZE)
    return torch.cat(parts)


def _ordinary(shapes: Shapes, rank: int, step: int) -> torch.Tensor:
    """Return a rank's gradients at a step, (numel,), as real ones look to a low-rank hook.

    For each matrix a product of two vectors that all ranks share, one of the rank's own, and some
    noise.  They point the same way from step to step, as error feedback needs it, and change in
    size.
    """
    noise = torch.Generator().manual_seed(1 + step * 1009 + rank)
    draw = torch.rand(1, generator=torch.Generator().manual_seed(step))
    size = _SIZE / 4 * (0.5 + 1.5 * float(draw))
    parts = []
    for place, shape in enumerate(shapes):
        part = _NOISE * torch.randn(shape, generator=noise)
        for seed in (place, 1000 * (rank + 1) + place):
            drawn = torch.Generator().manual_seed((1 << 20) + seed)
            vectors = [(shape[0], 1), (1, shape[1])] if len(shape) == 2 else [shape]
            part += math.prod(torch.randn(vector, generator=drawn) for vector in vectors)
        parts.append((part * size).flatten())
    return torch.cat(parts)
