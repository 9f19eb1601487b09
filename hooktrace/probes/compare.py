"""How far a hook's result is from the reference: pure functions of two flat tensors.

    result, reference (numel,) --measure--> sums by parameter --numbers--> ErrorRecord

With x the result, r the reference and d = x - r, over a bucket or over one parameter's part of it:

- relative L2 error: |d| / |r|, as in Vogels et al., PowerSGD, arXiv 1905.13727
- cosine similarity: <x, r> / (|x| |r|)
- maximum absolute error: max |d|
- flipped signs: share of elements with x r < 0

Sums are taken in float64, over blocks that fit a cache, so the memory of a block is all they need.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ..records import ErrorRecord
from ..staging.slots import BucketSlot

_BLOCK = 1 << 16


def measure(result: torch.Tensor, reference: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
    """Return the sums of each part of two flat tensors of one length and device.

    ``lengths``: elements of each part, one a parameter; they add up to the tensors' length.
    Returns float64 of shape (parts, 7) on the same device: d.d, r.r, x.x, x.r, max |d|, flips, and
    max |r|.
    """
    rows, size = [], _block_of(result)
    parts = zip(result.split(list(lengths)), reference.split(list(lengths)), strict=True)
    for x_part, r_part in parts:
        row = torch.zeros(7, dtype=torch.float64, device=result.device)
        for x_block, r_block in zip(x_part.split(size), r_part.split(size), strict=True):
            x, r = x_block.double(), r_block.double()
            d = x - r
            row[0] += d.dot(d)
            row[1] += r.dot(r)
            row[2] += x.dot(x)
            row[3] += x.dot(r)
            if len(d):
                row[4] = torch.maximum(row[4], d.abs_().max())
                row[6] = torch.maximum(row[6], r.abs().max())
            # Not in place: of a float64 tensor x is the result itself, which DDP is to have.
            row[5] += (x * r).lt(0).sum()
        rows.append(row)
    return torch.stack(rows) if rows else result.new_zeros((0, 7), dtype=torch.float64)


def numbers(sums: Sequence[Sequence[float]], numel: int) -> ErrorRecord:
    """Return the error of parts taken together, from their rows of ``measure`` as floats.

    ``numel``: elements of the parts.  Where both norms are 0 the relative error is 0 and the cosine
    1; where only the reference's is, inf and 0; ``None`` where NaN or inf make it meaningless.
    """
    dd, rr, xx, xr = (sum(row[i] for row in sums) for i in range(4))
    largest = max((row[4] for row in sums), default=0.0)
    flips = sum(row[5] for row in sums)
    if not math.isfinite(dd + rr + xx + xr):
        return ErrorRecord(
            relative_l2=None, cosine=None, max_absolute=None, flipped_share=None,
            reference_l2=math.sqrt(rr) if math.isfinite(rr) else None,
        )  # fmt: skip
    if rr > 0:
        relative = math.sqrt(dd / rr)
        cosine = xr / math.sqrt(xx) / math.sqrt(rr) if xx > 0 else 0.0
    else:
        relative, cosine = (0.0, 1.0) if xx == 0 else (math.inf, 0.0)
    return ErrorRecord(
        relative_l2=relative,
        cosine=max(-1.0, min(1.0, cosine)),
        max_absolute=largest,
        flipped_share=flips / numel if numel else 0.0,
        reference_l2=math.sqrt(rr),
    )


def compared(
    result: torch.Tensor,
    reference: torch.Tensor,
    lengths: Sequence[int],
    residual: torch.Tensor | None,
) -> dict[str, torch.Tensor]:
    """Return what a ``ProbeResult`` has of a result and its reference, by the names there.

    ``residual``: what error feedback keeps of them; ``None``: there is none.
    """
    found = {"sums": measure(result, reference, lengths)}
    if residual is not None:
        found["residual_square"] = square_sum(residual)
    return found


def wide_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of 32 bits an element or more, in which a reference is reduced.

    An average that is rounded itself cannot tell what rounding costs.
    """
    return tensor.detach().to(torch.promote_types(tensor.dtype, torch.float32), copy=True)


def has_parts(slot: BucketSlot) -> bool:
    """Return whether parameters are parts of their bucket; no sparse one, and no complex, is."""
    return slot.is_dense and sum(lengths_of(slot.parameters)) == slot.numel


def lengths_of(parameters: Sequence[tuple[str, tuple[int, ...]]]) -> list[int]:
    """Return the number of elements of each parameter, given by name and shape."""
    return [math.prod(shape) for _, shape in parameters]


def finite_parts(flat: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
    """Return whether each part is free of NaN and inf: bool of shape (parts,).

    ``flat``: (numel,), or (ranks, numel), of whose rows a part has its elements in each.
    """
    return torch.stack([torch.isfinite(part).all() for part in flat.split(list(lengths), dim=-1)])


def square_sum(tensor: torch.Tensor) -> torch.Tensor:
    """Return the sum of squares, float64 of shape (), taken block by block."""
    blocks = tensor.flatten().split(_block_of(tensor))
    return torch.stack([block.double().square().sum() for block in blocks]).sum()


def _block_of(tensor: torch.Tensor) -> int:
    """Return how many elements are worked on at once; on a device each block costs launches."""
    return _BLOCK if tensor.is_cpu else _BLOCK << 3


def digest(result: torch.Tensor) -> torch.Tensor:
    """Return two int64 that differ, but for chance, where two flat results differ in any bit.

    The sums of all words and of all words times their positions, modulo 2^64 (J. Fletcher, An
    arithmetic checksum for serial transmissions, 1982).
    """
    size = result.element_size()
    word = {2: torch.int16, 4: torch.int32, 8: torch.int64}.get(size, torch.uint8)
    sums = torch.zeros(2, dtype=torch.int64, device=result.device)
    start = 0
    for block in result.contiguous().view(word).split(_block_of(result)):
        words = block.long()
        sums[0] += words.sum()
        places = torch.arange(start + 1, start + 1 + len(words), device=result.device)
        sums[1] += (words * places).sum()
        start += len(words)
    return sums
