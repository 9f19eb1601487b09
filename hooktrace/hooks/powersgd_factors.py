"""How PowerSGD cuts a bucket into matrices, and the memory of their factors.

    gradients --worth it?-- yes --> matrices, by shape: one MatrixGroup of P, Q and sources a shape
                            no ---> runs of plain gradients
    memory:   [ plain | all P ]  first all-reduce        [ all Q ]  second all-reduce

A ``Factors`` is made once for each layout; nothing of it is allocated in a step.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import torch

from ..staging.slots import GradBucketLike

Shape: TypeAlias = tuple[int, int]


@dataclass(slots=True)
class MatrixGroup:
    """Matrices of one shape in a bucket, with their factors next to each other in memory.

    ``positions``: of the parameters in the bucket.  ``shape``: (n, m) of each matrix.
    ``p``: (k, n, r).  ``q``: (k, m, r).  ``restart``: (1, m, r), a start for a Q that died.
    ``sources``: the matrices in the residual; empty without error feedback.
    """

    positions: list[int]
    shape: Shape
    p: torch.Tensor
    q: torch.Tensor
    restart: torch.Tensor
    sources: list[torch.Tensor]


@dataclass(slots=True)
class Factors:
    """How one bucket is compressed.

    ``wire``: the payload of the first all-reduce: ``uncompressed``, the gradients sent as they are,
    and then ``p``, all P.  ``q``: all Q, flat.  ``runs``: (start, stop) in the bucket of
    uncompressed gradients, neighbours taken together.  ``residual``: of error feedback, ``None``
    without it.  ``numels``: elements of each parameter.
    """

    wire: torch.Tensor
    uncompressed: torch.Tensor
    p: torch.Tensor
    q: torch.Tensor
    groups: list[MatrixGroup]
    runs: list[tuple[int, int]]
    residual: torch.Tensor | None
    numels: list[int]


def cut(
    bucket: GradBucketLike,
    residual: torch.Tensor | None,
    q: torch.Tensor | None,
    *,
    rank: int,
    min_compression_rate: float,
) -> Factors:
    """Return how a bucket is compressed; what is in ``wire`` and in a new Q is arbitrary.

    ``residual``: of error feedback, flat and as long as the bucket, or ``None``.  ``q``: all Q that
    are remembered, flat, or ``None`` for new ones.  ``rank``, ``min_compression_rate``: as in
    ``PowerSGDState``.

    Raises ``ValueError`` for a ``q`` of another length than the bucket's matrices ask for.
    """
    buffer, gradients = bucket.buffer(), bucket.gradients()
    by_shape, runs = _sorted_out(gradients, rank, min_compression_rate)
    sizes = [(len(k), n, m, min(n, m, rank)) for (n, m), k in by_shape.items()]
    p_numels = [k * n * r for k, n, _, r in sizes]
    q_numels = [k * m * r for k, _, m, r in sizes]
    plain = sum(stop - start for start, stop in runs)
    wire = buffer.new_empty(plain + sum(p_numels))
    uncompressed, p = wire[:plain], wire[plain:]
    q = buffer.new_empty(sum(q_numels)) if q is None else q.to(buffer.device)
    if q.numel() != sum(q_numels):
        raise does_not_fit(bucket.index())
    numels = [gradient.numel() for gradient in gradients]
    parts = [] if residual is None else residual.split(numels)
    groups = [
        MatrixGroup(
            positions=positions,
            shape=(n, m),
            p=of_p.view(k, n, r),
            q=of_q.view(k, m, r),
            restart=restart_like(q, m, r),
            sources=[parts[i].view(n, m) for i in positions] if parts else [],
        )
        for positions, (k, n, m, r), of_p, of_q in zip(
            by_shape.values(), sizes, p.split(p_numels), q.split(q_numels), strict=True
        )
    ]
    return Factors(wire, uncompressed, p, q, groups, runs, residual, numels)


def _sorted_out(
    gradients: Iterable[torch.Tensor], rank: int, min_compression_rate: float
) -> tuple[dict[Shape, list[int]], list[tuple[int, int]]]:
    """Return (positions of the matrices by shape, runs of all other gradients)."""
    by_shape: dict[Shape, list[int]] = {}
    runs: list[tuple[int, int]] = []
    start = 0
    for position, gradient in enumerate(gradients):
        stop = start + gradient.numel()
        shape = _matrix_shape(gradient)
        if shape is not None and _is_worth_it(*shape, rank, min_compression_rate):
            by_shape.setdefault(shape, []).append(position)
        elif runs and runs[-1][1] == start:
            runs[-1] = (runs[-1][0], stop)
        else:
            runs.append((start, stop))
        start = stop
    return by_shape, runs


def _matrix_shape(gradient: torch.Tensor) -> Shape | None:
    """Return (n, m) as which a gradient is compressed; ``None`` where it has no two sides."""
    if gradient.dim() == 0 or gradient.numel() == 0:
        return None
    return gradient.shape[0], gradient.numel() // gradient.shape[0]


def _is_worth_it(n: int, m: int, rank: int, min_compression_rate: float) -> bool:
    return (n + m) * min(n, m, rank) * min_compression_rate < n * m


def restart_like(tensor: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """Return unit columns of shape (1, rows, columns), the same on all ranks."""
    generator = torch.Generator().manual_seed(rows)
    random = torch.randn(1, rows, columns, generator=generator)
    start = tensor.new_empty(random.shape)
    fill(start, torch.nn.functional.normalize(random, dim=1).to(tensor.dtype))
    return start


def fill(tensor: torch.Tensor, random: torch.Tensor) -> None:
    """Write random numbers of the host to a tensor of any device, without waiting for that.

    From pageable memory a device copies when it is done with all that was asked of it before.
    """
    if tensor.is_cpu:
        tensor.copy_(random)
    else:
        tensor.copy_(random.pin_memory(), non_blocking=True)


def does_not_fit(index: int) -> ValueError:
    """Return the error for a memory that is of another model's bucket."""
    return ValueError(
        f"what the PowerSGDState remembers does not fit bucket {index}; resume it with the model "
        "and the find_unused_parameters and bucket_cap_mb that it was saved with, or make a new one"
    )
