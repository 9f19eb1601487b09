"""PowerSGD: low-rank gradient compression (Vogels et al., arXiv 1905.13727), in two rounds.

    gradients (+ residual) --> M, one matrix a parameter; vectors and small matrices stay plain
      P = M Q                         compress
      all-reduce [plain | P]          wire
      P orthogonal, Q = transpose(M) P    compress
      all-reduce Q                    wire
      gradients = P transpose(Q) / ranks; residual = M - gradients    decompress

The mathematics, the random numbers and the state are those of torch's hooks of the same names.
Plain gradients and P travel in one all-reduce instead of two, and the gradients are compressed out
of the residual's memory, so that no copy of the bucket is made.  Before
``state.start_powerSGD_iter`` a step is a plain all-reduce, its buckets side by side.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from ..staging.collectives import AllReduce
from ..staging.driver import Steps
from ..staging.groups import group_of
from ..staging.hook import staged
from ..staging.slots import GradBucketLike
from .lowrank import multiply, orthogonalize, outer
from .powersgd_factors import MatrixGroup
from .powersgd_state import PowerSGDState
from .powersgd_theirs import TorchState, of_theirs, tell_theirs


def _check(state: Any) -> None:
    if not isinstance(state, PowerSGDState | TorchState):
        raise TypeError(
            f"the state of a PowerSGD hook is a {type(state).__name__}; "
            "register it with a hooktrace.hooks.PowerSGDState"
        )


def _compresses(state: PowerSGDState | TorchState) -> bool:
    """Return whether the hooks go two rounds now."""
    return of_theirs(state).compresses


@staged(multi_round=_compresses, floating=True, check=_check)
def powerSGD_hook(  # noqa: N802
    state: PowerSGDState | TorchState, bucket: GradBucketLike
) -> Steps:
    """Average the gradients as products of thin matrices, one for each parameter that is worth it.

    ``state``: a ``PowerSGDState``, or torch's, one for each model.  An n x m gradient is sent as
    (n + m) r elements.  Raises ``ValueError`` when the state belongs to another model.
    """
    result = yield from _power_sgd(of_theirs(state), bucket)
    tell_theirs(state)
    return result


def _power_sgd(state: PowerSGDState, bucket: GradBucketLike) -> Steps:
    state.claim(bucket)
    group, buffer = group_of(state), bucket.buffer()
    if not state.compresses:
        return (yield from _averaged(state, bucket))

    state.recall(bucket)
    residual = state.residual_for(bucket.index(), buffer, buffer.numel())
    gradients = bucket.gradients()
    factors, is_new = state.factors(bucket, residual)
    state.count(buffer.numel(), factors.wire.numel() + factors.q.numel(), bucket)
    source = buffer if residual is None else residual
    if factors.runs:
        plain = [source[start:stop] for start, stop in factors.runs]
        torch.cat(plain, out=factors.uncompressed)
    if is_new:
        state.randomize([q for each in factors.groups for q in _drawn_together(state, each)])
    matrices = [[gradients[i].view(each.shape) for i in each.positions] for each in factors.groups]
    for each, sources in zip(factors.groups, matrices, strict=True):
        orthogonalize(each.q, state.orthogonalization_epsilon, each.restart)
        _multiply(each.sources or sources, each.q, each.p, state)

    yield AllReduce(factors.wire, group)

    mean = factors.uncompressed.div_(group.size())
    lengths = [stop - start for start, stop in factors.runs]
    for (start, stop), part in zip(factors.runs, mean.split(lengths), strict=True):
        buffer[start:stop].copy_(part)
    for each, sources in zip(factors.groups, matrices, strict=True):
        orthogonalize(each.p, state.orthogonalization_epsilon)
        _multiply(each.sources or sources, each.p, each.q, state, transposed=True)

    if factors.groups:
        yield AllReduce(factors.q, group)

    factors.q.div_(group.size())
    for each, targets in zip(factors.groups, matrices, strict=True):
        for p, q, target in zip(each.p, each.q, targets, strict=True):
            outer(p, q, target)
    if residual is not None:
        residual.sub_(buffer)
    state.forget_factors(bucket.index())
    state.maybe_increase_iter(bucket)
    return buffer


@staged(multi_round=_compresses, floating=True, check=_check)
def batched_powerSGD_hook(  # noqa: N802
    state: PowerSGDState | TorchState, bucket: GradBucketLike
) -> Steps:
    """Average the gradients of the whole bucket as one square matrix of low rank.

    Faster than ``powerSGD_hook`` and less true to the gradients: the square has nothing to do with
    the parameters' shapes.  ``state``: as there; ``min_compression_rate`` and
    ``batch_tensors_with_same_shape`` have no meaning here.
    """
    result = yield from _batched_power_sgd(of_theirs(state), bucket)
    tell_theirs(state)
    return result


def _batched_power_sgd(state: PowerSGDState, bucket: GradBucketLike) -> Steps:
    state.claim(bucket)
    group, buffer = group_of(state), bucket.buffer()
    if not state.compresses:
        return (yield from _averaged(state, bucket))

    index, numel = bucket.index(), buffer.numel()
    side = math.isqrt(max(numel, 1) - 1) + 1
    rank = min(side, state.matrix_approximation_rank)
    if not state.knows_square(bucket, side):
        return (yield from _averaged(state, bucket))
    residual = state.residual_for(index, buffer, side * side)
    padded = residual
    if padded is None:
        padded = torch.nn.functional.pad(buffer, (0, side * side - numel))
    matrix = padded.view(side, side)
    p, q, restart, is_new = state.square_factors(index, buffer, side, rank)
    if is_new:
        state.randomize([q])
    state.count(numel, 2 * side * rank, bucket)
    orthogonalize(q[None], state.orthogonalization_epsilon, restart)
    multiply(matrix, q, p)

    yield AllReduce(p, group)

    orthogonalize(p[None], state.orthogonalization_epsilon)
    multiply(matrix.t(), p, q)

    yield AllReduce(q, group)

    q.div_(group.size())
    # The last row of the bucket may be shorter than a row of the square, and the rest is padding.
    rows = numel // side
    outer(p[:rows], q, buffer[: rows * side].view(rows, side))
    rest = buffer.new_empty((side - rows) * side)
    outer(p[rows:], q, rest.view(side - rows, side))
    buffer[rows * side :].copy_(rest[: numel - rows * side])
    if residual is not None:
        residual[:numel].sub_(buffer)
        residual[numel:].sub_(rest[numel - rows * side :])
    state.forget_factors(index)
    state.maybe_increase_iter(bucket)
    return buffer


def _averaged(state: PowerSGDState, bucket: GradBucketLike) -> Steps:
    """Average a bucket as it is."""
    group = group_of(state)
    state.maybe_increase_iter(bucket)
    return (yield AllReduce(bucket.buffer().div_(group.size()), group))


def _drawn_together(state: PowerSGDState, group: MatrixGroup) -> list[torch.Tensor]:
    """Return the parts of a group's Q in the order in which torch draws their random numbers."""
    return [group.q] if state.batch_tensors_with_same_shape else list(group.q.split(1))


def _multiply(
    matrices: list[torch.Tensor],
    thin: torch.Tensor,
    out: torch.Tensor,
    state: PowerSGDState,
    *,
    transposed: bool = False,
) -> None:
    """Write the product of each matrix (n, m), or of its transpose, and ``thin[i]`` to ``out[i]``.

    ``thin``: (k, m, r), transposed (k, n, r).  ``out``: (k, n, r), transposed (k, m, r).
    """
    if state.batch_tensors_with_same_shape and not out.is_cpu:
        stacked = torch.stack(matrices)
        torch.bmm(stacked.transpose(1, 2) if transposed else stacked, thin, out=out)
        return
    for i, matrix in enumerate(matrices):
        multiply(matrix.t() if transposed else matrix, thin[i], out[i])
