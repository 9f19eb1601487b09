"""What a hook puts on the wire, and how much of the average that may cost.

    Transfer, of some steps --format_of--> WireFormat --tolerance(ranks)--> relative L2 error

A collective of float32 loses nothing but rounding, one of 16-bit numbers their rounding, one of
bytes a tenth.  A hook that sends fewer values than there are gradients, such as a sparse or a
low-rank one, has no such bound.

The least precise material part counts: a reduce-scatter in float32 before an all-gather in float16
gives float16.  Scales and thresholds are too few to matter.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

import torch

from ...records import Transfer

Kind = Literal["byte", "half", "exact", "less", "unknown"]
"""How much a format can lose; ``less``: fewer values than elements; ``unknown``: nobody tells."""

_EXACT = 1e-5
"""Float32 sums of a few ranks in any order, and a factor or two, stay far below."""

_ROUNDINGS = 2.5
"""Truncation loses twice what rounding does."""

_BYTES = 0.1
"""8-bit floating point with two bits of mantissa: half a unit is 1/8 of the least value."""

_WHOLE = 0.95
_INDICES = ("int64", "int32", "bool")
_ORDER: tuple[Kind, ...] = ("byte", "half", "exact")


@dataclass(frozen=True, slots=True)
class WireFormat:
    """``kind``: how much it can lose.  ``dtype``: the least precise material one.

    ``bits``: sent for each gradient element, indices and all; ``None`` if that is unknown.
    """

    kind: Kind
    dtype: str
    bits: float | None

    @property
    def is_bounded(self) -> bool:
        """Whether the format says how much a result may be off."""
        return self.kind in _ORDER

    def tolerance(self, ranks: int, dtype: torch.dtype = torch.float32) -> float:
        """Return the largest relative L2 error that the format explains; inf without a bound.

        ``ranks``: whose shares are added.  ``dtype``: of the result.
        """
        if not self.is_bounded:
            return math.inf
        bound = _EXACT if dtype.itemsize >= 4 else _rounding(dtype, ranks)
        if self.kind == "half":
            # Of 16-bit integers the coarser of the 16-bit floats says what to expect.
            bound += _rounding(torch.float16 if self.dtype == "float16" else torch.bfloat16, ranks)
        elif self.kind == "byte":
            # With one scale for all ranks there is room for their sum.
            bound += _BYTES * max(1.0, ranks / 4)
        return bound


NOT_KNOWN: Final = WireFormat("unknown", "unknown", None)
"""What is on the wire if neither torch nor hooktrace tells."""


def format_of(transfers: Iterable[Transfer], numel: int, ranks: int) -> WireFormat:
    """Return the format of what was sent for ``numel`` gradient elements, all steps together."""
    sums: Counter[tuple[str, str]] = Counter()
    for transfer in transfers:
        sums[transfer.dtype.partition("+")[0], transfer.collective] += transfer.wire_bytes
    bits = 8 * sum(sums.values()) / numel
    shares: dict[str, float] = {}
    for (dtype, _), wire_bytes in sums.items():
        # Of two kinds of collectives the second one may send the same values on.
        shares[dtype] = max(shares.get(dtype, 0.0), wire_bytes / _itemsize(dtype) / numel)
    values = {name: share for name, share in shares.items() if name not in _INDICES} or shares
    if sum(values.values()) < _WHOLE:
        return WireFormat("less", ", ".join(sorted(shares)) or "nothing", bits)
    material = {name: share for name, share in values.items() if share >= 0.5 / ranks} or values
    kinds = {name: _kind(name, share) for name, share in material.items()}
    dtype = min(kinds, key=lambda name: (_ORDER.index(kinds[name]), name != "bfloat16"))
    return WireFormat(kinds[dtype], dtype, bits)


def _kind(dtype: str, share: float) -> Kind:
    size = _itemsize(dtype)
    # Bytes may be those of wider numbers.
    width = size * (round(share) if size == 1 and share > 1.9 else 1)
    if width >= 4 and dtype not in ("int16", "int32"):
        return "exact"
    return "half" if width >= 2 else "byte"


def _itemsize(dtype: str) -> int:
    found = getattr(torch, dtype, None)
    return found.itemsize if isinstance(found, torch.dtype) else 4


def _rounding(dtype: torch.dtype, ranks: int) -> float:
    """Return the loss of adding the shares of ``ranks`` one after another in a dtype."""
    return _ROUNDINGS * math.sqrt(ranks) * torch.finfo(dtype).eps / 2
