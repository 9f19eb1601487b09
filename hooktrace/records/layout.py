"""The buckets of a model: which parameters share one, by bucket generation."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BucketLayout", "LayoutRecord"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketLayout:
    """One bucket of a layout.

    ``parameters`` holds (name, shape); without ``instrument()`` the name is ``index.position``.
    """

    bucket: int
    dtype: str
    device_type: str
    numel: int
    gradient_bytes: int
    parameters: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutRecord:
    """The buckets of one generation: DDP rebuilds them after the first backward, in a new order."""

    model: str
    hook: str
    generation: int
    step: int
    time_ns: int
    buckets: tuple[BucketLayout, ...]
