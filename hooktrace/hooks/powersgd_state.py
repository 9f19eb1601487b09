"""What PowerSGD remembers from step to step: its settings, residuals, factors and statistics.

    PowerSGDState    settings and, by bucket index, residual (error feedback), P and Q (warm start)
       .factors(bucket)  --> Factors (powersgd_factors.py): how this bucket's parameters are cut
                             into matrices, with views of P, Q and of the residual

Names, arguments and numbers are those of ``torch.distributed.algorithms.ddp_comm_hooks``'
``PowerSGDState``.  Residuals, P and Q live as long as the layout and are updated in place: nothing
of the size of a bucket is allocated in a step.

Memory belongs to parameters, by their position among all that DDP's first backward pass brings, and
is kept together by bucket.  When the buckets are others than before (a resumed job begins with
DDP's first layout again) it is taken apart and put together anew.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from ..capture.layout import GradBucketLike
from .parameter_order import ParameterOrder
from .powersgd_factors import Factors, Shape, cut, does_not_fit

__all__ = ["PowerSGDState"]

logger = logging.getLogger(__name__)

_DROPPED_BY_PICKLE = ("process_group", "_factors", "_model", "_positions", "_passes")
_PASSES_BEFORE_REBUILD = 3  # with a static graph the buckets of the third backward pass are new


@dataclass(slots=True)
class Memory:
    """What is remembered of one parameter: residual (numel,) and Q (m, r), as far as there are any.

    ``shape``: (n, m) of the matrix, ``None`` where the parameter is not compressed.
    """

    numel: int
    residual: torch.Tensor | None = None
    shape: Shape | None = None
    q: torch.Tensor | None = None


class PowerSGDState:
    """Settings and memory of ``powerSGD_hook`` and ``batched_powerSGD_hook``, for one model.

    ``process_group``: to average over, ``None`` for the default group.
    ``matrix_approximation_rank``: columns of P and Q; compression falls and fidelity grows with it,
    usually 1 to 4.
    ``start_powerSGD_iter``: steps with a plain all-reduce before compression begins.  With error
    feedback or warm start at least 2, since DDP rebuilds its buckets after the first step.
    ``min_compression_rate``: an n x m gradient is compressed where
    ``(n + m) * rank * min_compression_rate < n * m``; all others are averaged as they are.
    ``use_error_feedback``: add what compression lost to the next step's gradient.
    ``warm_start``: start from the last step's Q instead of a random one.
    ``orthogonalization_epsilon``: added to a column's norm before it is divided by it.  Zero
    columns need none here: they give zeros.
    ``random_seed``: for the random Q; the same on all ranks.
    ``compression_stats_logging_frequency``: steps between two log lines with the statistics.
    ``batch_tensors_with_same_shape``: stack matrices of one shape for one batched product, which
    pays on a GPU; on a CPU, where it does not, it only decides how the random Q is drawn.

    As in torch, ``iter`` counts steps, ``error_dict``, ``p_memory_dict`` and ``q_memory_dict`` hold
    the memory by bucket index, and ``total_numel_before_compression`` and
    ``total_numel_after_compression`` count elements; unlike there, a residual is one tensor that is
    updated in place.  Pickling leaves the process group out: the copy uses the default group until
    ``process_group`` is set.  A job that is resumed with the saved state and model goes on as if it
    had not stopped: bit for bit on two ranks, where the parameters' sizes are multiples of 16 (a
    BLAS's sums depend on alignment).  Not so with ``warm_start=False``, where random numbers are
    drawn for each bucket and DDP begins again with other buckets, nor for
    ``batched_powerSGD_hook``, which averages plainly until DDP has its buckets back.

    Raises ``ValueError`` for settings that cannot work.
    """

    __slots__ = (
        "_by_parameter",
        "_factors",
        "_model",
        "_passes",
        "_positions",
        "_squares",
        "batch_tensors_with_same_shape",
        "compression_stats_logging_frequency",
        "error_dict",
        "iter",
        "matrix_approximation_rank",
        "min_compression_rate",
        "next_stats_report",
        "orthogonalization_epsilon",
        "p_memory_dict",
        "process_group",
        "q_memory_dict",
        "rng",
        "start_powerSGD_iter",
        "total_numel_after_compression",
        "total_numel_before_compression",
        "use_error_feedback",
        "warm_start",
    )

    def __init__(  # noqa: PLR0917  # torch's order of arguments
        self,
        process_group: dist.ProcessGroup | None,
        matrix_approximation_rank: int = 1,
        start_powerSGD_iter: int = 1_000,  # noqa: N803  # torch's name
        min_compression_rate: float = 2,
        use_error_feedback: bool = True,
        warm_start: bool = True,
        orthogonalization_epsilon: float = 0,
        random_seed: int = 0,
        compression_stats_logging_frequency: int = 10_000,
        batch_tensors_with_same_shape: bool = False,
    ) -> None:
        import numpy as np

        self.process_group = process_group
        self.matrix_approximation_rank = matrix_approximation_rank
        self.start_powerSGD_iter = start_powerSGD_iter
        self.min_compression_rate = min_compression_rate
        self.use_error_feedback = use_error_feedback
        self.warm_start = warm_start
        self.orthogonalization_epsilon = orthogonalization_epsilon
        self.batch_tensors_with_same_shape = batch_tensors_with_same_shape
        self._check_settings()
        # torch draws its seeds from this generator; the same draws give the same Q.
        self.rng = np.random.RandomState(random_seed)
        self.error_dict: dict[int, torch.Tensor] = {}
        self.p_memory_dict: dict[int, torch.Tensor] = {}
        self.q_memory_dict: dict[int, torch.Tensor] = {}
        self.iter = 0
        self.total_numel_before_compression = 0
        self.total_numel_after_compression = 0
        self.compression_stats_logging_frequency = max(1, compression_stats_logging_frequency)
        self.next_stats_report = 0
        self._by_parameter: dict[int, Memory] = {}
        self._squares: dict[int, list[int]] = {}
        self._begin()

    def _check_settings(self) -> None:
        group, start = self.process_group, self.start_powerSGD_iter
        if group is not None and not isinstance(group, dist.ProcessGroup):
            raise TypeError(
                f"PowerSGDState: process_group is a {type(group).__name__}; "
                "pass a process group, or None for the default one"
            )
        rank = self.matrix_approximation_rank
        _require("matrix_approximation_rank", rank, rank >= 1, "pass 1 or more")
        _require("start_powerSGD_iter", start, start >= 0, "pass 2 or more")
        if start <= 1 and (self.use_error_feedback or self.warm_start):
            raise ValueError(
                f"PowerSGDState: start_powerSGD_iter={start} is too early for error "
                "feedback or warm start, whose memory must not be older than DDP's rebuilt "
                "buckets; pass 2 or more, or turn both off"
            )
        rate = self.min_compression_rate
        _require("min_compression_rate", rate, rate > 0, "pass more than 0, such as 2")
        epsilon = self.orthogonalization_epsilon
        remedy = "pass 0, or a small number such as 1e-8"
        _require("orthogonalization_epsilon", epsilon, epsilon >= 0, remedy)

    def _begin(self) -> None:
        self._factors: dict[int, Factors] = {}
        self._positions: dict[int, list[int]] = {}
        self._model = ParameterOrder()
        self._passes = 0

    def __getstate__(self) -> dict[str, Any]:
        kept = {
            name: getattr(self, name) for name in self.__slots__ if name not in _DROPPED_BY_PICKLE
        }
        return kept | {"_by_parameter": self._taken_apart()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.process_group = None
        self._begin()
        for name, value in state.items():
            setattr(self, name, value)

    @property
    def compresses(self) -> bool:
        """Whether this step's gradients are compressed."""
        return self.iter >= self.start_powerSGD_iter

    def compression_stats(self) -> tuple[float, int, int]:
        """Return (rate, elements before compression, elements after it) over all steps so far."""
        before, after = self.total_numel_before_compression, self.total_numel_after_compression
        return (before / after if after else 0, before, after)

    def maybe_increase_iter(self, bucket: GradBucketLike) -> None:
        """Count the step at its last bucket."""
        if bucket.is_last():
            self.iter += 1
            self._passes += 1
            if self.iter == self.start_powerSGD_iter:
                logger.info("PowerSGD begins to compress after %d steps", self.iter)

    def claim(self, bucket: GradBucketLike) -> None:
        """Check that the bucket belongs to the model that this state has served so far.

        Raises ``ValueError`` for another model's: its residuals and factors would be mixed up.
        """
        if not self._model.owns(bucket):
            raise ValueError(
                "the PowerSGDState belongs to another model already; "
                "make one PowerSGDState for each model"
            )

    def count(self, before: int, after: int, bucket: GradBucketLike) -> None:
        """Add to the statistics, and log them when it is time."""
        self.total_numel_before_compression += before
        self.total_numel_after_compression += after
        if bucket.is_last() and self.iter >= self.next_stats_report:
            rate, total_before, total_after = self.compression_stats()
            logger.info(
                "PowerSGD at step %d: %d elements compressed to %d, rate %.1f",
                self.iter, total_before, total_after, rate,
            )  # fmt: skip
            self.next_stats_report = self.iter + self.compression_stats_logging_frequency

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
        by_shape: dict[Shape | None, list[Memory]] = {}
        for memory in found:
            by_shape.setdefault(memory.shape, []).append(memory)
        by_shape.pop(None, None)
        qs = [m.q for memories in by_shape.values() for m in memories if m.q is not None]
        residuals = [m.residual for m in found if m.residual is not None]
        for parts, kept in ((residuals, self.error_dict), (qs, self.q_memory_dict)):
            kept.pop(index, None)
            if parts:
                kept[index] = torch.cat([part.flatten() for part in parts])

    def _taken_apart(self) -> dict[int, Memory]:
        """Return what is remembered, by parameter; what no bucket has asked for yet included."""
        apart = dict(self._by_parameter)
        for index, known in self._factors.items():
            positions = self._positions[index]
            residuals: Any = [None] * len(positions)
            if known.residual is not None:
                residuals = known.residual.split(known.numels)
            for position, numel, residual in zip(positions, known.numels, residuals, strict=True):
                apart[position] = Memory(numel=numel, residual=residual)
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

    def randomize(self, qs: list[torch.Tensor]) -> None:
        """Fill with random numbers that are the same on all ranks and differ from step to step.

        One tensor after another from a generator of its own: torch's global one belongs to the
        training thread.
        """
        generator = torch.Generator().manual_seed(int(self.rng.randint(1_000_000_000)))
        for q in qs:
            q.copy_(torch.randn(q.shape, dtype=q.dtype, generator=generator))

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
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return P and Q of a bucket that is one square matrix, each of shape (side, rank)."""
        p, q = self.p_memory_dict.get(index), self.q_memory_dict.get(index)
        if p is None or q is None:
            p, q = buffer.new_empty(side, rank), buffer.new_empty(side, rank)
            self.randomize([q])
        p, q = p.to(buffer.device), q.to(buffer.device)
        self.p_memory_dict[index], self.q_memory_dict[index] = p, q
        return p, q

    def forget_factors(self, index: int) -> None:
        """Without warm start, P and Q are worth nothing after the step."""
        if not self.warm_start:
            self.p_memory_dict.pop(index, None)
            self.q_memory_dict.pop(index, None)


def _require(name: str, value: object, valid: bool, remedy: str) -> None:
    if not valid:
        raise ValueError(f"PowerSGDState: {name}={value} cannot work; {remedy}")
