"""Matrices of low rank, of the kinds that gradients are."""

from __future__ import annotations

import torch

KINDS = ["random", "equal rows", "equal columns", "few rows", "powers of two"]
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def of_rank(kind: str, rank: int, shape: tuple[int, int], dtype: torch.dtype) -> torch.Tensor:
    """Return a matrix of that rank.

    ``equal rows``: as many different ones as the rank says.  ``few rows``: all others are zero.
    """
    rows, columns = shape
    if kind == "equal columns":
        return of_rank("equal rows", rank, (columns, rows), dtype).t().contiguous()
    generator = torch.Generator().manual_seed(rank)
    matrix = torch.zeros(shape, dtype=torch.float64)
    right = torch.randn(rank, columns, generator=generator, dtype=torch.float64)
    if rank == 0:
        return matrix.to(dtype)
    if kind == "random":
        matrix = torch.randn(rows, rank, generator=generator, dtype=torch.float64) @ right
    elif kind == "few rows":
        matrix[torch.randperm(rows, generator=generator)[:rank]] = right
    else:
        if kind == "powers of two":
            right = 2.0 ** torch.randint(-4, 5, right.shape, generator=generator)
        matrix = right[torch.arange(rows) % rank]
    return matrix.to(dtype)


def error(found: torch.Tensor, matrix: torch.Tensor) -> float:
    """Return the relative error, as a multiple of the dtype's precision."""
    wide = matrix.double()
    difference = float((found.double() - wide).norm() / (wide.norm() or 1.0))
    return difference / torch.finfo(matrix.dtype).eps
