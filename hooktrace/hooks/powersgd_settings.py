"""What PowerSGD's hooks are told and what they count, without what they remember.

    arguments --checked--> PowerSGDSettings   .compresses    plain all-reduce before, low rank after
                                              .randomize     the same random Q on all ranks
                                              .count         what compression saves

Names, arguments and numbers are those of ``torch.distributed.algorithms.ddp_comm_hooks``'
``PowerSGDState``.
"""

from __future__ import annotations

import logging
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from ..staging.groups import require_member
from ..staging.slots import GradBucketLike
from .powersgd_factors import fill

if TYPE_CHECKING:
    import numpy as np

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False, repr=False)
class PowerSGDSettings:
    """The settings of a ``PowerSGDState``, which says what they are; its step and statistics."""

    process_group: dist.ProcessGroup | None
    matrix_approximation_rank: int = 1
    start_powerSGD_iter: int = 1_000  # noqa: N815  # torch's name
    min_compression_rate: float = 2
    use_error_feedback: bool = True
    warm_start: bool = True
    orthogonalization_epsilon: float = 0
    random_seed: InitVar[int] = 0
    compression_stats_logging_frequency: int = 10_000
    batch_tensors_with_same_shape: bool = False
    rng: np.random.RandomState = field(init=False)
    iter: int = field(default=0, init=False)
    total_numel_before_compression: int = field(default=0, init=False)
    total_numel_after_compression: int = field(default=0, init=False)
    next_stats_report: int = field(default=0, init=False)

    def __post_init__(self, random_seed: int) -> None:
        import numpy as np

        require_member("PowerSGDState", "process_group", self.process_group)
        self._check_numbers()
        # torch draws its seeds from this generator; the same draws give the same Q.
        self.rng = np.random.RandomState(random_seed)
        frequency = self.compression_stats_logging_frequency
        self.compression_stats_logging_frequency = max(1, frequency)

    def _check_numbers(self) -> None:
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
        fix = "pass 0, or a small number such as 1e-8"
        _require("orthogonalization_epsilon", epsilon, epsilon >= 0, fix)

    @property
    def compresses(self) -> bool:
        """Whether this step's gradients are compressed."""
        return self.iter >= self.start_powerSGD_iter

    def maybe_increase_iter(self, bucket: GradBucketLike) -> None:
        """Count the step at its last bucket."""
        if bucket.is_last():
            self.iter += 1
            if self.iter == self.start_powerSGD_iter:
                logger.info("PowerSGD begins to compress after %d steps", self.iter)

    def randomize(self, qs: list[torch.Tensor]) -> None:
        """Fill with random numbers that are the same on all ranks and differ from step to step.

        One tensor after another from a generator of its own: torch's global one belongs to the
        training thread.
        """
        generator = torch.Generator().manual_seed(int(self.rng.randint(1_000_000_000)))
        for q in qs:
            fill(q, torch.randn(q.shape, dtype=q.dtype, generator=generator))

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


def _require(name: str, value: object, valid: bool, fix: str) -> None:
    if not valid:
        raise ValueError(f"PowerSGDState: {name}={value} cannot work; {fix}")
