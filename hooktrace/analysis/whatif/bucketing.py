"""Which gradients share a bucket: DDP's own rule, for any cap.

    bucket_cap_mb --bucket_limits--> first limit, limit of the others
    sizes and dtypes, limits --assign_buckets--> buckets, as torch assigns them
    parameters in the order in which their gradients are ready --rebuilt_buckets--> buckets of a run

The rule is ``compute_bucket_assignment_by_size`` of torch's ``reducer.cpp`` (Li et al., PyTorch
Distributed, VLDB 2020, section 3.2.3, says why): gradients of one dtype fill a bucket until it has
reached its limit, so that a bucket is larger than its limit by up to one gradient.  DDP assigns
buckets twice: when it is made, and after the first backward pass, in the order that it saw.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence

from ...records.errors import UsageError
from .work import Parameter

MEBIBYTE = 1 << 20
DEFAULT_CAP_MB = 25
DEFAULT_FIRST_BUCKET_BYTES = MEBIBYTE


def bucket_limits(cap_mb: float | None) -> tuple[int, int]:
    """Return the limits in bytes of the first rebuilt bucket and of the others.

    ``cap_mb``: as ``DistributedDataParallel(bucket_cap_mb=...)`` takes it, in MiB.  ``None``, its
    default, makes the first bucket smaller, so that communication begins sooner; a given cap holds
    for all buckets.  Raises ``UsageError`` for a cap that is not above 0.
    """
    if cap_mb is None:
        return DEFAULT_FIRST_BUCKET_BYTES, DEFAULT_CAP_MB * MEBIBYTE
    if not cap_mb > 0:
        raise UsageError(f"a bucket cap of {cap_mb:g} MB holds nothing; pass one above 0, as 25")
    cap = int(cap_mb * MEBIBYTE)
    return cap, cap


def rebuilt_buckets(
    parameters: Sequence[Parameter], cap_bytes: int, first_bytes: int
) -> list[list[int]]:
    """Return the buckets after the first backward pass: rows of ``parameters``, first bucket first.

    ``parameters``: in the order in which their gradients became ready.  ``cap_bytes`` and
    ``first_bytes``: see ``bucket_limits``.
    """
    return assign_buckets(
        [one.nbytes for one in parameters],
        [one.dtype for one in parameters],
        [first_bytes, cap_bytes],
    )


def assign_buckets(
    sizes: Sequence[int], dtypes: Sequence[Hashable], limits: Sequence[int]
) -> list[list[int]]:
    """Return rows of ``sizes`` bucket by bucket, exactly as torch assigns tensors to buckets.

    ``sizes``: bytes, in the order in which gradients are ready; buckets come in the order in which
    they are full.  ``dtypes``: buckets hold one dtype each (torch: and one device).  ``limits``: in
    bytes; each dtype's first bucket takes the first, its second the second, and so on; the last one
    holds for the rest.

    >>> assign_buckets([6, 6, 6, 6], ["float32"] * 4, [5, 10])
    [[0], [1, 2], [3]]
    """
    full: list[list[int]] = []
    filling: defaultdict[Hashable, _Filling] = defaultdict(_Filling)
    for row, (size, dtype) in enumerate(zip(sizes, dtypes, strict=True)):
        bucket = filling[dtype]
        bucket.add(row, size)
        if bucket.size >= limits[min(bucket.filled, len(limits) - 1)]:
            full.append(bucket.empty())
    # Reversed: torch keeps them in a map of the C++ library, which begins with the last one.
    return full + [bucket.rows for bucket in reversed(filling.values()) if bucket.rows]


class _Filling:
    """The bucket of one dtype that is being filled, and how many were filled before it."""

    __slots__ = ("filled", "rows", "size")

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.size = 0
        self.filled = 0

    def add(self, row: int, size: int) -> None:
        self.rows.append(row)
        self.size += size

    def empty(self) -> list[int]:
        rows, self.rows, self.size = self.rows, [], 0
        self.filled += 1
        return rows
