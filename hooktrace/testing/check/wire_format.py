"""What a hook puts on the wire, and how much of the average that may cost.

A collective of float32 loses nothing but rounding, one of 16-bit numbers their rounding, one of
bytes a tenth.  A hook that sends fewer values than there are gradients, such as a sparse or a
low-rank one, has no such bound.  The least precise material part counts: a reduce-scatter in
float32 before an all-gather in float16 gives float16.  Scales and thresholds are too few to matter.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
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

    @property
    def is_bounded(self) -> bool:
        """Whether the format says how much a result may be off."""
        return self.width > 0

    def tolerance(self, ranks: int, dtype: torch.dtype = torch.float32) -> float:
        """Return the largest relative L2 error that the format explains; inf without a bound.

        ``ranks``: whose shares are added.  ``dtype``: of the result.
        """
        if not self.is_bounded:
            return math.inf
        bound = _EXACT if dtype.itemsize >= 4 else _rounding(dtype, ranks)
        if self.width == 2:
            # Of 16-bit integers the coarser of the 16-bit floats says what to expect.
            bound += _rounding(torch.float16 if self.dtype == "float16" else torch.bfloat16, ranks)
        elif self.width == 1:
            # With one scale for all ranks there is room for their sum.
            bound += _BYTES * max(1.0, ranks / 4)
        return bound


NOT_KNOWN: Final = WireFormat(0, "unknown", None)
"""What is on the wire if neither torch nor hooktrace tells."""


def format_of(transfers: Iterable[Transfer], numel: int, ranks: int) -> WireFormat:
    """Return the format of what was sent for ``numel`` gradient elements, all steps together."""
    sent: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for transfer in transfers:
        sent[transfer.dtype.partition("+")[0]][transfer.collective] += transfer.wire_bytes
    bits = 8 * sum(sum(by.values()) for by in sent.values()) / numel
    # Of two kinds of collectives the second one may send the same values on.
    shares = {name: max(by.values()) / _itemsize(name) / numel for name, by in sent.items()}
    values = {name: share for name, share in shares.items() if name not in _INDICES} or shares
    if sum(values.values()) < _WHOLE:
        return WireFormat(0, ", ".join(sorted(shares)) or "nothing", bits)
    material = {name: share for name, share in values.items() if share >= 0.5 / ranks} or values
    widths = {name: _width(name, share) for name, share in material.items()}
    dtype = min(widths, key=lambda name: (widths[name], name != "bfloat16"))
    return WireFormat(widths[dtype], dtype, bits)


def _width(dtype: str, share: float) -> int:
    """Return how many bytes of a value are sent; bytes may be those of wider numbers."""
    size = _itemsize(dtype)
    width = size * (round(share) if size == 1 and share > 1.9 else 1)
    return 2 if dtype in ("int16", "int32") or 2 <= width < 4 else min(width, 4)


def _itemsize(dtype: str) -> int:
    found = getattr(torch, dtype, None)
    return found.itemsize if isinstance(found, torch.dtype) else 4


def _rounding(dtype: torch.dtype, ranks: int) -> float:
    """Return the loss of adding the shares of ``ranks`` one after another in a dtype."""
    return _ROUNDINGS * math.sqrt(ranks) * torch.finfo(dtype).eps / 2
