"""What PowerSGD remembers of one model from step to step, by bucket and by parameter.

    bucket --claim--> is it of this model?   --recall--> residual, P and Q of its parameters
           --residual_for, factors, square--> tensors that the hook updates in place

Residuals, P and Q live as long as the layout: nothing of the size of a bucket is allocated in a
step.  They belong to parameters, by their position among all that DDP's first backward pass brings,
and are kept together by bucket.  When the buckets are others than before (a resumed job begins with
DDP's first layout again) they are taken apart and put together anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ..capture.buckets import GradBucketLike
from .parameter_order import ParameterOrder
from .powersgd_factors import Factors, Shape, cut, does_not_fit

_OF_THIS_JOB = ("_factors", "_model", "_passes", "_positions")
"""What is not pickled, but begins anew."""

_PASSES_BEFORE_REBUILD = 3  # with a static graph the buckets of the third backward pass are new


@dataclass(slots=True)
class ParameterMemory:
    """What is remembered of one parameter: residual (numel,) and Q (m, r), as far as there are any.

    ``shape``: (n, m) of the matrix, ``None`` where the parameter is not compressed.
    """

    numel: int
    residual: torch.Tensor | None = None
    shape: Shape | None = None
    q: torch.Tensor | None = None


class PowerSGDMemory:
    """The part of a ``PowerSGDState`` that remembers.

    As in torch, ``error_dict``, ``p_memory_dict`` and ``q_memory_dict`` hold residuals, P and Q by
    bucket index.  ``matrix_approximation_rank``, ``min_compression_rate``, ``use_error_feedback``
    and ``warm_start``: see ``PowerSGDState``.
    """

    __slots__ = (
        "_by_parameter",
        "_factors",
        "_model",
        "_passes",
        "_positions",
        "_squares",
        "error_dict",
        "matrix_approximation_rank",
        "min_compression_rate",
        "p_memory_dict",
        "q_memory_dict",
        "use_error_feedback",
        "warm_start",
    )

    def __init__(
        self, *, rank: int, min_compression_rate: float, use_error_feedback: bool, warm_start: bool
    ) -> None:
        self.matrix_approximation_rank = rank
        self.min_compression_rate = min_compression_rate
        self.use_error_feedback = use_error_feedback
        self.warm_start = warm_start
        self.error_dict: dict[int, torch.Tensor] = {}
        self.p_memory_dict: dict[int, torch.Tensor] = {}
        self.q_memory_dict: dict[int, torch.Tensor] = {}
        self._by_parameter: dict[int, ParameterMemory] = {}
        self._squares: dict[int, list[int]] = {}
        self._begin()

    def _begin(self) -> None:
        self._factors: dict[int, Factors] = {}
        self._positions: dict[int, list[int]] = {}
        self._model = ParameterOrder()
        self._passes = 0

    def __getstate__(self) -> dict[str, Any]:
        names = [name for kind in type(self).__mro__ for name in getattr(kind, "__slots__", ())]
        kept = {name: getattr(self, name) for name in names if name not in _OF_THIS_JOB}
        return kept | {"_by_parameter": self._taken_apart()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._begin()
        for name, value in state.items():
            setattr(self, name, value)

    def claim(self, bucket: GradBucketLike) -> None:
        """Check that the bucket belongs to the model that this state has served so far.

        Raises ``ValueError`` for another model's: its residuals and factors would be mixed up.
        """
        if not self._model.owns(bucket):
            raise ValueError(
                "the PowerSGDState belongs to another model already; "
                "make one PowerSGDState for each model"
            )

    def recall(self, bucket: GradBucketLike) -> None:
        """Put the memory of the bucket's parameters together, if it was kept in other buckets."""
        index, positions = bucket.index(), self._model.positions(bucket)
        if self._positions.get(index, positions) != positions:
            self._by_parameter = self._taken_apart()
            self._factors, self._positions = {}, {}
            self.error_dict, self.p_memory_dict, self.q_memory_dict = {}, {}, {}
        self._positions[index] = positions
        if positions[0] not in self._by_parameter:
            return
        try:
            found = [self._by_parameter.pop(position) for position in positions]
        except KeyError:
            raise does_not_fit(index) from None
        for gradient, memory in zip(bucket.gradients(), found, strict=True):
            if memory.numel != gradient.numel():
                raise does_not_fit(index)
        by_shape: dict[Shape | None, list[ParameterMemory]] = {}
        for memory in found:
            by_shape.setdefault(memory.shape, []).append(memory)
        by_shape.pop(None, None)
        qs = [m.q for memories in by_shape.values() for m in memories if m.q is not None]
        residuals = [m.residual for m in found if m.residual is not None]
        for parts, kept in ((residuals, self.error_dict), (qs, self.q_memory_dict)):
            kept.pop(index, None)
            if parts:
                kept[index] = torch.cat([part.flatten() for part in parts])

    def _taken_apart(self) -> dict[int, ParameterMemory]:
        """Return what is remembered, by parameter; what no bucket has asked for yet included."""
        apart = dict(self._by_parameter)
        for index, known in self._factors.items():
            positions = self._positions[index]
            residuals: Any = [None] * len(positions)
            if known.residual is not None:
                residuals = known.residual.split(known.numels)
            for position, numel, residual in zip(positions, known.numels, residuals, strict=True):
                apart[position] = ParameterMemory(numel=numel, residual=residual)
            for group in known.groups:
                for i, q in zip(group.positions, group.q, strict=True):
                    memory = apart[positions[i]]
                    memory.shape, memory.q = group.shape, q if self.warm_start else None
        return apart

    def residual_for(self, index: int, buffer: torch.Tensor, numel: int) -> torch.Tensor | None:
        """Return the residual of a bucket with this step's gradients added; ``None`` without.

        ``buffer``: the flat gradients.  ``numel``: length of the residual, from the buffer's on.
        """
        if not self.use_error_feedback:
            return None
        residual = self.error_dict.get(index)
        if residual is None:
            residual = self.error_dict[index] = buffer.new_zeros(numel)
        if residual.device != buffer.device:  # it was loaded to another one
            residual = self.error_dict[index] = residual.to(buffer.device)
        if residual.numel() != numel:
            raise does_not_fit(index)
        residual[: buffer.numel()].add_(buffer)
        return residual

    def factors(
        self, bucket: GradBucketLike, residual: torch.Tensor | None
    ) -> tuple[Factors, bool]:
        """Return how a bucket is compressed, and whether its Q must be filled anew."""
        index, buffer = bucket.index(), bucket.buffer()
        known = self._factors.get(index)
        q = self.q_memory_dict.get(index) if self.warm_start else None
        fits = (
            known is not None
            and known.residual is residual
            and known.numel_before == buffer.numel()
            and known.wire.dtype is buffer.dtype
            and (q is None or q is known.q)
        )
        if not fits:
            known = self._factors[index] = cut(
                bucket,
                residual,
                q,
                rank=self.matrix_approximation_rank,
                min_compression_rate=self.min_compression_rate,
            )
        assert known is not None
        self.p_memory_dict[index], self.q_memory_dict[index] = known.p, known.q
        return known, q is None

    def forget_factors(self, index: int) -> None:
        """Without warm start, P and Q are worth nothing after the step."""
        if not self.warm_start:
            self.p_memory_dict.pop(index, None)
            self.q_memory_dict.pop(index, None)

    def knows_square(self, bucket: GradBucketLike, side: int) -> bool:
        """Return whether what is remembered of a bucket as one square is of the same parameters.

        It is not in the first backward passes of a resumed job, until DDP has rebuilt its buckets.
        Raises ``ValueError`` where it still is not after that, and for another model's memory.
        """
        index, positions = bucket.index(), self._model.positions(bucket)
        q = self.q_memory_dict.get(index)
        fits = self._squares.setdefault(index, positions) == positions
        if fits and q is not None and len(q) != side:
            raise does_not_fit(index)
        if not fits and self._passes >= _PASSES_BEFORE_REBUILD:
            raise does_not_fit(index)
        return fits

    def square_factors(
        self, index: int, buffer: torch.Tensor, side: int, rank: int
    ) -> tuple[torch.Tensor, torch.Tensor, bool]:
        """Return P and Q of a bucket that is one square, and whether Q must be filled anew.

        Each is of shape (side, rank).
        """
        p, q = self.p_memory_dict.get(index), self.q_memory_dict.get(index)
        is_new = p is None or q is None
        if p is None or q is None:
            p, q = buffer.new_empty(side, rank), buffer.new_empty(side, rank)
        p, q = p.to(buffer.device), q.to(buffer.device)
        self.p_memory_dict[index], self.q_memory_dict[index] = p, q
        return p, q, is_new
