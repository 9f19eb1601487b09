"""What the compression hooks must compute, written from their formulas, without a process group.

    gradients of all ranks, one flat tensor each --> the result that every rank must get

Nothing here is shared with ``hooktrace.hooks``.  Low-rank algebra is done in float64, so that a
difference is the hook's rounding; quantisation is done in float32, as the formulas say, since a
value on the border between two steps would otherwise fall on the other side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

__all__ = ["BatchedPowerSGD", "gathered_mean", "quantised_mean", "scale_and_zero_point"]


def gathered_mean(inputs: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the sum in rank order over the number of ranks, in the gradients' dtype."""
    total = inputs[0].clone()
    for other in inputs[1:]:
        total = total + other
    return total / len(inputs)


def scale_and_zero_point(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return each row's scale and zero point for 8 unsigned bits, of shape (rows, 1).

    The range is widened to hold zero, and the scale is at least float32's epsilon.
    """
    low = rows.amin(1, keepdim=True).clamp(max=0)
    high = rows.amax(1, keepdim=True).clamp(min=0)
    scale = ((high - low) / 255).clamp(min=torch.finfo(torch.float32).eps)
    return scale, (-torch.round(low / scale)).clamp(0, 255)


def quantised_mean(inputs: Sequence[torch.Tensor], chunk: int | None = None) -> torch.Tensor:
    """Return the mean of the ranks' gradients after 8-bit affine quantisation.

    ``chunk``: elements with a scale of their own, ``None`` for one scale for all.  Zeros fill the
    last chunk.  The result has the gradients' dtype.
    """
    length, dtype = inputs[0].numel(), inputs[0].dtype
    chunk = chunk or length
    total = torch.zeros(math.ceil(length / chunk), chunk)
    for given in inputs:
        rows = torch.zeros(total.numel())
        rows[:length] = given.float()
        rows = rows.view_as(total)
        scale, zero = scale_and_zero_point(rows)
        steps = (torch.round(rows / scale) + zero).clamp(0, 255)
        total += scale * (steps - zero)
    return (total.flatten()[:length] / len(inputs)).to(dtype)


class BatchedPowerSGD:
    """PowerSGD on a bucket taken as one square matrix (Vogels et al., arXiv 1905.13727).

    With gradients G_i of rank i, padded with zeros to a square, and errors E_i::

        M_i = G_i + E_i        P = orthonormal(sum of M_i Q)    Q <- mean of M_i^T P
        result = P Q^T         E_i <- M_i - result

    Q begins as a normal random matrix, drawn from a generator with a seed that numpy's
    ``RandomState(seed)`` gives; it is orthonormalised before it is used.  One object holds all
    buckets, which must come in order.
    """

    def __init__(self, *, rank: int, feedback: bool, warm: bool, seed: int = 0) -> None:
        self._rank = rank
        self._feedback = feedback
        self._warm = warm
        self._seeds = np.random.RandomState(seed)
        self.q: dict[int, torch.Tensor] = {}
        self.errors: dict[int, torch.Tensor] = {}
        self.before = 0
        self.after = 0

    def step(self, bucket: int, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the bucket's result, float64, from the gradients of all ranks."""
        length = inputs[0].numel()
        side = math.ceil(math.sqrt(length))
        self.before += length
        self.after += 2 * side * self._rank
        flat = torch.zeros(len(inputs), side * side, dtype=torch.float64)
        flat[:, :length] = torch.stack(list(inputs))
        if self._feedback and bucket in self.errors:
            flat += self.errors[bucket]
        matrices = flat.view(-1, side, side)
        if not self._warm or bucket not in self.q:
            generator = torch.Generator().manual_seed(int(self._seeds.randint(1_000_000_000)))
            drawn = torch.randn(side, self._rank, generator=generator, dtype=inputs[0].dtype)
            self.q[bucket] = drawn.double()
        p = _orthonormal(sum(m @ _orthonormal(self.q[bucket]) for m in matrices))
        self.q[bucket] = sum(m.T @ p for m in matrices) / len(inputs)
        result = (p @ self.q[bucket].T).flatten()
        self.errors[bucket] = flat - result
        return result[:length]


def _orthonormal(matrix: torch.Tensor) -> torch.Tensor:
    """Return an orthonormal basis of the columns, a zero column for one that adds nothing."""
    columns: list[torch.Tensor] = []
    for column in matrix.unbind(1):
        rest = column.clone()
        for other in columns * 2:  # twice: once leaves rounding errors of the first pass
            rest -= (other @ rest) * other
        length = rest.norm()
        columns.append(rest / length if length > 0 else rest)
    return torch.stack(columns, 1)
