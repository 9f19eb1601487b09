"""Buckets that DDP did not make: ``torch.distributed.GradBucket`` has no constructor.

``FlatBucket`` is all that a hook asks of one, ``Payload`` what a slot takes of a unit's collective.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch


class FlatBucket:
    """Parameters of one dtype and device, whose gradients are views of a given flat buffer."""

    def __init__(
        self, parameters: Sequence[torch.Tensor], buffer: torch.Tensor, index: int, is_last: bool
    ) -> None:
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


class Shape:
    """Stands for a parameter, which nothing here may hold."""

    __slots__ = ("shape",)

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape


class Payload(NamedTuple):
    """What a sharded model's unit gives to a collective, and the shapes of its parameters."""

    tensor: torch.Tensor
    shapes: Sequence[Shape]

    def buffer(self) -> torch.Tensor:
        """Return the payload, shape (numel,)."""
        return self.tensor

    def parameters(self) -> Sequence[Shape]:
        """Return what has the parameters' shapes."""
        return self.shapes
