"""8-bit quantisation: each rank's gradients as bytes with scales, gathered and added by everyone.

    gradients --> [scales | zero points | bytes]      compress
                  all-gather                          wire
                  sum over ranks of scale * (byte - zero point), / ranks      decompress

The formulas are those of torch's hooks of the same names (affine, unsigned, range widened to hold
0).  There a first all-gather sends scales and zero points and a second one the bytes; nobody needs
the others' scales before the bytes, so here they travel together and one collective does.  Blocks
that fit a core's cache go through all steps of a formula before the next one does (on a CPU;
elsewhere a bucket is one block, for fewer kernels).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ..staging.collectives import AllGather
from ..staging.driver import Steps
from ..staging.groups import group_of
from ..staging.hook import staged
from ..staging.slots import GradBucketLike

_BLOCK = 1 << 17
_HEADER_BYTES = 5  # of a channel: a float32 scale and a zero point
_LEAST_SCALE = torch.finfo(torch.float32).eps
"""As of torch's hooks: of a channel whose range is far below 255 of it nothing is left."""


@staged(floating=True, check=group_of)
def quantization_pertensor_hook(state: Any, bucket: GradBucketLike) -> Steps:
    """Average the gradients as bytes with one scale a bucket and rank.

    Sends numel + 5 bytes, computes in float32, and returns the gradients' own dtype.  The error of
    an element is at most half a scale, which is the bucket's range / 255, and 1.2e-7 at least, as
    of torch's hook.  The state is a process group, ``None`` for the default one.
    """
    return (yield from _quantized(state, bucket, None))


@staged(floating=True, check=group_of)
def quantization_perchannel_hook(
    state: Any, bucket: GradBucketLike, bucket_size: int = 512
) -> Steps:
    """Average the gradients as bytes with one scale for each ``bucket_size`` elements.

    ``bucket_size``: elements of a channel, set with ``bind(bucket_size=...)``; the last channel of
    a bucket has what is left.  (torch's hook pads it, and sends a channel of nothing but padding
    where the length divides evenly.)  Sends numel + 5 bytes a channel; otherwise as
    ``quantization_pertensor_hook``.

    Raises ``ValueError`` for a ``bucket_size`` below 1.
    """
    if bucket_size < 1:
        raise ValueError(f"bucket_size={bucket_size} cannot work; pass 1 or more, such as 512")
    return (yield from _quantized(state, bucket, bucket_size))


def _quantized(state: Any, bucket: GradBucketLike, channel: int | None) -> Steps:
    group, buffer = group_of(state), bucket.buffer()
    numel = buffer.numel()
    if numel == 0:
        return buffer
    payload = buffer.new_empty(encoded_bytes(numel, channel), dtype=torch.uint8)
    encode(buffer, channel, payload)
    gathered = yield AllGather(payload, group)
    decode_sum(gathered, channel, buffer, group.size())
    return buffer


def _channels(numel: int, channel: int | None) -> int:
    return 1 if channel is None else -(-numel // channel)


def encoded_bytes(numel: int, channel: int | None) -> int:
    """Return how many bytes ``numel`` elements take; ``channel``: elements that share a scale."""
    return numel + _HEADER_BYTES * _channels(numel, channel)


def encode(
    values: torch.Tensor,
    channel: int | None,
    payload: torch.Tensor,
    least_scale: float = _LEAST_SCALE,
) -> None:
    """Write scales, zero points and bytes of ``values`` (numel,) to ``payload``.

    ``payload``: uint8 of shape (``encoded_bytes(numel, channel)``,).  ``least_scale``: that no
    scale is below, above 0.
    """
    channels = _channels(values.numel(), channel)
    scales = torch.empty(channels, dtype=torch.float32, device=values.device)
    zeros = torch.empty_like(scales)
    if channel is None:
        low, high = (bound.float() for bound in values.aminmax())
        _parameters(low, high, scales, zeros, least_scale)
    data = payload[_HEADER_BYTES * channels :]
    for (start, block), (_, out) in zip(
        _blocks(values, channel), _blocks(data, channel), strict=True
    ):
        scale, zero = _of_rows(scales, start, block), _of_rows(zeros, start, block)
        if channel is not None:
            # Not aminmax: along a dimension, that one is 15 times slower on a CPU.
            low, high = (bound.float() for bound in (block.amin(1, True), block.amax(1, True)))
            _parameters(low, high, scale, zero, least_scale)
        levels = (block.float() / scale).round_().add_(zero).clamp_(0, 255)
        # By way of int16: both conversions are vectorised, the direct one is not (5 times slower).
        out.copy_(levels.to(torch.int16))
    payload[: 4 * channels] = scales.view(torch.uint8)
    payload[4 * channels : _HEADER_BYTES * channels] = zeros


def decode_sum(
    gathered: torch.Tensor, channel: int | None, out: torch.Tensor, divisor: float
) -> None:
    """Write the sum of ``gathered`` (rows, bytes), over ``divisor``, to ``out`` (numel,)."""
    channels = _channels(out.numel(), channel)
    # A copy even of a single row: one that is not a multiple of 4 bytes long has no float32 view.
    scales = gathered[:, : 4 * channels].clone(memory_format=torch.contiguous_format)
    scales = scales.view(torch.float32)
    zeros = gathered[:, 4 * channels : _HEADER_BYTES * channels].float()
    data = [_blocks(row, channel) for row in gathered[:, _HEADER_BYTES * channels :]]
    for (start, target), *blocks in zip(_blocks(out, channel), *data, strict=True):
        total = None
        for rank, (_, block) in enumerate(blocks):
            zero, scale = _of_rows(zeros[rank], start, block), _of_rows(scales[rank], start, block)
            part = block.float().sub_(zero).mul_(scale)
            total = part if total is None else total.add_(part)
        assert total is not None
        target.copy_(total.div_(divisor))


def _parameters(
    low: torch.Tensor,
    high: torch.Tensor,
    scale: torch.Tensor,
    zero: torch.Tensor,
    least_scale: float,
) -> None:
    """Write the scale, and the byte that means 0, of values between ``low`` and ``high``."""
    low, high = low.clamp(max=0), high.clamp(min=0)
    scale.copy_(((high - low) / 255).clamp(min=least_scale))
    zero.copy_((-torch.round(low / scale)).clamp(0, 255))


def _blocks(flat: torch.Tensor, channel: int | None) -> Iterator[tuple[int, torch.Tensor]]:
    """Cut (numel,) into blocks of shape (channels, channel), with each one's first channel.

    The last channel may be shorter and is then a block of its own.  Without ``channel`` blocks have
    one row of any length, and all are of channel 0.
    """
    block = _BLOCK if flat.device.type == "cpu" else flat.numel()
    if channel is None:
        yield from ((0, part.view(1, -1)) for part in flat.split(block))
        return
    whole = flat.numel() // channel
    first = 0
    if whole:
        for rows in flat[: whole * channel].view(whole, channel).split(max(1, block // channel)):
            yield first, rows
            first += len(rows)
    if whole * channel < flat.numel():
        yield first, flat[whole * channel :].view(1, -1)


def _of_rows(values: torch.Tensor, start: int, block: torch.Tensor) -> torch.Tensor:
    return values[start : start + len(block)].view(-1, 1)
