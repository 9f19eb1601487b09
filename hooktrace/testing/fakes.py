"""Stand-ins for unit tests of hooks: no process group, no DDP, no time that passes by itself."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..staging.slots import FlatBucket


class FakeClock:
    """A clock that counts: each reading is ``step_ns`` after the one before."""

    def __init__(self, start_ns: int = 0, step_ns: int = 1) -> None:
        self.now_ns = start_ns
        self.step_ns = step_ns

    def __call__(self) -> int:
        """Return the time and go on by a step."""
        now = self.now_ns
        self.now_ns += self.step_ns
        return now

    def advance(self, ns: int) -> None:
        """Let ``ns`` pass."""
        self.now_ns += ns


class FakeBucket(FlatBucket):
    """A ``GradBucket`` with given parameters, whose gradients are all zero.

    ``parameters``: tensors of one dtype and device; the buffer is as long as all of them and the
    gradients are views of it.
    """

    def __init__(
        self, parameters: Sequence[torch.Tensor], index: int = 0, *, is_last: bool = True
    ) -> None:
        numel, first = sum(p.numel() for p in parameters), parameters[0]
        buffer = torch.zeros(numel, dtype=first.dtype, device=first.device)
        super().__init__(parameters, buffer, index, is_last)
