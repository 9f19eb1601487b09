"""The buckets of a model: which parameters share one, by bucket generation."""

from __future__ import annotations

import msgspec

from .quantities import Count, Ns, Record


class BucketLayout(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One bucket of a layout.

    ``parameters`` holds (name, shape); without ``instrument()`` the name is ``index.position``.
    """

    bucket: Count
    dtype: str
    device_type: str
    numel: Count
    gradient_bytes: Count
    parameters: tuple[tuple[str, tuple[Count, ...]], ...]


class LayoutRecord(Record, frozen=True, kw_only=True, tag="layout"):
    """The buckets of one generation: DDP rebuilds them after the first backward, in a new order."""

    model: str
    hook: str
    generation: Count
    step: Count
    time_ns: Ns
    buckets: tuple[BucketLayout, ...]
