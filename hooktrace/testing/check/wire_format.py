"""What a hook puts on the wire, and how much of the average that may cost.

    Transfer, of some steps --format_of--> WireFormat --tolerance(gradients)--> relative L2 error

A collective of float32 loses nothing but rounding, one of 16-bit numbers their rounding, one of
bytes the distance of 255 levels.  Where fewer values are sent than there are gradients, as by
sparse and low-rank hooks, no such bound exists.

The least precise of all material parts counts: a reduce-scatter in float32 before an all-gather in
float16 gives float16.  Scales and thresholds are too few to matter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch

from ...records import Transfer

Kind = Literal["exact", "half", "byte", "less"]

_EXACT = 1e-5
"""Float32 sums of a few ranks in any order, and a factor or two, stay far below."""

_ROUNDINGS = 2.5
"""Truncation loses twice what rounding does."""

_BYTES = 0.1
"""8-bit floating point with two bits of mantissa: half a unit is 1/8 of the least value."""

_HEADROOM = 3
_WHOLE = 0.95
_INDICES = ("int64", "int32", "bool")
_BITS = {"exact": 32.0, "half": 16.0, "byte": 8.0}


@dataclass(frozen=True, slots=True)
class WireFormat:
    """``kind``: how much it can lose.  ``dtype``: the least precise one of those that matter.

    ``bits``: sent for each gradient element, indices and all.
    """

    kind: Kind
    dtype: str
    bits: float

    @property
    def words(self) -> str:
        """The format in words, for a sentence."""
        if self.kind == "less":
            return f"{self.bits:.2g} bits an element"
        return f"{self.dtype} of every element"

    def tolerance(self, gradients: torch.Tensor, dtype: torch.dtype = torch.float32) -> float:
        """Return the largest relative L2 error that the format explains; inf where none is too big.

        ``gradients``: (ranks, numel).  ``dtype``: of the result.
        """
        bound = _rounding(gradients, dtype) if dtype.itemsize < 4 else _EXACT
        if self.kind == "half":
            bound += _rounding(gradients, _float(self.dtype))
        elif self.kind == "byte":
            bound += max(_BYTES, _HEADROOM * _levels(gradients))
        return float("inf") if self.kind == "less" else bound


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
    kind, dtype = max(
        ((_kind(name, share), name) for name, share in material.items()),
        key=lambda each: (-_BITS[each[0]], each[1] == "bfloat16"),
    )
    return WireFormat(kind, dtype, bits)


def _kind(dtype: str, share: float) -> Kind:
    size = _itemsize(dtype)
    # Bytes may be those of wider numbers.
    width = size * (round(share) if size == 1 and share > 1.9 else 1)
    integers = dtype in ("int16", "int32")
    return "exact" if width >= 4 and not integers else "half" if width >= 2 else "byte"


def _itemsize(dtype: str) -> int:
    found = getattr(torch, dtype, None)
    return found.itemsize if isinstance(found, torch.dtype) else 4


def _float(dtype: str) -> torch.dtype:
    """Return the 16-bit float of the rounding to expect; for integers the coarser one."""
    return torch.float16 if dtype == "float16" else torch.bfloat16


def _rounding(gradients: torch.Tensor, dtype: torch.dtype) -> float:
    """Return what is lost by adding the ranks' shares one after another in a dtype."""
    ranks = len(gradients)
    exact = gradients.sum(0) / ranks
    total = torch.zeros_like(exact, dtype=dtype)
    for gradient in gradients:
        total = total + (gradient / ranks).to(dtype)
    norm = exact.norm().item()
    return _ROUNDINGS * (total.double() - exact).norm().item() / norm if norm else 0.0


def _levels(gradients: torch.Tensor) -> float:
    """Return what 255 levels lose that leave room for the sum of all ranks."""
    exact = gradients.sum(0) / len(gradients)
    spread = (gradients.amax(1) - gradients.amin(1)).mean().item() / 255
    norm = exact.norm().item()
    expected = spread * (len(exact) * len(gradients) / 12) ** 0.5
    return expected / norm if norm else 0.0
