"""The state of the PowerSGD hooks: settings, the step at which compression begins, statistics.

    arguments --checked--> PowerSGDState   .compresses      plain all-reduce before, low rank after
                                           .randomize       the same random Q on all ranks
                                           .count           what compression saves
                             PowerSGDMemory (powersgd_memory.py)   residuals, P and Q

Names, arguments and numbers are those of ``torch.distributed.algorithms.ddp_comm_hooks``'
``PowerSGDState``.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
import torch.distributed as dist

from ..capture.buckets import GradBucketLike
from ..staging.groups import require_member
from .powersgd_memory import PowerSGDMemory

logger = logging.getLogger(__name__)


class PowerSGDState(PowerSGDMemory):
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
        "batch_tensors_with_same_shape",
        "compression_stats_logging_frequency",
        "iter",
        "next_stats_report",
        "orthogonalization_epsilon",
        "process_group",
        "rng",
        "start_powerSGD_iter",
        "total_numel_after_compression",
        "total_numel_before_compression",
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

        super().__init__(
            rank=matrix_approximation_rank,
            min_compression_rate=min_compression_rate,
            use_error_feedback=use_error_feedback,
            warm_start=warm_start,
        )
        self.process_group = process_group
        self.start_powerSGD_iter = start_powerSGD_iter
        self.orthogonalization_epsilon = orthogonalization_epsilon
        self.batch_tensors_with_same_shape = batch_tensors_with_same_shape
        self._check_settings()
        # torch draws its seeds from this generator; the same draws give the same Q.
        self.rng = np.random.RandomState(random_seed)
        self.iter = 0
        self.total_numel_before_compression = 0
        self.total_numel_after_compression = 0
        self.compression_stats_logging_frequency = max(1, compression_stats_logging_frequency)
        self.next_stats_report = 0

    def _check_settings(self) -> None:
        require_member("PowerSGDState", "process_group", self.process_group)
        start = self.start_powerSGD_iter
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

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"process_group": None}

    @property
    def compresses(self) -> bool:
        """Whether this step's gradients are compressed."""
        return self.iter >= self.start_powerSGD_iter

    def maybe_increase_iter(self, bucket: GradBucketLike) -> None:
        """Count the step at its last bucket."""
        if bucket.is_last():
            self.iter += 1
            self._passes += 1
            if self.iter == self.start_powerSGD_iter:
                logger.info("PowerSGD begins to compress after %d steps", self.iter)

    def randomize(self, qs: list[torch.Tensor]) -> None:
        """Fill with random numbers that are the same on all ranks and differ from step to step.

        One tensor after another from a generator of its own: torch's global one belongs to the
        training thread.
        """
        generator = torch.Generator().manual_seed(int(self.rng.randint(1_000_000_000)))
        for q in qs:
            q.copy_(torch.randn(q.shape, dtype=q.dtype, generator=generator))

    def compression_stats(self) -> tuple[float, int, int]:
        """Return (rate, elements before compression, elements after it) over all steps so far."""
        before, after = self.total_numel_before_compression, self.total_numel_after_compression
        return (before / after if after else 0, before, after)

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


def _require(name: str, value: object, valid: bool, remedy: str) -> None:
    if not valid:
        raise ValueError(f"PowerSGDState: {name}={value} cannot work; {remedy}")
