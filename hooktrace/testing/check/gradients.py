"""Gradients that are known in advance, and the model that has them.

    ordinary(shapes, rank, step) --> KnownGradients.forward --> loss = sum of p * g --backward--> g

The gradient of the sum of p * g by p is g itself, on all ranks and for every dtype, NaN included.
So what DDP should give is known everywhere without any communication: the average over the ranks.

Ordinary gradients look like real ones to a low-rank hook: for each matrix a product of two vectors
that all ranks share, one of the rank's own, and some noise.  They point the same way from step to
step, as error feedback needs it, and change in size.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

Values = list[torch.Tensor | None]
"""One gradient a parameter; ``None``: the parameter is not used in this step."""

_SIZE = 0.1
_NOISE = 0.2
_SHARED = 1 << 20


class KnownGradients(nn.Module):
    """Parameters of given shapes whose gradients are what ``forward`` is given."""

    def __init__(self, shapes: Sequence[tuple[int, ...]], dtype: torch.dtype) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.parts = nn.ParameterList(
            torch.randn(shape, generator=generator).to(dtype) for shape in shapes
        )

    def forward(self, values: Values, pauses: Sequence[float] = ()) -> torch.Tensor:
        """Return the loss.  ``pauses``: seconds to sleep in backward before each gradient."""
        terms = []
        for i, (parameter, value) in enumerate(zip(self.parts, values, strict=True)):
            if value is None:
                continue
            used = _Pause.apply(parameter, pauses[i]) if pauses else parameter
            terms.append((used * value).sum())
        return torch.stack(terms).sum()


class _Pause(torch.autograd.Function):
    """The identity, which takes its time on the way back."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, seconds: float) -> torch.Tensor:
        ctx.seconds = seconds
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        time.sleep(ctx.seconds)
        return gradients[0], None


def ordinary(shapes: Sequence[tuple[int, ...]], rank: int, step: int) -> list[torch.Tensor]:
    """Return a rank's gradients at a step, float32: the same numbers wherever this is called."""
    noise = torch.Generator().manual_seed(1 + step * 1009 + rank)
    factor = _factor(step)
    values = []
    for place, shape in enumerate(shapes):
        shared = _product(shape, _SHARED + place)
        own = _product(shape, _SHARED + 1000 * (rank + 1) + place)
        rest = torch.randn(shape, generator=noise)
        values.append((shared + own + _NOISE * rest) * (_SIZE * factor))
    return values


def _factor(step: int) -> float:
    draw = torch.rand(1, generator=torch.Generator().manual_seed(step))
    return 0.5 + 1.5 * float(draw)


def _product(shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """Return a product of two vectors where the shape has two dimensions, else random numbers."""
    generator = torch.Generator().manual_seed(seed)
    if len(shape) != 2:
        return torch.randn(shape, generator=generator)
    rows = torch.randn(shape[0], 1, generator=generator)
    return rows * torch.randn(1, shape[1], generator=generator)
