"""What a hook puts on the wire, and how much of the average that may cost.

Float32 of every element loses nothing but rounding, 16-bit numbers lose their rounding, bytes a
tenth.  A hook that sends fewer values than there are gradients, such as a sparse or a low-rank one,
has no such bound.  The least precise material part counts: a reduce-scatter in float32 before an
all-gather in float16 gives float16.  Scales and thresholds are too few to matter.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

import torch

from ...records import Transfer

_EXACT = 1e-5
"""Float32 sums of a few ranks in any order, and a factor or two, stay far below."""

_ROUNDINGS = 2.5
"""Truncation loses twice what rounding does."""

_BYTES = 0.1
"""8-bit floating point with two bits of mantissa: half a unit is 1/8 of the least value."""

_WHOLE = 0.95
_INDICES = ("int64", "int32", "bool")


class WireFormat(NamedTuple):
    """``width``: bytes of each element's value, 4 if exact; 0 if fewer values are sent, or unknown.

    ``dtype``: the least precise material one.  ``bits``: sent for each gradient element, indices
    and all; ``None`` if that is unknown.
    """

    width: int
    dtype: str
    bits: float | None

    def tolerance(self, ranks: int, dtype: torch.dtype = torch.float32) -> float:
        """Return the largest relative L2 error that the format explains; inf without a bound.

        ``ranks``: whose shares are added.  ``dtype``: of the result.
        """
        rounding = _ROUNDINGS * math.sqrt(ranks) / 2  # of shares that are added one by one
        # Of 16-bit integers the coarser of the 16-bit floats says what to expect.
        half = torch.float16 if self.dtype == "float16" else torch.bfloat16
        # With one scale for all ranks there is room for their sum.
        bytes_ = _BYTES * max(1.0, ranks / 4)
        sent = {0: math.inf, 1: bytes_, 2: rounding * torch.finfo(half).eps, 4: 0.0}[self.width]
        return sent + (_EXACT if dtype.itemsize >= 4 else rounding * torch.finfo(dtype).eps)


NOT_KNOWN: Final = WireFormat(0, "unknown", None)
"""What is on the wire if nothing of it was seen."""


def format_of(transfers: Sequence[Transfer], numel: int, ranks: int) -> WireFormat:
    """Return the format of what was sent for ``numel`` gradient elements, all steps together."""
    if not transfers:
        return NOT_KNOWN
    sent: Counter[tuple[str, str]] = Counter()
    for transfer in transfers:
        sent[transfer.dtype.partition("+")[0], transfer.collective] += transfer.wire_bytes
    # Of two kinds of collectives the second one may send the same values on.
    values: dict[str, float] = {}
    for (name, _), count in sent.items():
        values[name] = max(values.get(name, 0.0), count / _itemsize(name) / numel)
    bits = 8 * sent.total() / numel
    values = {name: values[name] for name in values if name not in _INDICES} or values
    if sum(values.values()) < _WHOLE:
        return WireFormat(0, ", ".join(sorted(values)) or "nothing", bits)
    material = [name for name in values if values[name] >= 0.5 / ranks] or list(values)
    dtype = min(material, key=lambda name: (_width(name, values[name]), name != "bfloat16"))
    return WireFormat(_width(dtype, values[dtype]), dtype, bits)


def _width(dtype: str, share: float) -> int:
    """Return how many bytes of a value are sent; bytes may be those of wider numbers."""
    size = 2 if dtype in ("int16", "int32") else _itemsize(dtype)
    return {2: 2, 3: 2}.get(round(share), 4) if size == 1 and share > 1.9 else min(size, 4)


def _itemsize(dtype: str) -> int:
    return int(getattr(torch, dtype, torch.float32).itemsize)
