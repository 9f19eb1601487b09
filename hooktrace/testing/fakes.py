"""Stand-ins for unit tests of hooks: no process group, no DDP, no time that passes by itself."""

from __future__ import annotations

from collections.abc import Sequence

import torch


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


class FakeBucket:
    """A ``GradBucket``, which has no constructor, with given parameters and gradients of zero.

    ``parameters``: tensors of one dtype and device; the buffer is as long as all of them and the
    gradients are views of it.
    """

    def __init__(
        self, parameters: Sequence[torch.Tensor], index: int = 0, *, is_last: bool = True
    ) -> None:
        numel, first = sum(p.numel() for p in parameters), parameters[0]
        buffer = torch.zeros(numel, dtype=first.dtype, device=first.device)
        self._parameters = list(parameters)
        self._buffer = buffer
        self._index = index
        self._is_last = is_last

    def index(self) -> int:
        """Return the bucket's index."""
        return self._index

    def is_last(self) -> bool:
        """Return whether this is the last bucket of the backward pass."""
        return self._is_last

    def buffer(self) -> torch.Tensor:
        """Return the flat gradients, shape (numel,)."""
        return self._buffer

    def set_buffer(self, tensor: torch.Tensor) -> None:
        """Replace the flat gradients; as in DDP, only this Python object sees it."""
        self._buffer = tensor

    def parameters(self) -> list[torch.Tensor]:
        """Return the parameters."""
        return self._parameters

    def gradients(self) -> list[torch.Tensor]:
        """Return views of the buffer in the parameters' shapes."""
        parts = self._buffer.split([p.numel() for p in self._parameters])
        return [part.view(p.shape) for part, p in zip(parts, self._parameters, strict=True)]
